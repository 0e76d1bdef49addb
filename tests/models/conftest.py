"""What the model tests share: a writer of small GGUF files, wheels around them, and a hub."""

from __future__ import annotations

import os
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.models.hub_server import Hub

_RESOLVE = "/{repo_id}/resolve/{revision}/{filename}"

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


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A running hub that huggingface_hub talks to instead of the real one, with an empty cache of its own."""
    import huggingface_hub
    from huggingface_hub import constants

    from localspec.models import hub_errors

    double = Hub()
    with double.serving():
        monkeypatch.setattr(constants, "ENDPOINT", double.url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", double.url + _RESOLVE)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub-cache"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
        monkeypatch.setattr(hub_errors, "_PAUSE_S", 0.001)
        monkeypatch.setenv("NO_PROXY", "*")
        for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        yield double
        huggingface_hub.close_session()
