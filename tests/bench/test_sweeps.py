"""In which order rounds are made, on a runner that only counts; and the file that keeps them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest

from localspec.bench.blocks import BlockRunner
from localspec.bench.grid import Block, blocks
from localspec.bench.ledger import Ledger
from localspec.bench.options import Given, find_tasks, settings_of
from localspec.bench.records import Measurement, Results, Timing
from localspec.bench.rounds import BlockRuns, Round
from localspec.bench.runs import Run
from localspec.bench.sweeps import due, sweep_over
from localspec.errors import StorageError
from tests.bench.report_builders import results, settings
from tests.bench.test_runs import run_of

SHA = "0" * 64


def made(block: Block, number: int, seconds: float = 1.0, prompt_s: float = 0.5) -> Round:
    run = Run((1, 2), seconds)
    return Round(block.key, SHA, number, prompt_s, {"plain": run, "0": run})


class CountingRunner:
    """Makes rounds of one second; reading a prompt takes as long as its task's name says."""

    def __init__(self, read_s: dict[str, float], scatter: float = 0.0) -> None:
        self.visits: list[tuple[str, int]] = []
        self._read_s = read_s
        self._scatter = scatter

    def visit(
        self, block: Block, so_far: BlockRuns, rounds: int, keep: Callable[[Round], None]
    ) -> list[Measurement]:
        self.visits.append((block.task.name, rounds))
        for _ in range(rounds):
            one = made(block, so_far.done, 0.5, self._read_s.get(block.task.name, 0.1))
            so_far.add(one)
            keep(one)
        plain = Timing(tokens=2, seconds=0.5, runs=(0.5,) * so_far.done)
        runs = tuple(0.5 * (1 + self._scatter * (number % 2)) for number in range(so_far.done))
        update = {"timing": Timing(tokens=2, seconds=0.5, runs=runs), "baseline": plain}
        return [block.empty(c, "").model_copy(update=update) for c in block.configurations]


class Sweeping:
    """A bench of three blocks that keeps nothing but lists."""

    def __init__(self, runs: int, read_s: dict[str, float] | None = None, scatter: float = 0.0) -> None:
        grid = settings_of(Given(model="smollm2", tasks="copy,chain,code", modes="transcript"))
        self.blocks = blocks(grid, "model", find_tasks(grid)[0])
        self.so_far = {block.key: BlockRuns() for block in self.blocks}
        self.runner = CountingRunner(read_s or {}, scatter)
        self.measurements: dict[str, Measurement] = {}
        self.saved: list[int] = []
        self.kept: list[Round] = []
        self._runs = runs

    def run(self, most: int | None = None) -> list[tuple[str, int]]:
        sweep_over(
            self.blocks,
            self._runs,
            cast("BlockRunner", self.runner),
            self.so_far,
            there=lambda: tuple(self.measurements.values()),
            tell=lambda block, sweep: None,
            keep=self.kept.append,
            add=lambda found: self.measurements.update({m.task: m for m in found}),
            save=lambda: self.saved.append(len(self.runner.visits)),
            most=most,
        )
        return self.runner.visits


def test_every_sweep_makes_one_round_of_every_block() -> None:
    bench = Sweeping(3)
    assert bench.run() == [("copy", 1), ("chain", 1), ("code", 1)] * 3
    assert [(one.block[1], one.number) for one in bench.kept[:4]] == [
        *[("copy", 0), ("chain", 0), ("code", 0)],
        ("copy", 1),
    ]
    # What is new or complete is saved at once, better figures after a sweep.
    assert bench.saved == [1, 2, 3, 6, 7, 8, 9]


@pytest.mark.parametrize(
    ("runs", "read_s", "visits"),
    [
        (6, 0.9, [1] * 6),
        (6, 1.9, [1, 2, 2, 1]),
        # Never fewer than three visits, spread evenly, ...
        (6, 5.5, [1, 3, 2]),
        (8, 7.5, [1, 4, 3]),
        (5, 4.5, [1, 2, 2]),
        (4, 3.5, [1, 2, 1]),
        (3, 2.5, [1, 1, 1]),
        # ... but where reading takes longer than all rounds, they are neighbours.
        (6, 60.0, [1, 5]),
        (1, 60.0, [1]),
    ],
)
def test_a_prompt_that_takes_longer_to_read_than_a_round_is_read_less_often(
    runs: int, read_s: float, visits: list[int]
) -> None:
    bench = Sweeping(runs, {"chain": read_s})
    assert [rounds for name, rounds in bench.run() if name == "chain"] == visits
    assert all(block.done == runs for block in bench.so_far.values())


