"""What a file is that is no GGUF model: people give the wrong one of several."""

from __future__ import annotations

import struct
from pathlib import Path

from localspec.errors import ModelFileError

_MAGIC = b"GGUF"
_U64 = struct.Struct("<Q")


def require_gguf(path: Path, start: bytes) -> None:
    """Raise `ModelFileError` unless a file that begins with `start` may be GGUF; says what it seems to be."""
    if not start:
        raise ModelFileError(f"{path} is empty; fetch the model again.")
    if start[:4] != _MAGIC:
        raise ModelFileError(f"{path} is not a GGUF model{_hint(start)}; give the path of a .gguf file.")


def _hint(start: bytes) -> str:
    text = start.lstrip().lower()
    if start[8:9] == b"{" and _U64.unpack(start[:8])[0] < 1 << 32:
        return " but a safetensors file, which llama.cpp has to convert first"
    if start.startswith((b"lmgg", b"tjgg", b"algg", b"fmgg")):
        return " but one of llama.cpp's formats from before GGUF, which has to be converted first"
    if start.startswith(b"version https://git-lfs"):
        return " but a Git LFS pointer; `git lfs pull` fetches the model itself"
    if text.startswith((b"<!doctype", b"<html")):
        return " but a web page, perhaps saved in place of the download"
    if start.startswith(b"PK\x03\x04"):
        return " but a zip archive (a PyTorch checkpoint or a package)"
    if start.startswith(b"\x80"):
        return " but a Python pickle (a PyTorch checkpoint)"
    if start.startswith(b"\x1f\x8b"):
        return " but a gzip archive; unpack it first"
    return ""
