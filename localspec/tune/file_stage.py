"""Other quantizations of the file: what speculation gains there, and what they cost in size and fidelity."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from localspec.bench.driver import NO_DRAFTS, Driver
from localspec.errors import LocalspecError
from localspec.tune.budget import Clock, Deadline, TimeBudget
from localspec.tune.contest import LEAST_ROUNDS, contest
from localspec.tune.copies import Copies, Copy
from localspec.tune.draft_stage import pass_costs
from localspec.tune.fidelity import fidelity
from localspec.tune.records import UNTRIED, Trial
from localspec.tune.rivals import Asked, ReplyRounds, Rival, draft_name
from localspec.tune.workshop import Bench, Workshop
from localspec.types import DraftOptions, EngineOptions

_ROUNDS = 6
_FIDELITY_SHARE = 0.25
_FEW = 4
"""Prompts at least, where there are so many."""
_STARTS = 0.1
"""Of the stage's time: with less left no other copy is begun."""


@dataclass(frozen=True, slots=True)
class FileStage:
    """Tries copies, one after the other, beside the file itself.

    Attributes:
        workshop: makes contexts.
        copies: makes copies.
        engine: how they are loaded.
        capacity: tokens of context.
        asked: prompts with the replies of the file itself.
        present: the present settings' rival, on the file itself.
        drafting: who drafts there by now, present or better.
        base: driver of the file itself, for the fidelity.
        pass_s: seconds of some passes of the file itself, by width.
        clock: nanoseconds.
        budget: all of tuning's time.
        tell: called with what is at work.
        add: takes each trial when it is there.
    """

    workshop: Workshop
    copies: Copies
    engine: EngineOptions
    capacity: int
    asked: Sequence[Asked]
    present: Rival
    drafting: DraftOptions
    base: Driver
    pass_s: Mapping[int, float]
    clock: Clock
    budget: TimeBudget
    tell: Callable[[str], None]
    add: Callable[[Trial], None]

    def run(self) -> None:
        """Try all that there is time for; those that there is not are added as untried."""
        planned = self.copies.planned()
        whole = self.budget.left_s
        took: list[float] = []
        for number, copy in enumerate(planned):
            if copy.problem is not None:
                self.add(_trial(copy, note=f"untried: {copy.problem}"))
                continue
            # Bytes that are written and read again set the least that a copy takes.
            least = statistics.median(took) * copy.bytes if took else 0.0
            left = self.budget.left_s
            if not self.asked or left <= 0 or left < max(whole * _STARTS, least):
                self.add(_trial(copy, note=UNTRIED))
                continue
            rest = sum(later.problem is None for later in planned[number:])
            # Rather few copies that can be judged than many that cannot.
            deadline = self.budget.share(min(max(1 / rest, self._needed_s() / left), 1.0))
            path = None
            try:
                path = self.copies.make(copy, lambda share: self._making(copy, share, deadline))  # noqa: B023
                took.append((left - self.budget.left_s) / max(copy.bytes, 1))
                self._measure(copy, path, deadline)
            except LocalspecError as error:
                self.add(_trial(copy, note=f"untried: {error}"))
            finally:
                if path is not None:
                    self.copies.discard(path)

    def _needed_s(self) -> float:
        """Seconds that a copy takes to be judged on a few prompts, about."""
        return self._round_s(self.asked[:_FEW]) * LEAST_ROUNDS / (1 - 2 * _FIDELITY_SHARE)

    def _round_s(self, asked: Sequence[Asked]) -> float:
        tokens = sum(len(one.reply.forced or ()) + len(one.reply.prompt) / 4 for one in asked)
        return tokens * self.pass_s.get(1, 0.0) * 3

    def _making(self, copy: Copy, share: float, deadline: Deadline) -> None:
        """Tell how far it is; raises `_NoTimeError` where there is no time for the rest."""
        self.tell(f"making {copy.file_type}, {share:.0%}")
        if deadline.passed():
            raise _NoTimeError("making it took the time that there was")

    def _measure(self, copy: Copy, path: Path, deadline: Deadline) -> None:
        self._making(copy, 1.0, deadline)
        with ExitStack() as stack:
            stack.callback(self.workshop.release, path)
            self.tell(f"{copy.file_type}: loading")
            bench = self.workshop.open(path, self.engine, self.capacity)
            stack.callback(bench.close)
            self.tell(f"{copy.file_type}: fidelity")
            near = fidelity(
                self.base,
                Driver(bench.context, bench.vocabulary, clock=self.clock),
                self.asked,
                deadline.share(_FIDELITY_SHARE),
            )
            costs = pass_costs(bench, self.pass_s, deadline.share(_FIDELITY_SHARE), self.clock)
            driver = Driver(bench.context, bench.vocabulary, clock=self.clock, pass_ms=costs)
            known = {
                "bytes": path.stat().st_size,
                "fidelity": near,
                "pass_ms": {n: ms for n, ms in costs.items() if n in (1, 9)},
            }
            self._rounds(
                copy, driver, bench, deadline, lambda trial: self.add(trial.model_copy(update=known))
            )

    def _rounds(
        self,
        copy: Copy,
        driver: Driver,
        bench: Bench,
        deadline: Deadline,
        add: Callable[[Trial], None],
    ) -> None:
        """Replies by plain decoding and with drafts, in rounds with the present settings."""
        plain = f"{copy.file_type}, {draft_name(replace(self.drafting, spec=NO_DRAFTS))}"
        rivals = {
            name: Rival(name, driver, options, bench.drafter, plain=plain)
            for name, options in {
                plain: replace(self.drafting, spec=NO_DRAFTS),
                f"{copy.file_type}, {draft_name(self.drafting)}": self.drafting,
            }.items()
        }
        # As many prompts as can be asked often enough; the first ones are of different kinds.
        count = len(self.asked)
        while count > _FEW and self._round_s(self.asked[:count]) * LEAST_ROUNDS > deadline.left_s:
            count -= 1
        # On this file nothing is known of plain decoding in these rounds.
        present = replace(self.present, plain=None)
        rounds = ReplyRounds(
            self.asked[:count],
            {present.name: present, **rivals},
            present.name,
            deadline,
            lambda what: self.tell(f"{copy.file_type}: {what}"),
        )
        try:
            contest(
                list(rivals),
                [present.name],
                rounds.visit,
                rounds.rank,
                rounds.within,
                deadline,
                most=_ROUNDS,
            )
        finally:
            for name in rivals:
                add(rounds.trial("file", name))


class _NoTimeError(LocalspecError):
    """The time for a copy is over."""


def _trial(copy: Copy, note: str) -> Trial:
    return Trial(stage="file", name=copy.file_type, bytes=copy.bytes, note=note)
