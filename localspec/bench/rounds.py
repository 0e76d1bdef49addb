"""Rounds of a block: every contestant once; and what the rounds made so far add up to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from localspec.bench.grid import BlockKey
from localspec.bench.records import Configuration, Divergence
from localspec.bench.runs import Run, Series
from localspec.drafters import models_of

PLAIN = "plain"
"""Plain decoding among the contestants; the others are named by their place among the configurations."""


def plain_beside(name: str) -> str:
    """The plain decoding of the contestant `name` alone."""
    return f"{PLAIN} beside {name}"


def side_by_side(names: Mapping[str, Configuration]) -> list[dict[str, Configuration | None]]:
    """Contestants whose replies may grow side by side, in groups that each hold a plain decoding, a None.

    A draft model or head has one cache, and follows one text. So every contestant with one is in a group of
    its own, with a plain decoding of its own (`plain_beside`).
    """
    alone = {name: configuration for name, configuration in names.items() if models_of(configuration.draft)}
    first = {name: configuration for name, configuration in names.items() if name not in alone}
    groups: list[dict[str, Configuration | None]] = [{PLAIN: None, **first}] if first else []
    return groups + [{plain_beside(name): None, name: configuration} for name, configuration in alone.items()]


@dataclass(frozen=True, slots=True)
class Round:
    """Every contestant of a block once.

    Attributes:
        block: whose round.
        sha256: of the model file.
        number: from 0.
        prompt_s: seconds that reading the prompt took before it.
        runs: by contestant; without those that failed.
        failed: why, by contestant, of those that failed in this round.
    """

    block: BlockKey
    sha256: str
    number: int
    prompt_s: float
    runs: Mapping[str, Run]
    failed: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class BlockRuns:
    """A block so far.

    Attributes:
        done: number of rounds.
        series: runs by contestant.
        failed: contestants that are out, and why.
        prompt_s: seconds of each reading of the prompt.
        divergences: by contestant, the two replies that were last compared and where they part.
    """

    done: int = 0
    series: dict[str, Series] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    prompt_s: list[float] = field(default_factory=list)
    divergences: dict[str, tuple[tuple[int, ...], tuple[int, ...], Divergence | None]] = field(
        default_factory=dict
    )

    def add(self, made: Round) -> None:
        """Take in the next round."""
        for name, run in made.runs.items():
            self.series.setdefault(name, Series()).add(run)
        self.failed |= made.failed
        self.prompt_s.append(made.prompt_s)
        self.done += 1

    @property
    def round_s(self) -> float:
        """Seconds that a round takes, about; 0 before the first."""
        return sum(series.seconds[-1] for series in self.series.values())
