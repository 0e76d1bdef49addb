"""Walks through the bytes of a GGUF header: every read is checked against the end of the file.

A file is not trusted: no count in it makes this allocate more than a few megabytes or loop for minutes, and
whatever is wrong with it ends in `ModelFileError`.
"""

from __future__ import annotations

import hashlib
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localspec.errors import ModelFileError
from localspec.models.disk import readable_size
from localspec.models.ggml_types import TENSOR_TYPES

_VERSIONS = (2, 3)
_DEFAULT_ALIGNMENT = 32
_LONGEST_KEPT_ARRAY = 1024
_LONGEST_KEPT_TEXT = 2**20
_LONGEST_NAME = 2**16 - 1
"""Of a key, as the format has it; names of tensors are shorter."""
_MOST_KEYS = 2**16
_MOST_TENSORS = 2**17
_MOST_TEXTS = 2**23
"""In all arrays. The widest vocabularies have a quarter of a million tokens, and twice as many merges."""
_LARGEST_VOCABULARY = 2**26
"""Bytes of one part of a tokenizer."""
_MOST_TEXT, _MOST_NUMBERS = 2**24, 2**20
"""Bytes of text, and numbers of arrays, that are kept of one file; real ones have a hundredth of that."""
_MOST_DIMENSIONS = 4
_MOST_ELEMENTS = 2**48

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
class RawHeader:
    """What stands in the header; the fields are those of `gguf.GGUFHeader`."""

    version: int
    metadata: Mapping[str, Any]
    tensor_sizes: Mapping[str, int]
    tensor_types: Mapping[str, int]
    tensor_offsets: Mapping[str, int]
    parameters: int
    vocabulary: int
    fingerprint: str


def read(path: Path, data: mmap.mmap) -> RawHeader:
    """Read the header of the file `path`, mapped as `data`; raises `ModelFileError` for all that is wrong."""
    reader = _Reader(path, data)
    try:
        return reader.header()
    except (struct.error, OverflowError) as error:
        raise reader.damaged("it ends within its header") from error


