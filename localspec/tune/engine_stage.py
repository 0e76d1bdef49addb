"""Threads and flash attention by what passes of the model cost, the batch by what reading a prompt takes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from localspec.calibration.passes import measure_passes
from localspec.errors import EngineError, LocalspecError
from localspec.tune.budget import Clock, Deadline
from localspec.tune.contest import contest
from localspec.tune.records import UNTRIED, Stage, Trial, Value
from localspec.tune.speeds import Times
from localspec.tune.verdict import wins
from localspec.tune.workshop import Bench, Workshop
from localspec.types import EngineOptions

PRESENT = "present settings"
WIDTHS = (1, 9)
"""Plain decoding, and a pass that verifies a draft of eight."""
BATCHES = (128, 256, 512, 1024)

_HELD = 128
"""Tokens in the cache during these passes."""
_REPEATS = 2
_LONGEST, _SHORTEST = 1024, 128
"""Tokens of the prompt that is read."""
_READS = 16
"""About so many readings shall fit into the time."""

Tell = Callable[[str], None]
Add = Callable[..., None]
"""Takes trials, each an argument."""


@dataclass(frozen=True, slots=True)
class Measuring:
    """What the stage works with.

    Attributes:
        workshop: makes contexts.
        path: the model.
        present: how it is loaded at present.
        clock: nanoseconds.
        tell: called with what is at work.
    """

    workshop: Workshop
    path: Path
    present: EngineOptions
    clock: Clock
    tell: Tell


def engines(present: EngineOptions, threads: Sequence[int]) -> dict[str, EngineOptions]:
    """Candidates by name: each number of threads with and without flash attention; not the present one."""
    found: dict[str, EngineOptions] = {}
    for count, flash in itertools.product((present.threads, *threads), (True, False)):
        engine = replace(present, threads=count, flash_attention=flash)
        if engine != present:
            found.setdefault(engine_name(engine), engine)
    return found


def engine_name(engine: EngineOptions) -> str:
    """Threads and flash attention in words."""
    threads = "auto threads" if engine.threads is None else f"{engine.threads} threads"
    if engine.threads == 1:
        threads = "1 thread"
    flash = {None: "auto", True: "on", False: "off"}[engine.flash_attention]
    return f"{threads}, flash {flash}"


def changes(present: EngineOptions, engine: EngineOptions) -> dict[str, Value]:
    """Keys of config.toml that make `engine` of `present`."""
    names = ("threads", "flash_attention", "batch")
    return {
        f"engine.{name}": getattr(engine, name)
        for name in names
        if getattr(engine, name) != getattr(present, name)
    }


def best_engine(measuring: Measuring, threads: Sequence[int], deadline: Deadline, add: Add) -> EngineOptions:
    """Threads and flash attention with the fastest passes; `add` takes all that was tried, the present first.

    Raises:
        LocalspecError: the model cannot be loaded with its present settings.
    """
    found = engines(measuring.present, threads)
    race = _Race(measuring, {PRESENT: measuring.present, **found}, _passes, "passes", 2 * _HELD)
    return race.run("engine", deadline, add)


def best_batch(
    measuring: Measuring,
    engine: EngineOptions,
    pass_s: Mapping[int, float],
    deadline: Deadline,
    add: Add,
) -> int:
    """The batch with which a prompt is read fastest.

    Args:
        measuring: what to work with.
        engine: threads and flash attention.
        pass_s: seconds of passes by their width, from which the length of the prompt is chosen.
        deadline: when to stop.
        add: takes all that was tried.

    Raises:
        LocalspecError: the model cannot be loaded with its present settings.
    """
    widest = max(pass_s, default=1)
    a_token = pass_s.get(widest, 0.0) / widest
    length = int(deadline.left_s / _READS / a_token) if a_token > 0 else _LONGEST
    length = min(max(length, _SHORTEST), _LONGEST)
    present = measuring.present.batch
    batches = {f"batch {size}": replace(engine, batch=size) for size in BATCHES if size != present}
    named = {PRESENT: replace(engine, batch=present), **batches}
    fitting = {name: each for name, each in named.items() if name == PRESENT or each.batch <= length}
    race = _Race(
        measuring,
        fitting,
        lambda bench, clock: _reading(bench, length, clock),
        "reading a prompt",
        length + 1,
    )
    best = race.run("batch", deadline, add)
    short = f"untried: {length} tokens were read, and it takes more to tell"
    add(*(Trial(stage="batch", name=name, note=short) for name in named if name not in fitting))
    return best.batch


class _Race:
    """Settings of the engine that alternate, each with a fresh context in every round."""

    def __init__(
        self,
        measuring: Measuring,
        named: Mapping[str, EngineOptions],
        measure: Callable[[Bench, Clock], Mapping[str, tuple[int, float]]],
        what: str,
        capacity: int,
    ) -> None:
        self._capacity = capacity
        self._measuring = measuring
        self._named = dict(named)
        self._measure = measure
        self._what = what
        self._times = Times()
        self._failed: dict[str, str] = {}

    def run(self, stage: Stage, deadline: Deadline, add: Add) -> EngineOptions:
        """All rounds that there is time for; the settings that beat the present ones, else those."""
        try:
            contest(
                [name for name in self._named if name != PRESENT],
                [PRESENT],
                lambda names, number: self._visit(names, number, deadline),
                self._ratio,
                self._within,
                deadline,
            )
        finally:
            trials = [self._trial(stage, name) for name in self._named]
            add(*trials)
        best = wins(trials)
        return self._named[PRESENT if best is None else best.name]

    def _trial(self, stage: Stage, name: str) -> Trial:
        """What is known of one of them."""
        speed = self._times.speed(name, PRESENT, evenly=True)
        engine, is_present = self._named[name], name == PRESENT
        base = Trial(
            stage=stage,
            name=f"{_name(stage, engine)} (present)" if is_present else name,
            settings={} if is_present else changes(self._named[PRESENT], engine),
            present=is_present,
        )
        if speed is None:
            return base.model_copy(update={"note": self._failed.get(name, UNTRIED)})
        read = self._times.last(name, "read")
        passes = {n: self._times.typical(name, f"T({n})") for n in WIDTHS}
        return base.model_copy(
            update={
                "speed": speed.ratio,
                "within": speed.within,
                "rounds": speed.rounds,
                "tokens_per_second": read[0] / read[1] if read else None,
                "pass_ms": {n: seconds * 1e3 for n, seconds in passes.items() if seconds is not None},
                "note": self._failed.get(name),
            }
        )

    def _visit(self, names: Sequence[str], number: int, deadline: Deadline) -> bool:
        order = [*names[number % len(names) :], *names[: number % len(names)]]
        for name in order:
            if deadline.passed():
                return False
            if name in self._failed:
                continue
            self._measuring.tell(f"{self._what}: {name}")
            try:
                for cell, (tokens, seconds) in self._once(name).items():
                    self._times.add(cell, number, name, tokens, seconds)
            except LocalspecError as error:
                if name == PRESENT:
                    raise
                self._failed[name] = str(error)
        return True

    def _once(self, name: str) -> Mapping[str, tuple[int, float]]:
        measuring, engine = self._measuring, self._named[name]
        bench = measuring.workshop.open(measuring.path, engine, self._capacity)
        try:
            return self._measure(bench, measuring.clock)
        finally:
            bench.close()

    def _ratio(self, name: str) -> float | None:
        speed = self._times.speed(name, PRESENT, evenly=True)
        return None if speed is None or name in self._failed else speed.ratio

    def _within(self, name: str) -> float | None:
        speed = self._times.speed(name, PRESENT, evenly=True)
        return None if speed is None else speed.within


def _name(stage: Stage, engine: EngineOptions) -> str:
    return f"batch {engine.batch}" if stage == "batch" else engine_name(engine)


def _passes(bench: Bench, clock: Clock) -> dict[str, tuple[int, float]]:
    """T(1) and T(9), as tokens and seconds by cell."""
    found = measure_passes(bench.context, sample_text(bench, _HELD), WIDTHS, repeats=_REPEATS, clock=clock)
    return {f"T({n})": (n, ms * 1e-3) for n, ms in found.items()}


def _reading(bench: Bench, length: int, clock: Clock) -> dict[str, tuple[int, float]]:
    """The second reading of a text: in the first one, buffers are touched for the first time."""
    context, text, seconds = bench.context, sample_text(bench, length), 0.0
    for _ in range(2):
        context.clear()
        began = clock()
        for start in range(0, len(text), context.max_batch):
            context.decode(text[start : start + context.max_batch], "none")
        seconds = (clock() - began) * 1e-9
    context.clear()
    if seconds <= 0:
        raise EngineError("Reading a prompt took no time; the clock of this machine cannot be used.")
    return {"read": (len(text), seconds)}


def sample_text(bench: Bench, length: int) -> list[int]:
    """So many tokens of a text of our own."""
    text = bench.vocabulary.tokenize(_TEXT, add_special=True, parse_special=False)
    return list(itertools.islice(itertools.cycle(text), length))


_TEXT = """\
On the last morning of the fair the baker counts what is left: 14 loaves, 3 trays of rolls, and the cake
that nobody ordered. "Take it home," says her brother, "or give it to the band." She looks at the sky, which
has been grey since Tuesday, and at the clock over the town hall. Why is it always ten minutes late? Because
it was set by a man who was, too.

    def change(paid: int, price: int) -> list[int]:
        rest, coins = paid - price, []
        for coin in (200, 100, 50, 20, 10, 5, 2, 1):
            coins += [coin] * (rest // coin)
            rest %= coin
        return coins

By noon the square is empty but for two dogs and the man who sells balloons. He ties the last one to her cart.
"""
