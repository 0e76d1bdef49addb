"""Vocabulary-only GGUF files that llama.cpp loads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.models.conftest import gguf_bytes

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

SPECIAL = ("<|end|>", "<|start|>", "<|turn|>", "<|a|>", "<|b|>")
MERGES = ("h e", "l l", "he ll", "hell o", "w o", "r l", "wo rl", "worl d", "Ġ world")


def byte_letters() -> list[str]:
    """The letter that stands for each byte in byte-level BPE."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in plain else next(others)) for byte in range(256)]


def bpe_metadata(
    *,
    special: tuple[str, ...] = SPECIAL,
    words: tuple[str, ...] = (),
    merges: tuple[str, ...] = MERGES,
    pre: str = "gpt-2",
    bos: int = 1,
    eos: int = 0,
    adds_bos: bool = False,
    padding: int = 0,
    size: int | None = None,
    template: str = "",
) -> dict[str, Any]:
    """A byte-level BPE tokenizer: special tokens, bytes, what is merged, further special tokens, padding."""
    tokens = [*special, *byte_letters(), *(merge.replace(" ", "") for merge in merges)]
    types = [CONTROL] * len(special) + [NORMAL] * (256 + len(merges))
    tokens += [*words, *(f"[PAD{number}]" for number in range(padding))]
    types += [CONTROL] * len(words) + [UNUSED] * padding
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens[:size],
        "tokenizer.ggml.token_type": types[:size],
        "tokenizer.ggml.merges": list(merges),
        "tokenizer.ggml.bos_token_id": bos,
        "tokenizer.ggml.eos_token_id": eos,
        "tokenizer.ggml.add_bos_token": adds_bos,
        "tokenizer.chat_template": template,
    }


def spm_metadata(*, adds_bos: bool = True) -> dict[str, Any]:
    """A SentencePiece tokenizer of bytes and a few words."""
    words = ["\u2581", "he", "ll", "hell", "hello", "\u2581hello", "w", "o", "r", "l", "d", "h", "e"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *words]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [float(-place) for place in range(len(tokens))],
        "tokenizer.ggml.token_type": [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * len(words)],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": adds_bos,
    }


def write(path: Path, metadata: dict[str, Any], *, rows: int = 64, **more: Any) -> Path:
    """A file with that tokenizer and one small tensor; `rows` sets its number of parameters."""
    tensors = (("token_embd.weight", (rows, 8), 8),)
    path.write_bytes(gguf_bytes(metadata, tensors=more.pop("tensors", tensors), **more))
    return path
