"""Installed draft models follow the model that answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from localspec.messages import Load
from localspec.model_files import WantedFiles
from localspec.models import registry
from tests.models.conftest import gguf_bytes
from tests.tui.helpers import OPTIONS, running
from tests.tui.scripted import ScriptedEngine


def known(folder: Path) -> None:
    """A family of two, and a model without relatives."""
    file = registry.user_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    text = ""
    for name, rows, family in (("tall", 6400, "one"), ("short", 64, "one"), ("alone", 6400, "other")):
        path = folder / f"{name}.gguf"
        path.write_bytes(gguf_bytes(tensors=(("token_embd.weight", (rows, 8), 8),)))
        text += f'[models.{name}]\nsource = "{path.as_posix()}"\nfamily = "{family}"\n'
    file.write_text(text)


async def test_they_change_with_it(tmp_path: Path) -> None:
    known(tmp_path)
    options = replace(OPTIONS, draft=replace(OPTIONS.draft, spec="auto"))
    engine = ScriptedEngine()
    async with running(engine, files=WantedFiles(registry.resolve("tall"), options)) as app:
        await app.until(lambda: len(engine.of(Load)) == 1)
        await app.until(lambda: app.chat.ready)
        app.chat.choose_model(registry.resolve("alone"))
        await app.until(lambda: len(engine.of(Load)) == 2 and app.chat.setup.name == "alone")
        first, second = engine.of(Load)
        assert first.options.draft.companions == {"short": str(tmp_path / "short.gguf")}
        assert second.options.draft.companions == {}
        assert app.chat.setup.options.draft.companions == {}
