"""A small hub: an HTTP server that answers as the real one does where files are fetched from."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "0123456789abcdef" * 2 + "01234567"
_BLOCK = 1 << 16


@dataclass
class Refusal:
    """An answer that is none: a status, the hub's own code for the reason, and headers."""

    status: int
    code: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    message: str = ""


@dataclass
class Hub:
    """What the hub has, and how it behaves.

    Attributes:
        files: content by (repository, revision, file).
        gated: repositories that only `token` opens.
        token: the token that is accepted.
        cuts: bytes after which the next answers break off, one item an answer.
        holds: bytes of a file after which every answer stands still until `released`.
        damaged: files of which a byte is another on the way.
        ignores_ranges: answer 200 with everything where a range was asked for.
        unsized: say neither how long files are nor which version of them it is, as simple mirrors do.
        redirects: send data requests to another host, as the real hub does.
        refusal: the answer to every request.
        refusals: answers to the next requests, one item a request.
        requests: (method, path, Range, Authorization) of every request.
        most_at_once: data requests that were answered at the same time.
    """

    port: int = 0
    files: dict[tuple[str, str, str], bytes] = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)
    token: str = "hf_accepted"
    cuts: list[int] = field(default_factory=list)
    holds: dict[str, int] = field(default_factory=dict)
    released: threading.Event = field(default_factory=threading.Event)
    damaged: set[str] = field(default_factory=set)
    ignores_ranges: bool = False
    unsized: bool = False
    redirects: bool = False
    refusal: Refusal | None = None
    refusals: list[Refusal] = field(default_factory=list)
    requests: list[tuple[str, str, str | None, str | None]] = field(default_factory=list)
    most_at_once: int = 0
    _at_once: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def ranges(self) -> list[str | None]:
        """The Range header of every request for data."""
        return [r for method, path, r, _ in self.requests if method == "GET" and "/resolve/" in path]

    def asked(self, file: str) -> list[str | None]:
        """The same of the requests for one file."""
        return [r for method, path, r, _ in self.requests if method == "GET" and path.endswith(f"/{file}")]

    def publish(self, repo: str, files: dict[str, bytes], revision: str = "main") -> None:
        """Put files into a repository."""
        self.files |= {(repo, revision, name): data for name, data in files.items()}

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Answer requests, on a port that is free."""
        server = _Server(("127.0.0.1", 0), _handler(self))
        self.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.released.set()
            server.shutdown()
            server.server_close()
            thread.join()

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Count an answer with data for as long as it takes."""
        with self._lock:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            yield
        finally:
            with self._lock:
                self._at_once -= 1


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves in the middle is part of the tests."""


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self.answer(with_body=False)

        def do_GET(self) -> None:
            self.answer(with_body=True)

        def answer(self, *, with_body: bool) -> None:
            wanted = self.headers.get("Range")
            token = self.headers.get("Authorization")
            hub.requests.append((self.command, self.path, wanted, token))
            path = self.path.removeprefix("/cdn").partition("?")[0]
            if path.startswith("/api/models/"):
                self.list_files(*path.removeprefix("/api/models/").split("/tree/"))
                return
            owner, name, _, revision, file = path.lstrip("/").split("/", 4)
            refusal = self.refusal(f"{owner}/{name}", revision, file, token)
            if refusal is not None:
                self.refuse(refusal)
                return
            body = hub.files[f"{owner}/{name}", revision, file]
            if hub.redirects and path == self.path:
                self.send_response(302)
                self.send_header("Location", f"http://localhost:{hub.port}/cdn{path}")
                self.describe(body)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and not hub.ignores_ranges else 0
            if start and start >= len(body):
                self.refuse(Refusal(416))
                return
            self.send_response(206 if start else 200)
            self.describe(body)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
            if hub.unsized:
                self.send_header("Connection", "close")
            else:
                self.send_header("Content-Length", str(len(body) - start))
            self.end_headers()
            if with_body:
                with hub.answering():
                    self.send(file, body, start)

        def refusal(self, repo: str, revision: str, file: str, token: str | None) -> Refusal | None:
            if hub.refusals:
                return hub.refusals.pop(0)
            if hub.refusal is not None:
                return hub.refusal
            known = {(r, v) for r, v, _ in hub.files}
            if token is not None and token != f"Bearer {hub.token}":
                return Refusal(401, message="Invalid credentials in Authorization header")
            if repo in hub.gated and token is None and not self.path.startswith("/cdn"):
                return Refusal(401, "GatedRepo")
            if repo not in {r for r, _ in known}:
                return Refusal(404 if token else 401, "RepoNotFound")
            if (repo, revision) not in known:
                return Refusal(404, "RevisionNotFound")
            return None if (repo, revision, file) in hub.files else Refusal(404, "EntryNotFound")

        def list_files(self, repo: str, revision: str) -> None:
            """The listing of a repository; empty for one that there is not."""
            named = [
                {"type": "file", "path": name, "size": len(data), "oid": "0" * 40}
                for (known, at, name), data in hub.files.items()
                if (known, at) == (repo, revision)
            ]
            body = json.dumps(named).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def send(self, file: str, body: bytes, start: int) -> None:
            if file in hub.damaged:
                body = body[:-1] + bytes([body[-1] ^ 1])
            end = min(start + hub.cuts.pop(0), len(body)) if hub.cuts else len(body)
            held = hub.holds.get(file, end)
            while start < end:
                if start >= held:
                    self.wfile.flush()
                    hub.released.wait()
                    held = end
                block = body[start : min(end, max(held, start + 1), start + _BLOCK)]
                self.wfile.write(block)
                start += len(block)
            if end < len(body):
                self.wfile.flush()
                self.close_connection = True

        def describe(self, body: bytes) -> None:
            self.send_header("X-Repo-Commit", COMMIT)
            if hub.unsized:
                return
            self.send_header("ETag", '"anything"')
            self.send_header("X-Linked-ETag", f'"{hashlib.sha256(body).hexdigest()}"')
            self.send_header("X-Linked-Size", str(len(body)))

        def refuse(self, refusal: Refusal) -> None:
            self.send_response(refusal.status)
            if refusal.code:
                self.send_header("X-Error-Code", refusal.code)
            self.send_header("X-Error-Message", refusal.message or refusal.code)
            for name, value in refusal.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

    return Handler
