"""Folds and recordings."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.errors import StorageError, UsageError
from localspec.stats.metrics import RateWindow, Tally
from localspec.stats.recorder import Recorder, read_steps
from localspec.types import StepStats


def step(index: int, *, drafted: int = 8, accepted: int = 8, time_ms: int = 10) -> StepStats:
    return StepStats(
        index=index,
        time_ns=(index + 1) * time_ms * 1_000_000,
        position=100 + index,
        budget=8,
        drafted=drafted,
        accepted=accepted,
        emitted=accepted + 1,
        kind="bonus" if accepted == drafted else "correction",
        source="ngram",
        match_length=5,
        threads=2,
        draft_ns=1_000,
        verify_ns=time_ms * 1_000_000 - 3_000,
        sample_ns=1_000,
        other_ns=1_000,
    )


def test_ratios_of_known_steps():
    tally = Tally([step(0, accepted=8), step(1, accepted=2), step(2, drafted=0, accepted=0)])
    assert tally.acceptance_rate == 10 / 16
    assert tally.conditional_acceptance == 10 / 11
    assert tally.acceptance_length == 13 / 3
    assert tally.accepted_at == [2, 2, 1, 1, 1, 1, 1, 1]
    assert tally.drafted_at == [2] * 8
    assert tally.seconds_per_token == pytest.approx(0.030 / 13)
    assert tally.speculation().draft_tokens == 16


def test_a_tree_is_counted_by_its_depth():
    tree = replace(step(0, drafted=9, accepted=2), leaves=4, depth=3)
    tally = Tally([tree, step(1, drafted=2, accepted=2)])
    assert (tally.drafted, tally.accepted) == (11, 4)
    assert (tally.drafted_at, tally.accepted_at) == ([2, 2, 1], [2, 2, 0])


def test_nothing_measured_is_none_not_zero():
    tally = Tally()
    assert tally.acceptance_rate is None
    assert tally.conditional_acceptance is None
    assert tally.acceptance_length is None
    assert tally.seconds_per_token is None
    assert RateWindow().rate() is None


def test_rate_of_bursts_and_of_a_new_reply():
    window = RateWindow(1.0)
    for index in range(300):
        window.add(step(index, accepted=8))
    assert window.rate() == pytest.approx(900, rel=0.02)
    window.add(step(0, drafted=0, accepted=0))
    assert window.rate() == pytest.approx(100)


def test_a_recording_reads_back(tmp_path: Path):
    path = tmp_path / "steps.jsonl"
    with Recorder(path, {"model": "scripted"}) as recorder:
        for index in range(3):
            recorder.reason(f"tier {index}", index)
            recorder.write(step(index))
    assert list(read_steps(path)) == [step(index) for index in range(3)]
    assert path.read_text().count('{"reason":"tier ') == 3


def test_a_recording_of_before_trees_still_reads(tmp_path: Path):
    path = tmp_path / "steps.jsonl"
    with Recorder(path) as recorder:
        recorder.write(step(0))
    header, line = path.read_text().splitlines()
    older = {name: value for name, value in json.loads(line).items() if name not in ("leaves", "depth")}
    path.write_text(f"{header}\n{json.dumps(older)}\n")
    assert list(read_steps(path)) == [step(0)]
    del older["drafted"]
    path.write_text(f"{header}\n{json.dumps(older)}\n{line}\n")
    with pytest.raises(UsageError, match="line 2: not a step"):
        list(read_steps(path))


def test_a_torn_last_line_is_dropped_and_a_foreign_file_refused(tmp_path: Path):
    path = tmp_path / "steps.jsonl"
    with Recorder(path) as recorder:
        recorder.write(step(0))
        recorder.write(step(1))
    path.write_text(path.read_text()[:-40])
    assert list(read_steps(path)) == [step(0)]
    path.write_text('{"other": 1}\n')
    with pytest.raises(UsageError, match="not a recording"):
        list(read_steps(path))
    with pytest.raises(UsageError, match="Cannot read"):
        list(read_steps(tmp_path / "missing"))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_a_storage_error_also_on_closing(tmp_path: Path):
    recorder = Recorder(tmp_path / "steps.jsonl")
    recorder.close()
    recorder._file = Path("/dev/full").open("w", encoding="utf-8")  # noqa: SIM115 - closed by the recorder
    with pytest.raises(StorageError, match="No space left"), recorder:
        recorder.write(step(0))
