"""A look into a GGUF file before native code sees it: is it one, is it whole, what does it hold.

Only the header is read. Long arrays (the vocabulary) are stepped over, not turned into Python lists.
"""

from __future__ import annotations

import hashlib
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localspec.errors import ModelFileError, NotFoundError, UsageError
from localspec.models.cache import cache_widths
from localspec.models.disk import readable_size
from localspec.models.ggml_types import FILE_TYPES, TENSOR_TYPES, bytes_per_element
from localspec.models.lookalikes import require_gguf

_VERSIONS = (2, 3)
_DEFAULT_ALIGNMENT = 32
_LONGEST_KEPT_ARRAY = 1024
_MOST_DIMENSIONS = 4
_MOST_LAYERS = 4096

_STRING, _ARRAY = 8, 9
_SCALARS = {code: struct.Struct("<" + letter) for code, letter in enumerate("BbHhIif?")}
_SCALARS |= {10: struct.Struct("<Q"), 11: struct.Struct("<q"), 12: struct.Struct("<d")}
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")

_TOKENIZER_KEYS = frozenset(
    f"tokenizer.ggml.{key}"
    for key in ("model", "pre", "tokens", "token_type", "merges", "bos_token_id", "eos_token_id")
)
"""What token ids mean; not what a chat does with them, which converters set as they like."""


