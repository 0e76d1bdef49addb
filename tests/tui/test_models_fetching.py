"""Fetching in the models screen, without leaving it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from localspec.models import registry, store
from tests.models.conftest import gguf_bytes
from tests.models.hub_server import Hub
from tests.tui.helpers import running
from tests.tui.scripted import ScriptedEngine
from tests.tui.shelves import (
    REGISTRY,
    Fetching,
    files_of,
    keys,
    line_of,
    opened,
    said,
    shipped,
    typed,
)
from tui.model_rows import part_bytes


async def test_models_are_fetched_in_line_without_leaving(target: Path, fetching: Fetching) -> None:
    engine = ScriptedEngine(["One."])
    async with running(engine, files=files_of(target)) as app:
        await app.ready()
        screen = await opened(app)
        await typed(app, "big-1b")
        await app.pilot.press("f8")
        await app.until(lambda: "41 %" in line_of(screen, "big-1b"))
        assert "Downloading 246.0 MB of 600.0 MB" in said(screen)
        assert "f8 stop" in keys(screen)
        await typed(app, "single")
        await app.pilot.press("f8")
        await app.until(lambda: "waits" in line_of(screen, "single"))
        assert fetching.asked == ["big-1b"]
        # Back in the chat, it goes on and is told of.
        await app.pilot.press("escape")
        await app.until(lambda: "fetching big-1b 41 %, 1 more" in app.activity)
        await app.send("meanwhile")
        await app.until(lambda: "One." in app.transcript.text and not app.chat.busy)
        fetching.deliver.add("big-1b")
        await app.until(lambda: "big-1b is here; f7 changes to it." in app.transcript.text)
        screen = await opened(app)
        assert "big-1b" in [row.id for row in screen._shelf.installed]
        await app.until(lambda: "41 %" in line_of(screen, "single"))
        fetching.deliver.add("single")
        await app.until(lambda: "single" in [row.id for row in screen._shelf.installed])
        assert app.chat.setup.name == "scripted"
    assert fetching.asked == ["big-1b", "single"]


async def test_fetching_is_stopped_and_goes_on_later(target: Path, fetching: Fetching) -> None:
    async with running(files=files_of(target)) as app:
        await app.ready()
        screen = await opened(app)
        await typed(app, "single")
        await app.pilot.press("f8")
        await app.until(lambda: "41 %" in line_of(screen, "single"))
        await app.pilot.press("f8")
        assert "Stopped" in said(screen)
        entry = registry.find_entry("single")
        part = store.entry_dir(entry) / ".partial" / "single.gguf.abc.part"
        part.parent.mkdir(parents=True)
        part.write_bytes(bytes(1000))
        assert part_bytes(entry) == 1000
        await app.pilot.press("escape")
        screen = await opened(app)
        await typed(app, "single")
        assert "is here" in line_of(screen, "single")
        assert "f8 fetch on" in keys(screen)
        await app.pilot.press("f8")
        await app.until(lambda: fetching.asked == ["single", "single"])
        await app.pilot.press("f8", "delete")
        assert "free 1.0 kB" in said(screen)
        await app.pilot.press("delete")
        await app.until(lambda: not part.exists())


async def test_what_cannot_be_fetched_says_why_in_its_place(target: Path, fetching: Fetching) -> None:
    fetching.fail["single"] = "No connection to huggingface.co; check the network."
    async with running(files=files_of(target)) as app:
        await app.ready()
        screen = await opened(app)
        await typed(app, "single")
        await app.pilot.press("f8")
        await app.until(lambda: "! not fetched" in line_of(screen, "single"))
        assert "No connection to huggingface.co" in said(screen)
        fetching.fail["single"] = "Not enough space in the cache folder."
        await app.pilot.press("f8")
        await app.until(lambda: "Not enough space" in said(screen))
        del fetching.fail["single"]
        fetching.deliver.add("single")
        await app.pilot.press("f8")
        await app.until(lambda: "single" in [row.id for row in screen._shelf.installed])
        # A failure that nobody looks at is told in the chat.
        await typed(app, "demo")
        await app.pilot.press("f8", "escape")
        await app.until(lambda: "fetching demo" in app.activity)
        fetching.fail["demo"] = "No connection to huggingface.co; check the network."
        await app.until(lambda: "No connection to huggingface.co" in app.transcript.text)


async def test_a_model_is_fetched_and_used_while_the_chat_goes_on(target: Path, fetching: Fetching) -> None:
    engine = ScriptedEngine(["One."])
    async with running(engine, files=files_of(target)) as app:
        await app.ready()
        await opened(app)
        await typed(app, "single")
        await app.pilot.press("enter")
        await app.until(lambda: "Downloading single" in app.activity)
        await app.send("meanwhile")
        await app.until(lambda: "One." in app.transcript.text and not app.chat.busy)
        # Here it is seen too, and stopped.
        screen = await opened(app)
        await typed(app, "single")
        await app.until(lambda: "41 %" in line_of(screen, "single"))
        await app.pilot.press("f8")
        await app.until(lambda: app.chat.setup.fetching is None)
        await app.pilot.press("escape")
        await app.until(lambda: "Downloading" not in app.activity)
        await opened(app)
        await typed(app, "single")
        await app.pilot.press("enter")
        await app.until(lambda: "Downloading single" in app.activity)
        await app.pilot.press("escape")
        await app.until(lambda: "Downloading" not in app.activity)
        await opened(app)
        await typed(app, "single")
        await app.pilot.press("enter")
        fetching.deliver.add("single")
        await app.until(lambda: app.chat.setup.name == "single")


async def test_a_family_is_fetched_in_the_size_that_suits(target: Path, fetching: Fetching) -> None:
    async with running(files=files_of(target)) as app:
        await app.ready()
        screen = await opened(app)
        await app.until(lambda: "CPU" in line_of(screen, "family/big"))
        await app.pilot.press("down", "down")
        assert "f8 fetch it" in keys(screen)
        await app.pilot.press("f8")
        await app.until(lambda: "41 %" in line_of(screen, "big-4b"))
        assert "f8 stop" in keys(screen)
        fetching.deliver.add("big-4b")
        await app.until(lambda: "big-4b" in [row.id for row in screen._shelf.installed])
        await typed(app, "big")
        await app.pilot.press("down", "f8")
        assert "big-4b is here already" in said(screen)


async def test_what_there_is_no_room_for_is_asked_for_twice(target: Path, fetching: Fetching) -> None:
    async with running(files=files_of(target)) as app:
        await app.ready()
        screen = await opened(app)
        await app.until(lambda: "CPU" in line_of(screen, "family/big"))
        await typed(app, "big-70b")
        for key in ("enter", "f8"):
            await app.pilot.press(key)
            assert app.app.screen is screen
            assert f"{key} again: fetch it all the same" in said(screen)
        await app.pilot.press("escape")
        assert app.app.screen is screen
        assert fetching.asked == []
        await app.pilot.press("f8", "f8")
        await app.until(lambda: fetching.asked == ["big-70b"])


async def test_a_real_download_is_stopped_and_continued(
    hub: Hub, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = gguf_bytes(tensors=(("token_embd.weight", (64 * 1024, 8), 8),))
    hub.publish("o/single", {"single.gguf": whole})
    hub.holds["single.gguf"] = 200_000
    shipped(tmp_path, monkeypatch, REGISTRY.replace("2000000000", str(len(whole))))
    async with running(files=files_of(target)) as app:
        await app.ready()
        screen = await opened(app)
        await typed(app, "single")
        await app.pilot.press("f8")
        await app.until(lambda: "% ━" in line_of(screen, "single"), 20)
        await app.pilot.press("f8")
        await app.until(lambda: "is here" in line_of(screen, "single"), 20)
        # Else the rest might still arrive there.
        await app.until(lambda: not any(one.name == "model-finder" for one in threading.enumerate()), 20)
        hub.holds.clear()
        hub.released.set()
        await app.pilot.press("f8")
        await app.until(lambda: "single" in [row.id for row in screen._shelf.installed], 20)
        assert store.fetched(registry.find_entry("single"))
    assert any(wanted for wanted in hub.asked("single.gguf")), "it did not begin anew"
