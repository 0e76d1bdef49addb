"""Headers, and files, with the shapes of well-known models and nothing but zeros in them."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localspec.models.ggml_types import TENSOR_TYPES
from localspec.models.gguf import GGUFHeader, read_header

F32, Q4_K = 0, 12


@dataclass(frozen=True)
class Shape:
    """A transformer: layers, width, heads, key-value heads, width of a head, feed-forward, vocabulary."""

    architecture: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head: int
    feed_forward: int
    vocabulary: int
    tied: bool = False
    experts: tuple[int, int] = (0, 0)
    window: int = 0
    trained: int = 40960

    def metadata(self) -> dict[str, Any]:
        """As converters write it."""
        values = {
            "block_count": self.layers,
            "embedding_length": self.width,
            "attention.head_count": self.heads,
            "attention.head_count_kv": self.kv_heads,
            "attention.key_length": self.head,
            "attention.value_length": self.head,
            "rope.dimension_count": self.head,
            "feed_forward_length": self.feed_forward,
            "context_length": self.trained,
            "vocab_size": self.vocabulary,
            "attention.layer_norm_rms_epsilon": 1e-5,
        }
        if self.experts[0]:
            values |= {
                "expert_count": self.experts[0],
                "expert_used_count": self.experts[1],
                "expert_feed_forward_length": self.feed_forward,
            }
        if self.window:
            values["attention.sliding_window"] = self.window
        named = {f"{self.architecture}.{key}": value for key, value in values.items()}
        return {"general.architecture": self.architecture, "tokenizer.ggml.model": "none"} | named

    def tensors(self) -> list[tuple[str, tuple[int, ...], int]]:
        """Name, shape and type of each."""
        width, inner, count = self.width, self.feed_forward, self.experts[0]
        found = [("token_embd.weight", (width, self.vocabulary), Q4_K), ("output_norm.weight", (width,), F32)]
        if not self.tied:
            found.append(("output.weight", (width, self.vocabulary), Q4_K))
        for layer in range(self.layers):
            query, keys = self.heads * self.head, self.kv_heads * self.head
            tensors = {
                "attn_norm": (width,),
                "attn_q": (width, query),
                "attn_k": (width, keys),
                "attn_v": (width, keys),
                "attn_output": (query, width),
                "ffn_norm": (width,),
            }
            if count:
                tensors |= {
                    "ffn_gate_inp": (width, count),
                    "ffn_gate_exps": (width, inner, count),
                    "ffn_up_exps": (width, inner, count),
                    "ffn_down_exps": (inner, width, count),
                }
            else:
                tensors |= {"ffn_gate": (width, inner), "ffn_up": (width, inner), "ffn_down": (inner, width)}
            if self.architecture != "llama":
                tensors |= {"attn_q_norm": (self.head,), "attn_k_norm": (self.head,)}
            if self.architecture == "gemma3":
                tensors |= {"post_attention_norm": (width,), "post_ffw_norm": (width,)}
            for name, shape in tensors.items():
                kind = F32 if len(shape) == 1 or name == "ffn_gate_inp" else Q4_K
                found.append((f"blk.{layer}.{name}.weight", shape, kind))
        return found


QWEN3_8B = Shape("qwen3", 36, 4096, 32, 8, 128, 12288, 151936)
QWEN3_06B = Shape("qwen3", 28, 1024, 16, 8, 128, 3072, 151936, tied=True)
LLAMA_3B = Shape("llama", 28, 3072, 24, 8, 128, 8192, 128256, tied=True, trained=131072)
LLAMA_1B = Shape("llama", 16, 2048, 32, 8, 64, 8192, 128256, tied=True, trained=131072)
GEMMA_4B = Shape("gemma3", 34, 2560, 8, 4, 256, 10240, 262144, tied=True, window=1024, trained=131072)
QWEN3_30B_A3B = Shape("qwen3moe", 48, 2048, 32, 4, 128, 768, 151936, experts=(128, 8))


def header_of(shape: Shape, name: str, **metadata: Any) -> GGUFHeader:
    """The header alone, as of a file of that name; `metadata` are further keys of the architecture."""
    sizes = {tensor: _bytes(dimensions, kind) for tensor, dimensions, kind in shape.tensors()}
    more = {f"{shape.architecture}.{key}": value for key, value in metadata.items()}
    return GGUFHeader(
        path=Path(name),
        file_bytes=sum(sizes.values()),
        version=3,
        metadata=shape.metadata() | {"tokenizer.ggml.model": "gpt2"} | more,
        tensor_sizes=sizes,
        tensor_count=len(sizes),
        tensor_bytes=sum(sizes.values()),
        parameters=0,
        vocabulary=shape.vocabulary,
        fingerprint="",
        tensor_types={tensor: kind for tensor, _, kind in shape.tensors()},
    )


def write_file(shape: Shape, path: Path, kind: int = Q4_K) -> GGUFHeader:
    """A file of that shape, its weights a hole and of the type `kind`; returns what is read of it."""
    metadata = shape.metadata()
    tensors = [(name, size, was if was == F32 else kind) for name, size, was in shape.tensors()]
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    head += b"".join(_text(key) + _value(value) for key, value in metadata.items())
    offset = 0
    for name, dimensions, number in tensors:
        head += _text(name) + struct.pack(
            f"<I{len(dimensions)}QIQ", len(dimensions), *dimensions, number, offset
        )
        offset += -(-_bytes(dimensions, number) // 32) * 32
    head += b"\0" * (-len(head) % 32)
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + offset)
    return read_header(path)


def _bytes(dimensions: tuple[int, ...], kind: int) -> int:
    elements = 1
    for length in dimensions:
        elements *= length
    block, size = TENSOR_TYPES[kind]
    return elements // block * size


def _text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    return struct.pack("<If", 6, value) if isinstance(value, float) else struct.pack("<II", 4, value)
