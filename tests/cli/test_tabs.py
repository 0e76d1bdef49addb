"""`localspec chat --serve`: the tabs of a browser, their apps and engines, and how all of them end."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
from aiohttp import web

from localspec.chat.store import Store
from localspec.cli.serve import make_server
from tests.cli.browser import Browser, browsing, free_port
from tests.cli.conftest import environment, scripted_command

ALT_SCREEN = "\x1b[?1049h"
"""What the app draws first."""

DRAWN = "essage"
"""Of the prompt's "Message", whose first letter is under the cursor."""


@asynccontextmanager
async def serving(model: Path, *, tabs: int) -> AsyncIterator[Browser]:
    """A server of chats whose engines never end a reply, and a browser that may see them."""
    command = scripted_command("endless", "chat", "--model", str(model), "--draft", "none", "--serve")
    port = free_port()
    server = make_server("127.0.0.1", port, shlex.join(command), key="the-key", tabs=tabs)
    # As the command runs it: aiohttp's server for tests cancels what serves a tab that goes.
    runner = web.AppRunner(await server._make_app())
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        async with browsing(f"http://127.0.0.1:{port}/?key=the-key") as browser:
            yield browser
    finally:
        await runner.cleanup()


def apps(parent: psutil.Process | None = None) -> list[psutil.Process]:
    """The apps that run below a process, without their engines and shells."""
    found = []
    for process in (parent or psutil.Process()).children(recursive=True):
        words = process.cmdline()
        if "--serve" in words and any("python" in word for word in words[:1]):
            found.append(process)
    return found


async def test_no_more_tabs_have_a_chat_than_are_allowed(
    tiny_gguf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with serving(tiny_gguf, tabs=1) as browser:
        assert "at most 1 at a time (--serve-tabs)" in capsys.readouterr().err
        first = await browser.tab()
        await first.until(ALT_SCREEN, DRAWN)
        second = await browser.tab(columns=80)
        await second.until("1 tab has a chat", "--serve-tabs N")
        # Tabs that are closed while they wait take no place.
        third = await browser.tab()
        await third.until("1 tab has a chat")
        await third.close()
        assert len(apps()) == 1
        await second.websocket.send_json(["focus"])
        await second.websocket.send_json(["resize", {"width": 60, "height": 20}])
        await second.type("ignored")
        await first.close()
        drawn = await second.until(ALT_SCREEN, DRAWN)
        assert "ignored" not in drawn
        # It has the size that the tab has by now.
        assert max(int(column) for column in re.findall(r"\x1b\[\d+;(\d+)H", drawn)) <= 60
        assert len(apps()) == 1
        # Ctrl+q ends the app, and the tab with it.
        await second.type("\x11")
        await second.until_closed()
        fourth = await browser.tab()
        await fourth.until(ALT_SCREEN, DRAWN)
        running = apps()
    # The end of the server is the end of all.
    assert psutil.wait_procs(running, timeout=60)[1] == []
    assert apps() == []


async def test_a_tab_that_is_closed_in_the_middle_of_a_reply(tiny_gguf: Path) -> None:
    async with serving(tiny_gguf, tabs=1) as browser:
        tab = await browser.tab()
        await tab.until(ALT_SCREEN, DRAWN)
        await tab.type("hello\r")
        await tab.until("on and on")
        running = psutil.Process().children(recursive=True)
        await tab.close()
        again = await browser.tab()
        await again.until(ALT_SCREEN, "hello", "stopped")
        # The first app and its engine have ended before the second app began.
        assert psutil.wait_procs(running, timeout=0)[1] == []
        await again.close()
    store = Store(read_only=True)
    try:
        latest = store.latest()
        assert latest is not None
        _, reply = store.messages(latest.id)
    finally:
        store.close()
    assert reply.content.startswith("on and on")
    assert reply.status == "cancelled"


async def test_an_app_that_dies_closes_its_tab_and_leaves_its_place(tiny_gguf: Path) -> None:
    async with serving(tiny_gguf, tabs=1) as browser:
        tab = await browser.tab()
        await tab.until(ALT_SCREEN, DRAWN)
        (app,) = apps()
        app.kill()
        await tab.until_closed()
        again = await browser.tab()
        await again.until(ALT_SCREEN, DRAWN)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
async def test_a_server_that_ends_takes_all_tabs_with_it(tiny_gguf: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "localspec", "chat", "--model", str(tiny_gguf), "--draft", "none"]
    command += ["--serve", "--port", str(free_port())]
    with subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            found = re.search(r"http://\S+", process.stderr.readline())
            assert found is not None
            async with browsing(found[0]) as browser:
                tab = await browser.tab()
                await tab.until(ALT_SCREEN, DRAWN)
                running = psutil.Process(process.pid).children(recursive=True)
                assert running
                process.send_signal(number)
                await tab.until_closed()
                # Well within the minute that the server would wait for tabs.
                assert process.wait(timeout=40) == (0 if number is not signal.SIGKILL else -number)
            assert psutil.wait_procs(running, timeout=60)[1] == []
            assert "Traceback" not in process.stderr.read()
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("host", "port", "address"),
    [
        ("127.0.0.1", 8000, "http://127.0.0.1:8000"),
        ("127.0.0.1", 80, "http://127.0.0.1"),
        ("LocalHost", 8000, "http://localhost:8000"),
        ("0:0:0:0:0:0:0:1", 8000, "http://[::1]:8000"),
        ("::1", 80, "http://[::1]"),
    ],
)
def test_the_address_is_as_browsers_say_it(host: str, port: int, address: str) -> None:
    assert make_server(host, port, "false").public_url == address
