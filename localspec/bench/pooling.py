"""Sums over prompts that never become NaN: what a row's figures are made of."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

from localspec.bench.oracle import pass_cost
from localspec.bench.records import Counts, Measurement, ModelFile, PeerMeasurement, Timing


def clean(text: str) -> str:
    """One line without control characters: notes may quote what another program printed."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def total(values: Iterable[float]) -> float:
    """Sum that does not depend on the order, so that a resumed bench ends with the same figures."""
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):
        return math.nan


def quotient(over: float, under: float) -> float:
    """`over / under`, NaN where there is none."""
    try:
        return over / under if under > 0 else math.nan
    except OverflowError:
        return math.nan


class Figures:
    """Makes a row's figures, and remembers which of them were no numbers."""

    def __init__(self) -> None:
        self.broken: list[str] = []

    def ratio(self, name: str, over: float | None, under: float | None) -> float | None:
        """`over / under`; None where either is missing, or where that is no finite number (then noted)."""
        if over is None or under is None:
            return None
        return self.finite(name, quotient(over, under))

    def finite(self, name: str, value: float | None) -> float | None:
        """The value, or None (noted) where it is NaN or infinite."""
        if value is not None and not math.isfinite(value):
            if name not in self.broken:
                self.broken.append(name)
            return None
        return value

    def rate(self, name: str, timings: Sequence[Timing]) -> float | None:
        """Tokens per second of all together; None without timings."""
        if not timings:
            return None
        return self.ratio(name, sum(t.tokens for t in timings), total(t.seconds for t in timings))

    def notes(self, measured: Sequence[Measurement] | Sequence[PeerMeasurement], pooled: int) -> str | None:
        """What the measurements say, which prompts are missing, and which figures were no numbers."""
        said: dict[str, list[str]] = {}
        for measurement in measured:
            note = clean(measurement.note or "")
            if not note and measurement.timing is None:
                note = "not measured"
            if note:
                said.setdefault(note, []).append(clean(measurement.prompt))
        parts = [
            note if len(prompts) == len(measured) else f"{', '.join(prompts)}: {note}"
            for note, prompts in said.items()
        ]
        if 0 < pooled < sum(m.timing is not None for m in measured):
            parts.append(f"without the prompts that lack plain decoding's time ({pooled} are left)")
        if self.broken:
            parts.append(f"no finite number: {', '.join(self.broken)}")
        return "; ".join(parts) or None


def without_pauses(pairs: Sequence[tuple[Timing, Timing]]) -> bool:
    """Whether both sides of all pairs have times without pauses: only what is estimated alike is compared."""
    return bool(pairs) and all(
        len(plain.steady) == len(plain.runs) == len(other.runs) == len(other.steady) for plain, other in pairs
    )


def speedups_by_round(pairs: Sequence[tuple[Timing, Timing]], *, steady: bool = False) -> list[float]:
    """For each round that all pairs of (plain, other) have, the ratio of the pooled rates.

    Args:
        pairs: timings of the same prompts.
        steady: take the times without pauses, which all must have.
    """
    rounds = min((min(len(plain.runs), len(other.runs)) for plain, other in pairs), default=0)
    plain_tokens = sum(plain.tokens for plain, _ in pairs)
    tokens = sum(other.tokens for _, other in pairs)
    ratios = []
    for index in range(rounds):
        plain_s = total((plain.steady if steady else plain.runs)[index] for plain, _ in pairs)
        other_s = total((other.steady if steady else other.runs)[index] for _, other in pairs)
        ratio = quotient(tokens, other_s) * quotient(plain_s, plain_tokens)
        if math.isfinite(ratio):
            ratios.append(ratio)
    return ratios


def paired_speedup(pairs: Sequence[tuple[Timing, Timing]]) -> float | None:
    """The speed-up of a typical round: the mean of the rounds' ratios, the outer ones left out.

    Of rounds whose pauses are known and taken out, an eighth at each end is left out, at least one round;
    else a quarter. The middle half alone would follow the level in which the machine happened to be for most
    of the rounds: between two levels it moves twice as fast as the mean does.

    A machine has speeds that last for seconds or minutes, and plain decoding and drafts do not gain or lose
    alike when they change; within a round both meet the same one. So rounds are compared, not totals.
    None without a round.
    """
    ratios, outer = _ratios(pairs)
    middle = ratios[outer : len(ratios) - outer]
    return statistics.fmean(middle) if middle else None


def _ratios(pairs: Sequence[tuple[Timing, Timing]]) -> tuple[list[float], int]:
    """Ratios of the rounds in order of size, and how many at each end are left out."""
    steady = without_pauses(pairs)
    ratios = sorted(speedups_by_round(pairs, steady=steady))
    quarter = len(ratios) // 4
    return ratios, min(quarter, max(len(ratios) // 8, 1)) if steady else quarter


def standard_error(pairs: Sequence[tuple[Timing, Timing]]) -> float | None:
    """Of `paired_speedup`, as a share of it: that of a trimmed mean. None for fewer than four rounds."""
    ratios, outer = _ratios(pairs)
    if len(ratios) < 4 or ratios[0] <= 0:
        return None
    low, high = ratios[outer], ratios[-1 - outer]
    logs = [math.log(min(max(ratio, low), high)) for ratio in ratios]
    return statistics.stdev(logs) / ((1 - 2 * outer / len(ratios)) * math.sqrt(len(ratios)))


def spread(figure: float | None, pairs: Sequence[tuple[Timing, Timing]]) -> tuple[float | None, float | None]:
    """Lowest and highest round around a pooled figure, which they always contain.

    Neither for fewer than two rounds: nothing is known of how far a single one may be off.
    """
    ratios = speedups_by_round(pairs)
    if figure is None or len(ratios) < 2:
        return None, None
    return min(figure, *ratios), max(figure, *ratios)


def pooled_counts(counts: Sequence[Counts]) -> Counts | None:
    """Sums of counters; None without any."""
    if not counts:
        return None

    def by_position(columns: list[tuple[int, ...]]) -> tuple[int, ...]:
        width = max(map(len, columns))
        return tuple(sum(column[i] for column in columns if i < len(column)) for i in range(width))

    # Not validated: a sum of times may be no number, which the figures made of it then say.
    return Counts.model_construct(
        steps=sum(c.steps for c in counts),
        skipped_steps=sum(c.skipped_steps for c in counts),
        drafts=sum(c.drafts for c in counts),
        drafted=sum(c.drafted for c in counts),
        accepted=sum(c.accepted for c in counts),
        emitted=sum(c.emitted for c in counts),
        reached=sum(c.reached for c in counts),
        drafted_at=by_position([c.drafted_at for c in counts]),
        accepted_at=by_position([c.accepted_at for c in counts]),
        draft_s=total(c.draft_s for c in counts),
        verify_s=total(c.verify_s for c in counts),
        sample_s=total(c.sample_s for c in counts),
        other_s=total(c.other_s for c in counts),
    )


def mean_pass_cost(measured: Sequence[Measurement], file: ModelFile | None) -> float | None:
    """Mean over steps of T(1 + drafted)/T(1); None where a length or T(n) is not known."""
    steps = [length for measurement in measured for length in measurement.lengths]
    if file is None or not steps or not all(measurement.lengths for measurement in measured):
        return None
    costs = {length: pass_cost(file.pass_ms, length + 1) for length in set(steps)}
    known = [cost for length in steps if (cost := costs[length]) is not None]
    return total(known) / len(steps) if len(known) == len(steps) else None
