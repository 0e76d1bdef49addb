"""A machine whose passes take the time that a test says: scripted models over one clock that they move."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from localspec.bench.tasks import Prompt, Task
from localspec.bench.transcripts import Transcripts
from localspec.chat.template import ChatTemplate
from localspec.drafters import Drafter, make_drafter
from localspec.errors import LocalspecError, StorageError
from localspec.target import Outputs
from localspec.testing import ScriptedModel
from localspec.tune.copies import Copy
from localspec.tune.tuner import Tuner, Wanted
from localspec.types import ChatMessage, Draft, DraftOptions, EngineOptions, Rows

MS = 1_000_000
Cost = Callable[[str, EngineOptions, int], float]
"""Milliseconds of a pass: name of the file, how it was loaded, tokens."""


def cheap(name: str, engine: EngineOptions, tokens: int) -> float:
    """Wide passes cost little more than narrow ones: drafts pay."""
    del name, engine
    return 9.0 + tokens


def dear(name: str, engine: EngineOptions, tokens: int) -> float:
    """Every token costs a pass of its own and more: drafts never pay."""
    del name, engine
    return 10.0 * tokens if tokens == 1 else 12.0 * tokens


class Clock:
    """Nanoseconds that only passes, and readings of the clock, move."""

    def __init__(self, noise: float = 0.0) -> None:
        self.now = 0
        self._noise = noise
        self._random = np.random.default_rng(7)

    def __call__(self) -> int:
        self.now += 500
        return self.now

    def add(self, ms: float) -> None:
        factor = 1.0 + (self._noise * abs(float(self._random.normal())) if self._noise else 0.0)
        self.now += round(ms * factor * MS)


class TimedModel(ScriptedModel):
    """A scripted model whose passes take time; with the few things more that prompts need."""

    vocabulary_size = 32
    bos = eos = -1

    def __init__(self, spend: Callable[[int], None], *, capacity: int, max_batch: int, seed: int) -> None:
        super().__init__(
            order=2, spread=3.0, capacity=capacity, max_batch=min(max_batch, capacity), seed=seed
        )
        self.max_rows = min(self.max_rows, 128)
        self._spend = spend

    def token_text(self, token: int) -> str:
        return "" if token < 0 else super().token_text(token)

    def decode(self, tokens: Sequence[int], outputs: Outputs) -> Rows:
        self._spend(len(tokens))
        return super().decode(tokens, outputs)

    def decode_tree(self, root: int, draft: Draft) -> Rows:
        self._spend(1 + len(draft))
        return super().decode_tree(root, draft)


@dataclass
class ScriptedBench:
    """See `localspec.tune.workshop.Bench`."""

    context: TimedModel
    open_ones: list[str]
    name: str
    template: ChatTemplate = field(default_factory=lambda: ChatTemplate(None))

    @property
    def vocabulary(self) -> TimedModel:
        return self.context

    def drafter(self, options: DraftOptions) -> Drafter:
        return make_drafter(options)

    def close(self) -> None:
        self.open_ones.remove(self.name)


class ScriptedWorkshop:
    """Contexts that take the time of `cost`."""

    def __init__(self, clock: Clock, cost: Cost) -> None:
        self.clock = clock
        self.cost = cost
        self.open_ones: list[str] = []
        self.refused: dict[str, LocalspecError] = {}
        self.can_trim = True
        self.after: Callable[[int], None] = lambda passes: None
        self._passes = 0

    def open(self, path: Path, engine: EngineOptions, capacity: int) -> ScriptedBench:
        for word, error in self.refused.items():
            if word in (path.stem, f"flash={engine.flash_attention}"):
                raise error

        def spend(tokens: int) -> None:
            self.clock.add(self.cost(path.stem, engine, tokens))
            self._passes += 1
            self.after(self._passes)

        # A copy says almost the same: another seed for the "bad" one.
        seed = 1 if path.stem == "bad" else 0
        model = TimedModel(spend, capacity=capacity, max_batch=engine.batch, seed=seed)
        model.can_trim = self.can_trim
        self.open_ones.append(path.stem)
        return ScriptedBench(model, self.open_ones, path.stem)

    def release(self, path: Path) -> None:
        assert path.stem not in self.open_ones


class ScriptedCopies:
    """Copies that are files with nothing in them, made in the time that it says."""

    file_type = "Q4_1"
    loss = "Copies are made from a 4-bit file."

    def __init__(self, folder: Path, clock: Clock, made_s: float = 1.0) -> None:
        self.folder = folder
        self.clock = clock
        self.made_s = made_s
        self.plans = [Copy("Q4_0", 80), Copy("Q8_0", 160)]
        self.there: list[Path] = []
        self.broken: set[str] = set()

    def planned(self) -> list[Copy]:
        return self.plans

    def make(self, copy: Copy, on_progress: Callable[[float], None]) -> Path:
        for share in (0.0, 0.5, 1.0):
            self.clock.add(self.made_s * 1e3 / 3)
            on_progress(share)
        if copy.file_type in self.broken:
            raise StorageError("There is no room; free some space.")
        path = self.folder / f"{copy.file_type}.gguf"
        path.write_bytes(b"x" * copy.bytes)
        self.there.append(path)
        return path

    def discard(self, path: Path) -> bool:
        path.unlink()
        self.there.remove(path)
        return True


TASKS = tuple(
    Task(name, name, (Prompt("one", (ChatMessage("user", f"{name} and {name} again"),)),))
    for name in ("copy", "code", "story")
)


@dataclass
class Shop:
    """Everything that a tuner needs, scripted."""

    folder: Path
    cost: Cost = cheap
    noise: float = 0.0
    engine: EngineOptions = field(default_factory=EngineOptions)
    minutes: float = 2.0
    drafts: tuple[str, ...] = ("ngram",)
    threads: tuple[int, ...] = (1,)
    quantize: bool = False
    tasks: tuple[Task, ...] = TASKS
    told: list[str] = field(default_factory=list)
    done: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clock = Clock(self.noise)
        self.workshop = ScriptedWorkshop(self.clock, self.cost)
        self.copies = ScriptedCopies(self.folder, self.clock)
        self.path = self.folder / "model.gguf"
        self.path.write_bytes(b"model")

    def tuner(self) -> Tuner:
        wanted = Wanted(
            model="scripted",
            path=self.path,
            tasks=self.tasks,
            engine=self.engine,
            drafts=self.drafts,
            threads=self.threads,
            minutes=self.minutes,
            temperature=0.0,
            quantize=self.quantize,
        )
        return Tuner(
            wanted,
            self.workshop,
            self.copies,
            transcripts=Transcripts(self.folder / "transcripts"),
            listen=lambda now: (self.told.append(now.what), self.done.append(now.done)),
            clock=self.clock,
        )