class _Reader:
    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self._path = path
        self._data = data
        self._size = len(data)
        self._at = 4
        self._kept_names = self._kept_text = self._kept_numbers = self._texts = 0

    def header(self) -> RawHeader:
        version = self._version()
        tensor_count, key_count = self._u64(), self._u64()
        # The smallest key and tensor take this many bytes, so a larger count is nonsense.
        if key_count > min(_MOST_KEYS, self._size // 13) or tensor_count > min(
            _MOST_TENSORS, self._size // 24
        ):
            raise self.damaged("its counts are impossible")
        metadata: dict[str, Any] = {}
        seen: set[str] = set()
        tokenizer: dict[str, bytes] = {}
        vocabulary = 0
        for _ in range(key_count):
            key = self._name()
            if key in seen:
                raise self.damaged(f"it holds the key {key[:80]!r} twice")
            seen.add(key)
            began = self._at
            kind = self._u32()
            value: Any
            if kind == _ARRAY:
                length, value = self._array()
                if key == "tokenizer.ggml.tokens":
                    vocabulary = length
            else:
                value = self._text() if kind == _STRING else self._scalar(kind)
            if value is not None:
                metadata[key] = value
            if key in _TOKENIZER_KEYS:
                tokenizer[key] = self._digest(began)
        sizes, types, places, parameters = self._tensors(tensor_count, metadata)
        return RawHeader(
            version=version,
            metadata=metadata,
            tensor_sizes=sizes,
            tensor_types=types,
            tensor_offsets=places,
            parameters=parameters,
            vocabulary=vocabulary,
            fingerprint=_fingerprint(tokenizer) if vocabulary else "",
        )

    def damaged(self, what: str) -> ModelFileError:
        return ModelFileError(
            f"{self._path} is a damaged or truncated GGUF file ({what}); fetch the model again."
        )

    def _version(self) -> int:
        version = self._u32()
        if version & 0xFFFF == 0 and version:
            raise ModelFileError(f"{self._path} is a big-endian GGUF file, which this machine cannot read.")
        if version not in _VERSIONS:
            raise ModelFileError(
                f"{self._path} is GGUF version {version}, and llama.cpp here reads versions 2 and 3; fetch a "
                "newer conversion of the model."
            )
        return version

    def _tensors(
        self, count: int, metadata: Mapping[str, Any]
    ) -> tuple[dict[str, int], dict[str, int], dict[str, int], int]:
        """Bytes, type and place of each tensor, and all elements; raises if the file is too short."""
        end = parameters = 0
        sizes: dict[str, int] = {}
        types: dict[str, int] = {}
        places: dict[str, int] = {}
        for _ in range(count):
            name = self._name()
            if name in sizes:
                raise self.damaged(f"it holds the tensor {name[:80]!r} twice")
            dimensions = self._u32()
            if dimensions > _MOST_DIMENSIONS:
                raise self.damaged("a tensor has an impossible shape")
            elements = 1
            for _ in range(dimensions):
                elements *= self._u64()
            kind, offset = self._u32(), self._u64()
            if elements > _MOST_ELEMENTS or offset > _MOST_ELEMENTS:
                raise self.damaged("a tensor has an impossible size")
            block, block_bytes = TENSOR_TYPES.get(kind, (1, 0))
            size = -(-elements // block) * block_bytes
            parameters += elements
            sizes[name], types[name], places[name] = size, kind, offset
            end = max(end, offset + size)
        first = self._check_end(count, metadata, end, sum(sizes.values()))
        return sizes, types, {name: first + place for name, place in places.items()}, parameters

    def _check_end(self, count: int, metadata: Mapping[str, Any], end: int, total: int) -> int:
        """Where the tensors' data begins."""
        alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
            raise self.damaged("its alignment is impossible")
        first = -(-self._at // alignment) * alignment
        needed = first + end
        if count and needed > self._size:
            missing = needed - self._size
            raise ModelFileError(
                f"{self._path} is truncated: {readable_size(missing)} of {readable_size(needed)} are "
                "missing; fetch the model again."
            )
        if total > self._size:
            raise self.damaged("its tensors overlap")
        return first

    def _digest(self, began: int) -> bytes:
        """Hash of what was read since: in one piece, which is far quicker than text by text."""
        if self._at - began > _LARGEST_VOCABULARY:
            raise self.damaged("its vocabulary has an impossible size")
        with memoryview(self._data) as whole, whole[began : self._at] as part:
            return hashlib.blake2b(part, digest_size=16).digest()

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
            raise self.damaged(f"it holds a value of the unknown type {kind}")
        value = layout.unpack_from(self._data, self._at)[0]
        self._at += layout.size
        return value

    def _name(self) -> str:
        length = self._u64()
        self._kept_names += length
        if length > _LONGEST_NAME or self._kept_names > _MOST_TEXT:
            raise self.damaged("a name in it is of an impossible length")
        return self._decoded(length)

    def _text(self) -> str | None:
        """A text; one that is longer than any template is stepped over, and so is what is too much in all."""
        length = self._u64()
        if length <= _LONGEST_KEPT_TEXT and self._kept_text + length <= _MOST_TEXT:
            self._kept_text += length
            return self._decoded(length)
        if length > self._size - self._at:
            raise self.damaged("it ends within its header")
        self._at += length
        return None

    def _decoded(self, length: int) -> str:
        end = self._at + length
        if end > self._size:
            raise self.damaged("it ends within its header")
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
            raise self.damaged(f"it holds an array of the unknown type {kind}")
        if length * layout.size > self._size - self._at:
            raise self.damaged("it ends within its header")
        items = None
        if length <= _LONGEST_KEPT_ARRAY and self._kept_numbers + length <= _MOST_NUMBERS:
            self._kept_numbers += length
            items = struct.unpack_from(f"<{length}{layout.format[1:]}", self._data, self._at)
        self._at += length * layout.size
        return length, items

    def _skip_texts(self, count: int) -> None:
        """Step over `count` texts: the one long loop here, so it has no call but the unpacking."""
        if count > (self._size - self._at) // 8:
            raise self.damaged("it ends within its header")
        self._texts += count
        if self._texts > _MOST_TEXTS:
            raise self.damaged("its vocabulary has an impossible size")
        data, at, unpack = self._data, self._at, _U64.unpack_from
        for _ in range(count):
            at += 8 + unpack(data, at)[0]
        if at > self._size:
            raise self.damaged("it ends within its header")
        self._at = at


def _fingerprint(parts: Mapping[str, bytes]) -> str:
    """One hash of the hashes of keys, whatever order a file has them in."""
    together = b"".join(key.encode() + parts[key] for key in sorted(parts))
    return hashlib.blake2b(together, digest_size=16).hexdigest()
