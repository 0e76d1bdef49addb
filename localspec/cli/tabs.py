"""The server behind `localspec chat --serve`: an app for each tab, and no more of them than are allowed.

To be imported where it is needed only: textual-serve may not be installed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable

import typer
from aiohttp import WSCloseCode, WSMsgType, web
from aiohttp.typedefs import Middleware
from textual_serve.app_service import AppService
from textual_serve.server import Server

LOOK_S = 0.25
"""Between two looks of a waiting tab for a place."""

PATIENCE_S = 15.0
"""How long an app may take to end, once its tab is closed. The engine alone may take some seconds."""

Size = tuple[int, int]
"""Columns and rows."""


class Tab(AppService):
    """The app of one tab, and the browser that shows it."""

    async def run(self) -> None:
        """Bring what the app draws to the browser until it has ended, and tell the browser then."""
        try:
            await super().run()
        finally:
            with contextlib.suppress(ConnectionError):
                await self.remote_close()
            # An app whose tab was closed may still write; unread, that would keep it waiting.
            if self._process is not None:
                await asyncio.gather(_drained(self._process.stdout), _drained(self._process.stderr))

    async def stop(self) -> None:
        """End the app, and wait for that."""
        ending = asyncio.ensure_future(super().stop())
        await asyncio.wait({ending}, timeout=PATIENCE_S)
        if self._process is not None:
            # An app that did not obey ends when nobody can type any more.
            self.stdin.close()
        await ending
        if self._process is not None:
            await self._process.wait()


class ChatServer(Server):
    """textual-serve, for one user.

    Args:
        command: starts the app.
        host, port: where it listens.
        address: how browsers name that.
        key: what they have to know.
        most: tabs that may have a chat at once; others wait.
        middlewares: who is let in.
    """

    def __init__(
        self, command: str, host: str, port: int, *, address: str, key: str, most: int,
        middlewares: Iterable[Middleware],
    ) -> None:  # fmt: skip
        super().__init__(command, host=host, port=port, title="localspec", public_url=f"http://{address}")
        self._key, self._most, self._middlewares = key, most, middlewares
        self._chatting = 0
        self._sockets: set[web.WebSocketResponse] = set()

    def initialize_logging(self) -> None:
        """Log nothing but errors: addresses hold the key."""

    async def _make_app(self) -> web.Application:
        app = await super()._make_app()
        app.middlewares.extend(self._middlewares)
        return app

    async def on_startup(self, app: web.Application) -> None:  # noqa: ARG002 - the server's signature
        """Say where it is, and what a tab costs."""
        typer.echo(f"The chat is at {self.public_url}/?key={self._key}", err=True)
        typer.echo(
            "Each tab is a chat of its own, with its model in memory; at most "
            f"{self._most} at a time (--serve-tabs), and ctrl+c ends all.",
            err=True,
        )

    async def on_shutdown(self, app: web.Application) -> None:  # noqa: ARG002 - the server's signature
        """Close all tabs: the server waits for them."""
        closing = [one.close(code=WSCloseCode.GOING_AWAY) for one in self._sockets]
        await asyncio.gather(*closing, return_exceptions=True)

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """One tab, from its opening to its end."""
        # A browser that says nothing any more is gone.
        websocket = web.WebSocketResponse(heartbeat=15)
        await websocket.prepare(request)
        self._sockets.add(websocket)
        size = _number(request, "width", 80), _number(request, "height", 24)
        try:
            # The browser may go at any moment.
            with contextlib.suppress(ConnectionError):
                await self._serve(websocket, size)
        finally:
            self._sockets.discard(websocket)
            await websocket.close()
        return websocket

    async def _serve(self, websocket: web.WebSocketResponse, size: Size) -> None:
        now = await self._place(websocket, size)
        if now is None:
            return
        self._chatting += 1
        try:
            await self._chat(websocket, now)
        finally:
            self._chatting -= 1

    async def _place(self, websocket: web.WebSocketResponse, size: Size) -> Size | None:
        """Wait until one more chat may begin; the tab's size by then, None if it was closed."""
        if self._chatting >= self._most:
            await websocket.send_bytes(f"\x1b[2J\x1b[H{waiting(self._most)}\r\n".encode())
        while self._chatting >= self._most:
            try:
                message = await websocket.receive(timeout=LOOK_S)
            except TimeoutError:
                continue
            if message.type is not WSMsgType.TEXT:
                return None
            said = message.json()
            if said[0] == "resize":
                size = int(said[1]["width"]), int(said[1]["height"])
        return size

    async def _chat(self, websocket: web.WebSocketResponse, size: Size) -> None:
        async def close() -> None:
            await websocket.close()

        tab = Tab(
            self.command,
            write_bytes=websocket.send_bytes,
            write_str=websocket.send_str,
            close=close,
            download_manager=self.download_manager,
        )
        await tab.start(*size)
        try:
            await self._process_messages(websocket, tab)
        finally:
            await tab.stop()


async def _drained(stream: asyncio.StreamReader | None) -> None:
    while stream is not None and await stream.read(1 << 16):
        pass


def waiting(most: int) -> str:
    """What a tab shows that has no place."""
    chats = "1 tab has a chat" if most == 1 else f"{most} tabs have a chat"
    return (
        f"{chats}, with its model in memory, and more are not allowed here. This tab begins when another one "
        "is closed; `localspec chat --serve --serve-tabs N` allows more."
    )


def _number(request: web.Request, name: str, otherwise: int) -> int:
    value = request.query.get(name, "")
    return int(value) if value.isascii() and value.isdigit() else otherwise
