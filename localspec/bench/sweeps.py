"""Sweeps: the rounds of every block spread over the whole run of a file.

A shared machine has states that last for tens of seconds, in which even the ratio of two passes differs. The
rounds of a block would all fall into one of them, were they neighbours in time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from localspec.bench.blocks import BlockRunner
from localspec.bench.grid import Block, BlockKey, measured
from localspec.bench.pooling import standard_error
from localspec.bench.records import Measurement, Timing
from localspec.bench.rounds import BlockRuns, Round

CERTAIN = 0.01
"""Standard error of a speed-up: two runs then part by 1.4 %, and hardly ever by more than 3 %."""
REPEATABLE = 8
"""Rounds from which on whoever asks for them wants figures that repeat, and waits for more."""


def sweep_over(
    blocks: Sequence[Block],
    runs: int,
    runner: BlockRunner,
    so_far: Mapping[BlockKey, BlockRuns],
    *,
    there: Callable[[], Sequence[Measurement]],
    tell: Callable[[Block, int], None],
    keep: Callable[[Round], None],
    add: Callable[[Sequence[Measurement]], None],
    save: Callable[[], None],
    most: int | None = None,
) -> None:
    """Make the rounds that `blocks` lack, in as many sweeps over all of them as a block has runs.

    Args:
        blocks: of one file, of one sequence each.
        runs: rounds of a block.
        runner: makes them.
        so_far: earlier rounds of each block.
        there: the measurements so far.
        tell: called with the block at work and the number of the sweep, from 0.
        keep: called with each round.
        add: takes the measurements of a block, in place of its earlier ones.
        save: called after the first and the last round of a block and after every sweep: writing everything
            after each round would take long where the grid is large.
        most: sweeps at most; those beyond `runs` are made as long as a speed-up is uncertain (`CERTAIN`).
            They go over all blocks, so that rounds stay far apart, and every contestant gets as many.
    """
    for sweep in range(runs):
        last_sweep = sweep == runs - 1
        unsaved = False
        for block in blocks:
            if measured(block, there(), runs):
                continue
            mine = so_far[block.key]
            rounds = due(mine, sweep, runs)
            if not rounds and not last_sweep:
                continue
            tell(block, sweep)
            first = mine.done == 0
            add(runner.visit(block, mine, rounds, keep))
            rest = due(mine, sweep, runs)
            if rest and not measured(block, there(), runs):
                # Now it is known that the prompt, which is in the cache still, takes long to read.
                add(runner.visit(block, mine, rest, keep))
            unsaved = True
            if first or measured(block, there(), runs):
                save()
                unsaved = False
        if unsaved:
            save()
    # Without those that failed, that an earlier run has finished, or that take long to read.
    more = [b for b in blocks if (s := so_far[b.key]).done == runs and s.prompt_s[-1] <= s.round_s]
    for sweep in range(runs, most or runs):
        if not uncertain(more, there()):
            break
        for block in more:
            tell(block, sweep)
            found = runner.visit(block, so_far[block.key], 1, keep)
            # What failed only now does not take the place of what there is.
            if any(measurement.timing for measurement in found):
                add(found)
        save()


def uncertain(blocks: Sequence[Block], measurements: Sequence[Measurement]) -> bool:
    """Whether the speed-up of any row that `blocks` take part in has a larger error than `CERTAIN`."""
    keys = {(block.file, block.task.name, block.mode) for block in blocks}
    rows: dict[object, list[tuple[Timing, Timing]]] = {}
    for m in measurements:
        if m.parallel == 1 and m.baseline and m.timing and (m.file, m.task, m.mode) in keys:
            row = (m.file, m.task, m.mode, m.configuration)
            rows.setdefault(row, []).append((m.baseline, m.timing))
    return any((standard_error(pairs) or 0.0) > CERTAIN for pairs in rows.values())


def due(so_far: BlockRuns, sweep: int, runs: int) -> int:
    """Rounds that a block makes in a sweep: one, unless its prompt takes longer to read than a round.

    Such a block waits until its rounds take at least as long as the reading, and is visited three times at
    least. Where reading takes longer than all rounds together, they are made at once.
    """
    lacking = max(sweep + 1 - so_far.done, 0)
    if sweep == runs - 1 or not so_far.round_s or not so_far.prompt_s:
        return lacking
    worth = math.ceil(so_far.prompt_s[-1] / so_far.round_s)
    if worth > runs:
        return runs - so_far.done
    return lacking if lacking >= min(worth, max(runs // 2, 1)) else 0
