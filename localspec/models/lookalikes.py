"""What a file is that is no GGUF model, or no language model: people give the wrong one of several."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.errors import ModelFileError

if TYPE_CHECKING:
    from localspec.models.gguf import GGUFHeader

_MAGIC = b"GGUF"
_U64 = struct.Struct("<Q")

_ENCODERS = frozenset(
    {
        "bert",
        "nomic-bert",
        "nomic-bert-moe",
        "jina-bert-v2",
        "jina-bert-v3",
        "modern-bert",
        "neo-bert",
        "eurobert",
        "gemma-embedding",
        "t5",
        "t5encoder",
        "wavtokenizer-dec",
    }
)
"""Architectures that do not write text token after token by themselves."""
_HEADS = frozenset({"eagle3", "dflash", "dspark", "gemma4-assistant"})
"""Architectures that draft from another model's hidden states."""


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


def purpose(header: GGUFHeader) -> str:
    """What a GGUF file is, in words, that is no language model by itself; "" for one that is.

    A vocabulary without weights counts as one: there is nothing else to say of it until it is loaded.
    """
    kind = header.metadata.get("general.type", "model")
    architecture = header.architecture
    if kind == "mmproj" or architecture == "clip":
        return "the part of a model that sees or hears (a projector)"
    if kind == "adapter" or "adapter.type" in header.metadata:
        return "an adapter (LoRA), which goes with a model"
    if kind not in ("model", "vocab"):
        return f"of the type {kind}, not a model"
    if architecture == "medusa":
        return "a Medusa head, which llama.cpp cannot run"
    if architecture in _HEADS:
        return f"a draft head ({architecture}), which needs the model that it was trained for"
    if architecture in _ENCODERS:
        return f"an encoder ({architecture}), which cannot write text"
    if header.split_number:
        return "not the first part of a split model"
    if _is_prediction_alone(header):
        return "the prediction layers of a model (MTP) without the rest of it"
    if header.metadata.get(f"{architecture}.pooling_type", 0):
        return "an embedding model, which cannot write text"
    if not header.metadata.get(f"{architecture}.attention.causal", True):
        return "a model that does not write token after token"
    if header.tensor_count and header.split_count <= 1 and "token_embd.weight" not in header.tensor_sizes:
        return "a part of a model, without the table of its tokens"
    return ""


def _is_prediction_alone(header: GGUFHeader) -> bool:
    """Whether a file has layers that predict further tokens, and not those that say the next one."""
    tensors = header.tensor_sizes
    trunk = header.block_count - header.extra_layers
    return trunk > 0 and any(".nextn." in name for name in tensors) and not _has_layer(tensors, 0)


def _has_layer(tensors: Iterable[str], number: int) -> bool:
    return any(name.startswith(f"blk.{number}.") for name in tensors)
