"""The little HTTP that a peer needs: text, JSON and server-sent events, every failure as one sentence."""

from __future__ import annotations

import http.client
import ipaddress
import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

from localspec.errors import PeerError

_SHORT_TIMEOUT_S = 10.0
_MOST_BYTES = 16 << 20
_LONGEST_MESSAGE = 300


class StatusError(PeerError):
    """The server answered with an error status.

    Attributes:
        status: the HTTP status.
    """

    def __init__(self, sentence: str, status: int) -> None:
        super().__init__(sentence)
        self.status = status


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the key to another host, and a POST would arrive as a GET."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Server:
    """One server by its address.

    Args:
        url: such as "http://localhost:8000", with or without "/v1"; "http://" may be left out.

    Raises:
        PeerError: not an address of a web server.
    """

    def __init__(self, url: str) -> None:
        text = url.strip() if "://" in url else f"http://{url.strip()}"
        try:
            parts = urllib.parse.urlsplit(text)
            host, _ = parts.hostname, parts.port
        except ValueError:
            host = None
        if not host or parts.scheme not in ("http", "https") or any(c.isspace() for c in text):
            raise PeerError(
                f"'{url}' is not the address of a server; give one such as http://localhost:8000."
            )
        if parts.username is not None:
            raise PeerError("A server's address must not contain a password; set OPENAI_API_KEY instead.")
        path = parts.path.rstrip("/").removesuffix("/completions").removesuffix("/v1")
        self.place = parts.netloc
        self._root = f"{parts.scheme}://{parts.netloc}{path}"
        handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
        if _is_loopback(host):
            handlers.append(urllib.request.ProxyHandler({}))
        self._opener = urllib.request.build_opener(*handlers)

    def text(self, path: str) -> str:
        """The body of a GET; raises `PeerError`."""
        with self._open(path, None, _SHORT_TIMEOUT_S) as response:
            try:
                body: bytes = response.read(_MOST_BYTES)
                complete = not response.length
            except (OSError, http.client.HTTPException):
                complete = False
        if not complete:
            raise PeerError(f"The server at {self.place} broke off its answer at {path}.")
        return body.decode("utf-8", "replace")

    def json(self, path: str) -> Any:
        """The JSON of a GET; raises `PeerError`."""
        try:
            return json.loads(self.text(path))
        except ValueError as error:
            raise PeerError(
                f"The server at {self.place} did not answer with JSON at {path}; is it OpenAI-compatible?"
            ) from error

    def events(
        self, path: str, request: dict[str, Any], timeout: float
    ) -> Iterator[tuple[float, dict[str, Any]]]:
        """Server-sent events of a POST, up to the "[DONE]" mark or the end of the stream.

        Yields:
            (moment in seconds of `time.perf_counter`, the event's object); for "[DONE]" an empty object.

        Raises:
            StatusError: the server refused.
            PeerError: it cannot be reached, sends something else, breaks off, or takes longer than `timeout`.
        """
        deadline = time.monotonic() + timeout
        with self._open(path, request, timeout) as response:
            if "json" in response.headers.get("Content-Type", ""):
                raise PeerError(
                    f"The server at {self.place} sent its reply in one piece instead of a stream, so its "
                    "decoding time cannot be told from the prompt's."
                )
            pending = b""
            while True:
                try:
                    piece: bytes = response.read1(1 << 16)
                except TimeoutError as error:
                    raise self._too_late(timeout) from error
                except (OSError, http.client.HTTPException) as error:
                    raise PeerError(
                        f"The server at {self.place} broke off in the middle of its reply."
                    ) from error
                moment = time.perf_counter()
                if time.monotonic() > deadline:
                    raise self._too_late(timeout)
                *lines, pending = (pending + piece).split(b"\n")
                if not piece:
                    lines.append(pending)
                for line in lines:
                    event = self._event(line.strip())
                    if event is not None:
                        yield moment, event
                if not piece:
                    return

    def _event(self, line: bytes) -> dict[str, Any] | None:
        if not line.startswith(b"data:"):
            # Blank lines, comments that keep the line open, names of events.
            return None
        data = line[5:].strip()
        if data == b"[DONE]":
            return {}
        try:
            event = json.loads(data)
        except ValueError as error:
            raise PeerError(
                f"The server at {self.place} sent something else than JSON in its stream."
            ) from error
        return event if isinstance(event, dict) else None

    def _open(self, path: str, request: dict[str, Any] | None, timeout: float) -> Any:
        headers = {"Accept": "text/event-stream" if request is not None else "*/*"}
        key = os.environ.get("OPENAI_API_KEY")
        if key:
            headers["Authorization"] = f"Bearer {key}"
        body = None
        if request is not None:
            headers["Content-Type"] = "application/json"
            body = json.dumps(request).encode()
        try:
            asked = urllib.request.Request(self._root + path, data=body, headers=headers)  # noqa: S310 - checked
            return self._opener.open(asked, timeout=timeout)
        except urllib.error.HTTPError as error:
            with error:
                raise self._refused(path, error) from error
        except urllib.error.URLError as error:
            if isinstance(error.reason, TimeoutError):
                raise self._too_late(timeout) from error
            reason = getattr(error.reason, "strerror", None) or error.reason
            raise PeerError(f"No server can be reached at {self.place} ({reason}); is it running?") from error
        except TimeoutError as error:
            raise self._too_late(timeout) from error
        except ConnectionError as error:
            raise PeerError(f"The server at {self.place} closed the connection without an answer.") from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise PeerError(f"What answers at {self.place} is no web server.") from error

    def _refused(self, path: str, error: urllib.error.HTTPError) -> StatusError:
        message = _message(error)
        said = f": {message}" if message else ""
        if error.code in (401, 403):
            sentence = f"The server at {self.place} wants a key (status {error.code}); set OPENAI_API_KEY."
        elif error.code == 404 and not message:
            sentence = f"The server at {self.place} has no {path}; give one that offers it."
        else:
            sentence = f"The server at {self.place} answered {path} with status {error.code}{said}."
        return StatusError(sentence, error.code)

    def _too_late(self, timeout: float) -> PeerError:
        return PeerError(f"The server at {self.place} did not answer within {timeout:g} seconds.")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _message(error: urllib.error.HTTPError) -> str:
    """What the body says, where it is JSON as OpenAI, vLLM or llama-server write it."""
    try:
        found = json.loads(error.read(1 << 16))
    except (OSError, ValueError, http.client.HTTPException):
        return ""
    while isinstance(found, dict):
        found = found.get("error") or found.get("message") or found.get("detail")
    text = " ".join(str(found or "").split())
    return text[:_LONGEST_MESSAGE].rstrip(".")
