"""Copies of a file: planned by room, made once, reused, and removed again where this made them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from localspec.bench.files import is_copy_of, note_source
from localspec.errors import ModelFileError
from localspec.tune import copies as module
from localspec.tune.copies import Copy, ModelCopies
from tests.tune.ggufs import write_gguf


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "model.gguf", file_type=3)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Types that were converted, by writing a small file."""
    found: list[str] = []

    def copy_as(
        path: Path, target: Path, kind: str, *, threads: int, on_progress: Callable[[float], None]
    ) -> None:
        on_progress(0.5)
        write_gguf(target, file_type=2)
        found.append(kind)

    monkeypatch.setattr(module, "copy_as", copy_as)
    return found


def silent(share: float) -> None:
    pass


def folder(home: Path) -> Path:
    return home / "cache" / "requantized"


def test_all_types_but_its_own(source: Path) -> None:
    mine = ModelCopies(source, 1)
    assert mine.file_type == "Q4_1"
    assert [copy.file_type for copy in mine.planned()] == ["Q4_0", "Q4_K_M", "Q8_0", "BF16"]
    assert all(copy.problem is None for copy in mine.planned())
    assert "cannot be better than it" in mine.loss
    other = ModelCopies(write_gguf(source.with_name("b.gguf"), file_type=32), 1)
    assert "BF16" not in [copy.file_type for copy in other.planned()]
    assert other.loss == ""


def test_without_room_there_are_none_and_it_is_said(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=2**30))
    for copy in ModelCopies(source, 1).planned():
        assert copy.problem is not None
        assert "no room on the disk" in copy.problem


def test_a_place_that_cannot_be_written_is_said(
    source: Path, private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (private_home / "cache").write_text("a file")
    assert all("no place" in (copy.problem or "") for copy in ModelCopies(source, 1).planned())


def test_a_copy_is_made_and_removed(source: Path, private_home: Path, made: list[str]) -> None:
    mine = ModelCopies(source, 1)
    path = mine.make(Copy("Q4_0", 1), silent)
    assert path == folder(private_home) / "model.Q4_0.gguf"
    assert mine.discard(path)
    assert not path.exists()
    assert not mine.discard(path)


def test_one_that_was_there_is_used_and_stays(source: Path, private_home: Path, made: list[str]) -> None:
    folder(private_home).mkdir(parents=True)
    there = write_gguf(folder(private_home) / "model.Q4_0.gguf", file_type=2)
    note_source(there, source)
    mine = ModelCopies(source, 1)
    assert mine.make(Copy("Q4_0", 1), silent) == there
    assert made == []
    assert not mine.discard(there)
    assert there.exists()


def test_one_of_an_earlier_file_is_made_anew(source: Path, private_home: Path, made: list[str]) -> None:
    folder(private_home).mkdir(parents=True)
    there = write_gguf(folder(private_home) / "model.Q4_0.gguf", file_type=2)
    note_source(there, source)
    os.utime(source, (1, 1))
    path = ModelCopies(source, 1).make(Copy("Q4_0", 1), silent)
    assert made == ["Q4_0"]
    assert is_copy_of(path, source)


def test_one_of_another_file_of_that_name_is_made_anew(
    source: Path, private_home: Path, made: list[str]
) -> None:
    other = source.parent / "elsewhere" / source.name
    other.parent.mkdir()
    write_gguf(other, file_type=3)
    ModelCopies(other, 1).make(Copy("Q4_0", 1), silent)
    path = ModelCopies(source, 1).make(Copy("Q4_0", 1), silent)
    assert made == ["Q4_0", "Q4_0"]
    assert is_copy_of(path, source)
    assert not is_copy_of(path, other)


def test_one_of_another_model_is_refused(source: Path, private_home: Path, made: list[str]) -> None:
    folder(private_home).mkdir(parents=True)
    there = write_gguf(folder(private_home) / "model.Q4_0.gguf", file_type=2, layers=9)
    note_source(there, source)
    with pytest.raises(ModelFileError, match="another model"):
        ModelCopies(source, 1).make(Copy("Q4_0", 1), silent)


def test_the_making_can_be_ended(source: Path, private_home: Path, made: list[str]) -> None:
    def stop(share: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ModelCopies(source, 1).make(Copy("Q4_0", 1), stop)
    assert list(folder(private_home).iterdir()) == []
