"""One prompt answered two ways, one after the other: what is sent, what comes back, what it shows.

Every run has the same seed, sampling and prompt, and a drafter of its own that learns nothing from it
(`localspec.types.Trial`). The order alternates from round to round, A B, B A, so that neither side always
meets the cooler machine.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import replace
from enum import Enum, auto
from pathlib import Path
from statistics import median

from localspec.chat.comparisons import Comparisons, PastComparison, Way
from localspec.errors import StorageError
from localspec.messages import (
    Cancel,
    EngineExited,
    Event,
    Failed,
    Finished,
    Generate,
    PrefillProgress,
    Step,
    Weigh,
    Weighed,
)
from localspec.types import DraftOptions, Trial
from localspec.verify import is_exact
from tui.chat import Chat
from tui.compare_models import ERRAND, Guests
from tui.compare_runs import (
    NAMES,
    SIDES,
    Contender,
    Parting,
    Run,
    asked,
    first_difference,
    promise_of,
    rate_of,
    rounds_of,
    usual_contenders,
)
from tui.conversation import Conversation, reply_stats

LIMIT = 256
"""Tokens of a reply at most, where the user set no limit: what shows a difference without a long wait."""


class Stage(Enum):
    """How far a comparison is."""

    IDLE = auto()
    RUNNING = auto()
    WEIGHING = auto()
    RETURNING = auto()
    DONE = auto()
    STOPPED = auto()
    FAILED = auto()


class Comparison:
    """A comparison, and what it is to be of.

    Args:
        chat: whose engine, model, sampling and conversation are used; it is left as it was.
        past: where the ones that came to an end are kept.
        before: the one before it, whose sides it keeps where the user chose them.

    Attributes:
        contenders: A and B.
        stage: how far it is.
        prompt: what was asked.
        runs: all so far, the one that is written at the end.
        parting: where the replies part, None where they do not.
        trouble: a sentence about what went wrong, else "".
        guests: the models of sides that have one of their own.
        stopping: whether the user has asked it to end.
    """

    def __init__(self, chat: Chat, past: Comparisons, before: Comparison | None = None) -> None:
        self._chat, self._past = chat, past
        self._request: Generate | None = None
        self._order: Iterator[Run] = iter(())
        self._coming: Run | None = None
        self._outcome = Stage.IDLE
        self.guests = Guests(chat, self._model_changed)
        self._id = ""
        self._made_in = _place(chat)
        self.rounds = 0
        self.contenders: tuple[Contender, Contender] = usual_contenders(chat.setup.options)
        self._chosen: bool = False
        if before is not None and before._chosen and before._made_in[0] == self._made_in[0]:
            self.contenders, self._chosen = before.contenders, True
        self.stage = Stage.IDLE
        self.prompt = ""
        self.runs: list[Run] = []
        self.parting: Parting | None = None
        self.trouble = ""
        self.stopping = False

    # --- what the user does

    @property
    def running(self) -> bool:
        """Whether the engine works for it."""
        return self.stage in (Stage.RUNNING, Stage.WEIGHING, Stage.RETURNING)

    @property
    def loading(self) -> str:
        """The model that is being loaded for it, or brought back; "" for none."""
        if self.stage is Stage.RETURNING:
            return self._chat.setup.name
        if self.stage is not Stage.RUNNING or self._coming is None:
            return ""
        model = self.contenders[self._coming.side].model
        return model.name if model else self._chat.setup.name

    @property
    def can_repeat(self) -> bool:
        """Whether another round can be added."""
        return self.stage is Stage.DONE and self._chat.ready

    @property
    def outdated(self) -> bool:
        """Whether the chat has another model by now, or has gone on, or drafts otherwise."""
        return self._made_in != _place(self._chat)

    def choose(self, side: int, contender: Contender) -> None:
        """Another way for a side; what was measured before is of another comparison."""
        if self.running or contender == self.contenders[side]:
            return
        one, other = self.contenders
        self.contenders = (contender, other) if side == 0 else (one, contender)
        self._chosen = True
        self._clear()

    def start(self, prompt: str) -> None:
        """Ask `prompt` both ways: the chat's last message, or one that would come next in it."""
        if not self._chat.ready:
            return
        self._clear()
        self.prompt, self._id = prompt, secrets.token_hex(4)
        messages = asked(self._chat.conversation.history(), prompt)
        self._request = self._chat.reply_request(messages, self._chat.requests.max_tokens or LIMIT)
        self._begin_round()

    def again(self) -> None:
        """One more round of the same."""
        if self.can_repeat:
            self._begin_round()

    def stop(self) -> None:
        """End it; what was said so far stays on the screen."""
        if self.running and not self.stopping and self.stage is not Stage.RETURNING:
            self.stopping = self._chat.desk.send(Cancel())

    def leave(self) -> None:
        """The user goes back to the chat: what runs ends, and nothing more is heard of it."""
        if self.guests.away or self._coming is not None:
            # The chat's model has to come back first.
            self.stop()
        elif self.running:
            self._chat.desk.recall()
            self._end(Stage.STOPPED)

    # --- what it shows

    def latest(self, side: int) -> Run | None:
        """The newest run of a side."""
        return next((run for run in reversed(self.runs) if run.side == side), None)

    def rate(self, side: int) -> float | None:
        """Tokens per second of a side: the median over its whole runs; None before there are any."""
        return rate_of(self.runs, side)

    @property
    def ratios(self) -> list[float]:
        """Speed of B over that of A, for every whole round."""
        found: list[float] = []
        for one, other in rounds_of(self.runs):
            rates = one.tally.tokens_per_second, other.tally.tokens_per_second
            if rates[0] and rates[1]:
                found.append(rates[1] / rates[0])
        return found

    @property
    def ratio(self) -> float | None:
        """Their median; None before a round is whole."""
        ratios = self.ratios
        return median(ratios) if ratios else None

    @property
    def identical(self) -> bool | None:
        """Whether all rounds said the same both ways; None before a round is whole."""
        pairs = rounds_of(self.runs)
        return all(first_difference(*pair) is None for pair in pairs) if pairs else None

    @property
    def same_model(self) -> bool:
        """Whether one model answers both ways."""
        one, other = self.contenders
        return one.model == other.model

    @property
    def promise(self) -> str:
        """What the two rules promise of each other's text: "text", "distribution" or "lossy"."""
        return promise_of(self.contenders, draws=self.draws)

    @property
    def draws(self) -> bool:
        """Whether tokens are drawn, by a seed; else the likeliest is taken."""
        return self._request is not None and self._request.sampling.temperature > 0

    @property
    def request(self) -> Generate | None:
        """What every run asks, but for its number and its way; None before the first."""
        return self._request

    # --- what the engine says

    def take(self, event: Event) -> None:
        """An event of the run at work, or of the weighing after the last one."""
        run = self.runs[-1]
        match event:
            case PrefillProgress():
                run.prompt = event
            case Step(text=text, stats=stats):
                run.text += text
                run.tally.add(stats)
            case Finished(reply=reply):
                way = self.contenders[run.side]
                run.text, run.token_ids = reply.text, reply.token_ids
                run.prompt_s = reply.timings.prompt_s
                run.stats = reply_stats(
                    reply,
                    model=way.model.name if way.model else self._chat.setup.name,
                    draft=way.draft.spec,
                    verify=way.verify,
                    exact=is_exact(way.verify),
                )
                run.whole = reply.finish_reason != "cancelled"
                if run.whole and not self.stopping:
                    self._go_on()
                else:
                    self._end(Stage.STOPPED)
            case Weighed(scores=scores, margin=margin) if self.parting is not None:
                self.parting = replace(self.parting, scores=scores, margin=margin)
                self._conclude()
            case Failed(message=message) if self.stage is Stage.WEIGHING:
                # The replies are there all the same; how far they are apart is not known.
                self.trouble = message
                self._conclude()
            case Failed(message=message):
                self.trouble = message
                self._end(Stage.FAILED)
            case EngineExited(message=message):
                self.trouble = message
                self.guests.lost()
                self._end(Stage.FAILED)
            case _:
                pass

    # --- inner steps

    def _clear(self) -> None:
        self.runs, self.parting, self.trouble = [], None, ""
        self.rounds, self.stage, self.stopping = 0, Stage.IDLE, False
        self.guests = Guests(self._chat, self._model_changed)

    def _begin_round(self) -> None:
        number = self.rounds
        self.rounds += 1
        sides = SIDES if number % 2 == 0 else SIDES[::-1]
        self._order = iter([Run(side, number) for side in sides])
        self.stage, self.parting, self.trouble = Stage.RUNNING, None, ""
        self._go_on()

    def _go_on(self) -> None:
        run = next(self._order, None)
        if run is None:
            self._judge()
            return
        way = self.contenders[run.side]
        if self.guests.has(way):
            self._run(run)
            return
        self._coming = run
        if not self.guests.bring(way):
            self._coming = None
            self._no_engine()

    def _run(self, run: Run) -> None:
        assert self._request is not None  # noqa: S101 - a round has one
        self.runs.append(run)
        way = self.contenders[run.side]
        trial = Trial(way.draft, way.verify)
        self._send(replace(self._request, id=self._chat.desk.new_id(), trial=trial))

    def _model_changed(self, trouble: str) -> None:
        """The model that was to come is there, or another one in its place."""
        run, self._coming = self._coming, None
        self.trouble = self.trouble or trouble
        if run is None:
            # The chat's own is back, or will not come.
            if self.guests.away:
                # The chat shall not be answered by another model than it names.
                self._chat.desk.kill()
            self._end(self._outcome if not trouble else Stage.FAILED, returned=True)
        elif trouble:
            self._end(Stage.FAILED)
        elif self.stopping:
            self._end(Stage.STOPPED)
        else:
            self._run(run)

    def _judge(self) -> None:
        """All rounds are whole: find where they part, and have the model say how far."""
        for pair in rounds_of(self.runs) if self.same_model else ():
            index = first_difference(*pair)
            if index is None:
                continue
            said = [run.token_ids[index] if index < len(run.token_ids) else None for run in pair]
            ended = next((NAMES[side] for side in SIDES if said[side] is None), "")
            self.parting = Parting(index, ended=ended)
            if said[0] is None or said[1] is None or self._request is None:
                break
            self.stage = Stage.WEIGHING
            before = pair[0].token_ids[:index]
            self._send(Weigh(self._chat.desk.new_id(), self._request, before, (said[0], said[1])))
            return
        self._conclude()

    def _conclude(self) -> None:
        stopped = self.stopping
        self._end(Stage.STOPPED if stopped else Stage.DONE)
        request = self._request
        if request is None or stopped:
            return
        ways = tuple(self._way(side) for side in SIDES)
        try:
            self._past.add(
                PastComparison(
                    id=self._id,
                    model=self._chat.setup.name,
                    prompt=self.prompt,
                    seed=request.sampling.seed,
                    temperature=request.sampling.temperature,
                    rounds=self.rounds,
                    ways=(ways[0], ways[1]),
                    ratio=self.ratio,
                    identical=bool(self.identical),
                    parted="" if self.parting is None else f"at token {self.parting.index + 1}",
                )
            )
        except StorageError as error:
            self.trouble = str(error)

    def _way(self, side: int) -> Way:
        contender, run = self.contenders[side], self.latest(side)
        draft = contender.draft
        return Way(
            draft=draft.spec,
            verify=contender.verify,
            model=contender.model.name if contender.model else "",
            length=draft.length,
            policy=draft.policy,
            tokens=run.tally.emitted if run else 0,
            tokens_per_second=self.rate(side),
            acceptance_rate=run.tally.acceptance_rate if run else None,
        )

    def _send(self, request: Generate | Weigh) -> None:
        if not (self._chat.ready and self._chat.desk.lend(request, ERRAND, self.take)):
            self._no_engine()

    def _no_engine(self) -> None:
        self.trouble = "The engine is not there; the next message in the chat starts it again."
        self.guests.lost()
        self._end(Stage.FAILED)

    def _end(self, stage: Stage, *, returned: bool = False) -> None:
        self.stage, self.stopping = stage, False
        if self.guests.away and not returned:
            self._outcome = stage
            if self.guests.bring_back():
                self.stage = Stage.RETURNING


def _place(chat: Chat) -> tuple[Path | None, Conversation, int, DraftOptions]:
    """Where a comparison belongs."""
    return chat.setup.file, chat.conversation, len(chat.conversation.messages), chat.setup.options.draft
