"""A head tried out: it drafts for its target on the bench's tasks, none of which it has learnt from."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from localspec.bench.prompts import prompt_tokens
from localspec.bench.tasks import load_tasks
from localspec.chat.template import ChatTemplate
from localspec.control import FixedLength
from localspec.cost_presets import CURVES
from localspec.draft_models import DraftModels
from localspec.drafters.none import NoDrafter
from localspec.errors import PromptTooLongError
from localspec.reply import Reply, StopRules
from localspec.runtime.loading import LoadedModel, load
from localspec.sampling import Sampler
from localspec.session import Session
from localspec.stats.metrics import Tally
from localspec.text import ReplyText
from localspec.types import DraftOptions, EngineOptions, SamplingParams

LENGTH = 3
"""Tokens of the drafts that are tried."""
APART = ("chain", "random")
"""Tasks that no head can be good at, and which are reported apart: made-up words, and drawn tokens."""
_TOKENS = 96
_CONTEXT = 2048
_PASSES = 7


@dataclass(frozen=True, slots=True)
class TaskTrial:
    """What became of the drafts of a task.

    Attributes:
        drafted: draft tokens that were verified.
        accepted: how many of them were accepted.
        passes: of the target.
        emitted: tokens, the target's own included.
        drafted_at: for each place, drafts that were at least so long.
        accepted_at: for each place, drafts that were accepted at least so far.
    """

    drafted: int
    accepted: int
    passes: int
    emitted: int
    drafted_at: tuple[int, ...]
    accepted_at: tuple[int, ...]

    @property
    def length(self) -> float:
        """Tokens a pass."""
        return self.emitted / self.passes if self.passes else 0.0


@dataclass(frozen=True, slots=True)
class Trial:
    """A head on the bench's tasks.

    Attributes:
        tasks: by name.
        pass_ratio: T(1 + LENGTH) / T(1) on this machine.
        draft_ratio: what a draft of that length takes, in T(1).
    """

    tasks: Mapping[str, TaskTrial]
    pass_ratio: float
    draft_ratio: float

    @property
    def conditional(self) -> tuple[float, ...]:
        """Acceptance by place, those before it being accepted, over all tasks that are not apart."""
        chosen = [one for name, one in self.tasks.items() if name not in APART]
        reached = [sum(one.drafted_at[0] for one in chosen if one.drafted_at)]
        found: list[float] = []
        for place in range(LENGTH):
            accepted = sum(one.accepted_at[place] for one in chosen if len(one.accepted_at) > place)
            found.append(accepted / reached[-1] if reached[-1] else 0.0)
            reached.append(accepted)
        return tuple(found)

    @property
    def length(self) -> float:
        """Tokens a pass, over all tasks that are not apart."""
        chosen = [one for name, one in self.tasks.items() if name not in APART]
        passes = sum(one.passes for one in chosen)
        return sum(one.emitted for one in chosen) / passes if passes else 0.0

    @property
    def speedup(self) -> float:
        """Predicted for this machine: tokens of a pass over what it and its draft cost."""
        return self.length / (self.pass_ratio + self.draft_ratio)

    @property
    def speedup_on_gpu(self) -> float:
        """The same with a consumer GPU's costs of passes, and the draft as dear as here."""
        return self.length / (CURVES["gpu"].ratio(1 + LENGTH) + self.draft_ratio)


def try_out(
    target: Path, head: Path, threads: int | None, show: Callable[[float, str], None] | None = None
) -> Trial:
    """Have a head draft greedily, three tokens a step, on one prompt of each of the bench's tasks.

    Raises:
        LocalspecError: one of the files cannot be loaded, or does not fit the other.
    """
    member = f"eagle3:{head}"
    draft = DraftOptions(member, LENGTH, policy="fixed", files={member: str(head)})
    options = EngineOptions(context=_CONTEXT, threads=threads, draft=draft)
    loaded = load(target, options)
    models = DraftModels(loaded, options)
    try:
        drafter = models.drafter(member, draft)
        session = Session(loaded.context, loaded.model, drafter=drafter, controller=FixedLength(LENGTH))
        template = ChatTemplate.of(loaded.model)
        found: dict[str, TaskTrial] = {}
        drafting = 0.0
        tasks = load_tasks()
        for number, task in enumerate(tasks):
            if show is not None:
                show(number / len(tasks), f"drafting: {task.name}")
            prompt = prompt_tokens(task.prompts[0], template, loaded.model)
            try:
                tally = _reply(session, prompt)
            except PromptTooLongError:
                continue
            drafting += tally.draft_ns * 1e-9 / max(tally.drafts, 1)
            found[task.name] = TaskTrial(
                tally.drafted, tally.accepted, tally.steps, tally.emitted,
                tuple(tally.drafted_at), tuple(tally.accepted_at),
            )  # fmt: skip
        session.use_drafter(NoDrafter())
        plain, ratio = _passes(loaded)
        return Trial(found, ratio, drafting / max(len(found), 1) / plain)
    finally:
        models.close()
        loaded.close()


def _reply(session: Session, prompt: list[int]) -> Tally:
    session.context.clear()
    session.tokens = []
    session.drafter.close()
    session.prefill(prompt)
    tally = Tally()
    reply = Reply(ReplyText(()))
    for emission in session.reply(Sampler(SamplingParams(temperature=0.0)), StopRules(_TOKENS), reply):
        tally.add(emission.stats)
    return tally


def _passes(loaded: LoadedModel) -> tuple[float, float]:
    """T(1) in seconds, and T(1 + LENGTH) over it; medians of passes in turn."""
    context = loaded.context
    context.clear()
    context.decode([max(loaded.model.bos, 0)] * 64, "none")
    times: dict[int, list[float]] = {1: [], 1 + LENGTH: []}
    for _ in range(_PASSES):
        for width, spent in times.items():
            began = time.perf_counter()
            context.decode([0] * width, "all")
            spent.append(time.perf_counter() - began)
            context.keep(64)
    one, wide = (statistics.median(spent) for spent in times.values())
    return one, wide / one
