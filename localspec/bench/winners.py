"""Who is fastest on each task: localspec or another program, both against our plain decoding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from localspec.bench.peer_rows import PeerRow, peer_rows
from localspec.bench.pooling import clean
from localspec.bench.records import Memory, Record, Results
from localspec.bench.rows import Row, rows

US = "localspec"
LEVEL = "level"
_ALIKE = 0.1
"""Difference of speeds up to which two whose spreads overlap are called level."""

_STATES: dict[Memory | None, str] = {
    "warm": ", the same prompts answered before",
    "cold": ", asked for the first time",
    None: ", not with the same memory of earlier replies",
}

T = TypeVar("T", Row, PeerRow)


class Winner(Record):
    """The best of localspec and the best of all peers on one task of one file, as users run them.

    Attributes:
        file, task, temperature: where they met.
        memory: what the drafters remembered; None where the two sides were not measured in the same state.
        winner: "localspec", the peer's name, or "level" where the spreads of the two overlap.
        ratio: our speed over the peer's, both relative to our plain decoding.
        ours, ours_relative: our best configuration and its speed-up.
        peer, peer_config, peer_relative: the peer's.
        statement: the outcome as one line; says where one side has no spread.
    """

    file: str
    task: str
    temperature: float
    memory: Memory | None
    winner: str
    ratio: float
    ours: str
    ours_relative: float
    peer: str
    peer_config: str
    peer_relative: float
    statement: str


def winners(results: Results) -> tuple[Winner, ...]:
    """A statement for each file, task and temperature on which both sides were measured.

    Free runs of exact verification only, one sequence at a time, on the prompts that a peer answered too;
    plain decoding is a configuration of ours like any other. Where drafters may remember earlier replies,
    cold meets cold and warm meets warm; a drafter without a memory is the same in both.
    """
    ours: dict[tuple[str, str, float], list[Row]] = {}
    answered = {(peer.file, peer.task, peer.prompt) for peer in results.peers if peer.timing}
    shared = tuple(m for m in results.measurements if (m.file, m.task, m.prompt) in answered)
    for row in rows(results.model_copy(update={"measurements": shared})):
        if row.mode == "free" and row.parallel == 1 and not row.lossy and _usable(row.speedup):
            ours.setdefault((row.file, row.task, row.temperature), []).append(row)
    theirs: dict[tuple[str, str, float], list[PeerRow]] = {}
    for peer in peer_rows(results):
        if _usable(peer.relative):
            theirs.setdefault((peer.file, peer.task, peer.temperature), []).append(peer)
    found = []
    for place, mine in ours.items():
        for memory in dict.fromkeys(peer.memory for peer in theirs.get(place, [])):
            others = [peer for peer in theirs[place] if peer.memory == memory]
            # Ours that remember nothing are measured once, as cold: they would be the same when warm.
            remembering = {row.draft for row in mine if row.memory == "warm"}
            same = [row for row in mine if row.memory == memory or row.draft not in remembering]
            found.append(_meet(same or mine, others, memory if same else None))
    return tuple(found)


def _meet(ours: Sequence[Row], theirs: Sequence[PeerRow], memory: Memory | None) -> Winner:
    mine = max(_widest(ours), key=lambda row: row.speedup or 0.0)
    label, speed, low, high = mine.label, mine.speedup or 0.0, mine.speedup_low, mine.speedup_high
    if speed < 1:
        label, speed, low, high = "none", 1.0, 1.0, 1.0
    peer = max(_widest(theirs), key=lambda row: row.relative or 0.0)
    relative = peer.relative or 0.0
    peer_low, peer_high = peer.relative_low or relative, peer.relative_high or relative
    # Every sampler draws its own: the texts, and so what can be drafted, are not the same.
    drawn = f", each on its own text (T = {mine.temperature:g})" if mine.temperature > 0 else ""
    once = ", a single run" if low is None or peer.relative_low is None else ""
    level = (low or speed) <= peer_high and peer_low <= (high or speed)
    ahead = US if speed > relative else peer.name
    ratio = speed / relative
    where, theirs_in_short = clean(mine.task), f"{clean(peer.name)}'s best ({clean(peer.config)})"
    if level:
        outcome = "level" if abs(ratio - 1) <= _ALIKE else "not settled, spreads overlap"
        said = f"{where}: {outcome}, {US} {label} at {ratio:.2f}x {theirs_in_short}"
    elif ahead == US:
        said = f"{where}: {US} {label}, {ratio:.2f}x {theirs_in_short}"
    else:
        said = f"{where}: {clean(peer.name)} {clean(peer.config)}, {1 / ratio:.2f}x {US}'s best ({label})"
    return Winner(
        file=mine.file,
        task=mine.task,
        temperature=mine.temperature,
        memory=memory,
        winner=LEVEL if level else ahead,
        ratio=ratio,
        ours=label,
        ours_relative=speed,
        peer=peer.name,
        peer_config=peer.config,
        peer_relative=relative,
        statement=said + drawn + _STATES[memory] + once,
    )


def _widest(candidates: Iterable[T]) -> list[T]:
    """Those measured on the most prompts: a run cut short may have met the easy ones only."""
    found = list(candidates)
    most = max(row.prompts for row in found)
    return [row for row in found if row.prompts == most]


def _usable(speed: float | None) -> bool:
    """Whether a ratio can be compared; one outside these bounds is a clock that stood still."""
    return speed is not None and 1e-6 < speed < 1e6