@pytest.mark.parametrize(("scatter", "sweeps"), [(0.005, 8), (0.3, 16)])
def test_sweeps_go_on_while_a_speedup_is_uncertain(scatter: float, sweeps: int) -> None:
    bench = Sweeping(8, scatter=scatter)
    visits = bench.run(most=16)
    assert [rounds for _, rounds in visits] == [1] * 3 * sweeps
    # Everybody has as many rounds, and each is kept.
    assert len(bench.kept) == 3 * sweeps
    assert {len(m.timing.runs) for m in bench.measurements.values() if m.timing} == {sweeps}


def test_going_on_makes_only_what_is_missing() -> None:
    bench = Sweeping(3)
    copy, chain, code = bench.blocks
    for block, rounds in ((copy, 2), (chain, 1), (code, 3)):
        for number in range(rounds):
            bench.so_far[block.key].add(made(block, number))
    # Of the last block every round was kept, but the results were not told any more.
    assert bench.run() == [("chain", 1), ("copy", 1), ("chain", 1), ("code", 0)]


def test_rounds_due() -> None:
    (block, *_) = Sweeping(1).blocks
    runs = BlockRuns()
    assert [due(runs, sweep, 8) for sweep in (0, 2)] == [1, 3]
    runs.add(made(block, 0, seconds=1.0, prompt_s=7.0))
    # A round takes two seconds here: of plain decoding and of one configuration.
    assert [due(runs, sweep, 12) for sweep in range(12)] == [0, 0, 0, 0, 4, 5, 6, 7, 8, 9, 10, 11]
    assert [due(runs, sweep, 3) for sweep in range(3)] == [2, 2, 2]


# --- the ledger


def rounds_of(count: int) -> list[Round]:
    key = ("small.BF16", "copy", "one", "free", 0.0, 1)
    return [
        Round(key, SHA, number, 0.25, {"plain": run_of(10, 11), "0": run_of(9, number, drafted=4)})
        for number in range(count)
    ]


def written(path: Path, of: Results, rounds: list[Round]) -> bytes:
    ledger = Ledger(path)
    assert ledger.begin(of) == {}
    for one in rounds:
        ledger.add(one)
    ledger.close()
    return path.read_bytes()


def test_rounds_are_there_again(tmp_path: Path) -> None:
    path, of, rounds = tmp_path / "rounds.jsonl", results(complete=False), rounds_of(3)
    written(path, of, rounds[:2])
    ledger = Ledger(path)
    ((where, block),) = ledger.begin(of).items()
    assert where == (SHA, rounds[0].block)
    assert block.done == 2
    assert block.series["0"].last == rounds[1].runs["0"]
    assert block.series["plain"].seconds == [rounds[0].runs["plain"].seconds] * 2
    assert block.prompt_s == [0.25, 0.25]
    ledger.add(rounds[2])
    ledger.close()
    again = Ledger(path)
    assert [runs.done for runs in again.begin(of).values()] == [3]
    again.remove()
    assert not path.exists()


@pytest.mark.parametrize("torn", ["cut", "noise", "short"])
def test_a_line_that_is_torn_is_dropped_and_the_next_one_is_whole(tmp_path: Path, torn: str) -> None:
    path, of, rounds = tmp_path / "rounds.jsonl", results(complete=False), rounds_of(3)
    whole = written(path, of, rounds[:2])
    last = whole.splitlines(keepends=True)[-1]
    path.write_bytes(
        {"cut": whole[:-20], "noise": whole + b"\xff\x00{\n", "short": whole + b'{"block":[]}\n'}[torn]
    )
    ledger = Ledger(path)
    done = 1 if torn == "cut" else 2
    assert [runs.done for runs in ledger.begin(of).values()] == [done]
    ledger.add(rounds[done])
    ledger.close()
    assert path.read_bytes().splitlines(keepends=True)[2] == last
    with closing(Ledger(path)) as again:
        assert [runs.done for runs in again.begin(of).values()] == [done + 1]


def test_the_ledger_of_another_bench_is_begun_anew(tmp_path: Path) -> None:
    path, of = tmp_path / "rounds.jsonl", results(complete=False)
    for other in (
        of.model_copy(update={"settings": settings(runs=4)}),
        of.model_copy(update={"started": "2026-11-30T08:00:00+00:00"}),
    ):
        path.unlink(missing_ok=True)
        written(path, of, rounds_of(2))
        ledger = Ledger(path)
        assert ledger.begin(other) == {}
        ledger.close()
        assert len(path.read_bytes().splitlines()) == 1


def test_a_ledger_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="does not exist"):
        Ledger(tmp_path / "missing" / "rounds.jsonl").begin(results())
