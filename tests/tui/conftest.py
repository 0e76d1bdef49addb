"""Fixtures of the models screen's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.models import registry
from tests.models.conftest import gguf_bytes, hub
from tests.tui.shelves import MACHINE, Fetching, shipped

__all__ = ["hub"]  # a fixture


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The model that answers; another of the user's own beside it, and a shipped registry with a family."""
    shipped(tmp_path, monkeypatch)
    monkeypatch.setattr("tui.library.capacity", lambda: MACHINE)
    own = registry.user_file()
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text("")
    for name in ("target", "little"):
        path = tmp_path / f"{name}.gguf"
        path.write_bytes(gguf_bytes())
        with own.open("a") as file:
            file.write(f'[models.{name}]\nsource = "{path.as_posix()}"\n')
    return tmp_path / "target.gguf"


@pytest.fixture
def fetching(monkeypatch: pytest.MonkeyPatch) -> Fetching:
    tap = Fetching()
    monkeypatch.setattr("tui.downloads.pull", tap.pull)
    monkeypatch.setattr("localspec.model_files.pull", tap.pull)
    return tap


@pytest.fixture(autouse=True)
def no_clipboard_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """What tests copy shall not get into the clipboard of whoever runs them."""
    monkeypatch.setattr("tui.clipboard.program", lambda environment=None: None)
    monkeypatch.setattr("tui.clipboard.terminal_takes_text", lambda environment=None: True)
