"""A look into a GGUF file before native code sees it: is it one, is it whole, what does it hold.

Only the header is read. Long arrays (the vocabulary) are stepped over, not turned into Python lists.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localspec.errors import ModelFileError, NotFoundError, UsageError
from localspec.models import gguf_reader, split
from localspec.models.cache import cache_widths
from localspec.models.ggml_types import FILE_TYPES, bytes_per_element
from localspec.models.lookalikes import require_gguf

_MOST_LAYERS = 4096
_LONGEST_LABEL = 16


@dataclass(frozen=True, slots=True)
class GGUFHeader:
    """What a GGUF file says of itself; a count that it does not state is 0, a text "".

    Attributes:
        path: the file.
        file_bytes: its size.
        version: of the format.
        metadata: every scalar, texts of up to a megabyte, and arrays of up to 1024 numbers.
        tensor_sizes: bytes of each tensor's data, by name.
        tensor_types: number format of each tensor, a key of `ggml_types.TENSOR_TYPES`, by name.
        tensor_offsets: where each tensor's data begins in the file, by name.
        tensor_count: number of tensors.
        tensor_bytes: size of their data.
        parameters: number of their elements.
        vocabulary: entries of the tokenizer.
        fingerprint: hash of the tokenizer, 32 characters, the same for every file in which a token id means
            the same; "" where there is no vocabulary.
    """

    path: Path
    file_bytes: int
    version: int
    metadata: Mapping[str, Any]
    tensor_sizes: Mapping[str, int]
    tensor_count: int
    tensor_bytes: int
    parameters: int
    vocabulary: int
    fingerprint: str
    tensor_types: Mapping[str, int] = field(default_factory=dict)
    tensor_offsets: Mapping[str, int] = field(default_factory=dict)

    @property
    def architecture(self) -> str:
        """Such as "llama" or "qwen3"."""
        return self._text("general.architecture")

    @property
    def name(self) -> str:
        """The model's own name."""
        return self._text("general.name")

    @property
    def file_type(self) -> str:
        """The quantization of most tensors, such as "Q4_K_M"."""
        code = self.metadata.get("general.file_type")
        return FILE_TYPES.get(code, f"type {code}") if isinstance(code, int) else ""

    @property
    def context_length(self) -> int:
        """Tokens of context that the model was trained with."""
        return self._count("context_length")

    @property
    def block_count(self) -> int:
        """Number of layers."""
        return self._count("block_count")

    @property
    def embedding_length(self) -> int:
        """Width of the hidden state."""
        return self._count("embedding_length")

    @property
    def head_count(self) -> tuple[int, ...]:
        """Attention heads, one number a layer."""
        return self._per_layer("attention.head_count", (0,) * self.block_count)

    @property
    def head_count_kv(self) -> tuple[int, ...]:
        """Key and value heads, one number a layer; 0 for a layer without attention."""
        return self._per_layer("attention.head_count_kv", self.head_count)

    @property
    def key_length(self) -> int:
        """Width of one key head."""
        return self._count("attention.key_length") or self._default_head_width()

    @property
    def value_length(self) -> int:
        """Width of one value head."""
        return self._count("attention.value_length") or self._default_head_width()

    @property
    def sliding_window(self) -> int:
        """Tokens of the attention window, 0 without one."""
        return self._count("attention.sliding_window")

    @property
    def tokenizer(self) -> str:
        """Kind of tokenizer, such as "gpt2" or "llama"."""
        return self._text("tokenizer.ggml.model")

    @property
    def pre_tokenizer(self) -> str:
        """How text is split before the tokenizer's merges, such as "qwen2"."""
        return self._text("tokenizer.ggml.pre")

    @property
    def has_chat_template(self) -> bool:
        """Whether the file carries a chat template."""
        return bool(self._text("tokenizer.chat_template"))

    @property
    def experts(self) -> tuple[int, int]:
        """Experts of a layer, and how many of them a token uses; (0, 0) for a dense model."""
        return self._count("expert_count"), self._count("expert_used_count")

    @property
    def extra_layers(self) -> int:
        """Layers at the end that only predict further tokens (MTP) and take no part in a plain pass."""
        return self._count("nextn_predict_layers")

    @property
    def split_count(self) -> int:
        """Files that the model is split into; 0 or 1 for a single file."""
        count = self.metadata.get("split.count", 0)
        return count if isinstance(count, int) else 0

    @property
    def split_number(self) -> int:
        """Which part of a split model this is, from 0."""
        number = self.metadata.get("split.no", 0)
        return max(number, 0) if isinstance(number, int) else 0

    @property
    def size_label(self) -> str:
        """The number of parameters as people write it, such as "8B", or counted: "135M"."""
        label = self._text("general.size_label").strip()
        return (
            label if 0 < len(label) <= _LONGEST_LABEL and label.isprintable() else _rounded(self.parameters)
        )

    def _text(self, key: str) -> str:
        value = self.metadata.get(key, "")
        return value if isinstance(value, str) else ""

    def _value(self, key: str) -> Any:
        return self.metadata.get(f"{self.architecture}.{key}")

    def _count(self, key: str) -> int:
        value = self._value(key)
        if isinstance(value, tuple):
            value = max(value, default=0)
        return max(value, 0) if isinstance(value, int) else 0

    def _per_layer(self, key: str, default: tuple[int, ...]) -> tuple[int, ...]:
        value = self._value(key)
        if isinstance(value, tuple):
            return tuple(max(item, 0) if isinstance(item, int) else 0 for item in value)
        return (max(value, 0),) * self.block_count if isinstance(value, int) else default

    def _default_head_width(self) -> int:
        heads = max(self.head_count, default=0)
        return self.embedding_length // heads if heads else 0


