"""Times of rivals in common rounds, and what they say: a ratio, and how far it may be off."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection
from dataclasses import dataclass

from localspec.bench.pooling import paired_speedup
from localspec.bench.records import Timing

_QUANTILES = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)
"""Student's, two-sided 95 %, by degrees of freedom from 1."""
_LEAST = 0.01
"""Nothing that is timed on a shared machine is known better than this."""


@dataclass(frozen=True, slots=True)
class Speed:
    """One speed over another.

    Attributes:
        ratio: of a typical round.
        within: it is known within this share of itself (95 %); None where nothing was done twice.
        rounds: that both were in.
        cells: different pieces of work.
    """

    ratio: float
    within: float | None
    rounds: int
    cells: int

    @property
    def gain(self) -> float:
        """What the ratio is above 1 at least; negative where that is not known."""
        return -1.0 if self.within is None else self.ratio / (1 + self.within) - 1


class Times:
    """Seconds by piece of work (cell), round and rival."""

    def __init__(self) -> None:
        self._cells: dict[str, dict[int, dict[str, tuple[int, float]]]] = {}

    def add(self, cell: str, number: int, name: str, tokens: int, seconds: float) -> None:
        """Note that `name` did `tokens` of `cell` in round `number`; times that cannot be are passed over."""
        if tokens > 0 and math.isfinite(seconds) and seconds > 0:
            self._cells.setdefault(cell, {}).setdefault(number, {})[name] = (tokens, seconds)

    def last(self, name: str, cell: str | None = None) -> tuple[int, float] | None:
        """Tokens and seconds of the newest round of `name`, of one cell or all that it did then."""
        cells = [rounds for label, rounds in self._cells.items() if cell in (None, label)]
        newest = max((n for rounds in cells for n, who in rounds.items() if name in who), default=None)
        if newest is None:
            return None
        found = [rounds[newest][name] for rounds in cells if name in rounds.get(newest, {})]
        return sum(tokens for tokens, _ in found), math.fsum(seconds for _, seconds in found)

    def typical(self, name: str, cell: str) -> float | None:
        """Median seconds of `name` on one cell; None where it did not do it."""
        found = [who[name][1] for who in self._cells.get(cell, {}).values() if name in who]
        return statistics.median(found) if found else None

    def speed(
        self, name: str, against: str, cells: Collection[str] | None = None, *, evenly: bool = False
    ) -> Speed | None:
        """How fast `name` is, `against` being 1; None where they have no round in common.

        Args:
            name: a rival.
            against: another.
            cells: which work; None takes all.
            evenly: every cell counts alike, however long it takes.
        """
        pairs = self._pairs(name, against, cells)
        if not pairs:
            return None
        if evenly:
            each = [paired_speedup([pair]) for pair in pairs]
            found = [math.log(ratio) for ratio in each if ratio]
            ratio = math.exp(statistics.fmean(found)) if found else None
        else:
            ratio = paired_speedup(pairs)
        if ratio is None or not (math.isfinite(ratio) and ratio > 0):
            return None
        rounds = min(len(one.runs) for one, _ in pairs)
        return Speed(ratio, 0.0 if name == against else _within(pairs), rounds, len(pairs))

    def _pairs(self, name: str, against: str, cells: Collection[str] | None) -> list[tuple[Timing, Timing]]:
        """Times of (against, name) in their common rounds, for each cell that has any."""
        pairs = []
        for cell, rounds in self._cells.items():
            common = [who for _, who in sorted(rounds.items()) if name in who and against in who]
            if common and (cells is None or cell in cells):
                pairs.append((_timing(common, against), _timing(common, name)))
        return pairs


def _timing(rounds: list[dict[str, tuple[int, float]]], name: str) -> Timing:
    runs = tuple(who[name][1] for who in rounds)
    return Timing(tokens=rounds[-1][name][0], seconds=statistics.median(runs), runs=runs)


def _within(pairs: list[tuple[Timing, Timing]]) -> float | None:
    """Half of a 95 % interval of the mean ratio, by how repeated work on a cell scatters around its mean."""
    squares, count = 0.0, 0
    for one, other in pairs:
        ratios = [math.log(a / b) for a, b in zip(one.runs, other.runs, strict=True)]
        middle = statistics.fmean(ratios)
        squares += math.fsum((ratio - middle) ** 2 for ratio in ratios)
        count += len(ratios)
    freedom = count - len(pairs)
    if freedom < 1:
        return None
    quantile = _QUANTILES[freedom - 1] if freedom <= len(_QUANTILES) else 1.96 + 2.6 / freedom
    half = quantile * math.sqrt(squares / freedom / count)
    return max(_LEAST, math.expm1(min(half, 10.0)))
