"""`localspec chat --serve`: who gets in, and that the app is there."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from aiohttp.test_utils import TestClient, TestServer
from typer.testing import CliRunner

from localspec.cli import app
from localspec.cli.serve import check_host, is_loopback, make_server, own_command
from localspec.errors import UsageError
from tests.cli.browser import browsing, free_port
from tests.cli.conftest import environment


def test_only_this_machine_unless_it_is_said_twice(capsys: pytest.CaptureFixture[str]) -> None:
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost"))
    assert not any(is_loopback(host) for host in ("192.168.1.2", "0.0.0.0", "::", "example.org", ""))
    check_host("::1", anyway=False)
    assert capsys.readouterr().err == ""
    with pytest.raises(UsageError, match="not all of them"):
        check_host("0.0.0.0", anyway=True)
    with pytest.raises(UsageError, match="nothing of it is encrypted; add --serve-anyway"):
        check_host("192.168.1.2", anyway=False)
    check_host("192.168.1.2", anyway=True)
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("args", "wrong"),
    [
        (("--serve", "--plain"), "exclude each other"),
        (("--serve", "--inline"), "exclude each other"),
        (("--inline", "--plain"), "exclude each other"),
        (("--serve", "--record", "x.jsonl"), "is not recorded"),
        (("--serve", "--host", "10.0.0.1"), "--serve-anyway"),
        (("--serve", "--port", "0"), "greater than or equal to 1"),
    ],
)
def test_what_does_not_go_together(args: tuple[str, ...], wrong: str) -> None:
    done = CliRunner().invoke(app, ["chat", *args])
    assert done.exit_code == 2
    assert wrong in " ".join(done.stderr.split())


def test_without_textual_serve_a_sentence_says_so(monkeypatch: pytest.MonkeyPatch, tiny_gguf: Path) -> None:
    monkeypatch.setitem(sys.modules, "textual_serve.server", None)
    monkeypatch.delitem(sys.modules, "localspec.cli.tabs", raising=False)
    done = CliRunner().invoke(app, ["chat", "--serve", "--model", str(tiny_gguf), "--draft", "none"])
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "pip install 'localspec[serve]'" in done.stderr


def test_a_taken_port(tiny_gguf: Path) -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen()
        port = str(one.getsockname()[1])
        args = ["chat", "--serve", "--model", str(tiny_gguf), "--draft", "none", "--port", port]
        done = CliRunner().invoke(app, args)
    assert done.exit_code == 2
    assert f"Cannot listen on 127.0.0.1, port {port}" in done.stderr


def test_the_command_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["localspec", "chat", "--serve", "--system", "it's $HOME; ls"])
    done = subprocess.run(
        own_command().replace("-m localspec", "-c 'import sys; print(sys.argv)'"),
        shell=True, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == str(["-c", "chat", "--serve", "--system", "it's $HOME; ls"])


async def test_only_the_browser_with_the_key_gets_in(caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()
    server = make_server("127.0.0.1", port, "false", key="the-key")
    address = f"127.0.0.1:{port}"
    async with TestClient(TestServer(await server._make_app(), host="127.0.0.1", port=port)) as browser:

        async def status(path: str, **headers: str) -> int:
            answer = await browser.get(path, headers={"Host": address, **headers}, allow_redirects=False)
            return answer.status

        for path in ("/", "/ws", "/static/js/textual.js", "/?key=", "/?key=other", "/download/x"):
            assert await status(path) == 403, path
        # Other names for this machine, and pages of other sites.
        assert await status("/?key=the-key", Host=f"evil.example:{port}") == 403
        assert await status("/?key=the-key", Origin="http://evil.example") == 403
        answer = await browser.get("/?key=the-key", headers={"Host": address}, allow_redirects=False)
        assert (answer.status, answer.headers["Location"]) == (303, "/")
        assert "HttpOnly" in answer.headers["Set-Cookie"]
        assert "SameSite=Strict" in answer.headers["Set-Cookie"]
        page = await browser.get("/", headers={"Host": address})
        assert (page.status, page.headers["X-Frame-Options"]) == (200, "DENY")
        text = await page.text()
        assert f"ws://{address}/ws" in text
        assert "the-key" not in text
        assert await status("/ws", Origin="http://evil.example") == 403
    assert "the-key" not in caplog.text


def test_the_app_comes_to_the_browser(tiny_gguf: Path) -> None:
    port = free_port()
    command = [
        sys.executable, "-m", "localspec", "chat", "--model", str(tiny_gguf), "--draft", "none",
        "--serve", "--port", str(port),
    ]  # fmt: skip
    with subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            found = re.search(r"http://127\.0\.0\.1:\d+/\?key=\S+", line)
            assert found is not None, line
            seen = _looked_at(found[0])
            assert "localspec" in seen
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 0
            rest = process.stderr.read()
            assert "key=" not in rest
            assert "Traceback" not in rest
        finally:
            process.kill()


def _looked_at(address: str) -> str:
    async def look() -> str:
        async with browsing(address) as browser:
            tab = await browser.tab()
            seen = await tab.until("localspec", "essage")
            await tab.type("\x11")
            await tab.until_closed()
            return seen

    return asyncio.run(look())
