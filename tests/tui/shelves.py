"""A registry with a family, files for it, and a hand on the download, for tests of the models screen."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from textual.widgets import Input, OptionList

from localspec.errors import DownloadError
from localspec.models import registry, store
from localspec.models.choose import Capacity
from localspec.models.entries import ModelEntry
from localspec.models.progress import PullProgress
from tests.models.conftest import gguf_bytes
from tests.tui.helpers import OPTIONS, Running
from tests.tui.scripted import Scripted
from tui.screens.models import ModelsScreen

GB = 10**9

MACHINE = Capacity(ram=16 * 2**30, ram_bandwidth=60e9)

REGISTRY = """
[models.demo]
source = "hf:o/demo/demo.gguf"
size = 98000000
description = "Tiny."
license = "Apache-2.0"
parameters = "135M"
quantization = "Q4_1"

[models.single]
source = "hf:o/single/single.gguf"
size = 2000000000
description = "One of its kind."

[families.big]
description = "All-rounder."
license = "MIT"
context = 40960
recommended = true
[families.big.sizes.1b]
parameters = "1B"
weights = 1000000000
cache_bytes = 10000
[families.big.sizes.1b.files]
Q4_K_M = { source = "hf:o/big/big-1b-Q4_K_M.gguf", size = 600000000 }
[families.big.sizes.4b]
parameters = "4B"
weights = 4000000000
cache_bytes = 20000
[families.big.sizes.4b.files]
Q4_K_M = { source = "hf:o/big/big-4b-Q4_K_M.gguf", size = 2400000000 }
Q8_0 = { source = "hf:o/big/big-4b-Q8_0.gguf", size = 4300000000 }
[families.big.sizes.70b]
parameters = "70B"
weights = 70000000000
cache_bytes = 300000
[families.big.sizes.70b.files]
Q4_K_M = { source = "hf:o/big/big-70b-Q4_K_M.gguf", size = 42000000000 }
"""


class Fetching:
    """Stands at the download's tap: reports what it is told to, and delivers or fails when it is told to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.share = 0.41
        self.deliver: set[str] = set()
        self.fail: dict[str, str] = {}
        self._changed = threading.Event()

    def pull(self, entry: ModelEntry, report: Callable[[PullProgress], None]) -> Path:
        self.asked.append(entry.name)
        size = entry.size or 100
        while entry.name not in self.deliver:
            report(PullProgress("downloading", int(size * self.share), size, 11e6))
            if entry.name in self.fail:
                raise DownloadError(self.fail[entry.name])
            self._changed.wait(0.01)
        return put_in_place(entry.name)


def put_in_place(name: str, *, chats: bool = True, rows: int = 64) -> Path:
    """A small file where the model `name` would be fetched to."""
    entry = registry.find_entry(name)
    path = store.final_path(entry)
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata = {} if chats else {"tokenizer.chat_template": ""}
    path.write_bytes(gguf_bytes(metadata, tensors=(("token_embd.weight", (rows, 8), 8),)))
    store.write_receipt(entry.source_text, [path], [entry.sha256 or "0" * 64])
    return path


def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str = REGISTRY) -> Path:
    """Make `text` the registry that came with localspec."""
    file = tmp_path / "models.toml"
    file.write_text(text)
    monkeypatch.setattr(registry, "shipped_file", lambda: file)
    return file


def files_of(path: Path, name: str = "scripted") -> Scripted:
    """What a chat with one model's file starts with."""
    return Scripted(registry.Resolved(name, path, None), OPTIONS)


async def opened(app: Running) -> ModelsScreen:
    """The models screen, with its rows."""
    await app.pilot.press("f7")
    await app.until(lambda: isinstance(app.app.screen, ModelsScreen))
    screen = app.app.screen
    assert isinstance(screen, ModelsScreen)
    await app.until(lambda: screen.listed)
    return screen


def line_of(screen: ModelsScreen, row: str) -> str:
    return str(screen.query_one(OptionList).get_option(row).prompt)


def listed(screen: ModelsScreen) -> list[str]:
    return list(screen.listed)


def said(screen: ModelsScreen) -> str:
    return " ".join(str(screen.query_one("#models-details").render()).split())


def keys(screen: ModelsScreen) -> str:
    return str(screen.query_one("#models-keys").render())


async def typed(app: Running, text: str) -> None:
    app.app.screen.query_one(Input).value = text
    await app.pilot.pause()
