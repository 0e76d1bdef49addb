"""The folder of a run: whole files or none, and what goes on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from localspec.errors import StorageError
from localspec.train.state import Clock, Run, write_whole


def begun(folder: Path, settings: dict[str, object], *, fresh: bool = False) -> Run:
    run = Run(folder, settings, fresh=fresh)
    run.begin()
    return run


def test_a_run_goes_on(tmp_path: Path) -> None:
    first = begun(tmp_path / "run", {"seed": 1})
    assert not first.goes_on
    assert not first.replaces
    first.path("texts").write_text("kept")
    first.spent.texts = 12.5
    first.save()
    again = begun(tmp_path / "run", {"seed": 1})
    assert again.goes_on
    assert again.spent.texts == 12.5
    assert again.path("texts").read_text() == "kept"
    again.remove()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("settings", "fresh"), [({"seed": 2}, False), ({"seed": 1}, True)])
def test_another_run_replaces_it_once_it_begins(
    tmp_path: Path, settings: dict[str, object], fresh: bool
) -> None:
    begun(tmp_path, {"seed": 1}).path("texts").write_text("old")
    other = Run(tmp_path, settings, fresh=fresh)
    assert other.replaces
    assert not other.goes_on
    # The user has not agreed yet.
    assert other.path("texts").is_file()
    other.begin()
    assert not other.path("texts").exists()
    assert Run(tmp_path, settings).goes_on


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"settings": 3}'])
def test_a_damaged_run_is_begun_anew(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    assert not begun(tmp_path, {"seed": 1}).goes_on


def test_a_file_is_there_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "states.npy"
    path.write_text("before")

    def fails(error: Exception) -> None:
        def write(part: Path) -> None:
            part.write_text("half")
            raise error

        write_whole(path, write)

    with pytest.raises(StorageError, match=r"No space left on device\); free some space first"):
        fails(OSError(28, os.strerror(28)))
    # What PyTorch makes of the same.
    with pytest.raises(StorageError, match="failed writing file"):
        fails(RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed"))
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("states.npy", "before")]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be used"):
        Run(tmp_path / "file" / "run", {}).begin()


def test_the_clock_counts_over_all_starts(tmp_path: Path) -> None:
    run = begun(tmp_path, {})
    run.spent.texts = 30.0
    clock = Clock(run, "texts", 60.0)
    assert 0.5 <= clock.share < 0.9
    clock.tick(save=True)
    assert 30.0 <= Run(tmp_path, {}).spent.texts < 60.0
    assert Clock(run, "training", 0.0).share == 1.0