@dataclass(frozen=True, slots=True)
class Estimate:
    """Bytes of a model's weights, and of the keys and values of a number of tokens."""

    weights_bytes: int
    kv_bytes: int

    @property
    def total_bytes(self) -> int:
        """Both together; see `localspec.models.fit` for all that a loaded model takes."""
        return self.weights_bytes + self.kv_bytes


def estimate_memory(header: GGUFHeader, context: int, kv_type: str = "f16") -> Estimate:
    """Weights, and the cache of `context` tokens; raises `UsageError` for a `kv_type` ggml does not have."""
    try:
        element = bytes_per_element(kv_type)
    except KeyError:
        raise UsageError(f'"{kv_type}" is not a type for the KV cache; use f16, q8_0, q4_0 or f32.') from None
    per_token = sum(cache_widths(header)) * element
    return Estimate(weights_bytes=header.tensor_bytes, kv_bytes=int(per_token * max(context, 0)))


def read_header(path: Path) -> GGUFHeader:
    """Read and check the header of a GGUF file; of a split model, the headers of all its files.

    Raises:
        NotFoundError: there is no such file.
        ModelFileError: not a file, not GGUF (with a hint on what it is), of a version that llama.cpp does
            not read, damaged, shorter than its own header says, or a later part of a split model; or
            another part of it is missing.
    """
    header = read_part(path)
    if not header.architecture:
        raise ModelFileError(
            f"{path} is part {header.split_number + 1} of a split model; give the path of its first part, "
            "which ends in -00001-of-*.gguf."
        )
    if header.split_count > 1 and not header.split_number:
        return split.whole_header(header, read_part)
    return header


def read_part(path: Path) -> GGUFHeader:
    """As `read_header`, but of one file alone, and for any part of a split model.

    Only the first part says what the model is: the others have no architecture.
    """
    try:
        if path.is_dir():
            raise ModelFileError(f"{path} is a folder; give the path of a .gguf file in it.")
        if not path.exists():
            if path.is_symlink():
                raise NotFoundError(f"{path} is a link, and the file that it leads to is gone; remove it.")
            raise NotFoundError(f"There is no file {path}; check the path, or see `localspec models list`.")
        if not path.is_file():
            raise ModelFileError(f"{path} is not a regular file; give the path of a .gguf file.")
        with path.open("rb") as file:
            require_gguf(path, file.read(64))
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                raw, file_bytes = gguf_reader.read(path, data), len(data)
    except OSError as error:
        raise ModelFileError(
            f"Cannot read {path} ({error.strerror or error}); check its permissions."
        ) from error
    header = GGUFHeader(
        path=path,
        file_bytes=file_bytes,
        version=raw.version,
        metadata=raw.metadata,
        tensor_sizes=raw.tensor_sizes,
        tensor_types=raw.tensor_types,
        tensor_offsets=raw.tensor_offsets,
        tensor_count=len(raw.tensor_sizes),
        tensor_bytes=sum(raw.tensor_sizes.values()),
        parameters=raw.parameters,
        vocabulary=raw.vocabulary,
        fingerprint=raw.fingerprint,
    )
    if not header.architecture and not header.split_number:
        raise _damaged(path, "it does not name its architecture")
    if header.block_count > _MOST_LAYERS:
        raise _damaged(path, "its number of layers is impossible")
    return header


def _rounded(count: int) -> str:
    for unit, letter in ((10**9, "B"), (10**6, "M"), (10**3, "k")):
        if count >= unit:
            return f"{count / unit:.3g}{letter}"
    return str(count) if count else ""


def _damaged(path: Path, what: str) -> ModelFileError:
    return ModelFileError(f"{path} is a damaged or truncated GGUF file ({what}); fetch the model again.")
