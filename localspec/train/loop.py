"""Training a head: unrolled steps, as it will draft, against what the target would say."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from localspec.train.distilling import distilled, wanted_distribution
from localspec.train.lessons import Batch, Lessons
from localspec.train.network import Cache, Head
from localspec.train.sizes import LEARNT_SINCE
from localspec.train.state import CHECKPOINT, Clock, Run, write_whole

STEPS = 4
"""Draft steps that are judged."""
_OTHERS = 0.15
"""Share of the places that later steps learn from though no draft reaches them: those behind a wrong token.
What they look like there does not matter, but early on nearly all are such."""
_RATE, _WARM_UP, _LAST_RATE = 1e-3, 30, 0.05
_SHARP = 1.3
"""The target's distribution is sharpened by so much: a draft is the likeliest token."""
_STATE_WEIGHT, _LATER_WEIGHT = 0.3, 0.8
_SAVE_S = 60.0


@dataclass(frozen=True, slots=True)
class Judged:
    """Acceptance on held-out texts, by place of a draft.

    Attributes:
        conditional: of a token, those before it being accepted.
        length: tokens that a pass would emit with a draft of 3, the target's own included.
    """

    conditional: tuple[float, ...]

    @property
    def length(self) -> float:
        """Tokens that a pass would emit with a draft of 3, the target's own included."""
        total, reach = 1.0, 1.0
        for chance in self.conditional[:3]:
            reach *= chance
            total += reach
        return total


