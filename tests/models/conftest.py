"""What the model tests share: a writer of small GGUF files, wheels around them, and a double of the hub."""

from __future__ import annotations

import hashlib
import os
import struct
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

U32, I32, F32, BOOL, TEXT, ARRAY = 4, 5, 6, 7, 8, 9
Q8_0 = 8


def _text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    match value:
        case str():
            return struct.pack("<I", TEXT) + _text(value)
        case bool():
            return struct.pack("<I?", BOOL, value)
        case int():
            return struct.pack("<II", U32, value)
        case float():
            return struct.pack("<If", F32, value)
        case list() if value and isinstance(value[0], str):
            items = b"".join(_text(item) for item in value)
            return struct.pack("<IIQ", ARRAY, TEXT, len(value)) + items
        case list() if value and isinstance(value[0], float):
            return struct.pack(f"<IIQ{len(value)}f", ARRAY, F32, len(value), *value)
        case list():
            return struct.pack(f"<IIQ{len(value)}i", ARRAY, I32, len(value), *value)
    raise TypeError(value)


def gguf_bytes(
    metadata: dict[str, Any] | None = None,
    *,
    tensors: tuple[tuple[str, tuple[int, ...], int], ...] = (("token_embd.weight", (64, 8), Q8_0),),
    version: int = 3,
    data: bytes | None = None,
) -> bytes:
    """A small, whole GGUF file; `tensors` are (name, shape, type), their data zeros unless given."""
    values: dict[str, Any] = {
        "general.architecture": "llama",
        "general.name": "Tiny",
        "general.file_type": 7,
        "llama.context_length": 128,
        "llama.block_count": 2,
        "llama.embedding_length": 64,
        "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": ["a", "b", "é", ""],
        "tokenizer.ggml.token_type": [1, 1, 1, 3],
        "tokenizer.chat_template": "{{ messages }}",
    } | (metadata or {})
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(values))
    head += b"".join(_text(key) + _value(value) for key, value in values.items())
    offset, size = 0, 0
    for name, shape, kind in tensors:
        elements = 1
        for length in shape:
            elements *= length
        head += _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)
        size = elements // 32 * 34 if kind == Q8_0 else elements * 4
        offset += -(-size // 32) * 32
    head += b"\0" * (-len(head) % 32)
    return head + (data if data is not None else b"\0" * offset)


@pytest.fixture
def gguf_file(tmp_path: Path) -> Callable[..., Path]:
    """Writes a small GGUF file and returns its path."""

    def write(name: str = "tiny.gguf", **arguments: Any) -> Path:
        path = tmp_path / name
        path.write_bytes(gguf_bytes(**arguments))
        return path

    return write


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, dict[str, bytes]], None]:
    """Puts packages where pip finds them: no network, no settings of this machine, but the real pip."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))

    def add(package: str, files: dict[str, bytes]) -> None:
        stem = f"{package.replace('-', '_')}-1.0"
        with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
            for name, data in files.items():
                wheel.writestr(name, data)
            wheel.writestr(
                f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n"
            )
            wheel.writestr(
                f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            )
            wheel.writestr(f"{stem}.dist-info/RECORD", "")

    return add


@dataclass
class Hub:
    """A double of the hub's resolve endpoint, as its real client sees it.

    Attributes:
        files: content by (repository, revision, file).
        cuts: bytes after which the next answers break off, one item an answer.
        ignores_ranges: answer 200 with everything where a range was asked for.
        redirects: send data requests to another host, as the real hub does.
        refusal: status and error code for every request.
        requests: (method, path, Range, Authorization) of every request.
    """

    port: int = 0
    files: dict[tuple[str, str, str], bytes] = field(default_factory=dict)
    cuts: list[int] = field(default_factory=list)
    ignores_ranges: bool = False
    redirects: bool = False
    refusal: tuple[int, str] | None = None
    requests: list[tuple[str, str, str | None, str | None]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def ranges(self) -> list[str | None]:
        """The Range header of every request for data that was answered with data."""
        return [wanted for method, path, wanted, _ in self.requests if method == "GET"]


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
            hub.requests.append((self.command, self.path, wanted, self.headers.get("Authorization")))
            if hub.refusal is not None:
                self.refuse(*hub.refusal)
                return
            path = self.path.removeprefix("/cdn")
            owner, name, _, revision, file = path.lstrip("/").split("/", 4)
            body = hub.files.get((f"{owner}/{name}", revision, file))
            if body is None:
                self.refuse(404, "EntryNotFound")
                return
            if hub.redirects and path == self.path:
                self.send_response(302)
                self.send_header("Location", f"http://localhost:{hub.port}/cdn{path}")
                self.describe(body)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and not hub.ignores_ranges else 0
            self.send_response(206 if start else 200)
            self.describe(body)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
            self.send_header("Content-Length", str(len(body) - start))
            self.end_headers()
            if with_body:
                end = start + hub.cuts.pop(0) if hub.cuts else len(body)
                self.wfile.write(body[start:end])
                if end < len(body):
                    self.wfile.flush()
                    self.close_connection = True

        def describe(self, body: bytes) -> None:
            self.send_header("X-Repo-Commit", "0" * 40)
            self.send_header("ETag", '"anything"')
            self.send_header("X-Linked-ETag", f'"{hashlib.sha256(body).hexdigest()}"')
            self.send_header("X-Linked-Size", str(len(body)))

        def refuse(self, status: int, code: str) -> None:
            self.send_response(status)
            self.send_header("X-Error-Code", code)
            self.send_header("X-Error-Message", code)
            self.send_header("Content-Length", "0")
            self.end_headers()

    return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves in the middle is part of the tests."""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A running hub that huggingface_hub talks to instead of the real one."""
    import huggingface_hub.constants
    import huggingface_hub.file_download

    from localspec.models import hub as client

    double = Hub()
    server = _Server(("127.0.0.1", 0), _handler(double))
    double.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    template = double.url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", double.url)
    monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(client, "_PAUSE_S", 0.001)
    monkeypatch.setenv("NO_PROXY", "*")
    yield double
    huggingface_hub.utils.close_session()
    server.shutdown()
    server.server_close()
    thread.join()
