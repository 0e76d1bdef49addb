"""Rows of the peers' table, derived from their measurements as `localspec.bench.rows` derives ours."""

from __future__ import annotations

from localspec.bench.grouping import Order, grouped
from localspec.bench.pooling import Figures, paired_speedup, spread
from localspec.bench.records import Memory, PeerMeasurement, Record, Results, Timing


class PeerRow(Record):
    """One configuration of another program on one task; the fields up to `speedup` are a contract.

    Attributes:
        speedup: against the peer's own plain decoding; low and high are its slowest and fastest round.
        relative: against localspec's plain decoding in the same rounds, likewise.
        drafted, accepted: summed counters of the peer; None where it has none.
        identical: whether all texts that were compared equal the peer's own plain ones.
    """

    name: str
    config: str
    task: str
    tokens_per_second: float | None = None
    speedup: float | None = None
    file: str
    temperature: float = 0.0
    memory: Memory = "warm"
    prompts: int = 0
    speedup_low: float | None = None
    speedup_high: float | None = None
    relative: float | None = None
    relative_low: float | None = None
    relative_high: float | None = None
    drafted: int | None = None
    accepted: int | None = None
    acceptance_rate: float | None = None
    identical: bool | None = None
    identical_count: int | None = None
    compared: int | None = None
    note: str | None = None


def peer_rows(results: Results) -> tuple[PeerRow, ...]:
    """One row for each program, configuration, file, task, temperature and state of memory."""
    order = Order(results)

    def key(m: PeerMeasurement) -> tuple[object, ...]:
        return (*order.file(m.file), *order.task(m.task), m.name, m.config, m.temperature, m.memory)

    return tuple(_peer_row(group) for group in grouped(results.peers, key))


def _peer_row(measured: list[PeerMeasurement]) -> PeerRow:
    first, figures = measured[0], Figures()
    own = [(m.baseline, m.timing) for m in measured if m.baseline and m.timing]
    ours = [(m.ours, m.timing) for m in measured if m.ours and m.timing]
    timings = [m.timing for m in measured if m.timing]
    speedup, relative = _faster("speed-up", own, figures), _faster("relative speed", ours, figures)
    counted = [(m.drafted, m.accepted) for m in measured if m.drafted is not None and m.accepted is not None]
    drafted, accepted = sum(d for d, _ in counted), sum(a for _, a in counted)
    said = [m.identical for m in measured if m.identical is not None]
    low, high = spread(speedup, own)
    relative_low, relative_high = spread(relative, ours)
    return PeerRow(
        name=first.name,
        config=first.config,
        task=first.task,
        tokens_per_second=figures.rate("tokens per second", timings),
        speedup=speedup,
        file=first.file,
        temperature=first.temperature,
        memory=first.memory,
        prompts=len(timings),
        speedup_low=low,
        speedup_high=high,
        relative=relative,
        relative_low=relative_low,
        relative_high=relative_high,
        drafted=drafted if counted else None,
        accepted=accepted if counted else None,
        acceptance_rate=figures.ratio("acceptance", accepted, drafted) if drafted else None,
        identical=all(said) if said else None,
        identical_count=sum(said) if said else None,
        compared=len(said) or None,
        note=figures.notes(measured, len(timings)),
    )


def _faster(name: str, pairs: list[tuple[Timing, Timing]], figures: Figures) -> float | None:
    typical = paired_speedup(pairs)
    if typical is not None:
        return typical
    plain = figures.rate("plain tokens per second", [plain for plain, _ in pairs])
    return figures.ratio(name, figures.rate("tokens per second", [other for _, other in pairs]), plain)
