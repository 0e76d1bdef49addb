"""Past comparisons of two ways to make a reply: one JSON line each, in a file beside the conversations."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from localspec.errors import StorageError
from localspec.paths import data_dir, ensure

KEPT = 200
"""Comparisons that are kept; the oldest go first."""

_PROMPT = 2000
"""Characters of a prompt that are kept."""


@dataclass(frozen=True, slots=True)
class Way:
    """One of the two ways, and what came of it.

    Attributes:
        draft, length, policy, verify: who drafted how much, and the rule of verification.
        model: the name of its model, "" for the chat's own.
        tokens: of the reply.
        tokens_per_second: median over the rounds, None where there were no tokens.
        acceptance_rate: of its last round, None without drafts.
    """

    draft: str
    verify: str
    model: str = ""
    length: int | None = None
    policy: str = "cost"
    tokens: int = 0
    tokens_per_second: float | None = None
    acceptance_rate: float | None = None


@dataclass(frozen=True, slots=True)
class PastComparison:
    """A comparison that came to its end.

    Attributes:
        id: the same for a comparison that got more rounds later.
        model: the name of the model.
        prompt: what was asked.
        seed, temperature: how replies were drawn.
        rounds: how often each way ran.
        ways: A and B.
        ratio: speed of B over that of A, median over the rounds; None where not measured.
        identical: whether both said the same, token for token.
        parted: a sentence about where they part, "" where they do not.
        time: Unix time in seconds.
    """

    id: str
    model: str
    prompt: str
    seed: int
    temperature: float
    rounds: int
    ways: tuple[Way, Way]
    ratio: float | None
    identical: bool
    parted: str = ""
    time: float = field(default_factory=time.time)


class Comparisons:
    """The file of past comparisons.

    Args:
        path: None takes the one in the user's data folder.
        private: keep them in this process alone.
    """

    def __init__(self, path: Path | None = None, *, private: bool = False) -> None:
        self.path = path or data_dir() / "comparisons.jsonl"
        self._private: list[PastComparison] | None = [] if private else None

    def add(self, comparison: PastComparison) -> None:
        """Keep a comparison, in the place of one with the same id; raises `StorageError`."""
        if self._private is not None:
            self._private.append(comparison)
            return
        record = asdict(comparison)
        record["prompt"] = comparison.prompt[:_PROMPT]
        ensure(self.path.parent)
        with self._explaining():
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
            self._shorten()

    def newest(self, count: int = 50) -> list[PastComparison]:
        """The last `count` comparisons, newest first; lines that cannot be read are left out.

        Raises:
            StorageError: the file cannot be read.
        """
        found = list(self._private) if self._private is not None else list(self._read())
        # A later line of an id has more rounds.
        by_id = {one.id: one for one in found}
        return sorted(by_id.values(), key=lambda one: one.time, reverse=True)[:count]

    def _read(self) -> Iterator[PastComparison]:
        with self._explaining():
            if not self.path.exists():
                return
            lines = self._lines()
        for line in lines:
            with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError):
                yield _past(json.loads(line))

    def _lines(self) -> list[str]:
        # Prompts may hold characters that `splitlines` takes for the end of a line.
        return self.path.read_text(encoding="utf-8", errors="replace").rstrip("\n").split("\n")

    def _shorten(self) -> None:
        """Write the file anew once it has twice as many lines as are kept."""
        lines = self._lines()
        if len(lines) < 2 * KEPT:
            return
        new = self.path.with_suffix(".new")
        new.write_text("\n".join(lines[-KEPT:]) + "\n", encoding="utf-8")
        new.replace(self.path)

    @contextlib.contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageError(
                f"The comparisons in {self.path} cannot be kept ({error.strerror}); make it writable or set "
                "LOCALSPEC_HOME to another folder."
            ) from error


def _past(record: dict[str, Any]) -> PastComparison:
    one, other = (_way(way) for way in record["ways"])
    ratio = record["ratio"]
    return PastComparison(
        id=str(record["id"]),
        model=str(record["model"]),
        prompt=str(record["prompt"]),
        seed=int(record["seed"]),
        temperature=float(record["temperature"]),
        rounds=int(record["rounds"]),
        ways=(one, other),
        ratio=None if ratio is None else float(ratio),
        identical=bool(record["identical"]),
        parted=str(record["parted"]),
        time=float(record["time"]),
    )


def _way(way: dict[str, Any]) -> Way:
    length, rate, share = way["length"], way["tokens_per_second"], way["acceptance_rate"]
    return Way(
        draft=str(way["draft"]),
        verify=str(way["verify"]),
        model=str(way.get("model", "")),
        length=None if length is None else int(length),
        policy=str(way["policy"]),
        tokens=int(way["tokens"]),
        tokens_per_second=None if rate is None else float(rate),
        acceptance_rate=None if share is None else float(share),
    )
