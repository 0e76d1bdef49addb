"""Small GGUF files: a tokenizer of bytes, keys and tensors of blocks, and the writing itself.

Every model has 64 values a state and 264 tokens, so that a file has 0.1 to 0.5 MB and is written in
milliseconds. `alphabet` and `randoms` say what is in the weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Value = bool | int | float | str | Sequence[int] | Sequence[bool]

BYTES = 256
END = 257
MASK = 258
VOCABULARY = 264

_MERGED = "Ġt"
_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
_NORMAL, _CONTROL = 1, 3


@dataclass(frozen=True)
class Shape:
    """Sizes of a model: the width of a state, attention heads and their size, the width inside a block."""

    width: int = 64
    heads: int = 2
    kv_heads: int = 1
    head: int = 32
    inner: int = 64

    def keys(self, blocks: int) -> dict[str, Value]:
        """The keys that every architecture has, without its name before them."""
        return {
            "block_count": blocks,
            "context_length": 4096,
            "embedding_length": self.width,
            "feed_forward_length": self.inner,
            "attention.head_count": self.heads,
            "attention.head_count_kv": self.kv_heads,
            "attention.key_length": self.head,
            "attention.value_length": self.head,
            "attention.layer_norm_rms_epsilon": 1e-5,
            "rope.dimension_count": self.head,
            "rope.freq_base": 10_000.0,
        }


class Weights:
    """Tensors by name, each [out, in], filled with normal noise of unit gain where nothing else is said."""

    def __init__(self, seed: int) -> None:
        self.tensors: dict[str, NDArray[np.float32] | NDArray[np.int64]] = {}
        self.noise = np.random.default_rng(seed)

    def put(self, name: str, values: NDArray[np.floating] | NDArray[np.integer]) -> None:
        """Take in a tensor; "NAME.weight" unless `name` has a dot-separated ending of its own."""
        kept = np.int64 if np.issubdtype(values.dtype, np.integer) else np.float32
        self.tensors[name] = np.ascontiguousarray(values, kept)

    def ones(self, *names: str, width: int) -> None:
        """Weights of norms that change nothing."""
        for name in names:
            self.put(f"{name}.weight", np.ones(width))

    def normal(self, *shape: int) -> Array:
        """Noise that keeps the size of what it is multiplied with."""
        return (self.noise.normal(size=shape) / np.sqrt(shape[-1])).astype(np.float32)

    def block(
        self, number: int, shape: Shape, *, attention: float, feed: float, keep: int = 0, fused: bool = False
    ) -> None:
        """A block of random weights which adds nothing to the first `keep` values of a state.

        Args:
            number: its number in the file.
            shape: sizes.
            attention: gain of what attention adds.
            feed: gain of what the feed-forward part adds.
            keep: values of the state left alone.
            fused: queries, keys and values in one tensor, as `mimo2` wants them.
        """
        name = f"blk.{number}"
        queries = self.normal(shape.heads * shape.head, shape.width)
        keys = self.normal(shape.kv_heads * shape.head, shape.width)
        values = self.normal(shape.kv_heads * shape.head, shape.width)
        self.ones(f"{name}.attn_norm", f"{name}.ffn_norm", width=shape.width)
        if fused:
            self.put(f"{name}.attn_qkv.weight", np.vstack([queries, keys, values]))
        else:
            self.put(f"{name}.attn_q.weight", queries)
            self.put(f"{name}.attn_k.weight", keys)
            self.put(f"{name}.attn_v.weight", values)
        self.put(
            f"{name}.attn_output.weight",
            self.below(keep, attention * self.normal(shape.width, shape.heads * shape.head)),
        )
        self.feed_forward(number, shape, gain=feed, keep=keep)

    def feed_forward(self, number: int, shape: Shape, *, gain: float, keep: int = 0) -> None:
        """The feed-forward part of a block."""
        name = f"blk.{number}"
        self.put(f"{name}.ffn_gate.weight", self.normal(shape.inner, shape.width))
        self.put(f"{name}.ffn_up.weight", self.normal(shape.inner, shape.width))
        self.put(f"{name}.ffn_down.weight", self.below(keep, gain * self.normal(shape.width, shape.inner)))

    @staticmethod
    def below(keep: int, matrix: Array) -> Array:
        """`matrix` with nothing in its first `keep` rows."""
        matrix[:keep] = 0
        return matrix


def write(
    path: Path,
    architecture: str,
    keys: Mapping[str, Value],
    weights: Weights,
    *,
    template: bool = False,
    mask: int | None = MASK,
) -> Path:
    """Write a model.

    Args:
        path: where.
        architecture: `general.architecture`, which also goes before every key.
        keys: of the architecture, without its name before them.
        weights: tensors.
        template: with a chat template, which hands on what messages say and nothing else.
        mask: the mask token; None: the file names none.
    """
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in keys.items():
        _add(writer, f"{architecture}.{key}", value)
    _add_tokenizer(writer, mask)
    if template:
        writer.add_chat_template(_TEMPLATE)
    for name, values in weights.tensors.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add(writer: gguf.GGUFWriter, key: str, value: Value) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, list(value))


def _add_tokenizer(writer: gguf.GGUFWriter, mask: int | None) -> None:
    """One token a byte, whose number is the byte; one merge, since a file without any is not loaded."""
    texts = [*_byte_symbols(), _MERGED, "<|eos|>", "<|mask|>"]
    kinds = [_NORMAL] * (BYTES + 1) + [_CONTROL] * 2
    texts += [f"<|unused{number}|>" for number in range(len(texts), VOCABULARY)]
    kinds += [_CONTROL] * (VOCABULARY - len(kinds))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(texts)
    writer.add_token_types(kinds)
    writer.add_token_merges(["Ġ t"])
    writer.add_bos_token_id(END)
    writer.add_eos_token_id(END)
    writer.add_add_bos_token(False)
    if mask is not None:
        writer.add_mask_token_id(mask)


def _byte_symbols() -> list[str]:
    """The printable character that stands for each byte in vocabularies of GPT-2's kind."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in plain else next(others)) for byte in range(BYTES)]
