"""A browser's side of `localspec chat --serve`: the page, its key and its websockets."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

PATIENCE_S = 120


def free_port() -> int:
    """A port that nobody listens on just now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Tab:
    """One tab: what its page is sent, and what is typed in it."""

    def __init__(self, websocket: aiohttp.ClientWebSocketResponse) -> None:
        self.websocket = websocket

    async def until(self, *wanted: str) -> str:
        """Everything that was drawn until each of `wanted` was among it."""
        seen = ""
        async with asyncio.timeout(PATIENCE_S):
            while not all(word in seen for word in wanted):
                message = await self.websocket.receive()
                assert message.type is aiohttp.WSMsgType.BINARY, (message, seen)
                seen += message.data.decode(errors="replace")
        return seen

    async def until_closed(self) -> None:
        """Wait for the server to close it."""
        async with asyncio.timeout(PATIENCE_S):
            async for _ in self.websocket:
                pass

    async def type(self, keys: str) -> None:
        """Send keys."""
        await self.websocket.send_json(["stdin", keys])

    async def close(self) -> None:
        """Close the tab."""
        await self.websocket.close()


class Browser:
    """Has opened the address with the key, so that it has the cookie."""

    def __init__(self, session: aiohttp.ClientSession, page: str) -> None:
        self._session = session
        found = re.search(r"ws://[^\"']+/ws", page)
        assert found is not None, page
        self._websocket = found[0]

    async def tab(self, columns: int = 100, rows: int = 30) -> Tab:
        """Open a tab."""
        address = f"{self._websocket}?width={columns}&height={rows}"
        return Tab(await self._session.ws_connect(address))


@asynccontextmanager
async def browsing(address: str) -> AsyncIterator[Browser]:
    """A browser at an address with its key; waits until a server listens there."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                async with session.get(address) as answer:
                    page = await answer.text()
                break
            except aiohttp.ClientConnectorError:
                # It says where it is just before it listens.
                assert time.monotonic() < deadline
                await asyncio.sleep(0.1)
        yield Browser(session, page)
