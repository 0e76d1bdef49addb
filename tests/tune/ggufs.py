"""Files that pass for models until their weights are wanted."""

from __future__ import annotations

import struct
from pathlib import Path


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def write_gguf(path: Path, *, file_type: int, layers: int = 2) -> Path:
    """A header without tensors; `file_type` as GGUF numbers it."""
    keys = [
        text("general.architecture") + struct.pack("<I", 8) + text("llama"),
        text("general.file_type") + struct.pack("<II", 4, file_type),
        text("llama.block_count") + struct.pack("<II", 4, layers),
    ]
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, len(keys)) + b"".join(keys))
    return path
