"""The bench on the real model: a small grid, an interrupt at any point, and going on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from localspec.bench.ledger import Ledger
from localspec.bench.options import Given, find_tasks, settings_of
from localspec.bench.records import Measurement, Results
from localspec.bench.report import store
from localspec.bench.rounds import Round
from localspec.bench.rows import rows
from localspec.bench.runner import Bench
from localspec.drafters import METHODS
from localspec.drafters.ngram import NgramDrafter
from localspec.errors import EngineError, UsageError
from localspec.memory.memory import Memory
from localspec.types import Budget, Draft, DraftOptions

pytestmark = pytest.mark.model


def small(model: Path, **given: Any) -> Given:
    usual: dict[str, Any] = {
        "tasks": "copy",
        "drafts": "ngram",
        "lengths": "4",
        "tokens": 24,
        "runs": 1,
        "threads": 1,
        "context": 1024,
        "startup": False,
        "passes": "1,2,5",
    }
    return Given(model=str(model), **{**usual, **given})


def bench(
    given: Given, model: Path, save: Callable[[Results], None] = lambda results: None, **more: Any
) -> Bench:
    settings = settings_of(given)
    tasks, notes = find_tasks(settings)
    return Bench(settings, [model], tasks, save=save, notes=notes, **more)


def keys(results: Results) -> list[tuple[str, ...]]:
    return [(m.task, m.prompt, m.mode, str(m.configuration), str(m.parallel)) for m in results.measurements]


def test_a_small_grid_is_measured_whole(smollm2_path: Path) -> None:
    given = small(smollm2_path, tasks="copy,random", drafts="none,ngram", parallel="2")
    results = bench(given, smollm2_path).run()
    assert results.complete
    assert [m.note for m in results.measurements] == [None] * len(results.measurements)
    forced = [m for m in results.measurements if m.mode == "transcript" and m.parallel == 1]
    assert [(m.task, m.configuration.draft) for m in forced] == [
        ("copy", "none"),
        ("copy", "ngram"),
        ("random", "none"),
        ("random", "ngram"),
    ]
    for measurement in results.measurements:
        assert measurement.baseline is not None
        assert measurement.timing is not None
        assert measurement.timing.tokens_per_second > 0
    drafted = forced[1].counts
    assert drafted is not None
    assert drafted.emitted == 24
    assert sum(forced[1].lengths) == drafted.drafted
    # A repeated text on a fixed transcript: most of it comes from drafts.
    assert drafted.accepted >= 12
    free = [m for m in results.measurements if m.mode == "free"]
    assert all(m.identical is not None for m in free)
    assert all((m.divergence is None) == bool(m.identical) for m in free)
    (file,) = results.files
    assert file.cost_curve[1] == 1.0
    assert {row.task for row in rows(results)} == {"copy", "random"}


@pytest.fixture(scope="module")
def whole(smollm2_path: Path) -> Results:
    """A run that nobody interrupts."""
    return bench(small(smollm2_path, tasks="explain,story"), smollm2_path).run()


@pytest.mark.parametrize("after", [1, 3, 5])
def test_an_interrupt_leaves_a_readable_file_and_resuming_ends_with_the_same_table(
    smollm2_path: Path, tmp_path: Path, whole: Results, after: int
) -> None:
    target = tmp_path / "bench.json"
    given = small(smollm2_path, tasks="explain,story")
    saved = 0

    def save(results: Results) -> None:
        nonlocal saved
        store.save(results, target)
        saved += 1
        if saved == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench(given, smollm2_path, save).run()
    json.loads(target.read_text())
    earlier = store.load(target)
    assert not earlier.complete
    measured = max(after - 2, 0)
    assert len(earlier.measurements) == measured
    finished = bench(given, smollm2_path, earlier=earlier).run()
    assert finished.complete
    assert keys(finished) == keys(whole)
    assert finished.measurements[:measured] == earlier.measurements
    counted = [(m.counts.drafted, m.counts.accepted) for m in finished.measurements if m.counts]
    assert counted == [(m.counts.drafted, m.counts.accepted) for m in whole.measurements if m.counts]


class Interrupted(Ledger):
    """A ledger in whose middle somebody presses Ctrl+C, right after `rounds` rounds were kept."""

    def __init__(self, path: Path, rounds: int) -> None:
        super().__init__(path)
        self._left = rounds

    def add(self, made: Round) -> None:
        super().add(made)
        self._left -= 1
        if not self._left:
            raise KeyboardInterrupt


def test_the_rounds_of_an_interrupted_bench_count(smollm2_path: Path, tmp_path: Path) -> None:
    place = tmp_path / "rounds.jsonl"
    given = small(smollm2_path, tasks="explain", runs=3, tokens=12)
    states: list[Results] = []
    # Two blocks a sweep: one of them has made its second round.
    with pytest.raises(KeyboardInterrupt):
        bench(given, smollm2_path, states.append, ledger=Interrupted(place, 3)).run()
    earlier = states[-1]
    assert not earlier.complete
    assert [len(m.timing.runs) for m in earlier.measurements if m.timing] == [1] * 2
    with place.open("ab") as file:
        file.write(b'{"block":["cut off')
    finished = bench(given, smollm2_path, states.append, earlier=earlier, ledger=Ledger(place)).run()
    assert finished.complete
    assert not place.exists()
    assert len(finished.measurements) == 2
    for before, after in zip(earlier.measurements, finished.measurements, strict=True):
        assert before.timing is not None
        assert after.timing is not None
        assert after.timing.runs[0] == before.timing.runs[0]
        assert len(after.timing.runs) == 3
        assert after.counts is not None
        assert before.counts is not None
        assert after.counts.accepted == before.counts.accepted


def test_going_on_with_another_file_of_the_same_name_is_refused(smollm2_path: Path, whole: Results) -> None:
    other = whole.files[0].model_copy(update={"sha256": "0" * 64})
    earlier = whole.model_copy(update={"files": (other,), "measurements": whole.measurements[:1]})
    with pytest.raises(UsageError, match="not the file that this bench began with"):
        bench(small(smollm2_path, tasks="explain,story"), smollm2_path, earlier=earlier).run()


def test_a_task_longer_than_the_context_says_so_and_the_run_goes_on(smollm2_path: Path) -> None:
    given = small(smollm2_path, tasks="copy,explain", context=256, modes="transcript")
    results = bench(given, smollm2_path).run()
    copy, explain = results.measurements
    assert "--context" in (copy.note or "")
    assert copy.timing is None
    assert explain.timing is not None
    assert results.complete


def test_a_drafter_that_fails_is_a_row_with_the_reason(
    smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(NgramDrafter):
        def propose(self, tokens: object, budget: Budget) -> Draft:
            raise EngineError("The drafter has broken down.")

    monkeypatch.setitem(METHODS, "ngram", lambda *given: Failing())
    given = small(smollm2_path, tasks="code", drafts="none,ngram", modes="transcript")
    none, ngram = bench(given, smollm2_path).run().measurements
    assert none.timing is not None
    assert ngram.note == "The drafter has broken down."


def test_a_drafter_that_remembers_has_been_through_earlier_replies(
    smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memories: list[int] = []

    class Remembering(NgramDrafter):
        remembers = True

    def make(options: DraftOptions, memory: Memory | None) -> Remembering:
        memories.append(0 if memory is None else memory.status.tokens)
        return Remembering()

    monkeypatch.setitem(METHODS, "ngram", make)
    given = small(smollm2_path, tasks="regenerate", modes="transcript", tokens=12)
    cold, warm = bench(given, smollm2_path).run().measurements
    assert (cold.configuration.memory, warm.configuration.memory) == ("cold", "warm")
    assert warm.timing is not None
    # A whole earlier reply.
    assert max(memories) > 5


def test_synthetic_rates_say_that_they_are_no_measurement(smollm2_path: Path) -> None:
    results = bench(small(smollm2_path, synthetic=("1",)), smollm2_path).run()
    (measurement,) = results.measurements
    assert results.invalid
    assert measurement.counts is not None
    assert measurement.counts.emitted / measurement.counts.steps == pytest.approx(5, abs=0.3)


def test_a_transcript_that_cannot_be_kept_serves_this_run(
    smollm2_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from localspec.bench.transcripts import Transcripts

    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    given = small(smollm2_path, tasks="story", modes="transcript")
    results = bench(given, smollm2_path, transcripts=Transcripts(blocked / "transcripts")).run()
    measurement: Measurement = results.measurements[0]
    assert measurement.timing is not None
    assert "could not be kept" in (measurement.note or "")
