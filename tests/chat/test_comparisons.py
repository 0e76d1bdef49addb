"""The file of past comparisons: what is kept, and what damage does."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.chat import comparisons
from localspec.chat.comparisons import Comparisons, PastComparison, Way
from localspec.errors import StorageError

WAYS = (Way("none", "coupled"), Way("suffix", "rejection", length=4, policy="fixed", tokens_per_second=61.4))


def past(number: int, *, rounds: int = 1, prompt: str = "Why?") -> PastComparison:
    return PastComparison(
        f"id{number}", "smollm2", prompt, 7, 0.8, rounds, WAYS, 1.8, True, time=1000.0 + number
    )


def test_what_is_kept_comes_back_newest_first_and_once(tmp_path: Path) -> None:
    kept = Comparisons(tmp_path / "data" / "comparisons.jsonl")
    assert kept.newest() == []
    for one in (past(1), past(2), past(1, rounds=2)):
        kept.add(one)
    assert kept.newest() == [past(2), past(1, rounds=2)]
    assert kept.newest(1) == [past(2)]


def test_prompts_with_separators_of_their_own_stay_whole(tmp_path: Path) -> None:
    kept = Comparisons(tmp_path / "comparisons.jsonl")
    one = past(1, prompt="a\u2028b\u2029c\x85d\ne")
    kept.add(one)
    assert kept.newest() == [one]
    # As earlier versions wrote them.
    kept.path.write_text(kept.path.read_text().replace("\\u2028", "\u2028"), encoding="utf-8")
    assert kept.newest() == [one]


def test_lines_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    kept = Comparisons(tmp_path / "comparisons.jsonl")
    kept.add(past(1))
    with kept.path.open("ab") as file:
        file.write(b'{"id": 3}\n[]\nnonsense\n\xff\xfe\n{"id": "torn", "wa')
    assert kept.newest() == [past(1)]
    kept.add(past(2))
    # The torn line took the next one with it, and nothing else.
    kept.add(past(4))
    assert kept.newest() == [past(4), past(1)]


def test_old_ones_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparisons, "KEPT", 3)
    kept = Comparisons(tmp_path / "comparisons.jsonl")
    for number in range(7):
        kept.add(past(number, prompt="x" * 5000))
    assert [one.id for one in kept.newest()] == ["id6", "id5", "id4", "id3"]
    assert {len(one.prompt) for one in kept.newest()} == {2000}


def test_a_file_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "comparisons.jsonl").mkdir()
    with pytest.raises(StorageError, match="cannot be kept"):
        Comparisons(tmp_path / "comparisons.jsonl").add(past(1))


def test_private_ones_stay_in_this_process(tmp_path: Path) -> None:
    kept = Comparisons(tmp_path / "comparisons.jsonl", private=True)
    kept.add(past(1))
    assert kept.newest() == [past(1)]
    assert not kept.path.exists()