class Trainer:
    """A head in training, which goes on where a checkpoint of the run left it.

    Args:
        head: as it begins.
        lessons: what it learns from.
        embeddings: of all tokens, shape [vocabulary, width].
        chosen: tokens that it can draft, shape [drafted vocabulary].
        run: where checkpoints go.

    Attributes:
        steps: that were learnt so far, earlier starts included.
        seconds: that they took, up to the newest checkpoint.
    """

    def __init__(
        self,
        head: Head,
        lessons: Lessons,
        embeddings: NDArray[np.float32],
        chosen: NDArray[np.int64],
        run: Run,
    ) -> None:
        self.head, self._lessons, self._run = head, lessons, run
        self._embeddings = torch.from_numpy(embeddings)
        place = np.full(len(embeddings), -1, np.int64)
        place[chosen] = np.arange(len(chosen))
        self._place = torch.from_numpy(place)
        self._output = head.output.weight.detach().to(torch.bfloat16)
        matrices = [one for one in head.parameters() if one.ndim > 1 and one.requires_grad]
        vectors = [one for one in head.parameters() if one.ndim == 1]
        self._optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": 0.01}, {"params": vectors, "weight_decay": 0.0}],
            lr=_RATE,
            betas=(0.9, 0.95),
        )
        self.steps, self.seconds = 0, 0.0
        self._load()

    def train(self, clock: Clock, show: Callable[[str], None]) -> None:
        """Learn until the clock's time is used up.

        Args:
            clock: of this part of the run.
            show: called with what is at work.
        """
        saved, loss = clock.seconds, 0.0
        while clock.share < 1:
            # Of its own for every round over the texts, so that a run that goes on draws as one that did not.
            random = np.random.default_rng(self.steps)
            for numbers in self._lessons.batches(self._lessons.learnt, random):
                if clock.share >= 1:
                    break
                value = self._learn(self._lessons.batch(numbers, judged=False, random=random), clock.share)
                loss = value if not loss else 0.95 * loss + 0.05 * value
                show(f"step {self.steps}, loss {loss:.2f}")
                clock.tick()
                if clock.seconds - saved > _SAVE_S:
                    saved = self.seconds = clock.seconds
                    self.save()
        self.seconds = clock.seconds
        if self.steps:
            # With a checkpoint no more texts are written.
            self.save()
        clock.tick(save=True)

    def judge(self) -> Judged:
        """Acceptance on the texts that were held out."""
        right, asked = np.zeros(STEPS), np.zeros(STEPS)
        self.head.eval()
        with torch.no_grad():
            for numbers in self._lessons.batches(self._lessons.judged, None):
                _, found = self._unrolled(self._lessons.batch(numbers, judged=True), STEPS)
                right += [one for one, _ in found]
                asked += [one for _, one in found]
        self.head.train()
        return Judged(tuple(float(one / max(of, 1)) for one, of in zip(right, asked, strict=True)))

    # --- inner steps

    def _learn(self, batch: Batch, share: float) -> float:
        rate = _LAST_RATE + (1 - _LAST_RATE) * 0.5 * (1 + math.cos(math.pi * share))
        for group in self._optimizer.param_groups:
            group["lr"] = _RATE * min(1.0, (self.steps + 1) / _WARM_UP) * rate
        steps = sum(share >= since for since in LEARNT_SINCE)
        random = torch.Generator().manual_seed(self.steps)
        loss, _ = self._unrolled(batch, steps, random)
        self._optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_([one for one in self.head.parameters() if one.requires_grad], 1.0)
        self._optimizer.step()
        self.steps += 1
        return float(loss.item())

    def _unrolled(
        self, batch: Batch, steps: int, random: torch.Generator | None = None
    ) -> tuple[Tensor, list[tuple[int, int]]]:
        """The loss of some draft steps, and of each how many tokens were right and were reached.

        Args:
            batch: the texts.
            steps: of a draft.
            random: draws the places beyond a draft's reach that later steps learn from; None for none.
        """
        head, tokens = self.head, batch.states.shape[1]
        cache: Cache = []
        loss = torch.zeros(())
        found: list[tuple[int, int]] = []
        alive: Tensor | None = None
        number = torch.full(batch.counts.shape, -1, dtype=torch.long)
        number[batch.counts] = torch.arange(int(batch.counts.sum()))
        goal = batch.final[batch.counts]
        wanted = wanted_distribution(goal, self._output, _SHARP)
        hard = self._place[batch.likeliest[batch.counts]]
        with torch.autocast("cpu", torch.bfloat16):
            state = head.fc(batch.states).float()
            for step in range(steps):
                following = batch.tokens[:, 1 + step : 1 + step + tokens]
                state = head.step(self._embeddings[following], state, cache, step)
                here = batch.counts[:, 1 + step : 1 + step + tokens]
                reached = here if alive is None else here & alive
                chosen = reached
                if alive is not None and random is not None:
                    chosen = reached | (here & (torch.rand(here.shape, generator=random) < _OTHERS))
                which = number[:, 1 + step : 1 + step + tokens][chosen]
                normed = head.norm(state[chosen])
                one, likeliest = distilled(normed, self._output, wanted[which])
                apart = functional.smooth_l1_loss(normed, goal[which], reduction="sum")
                one = one + _STATE_WEIGHT * apart / max(normed.numel(), 1)
                loss = loss + one * _LATER_WEIGHT**step
                right = torch.zeros_like(here)
                right[chosen] = likeliest == hard[which]
                found.append((int((right & reached).sum()), int(reached.sum())))
                # Drafts are greedy: a step goes on where the text, too, says the likeliest token.
                said = batch.tokens[:, 2 + step : 2 + step + tokens]
                alive = right & reached & (said == batch.likeliest[:, 1 + step : 1 + step + tokens])
        return loss, found

    def save(self) -> None:
        """Write a checkpoint, whole or not at all."""
        state: dict[str, Any] = {
            "head": self.head.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "steps": self.steps,
            "seconds": self.seconds,
        }
        write_whole(self._run.path(CHECKPOINT), lambda path: torch.save(state, path))

    def _load(self) -> None:
        path = self._run.path(CHECKPOINT)
        if path.is_file():
            state = torch.load(path, weights_only=True)
            own = {name: value.shape for name, value in self.head.state_dict().items()}
            if {name: value.shape for name, value in state["head"].items()} != own:
                # Of another version of localspec: the texts stay, the training begins anew.
                return
            self.head.load_state_dict(state["head"])
            self._optimizer.load_state_dict(state["optimizer"])
            self.steps, self.seconds = state["steps"], state["seconds"]
