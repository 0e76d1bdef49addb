"""From typed options to a grid, and the sentences for what cannot be one."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from localspec.bench.grid import blocks, measured
from localspec.bench.options import Given, find_tasks, settings_of
from localspec.bench.records import Configuration, Measurement, Settings, Timing
from localspec.bench.tasks import TASK_NAMES
from localspec.drafters import METHODS
from localspec.drafters.ngram import NgramDrafter
from localspec.errors import NotFoundError, UsageError


def grid(**given: Any) -> Settings:
    return settings_of(Given(model="smollm2", **given))


def test_left_alone_it_is_every_task_both_ways_with_ngram() -> None:
    settings = grid()
    assert settings.tasks == TASK_NAMES
    assert settings.modes == ("transcript", "free")
    assert (settings.drafts, settings.lengths) == (("ngram",), (8,))


def test_lists_are_split_and_doubles_dropped() -> None:
    settings = grid(tasks="copy, story,copy", drafts="none,ngram", lengths="2,4,8", temperatures="0,0.8")
    assert settings.tasks == ("copy", "story")
    assert settings.lengths == (2, 4, 8)
    assert settings.temperatures == (0.0, 0.8)


def test_single_tasks_may_have_more_prompts() -> None:
    settings = grid(prompts_per_task="2,copy=6")
    assert [settings.prompts(task) for task in ("copy", "story")] == [6, 2]


@pytest.mark.parametrize(
    ("option", "value", "word"),
    [
        ("tasks", "copy,nonsense", "nonsense"),
        ("tasks", "copy,,story", "commas"),
        ("drafts", "ngram,magic", "magic"),
        ("lengths", "0", "out of range"),
        ("lengths", "four", "not a number"),
        ("policies", "magic", "magic"),
        ("policies", "fixed:0", "fixed:8"),
        ("verify", "hope", "hope"),
        ("temperatures", "nan", "out of range"),
        ("temperatures", "-1", "temperature"),
        ("modes", "dream", "dream"),
        ("modes", "synthetic", "synthetic"),
        ("synthetic", ("nan",), "finite"),
        ("parallel", "0", "out of range"),
        ("peers", "ollama", "ollama"),
        ("prompts_per_task", "0", "--prompts-per-task"),
        ("prompts_per_task", "copy=x", "--prompts-per-task"),
        ("prompts_per_task", "nonsense=3", "nonsense"),
        ("runs", 0, "--runs"),
        ("tokens", 1, "--max-tokens"),
    ],
)
def test_what_cannot_be_used_is_a_sentence(option: str, value: object, word: str) -> None:
    with pytest.raises(UsageError, match=word):
        grid(**{option: value})


def test_a_prompt_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="prompts"):
        grid(prompts_file=tmp_path / "none.txt")


def test_own_prompts_alone_leave_the_shipped_tasks_out(tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    file.write_text("Why is the sky blue?\n---\nAnd the sea?\n")
    tasks, notes = find_tasks(grid(prompts_file=file))
    assert [task.name for task in tasks] == ["prompts"]
    assert len(tasks[0].prompts) == 2
    assert notes == ()


def test_an_empty_prompt_file_is_noted_beside_other_tasks_and_refused_alone(tmp_path: Path) -> None:
    file = tmp_path / "empty.txt"
    file.write_text("\n")
    tasks, notes = find_tasks(grid(prompts_file=file, tasks="copy"))
    assert [task.name for task in tasks] == ["copy"]
    assert "empty" in notes[0]
    with pytest.raises(UsageError):
        find_tasks(grid(prompts_file=file))


def test_the_grid_is_every_length_of_every_drafter_and_no_drafts_once() -> None:
    settings = grid(tasks="copy,random", drafts="none,ngram", lengths="2,4", modes="transcript,free")
    tasks, _ = find_tasks(settings)
    found = blocks(settings, "model", tasks)
    assert [(b.task.name, b.mode, b.temperature) for b in found] == [
        ("copy", "transcript", 0.0),
        ("copy", "free", 0.0),
        ("random", "transcript", 1.0),
        ("random", "free", 1.0),
    ]
    assert [(c.draft, c.length) for c in found[0].configurations] == [
        ("none", None),
        ("ngram", 2),
        ("ngram", 4),
    ]


def test_rules_of_verification_are_compared_where_the_text_is_free() -> None:
    settings = grid(tasks="copy", drafts="none,ngram", verify="coupled,rejection")
    tasks, _ = find_tasks(settings)
    rules = {
        b.mode: [(c.draft, c.verify) for c in b.configurations] for b in blocks(settings, "model", tasks)
    }
    # Without drafts there is nothing to verify.
    assert rules == {
        "transcript": [("none", "coupled"), ("ngram", "coupled")],
        "free": [("none", "coupled"), ("ngram", "coupled"), ("ngram", "rejection")],
    }


def test_synthetic_rates_follow_the_length() -> None:
    settings = grid(tasks="copy", lengths="1,3", synthetic=("0.5", "length:2"))
    (block,) = blocks(settings, "model", find_tasks(settings)[0])
    assert block.mode == "synthetic"
    assert [len(c.rates) for c in block.configurations] == [1, 1, 3, 3]


def test_concurrency_takes_the_experiments_tasks_and_one_length() -> None:
    settings = grid(tasks="copy,story", lengths="2,4,8", parallel="1,2,4", modes="transcript")
    found = [b for b in blocks(settings, "model", find_tasks(settings)[0]) if b.parallel > 1]
    assert [(b.task.name, b.parallel) for b in found] == [("copy", 2), ("copy", 4)]
    assert [c.length for c in found[0].configurations] == [4]


def test_a_drafter_that_remembers_is_measured_cold_and_warm(monkeypatch: pytest.MonkeyPatch) -> None:
    class Remembering(NgramDrafter):
        remembers = True

    monkeypatch.setitem(METHODS, "ngram", lambda *given: Remembering())
    settings = grid(tasks="copy", modes="transcript")
    (block,) = blocks(settings, "model", find_tasks(settings)[0])
    assert [c.memory for c in block.configurations] == ["cold", "warm"]
    for memory in ("cold", "warm"):
        chosen = grid(tasks="copy", drafts="ngram,suffix", modes="transcript", parallel="2", memories=memory)
        alone, together = blocks(chosen, "model", find_tasks(chosen)[0])
        assert [c.memory for c in alone.configurations] == [memory, memory]
        # Several sequences have no memory.
        assert [(c.draft, c.memory) for c in together.configurations] == [
            ("ngram", "cold"),
            ("suffix", "cold"),
        ]
    with pytest.raises(UsageError, match="cold or warm"):
        grid(memories="cold,lukewarm")


def test_a_block_is_measured_when_all_its_configurations_are() -> None:
    settings = grid(tasks="copy", lengths="2,4", modes="transcript")
    (block,) = blocks(settings, "model", find_tasks(settings)[0])
    rows: list[Measurement] = [block.empty(c, "") for c in block.configurations]
    assert measured(block, rows, 3)
    assert not measured(block, rows[:1], 3)
    assert not measured(block, [row.model_copy(update={"mode": "free"}) for row in rows], 3)


def test_a_block_that_lacks_rounds_is_not_measured() -> None:
    settings = grid(tasks="copy", modes="transcript")
    (block,) = blocks(settings, "model", find_tasks(settings)[0])
    timing = Timing(tokens=9, seconds=1.0, runs=(1.0, 1.1))
    rows = [block.empty(c, "").model_copy(update={"timing": timing}) for c in block.configurations]
    assert measured(block, rows, 2)
    assert not measured(block, rows, 3)


def test_the_users_prompts_must_stay_what_they_were(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("Why?")
    settings = grid(prompts_file=path)
    assert [task.name for task in find_tasks(settings)[0]] == ["prompts"]
    path.write_text("Why not?")
    with pytest.raises(UsageError, match="has changed since this bench began; bring its content back"):
        find_tasks(settings)
    # Results of earlier versions do not tell what it was.
    assert find_tasks(settings.model_copy(update={"prompts_sha256": None}))[0]
    path.unlink()
    with pytest.raises(NotFoundError):
        find_tasks(settings)


def test_prompts_of_a_pipe_are_read_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text("Why?"))
    writer.start()
    assert find_tasks(grid(prompts_file=pipe))[0][0].prompts[0].messages[0].content == "Why?"
    writer.join()


def test_lengths_that_are_chosen_run_beside_fixed_ones() -> None:
    settings = grid(
        tasks="copy", lengths="2,auto", policies="ema:1,cost,fixed:3", modes="transcript", drafts="none,ngram"
    )
    assert (settings.lengths, settings.policies) == ((2, 3), ("cost", "ema:1"))
    (block,) = blocks(settings, "file", find_tasks(settings)[0])
    assert [(c.draft, c.length, c.policy) for c in block.configurations] == [
        ("none", None, None),
        ("ngram", 2, None),
        ("ngram", 3, None),
        *(("ngram", None, policy) for policy in settings.policies),
    ]
    only = grid(tasks="copy", policies="ema", parallel="2", modes="transcript")
    assert (only.lengths, only.policies) == ((), ("ema",))
    assert [block.parallel for block in blocks(only, "file", find_tasks(only)[0])] == [1]
    assert grid(lengths="auto").policies == ("cost",)


def test_results_from_before_policies_still_read() -> None:
    older = grid().model_dump(mode="json")
    del older["policies"]
    assert Settings.model_validate_json(json.dumps(older)).policies == ()
    assert Configuration.model_validate_json('{"draft": "ngram", "length": 8}').policy is None
