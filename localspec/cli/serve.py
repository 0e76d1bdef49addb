"""`localspec chat --serve`: the app in a browser.

What can be done in the app can be done by whoever reaches it: files can be read and written. So it listens on
this machine alone unless that is asked for twice, answers only to the address that was printed, only to pages
of its own, and only to a browser that was opened with the key in that address.
"""

from __future__ import annotations

import hmac
import ipaddress
import os
import secrets
import shlex
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import typer

from localspec.errors import LocalspecError, UsageError

if TYPE_CHECKING:
    from aiohttp import web
    from aiohttp.typedefs import Middleware

    from localspec.cli.tabs import ChatServer

HOST = "127.0.0.1"
PORT = 8000
TABS = 2
"""Tabs that may have a chat at once: each takes the memory of a model."""

HTTP_PORT = 80
"""The port that browsers leave out of an address."""

MISSING = f"--serve needs textual-serve; install it with: {sys.executable} -m pip install 'localspec[serve]'"


def served() -> bool:
    """Whether this process draws for a browser: it was started by a server of this kind."""
    return os.environ.get("TEXTUAL_DRIVER", "").endswith(":WebDriver")


def check_host(host: str, *, anyway: bool) -> None:
    """Warn of an address that others can reach.

    Raises:
        UsageError: it stands for every address, or others can reach it and `anyway` is not said.
    """
    if is_loopback(host):
        return
    if host in ("", "0.0.0.0", "::", "*"):  # noqa: S104 - refused
        raise UsageError(f"--host needs one address of this machine, such as {HOST}, not all of them.")
    warning = (
        f"whoever reads the traffic to {host} can chat, and read and write files, as you: nothing of it is "
        "encrypted"
    )
    if not anyway:
        raise UsageError(f"{warning[0].upper()}{warning[1:]}; add --serve-anyway if that is meant.")
    typer.echo(f"localspec: {warning}.", err=True)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def serve(host: str = HOST, port: int = PORT, tabs: int = TABS) -> None:
    """Serve the command that this process was started with, until ctrl+c.

    Args:
        host: an address of this machine, see `check_host`.
        port: a free port there.
        tabs: that may have a chat at once.

    Raises:
        UsageError: textual-serve is not installed, or the address cannot be used.
    """
    try:
        server = make_server(host, port, own_command(), tabs=tabs)
    except ImportError as error:
        raise UsageError(MISSING) from error
    _check_free(host, port)
    try:
        server.serve()
    except OSError as error:
        raise LocalspecError(f"The server has ended ({error.strerror or error}); start it again.") from error


def own_command() -> str:
    """The command line of this process, for a shell; `served` tells the two apart."""
    words = [sys.executable, "-P", "-m", "localspec", *sys.argv[1:]]
    return subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)


def make_server(host: str, port: int, command: str, key: str | None = None, tabs: int = TABS) -> ChatServer:
    """A server that starts `command` for every browser tab.

    Args:
        host: where it listens.
        port: the same.
        command: starts the app.
        key: what browsers have to know; a new one if not given.
        tabs: that may have a chat at once.

    Raises:
        ImportError: textual-serve is not installed.
    """
    from localspec.cli.tabs import ChatServer

    secret = key or secrets.token_urlsafe(24)
    name = _as_browsers_say(host)
    address = name if port == HTTP_PORT else f"{name}:{port}"
    allowed = guard(address, port, secret)
    return ChatServer(command, host, port, address=address, key=secret, most=tabs, middlewares=[allowed])


def _as_browsers_say(host: str) -> str:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host.lower()
    return f"[{address}]" if address.version == 6 else str(address)


def guard(address: str, port: int, key: str) -> Middleware:
    """A middleware that turns away everybody but the user's browser.

    Args:
        address: host and port as the browser has to name them; other names may lead here from anywhere.
        port: the same alone.
        key: what the first request has to bring, and a cookie brings from then on.
    """
    from aiohttp import web

    # Browsers send cookies to every port of a host.
    cookie = f"localspec_{port}"
    origin = f"http://{address}"

    @web.middleware
    async def turn_away(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        # Pages of other sites may call this address too: the browser says where they are from.
        if request.host != address or request.headers.get("Origin", origin) != origin:
            raise web.HTTPForbidden(text=f"This is {origin}, and answers to its own pages alone.")
        if request.path == "/" and _same(request.query.get("key", ""), key):
            # The key leaves the address bar, and with it the history.
            answer = web.HTTPSeeOther("/")
            answer.set_cookie(cookie, key, httponly=True, samesite="Strict")
            raise answer
        if not _same(request.cookies.get(cookie, ""), key):
            raise web.HTTPForbidden(text="Open the address that localspec has printed, with its key.")
        answered = await handler(request)
        if not answered.prepared:
            answered.headers["Referrer-Policy"] = "no-referrer"
            answered.headers["X-Frame-Options"] = "DENY"
        return answered

    return turn_away


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(), wanted.encode())


def _check_free(host: str, port: int) -> None:
    try:
        family, kind, number, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, number) as one:
            if os.name != "nt":
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind(place)
    except OSError as error:
        raise UsageError(
            f"Cannot listen on {host}, port {port} ({error.strerror}); choose others with --host and --port."
        ) from error