@dataclass(frozen=True, slots=True)
class GGUFHeader:
    """What a GGUF file says of itself; a count that it does not state is 0, a text "".

    Attributes:
        path: the file.
        file_bytes: its size.
        version: of the format.
        metadata: every scalar and text, and arrays of up to 1024 numbers; no other arrays.
        tensor_sizes: bytes of each tensor's data, by name.
        tensor_types: number format of each tensor, a key of `ggml_types.TENSOR_TYPES`, by name.
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

    def _text(self, key: str) -> str:
        value = self.metadata.get(key, "")
        return value if isinstance(value, str) else ""

    def _value(self, key: str) -> Any:
        return self.metadata.get(f"{self.architecture}.{key}")

    def _count(self, key: str) -> int:
        value = self._value(key)
        if isinstance(value, tuple):
            value = max(value, default=0)
        return value if isinstance(value, int) else 0

    def _per_layer(self, key: str, default: tuple[int, ...]) -> tuple[int, ...]:
        value = self._value(key)
        if isinstance(value, tuple):
            return tuple(item if isinstance(item, int) else 0 for item in value)
        return (value,) * self.block_count if isinstance(value, int) else default

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
    """Read and check the header of a GGUF file.

    Raises:
        NotFoundError: there is no such file.
        ModelFileError: not a file, not GGUF (with a hint on what it is), of a version that llama.cpp does
            not read, damaged, or shorter than its own header says.
    """
    try:
        if path.is_dir():
            raise ModelFileError(f"{path} is a folder; give the path of a .gguf file in it.")
        if not path.exists():
            raise NotFoundError(f"There is no file {path}; check the path, or see `localspec models list`.")
        if not path.is_file():
            raise ModelFileError(f"{path} is not a regular file; give the path of a .gguf file.")
        with path.open("rb") as file:
            start = file.read(64)
            require_gguf(path, start)
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _Reader(path, data).header()
    except OSError as error:
        raise ModelFileError(
            f"Cannot read {path} ({error.strerror or error}); check its permissions."
        ) from error


class _Reader:
    """Walks through the header; every read is checked against the end of the file."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self._path = path
        self._data = data
        self._size = len(data)
        self._at = 4

    def header(self) -> GGUFHeader:
        try:
            return self._header()
        except (struct.error, UnicodeDecodeError, OverflowError) as error:
            raise self._damaged("it ends within its header") from error

    def _header(self) -> GGUFHeader:
        version = self._u32()
        if version & 0xFFFF == 0 and version:
            raise ModelFileError(f"{self._path} is a big-endian GGUF file, which this machine cannot read.")
        if version not in _VERSIONS:
            raise ModelFileError(
                f"{self._path} is GGUF version {version}, and llama.cpp here reads versions 2 and 3; fetch a "
                "newer conversion of the model."
            )
        tensor_count, key_count = self._u64(), self._u64()
        # The smallest key and tensor take this many bytes, so a larger count is nonsense.
        if key_count > self._size // 13 or tensor_count > self._size // 24:
            raise self._damaged("its counts are impossible")
        metadata: dict[str, Any] = {}
        tokenizer: dict[str, bytes] = {}
        vocabulary = 0
        for _ in range(key_count):
            key = self._text()
            began = self._at
            kind = self._u32()
            if kind == _ARRAY:
                length, items = self._array()
                if key == "tokenizer.ggml.tokens":
                    vocabulary = length
                if items is not None:
                    metadata[key] = items
            else:
                metadata[key] = self._text() if kind == _STRING else self._scalar(kind)
            if key in _TOKENIZER_KEYS:
                # In one piece: to look at its thousands of texts one by one would take far longer.
                tokenizer[key] = hashlib.blake2b(self._data[began : self._at], digest_size=16).digest()
        tensor_sizes, tensor_types, parameters = self._tensors(tensor_count, metadata)
        if not isinstance(metadata.get("general.architecture"), str):
            raise self._damaged("it does not name its architecture")
        header = GGUFHeader(
            path=self._path,
            file_bytes=self._size,
            version=version,
            metadata=metadata,
            tensor_sizes=tensor_sizes,
            tensor_count=tensor_count,
            tensor_bytes=sum(tensor_sizes.values()),
            parameters=parameters,
            vocabulary=vocabulary,
            fingerprint=_fingerprint(tokenizer) if vocabulary else "",
            tensor_types=tensor_types,
        )
        if header.block_count > _MOST_LAYERS:
            raise self._damaged("its number of layers is impossible")
        return header

    def _tensors(self, count: int, metadata: Mapping[str, Any]) -> tuple[dict[str, int], dict[str, int], int]:
        """Bytes and type of each tensor, and the number of elements; raises if the file is too short."""
        end = parameters = 0
        sizes: dict[str, int] = {}
        types: dict[str, int] = {}
        for _ in range(count):
            name = self._text()
            dimensions = self._u32()
            if dimensions > _MOST_DIMENSIONS:
                raise self._damaged("a tensor has an impossible shape")
            elements = 1
            for _ in range(dimensions):
                elements *= self._u64()
            kind, offset = self._u32(), self._u64()
            block, block_bytes = TENSOR_TYPES.get(kind, (1, 0))
            size = -(-elements // block) * block_bytes
            parameters += elements
            sizes[name], types[name] = size, kind
            end = max(end, offset + size)
        alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
            raise self._damaged("its alignment is impossible")
        needed = -(-self._at // alignment) * alignment + end
        if count and needed > self._size:
            missing = needed - self._size
            raise ModelFileError(
                f"{self._path} is truncated: {readable_size(missing)} of {readable_size(needed)} are "
                "missing; fetch the model again."
            )
        return sizes, types, parameters

    def _damaged(self, what: str) -> ModelFileError:
        return ModelFileError(
            f"{self._path} is a damaged or truncated GGUF file ({what}); fetch the model again."
        )

    def _u32(self) -> int:
        value: int = _U32.unpack_from(self._data, self._at)[0]
        self._at += 4
        return value

    def _u64(self) -> int:
        value: int = _U64.unpack_from(self._data, self._at)[0]
        self._at += 8
        return value

    def _scalar(self, kind: int) -> Any:
        layout = _SCALARS.get(kind)
        if layout is None:
            raise self._damaged(f"it holds a value of the unknown type {kind}")
        value = layout.unpack_from(self._data, self._at)[0]
        self._at += layout.size
        return value

    def _text(self) -> str:
        length = self._u64()
        end = self._at + length
        if end > self._size:
            raise self._damaged("it ends within its header")
        value = self._data[self._at : end].decode("utf-8", errors="replace")
        self._at = end
        return value

    def _array(self) -> tuple[int, tuple[Any, ...] | None]:
        """Length of the array, and its items if they are a few numbers."""
        kind, length = self._u32(), self._u64()
        if kind == _STRING:
            self._skip_texts(length)
            return length, None
        layout = _SCALARS.get(kind)
        if layout is None:
            raise self._damaged(f"it holds an array of the unknown type {kind}")
        if length * layout.size > self._size - self._at:
            raise self._damaged("it ends within its header")
        items = None
        if length <= _LONGEST_KEPT_ARRAY:
            items = struct.unpack_from(f"<{length}{layout.format[1:]}", self._data, self._at)
        self._at += length * layout.size
        return length, items

    def _skip_texts(self, count: int) -> None:
        """Step over `count` texts: the one long loop here, so it has no call but the unpacking."""
        if count > (self._size - self._at) // 8:
            raise self._damaged("it ends within its header")
        data, at, unpack = self._data, self._at, _U64.unpack_from
        for _ in range(count):
            at += 8 + unpack(data, at)[0]
        if at > self._size:
            raise self._damaged("it ends within its header")
        self._at = at


def _fingerprint(parts: Mapping[str, bytes]) -> str:
    """One hash of the hashes of keys, whatever order a file has them in."""
    together = b"".join(key.encode() + parts[key] for key in sorted(parts))
    return hashlib.blake2b(together, digest_size=16).hexdigest()
