"""How replies lie in the memory's file: a header, then records that can be checked one by one.

    header   magic, version, the tokenizer's fingerprint, the file's generation, CRC32 of these
    record   mark, bytes that follow the head, CRC32 of these; kind, bytes of the name, time, name, tokens

Everything is little endian, tokens are int32. A generation is drawn anew whenever the file is rewritten.
"""

from __future__ import annotations

import secrets
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from localspec.errors import StorageError

VERSION = 1
REPLY, IMPORT = 1, 2
"""Kinds of records: something a model said, and a text of the user's own."""

LONGEST_NAME = 255

_MAGIC = b"LSMEMORY"
_HEADER = struct.Struct("<8sI32s16sI")
HEADER_SIZE = _HEADER.size

_MARK = b"\xf1REC"
_HEAD = struct.Struct("<4sII")
_ABOUT = struct.Struct("<BBd")
_TOKEN = np.dtype("<i4")


@dataclass(frozen=True, slots=True)
class Record:
    """One remembered document.

    Attributes:
        tokens: token ids, shape [tokens].
        conversation: what it belongs to, for forgetting it; at most 255 bytes of UTF-8.
        time: Unix time in seconds.
        kind: `REPLY` or `IMPORT`.
    """

    tokens: NDArray[np.int32]
    conversation: str
    time: float
    kind: int = REPLY


@dataclass(frozen=True, slots=True)
class Scan:
    """Records that were found in a piece of the file.

    Attributes:
        records: in the file's order.
        end: bytes up to the end of the last of them; what follows is a torn tail, or still being written.
        skipped: damaged bytes between records.
    """

    records: list[Record]
    end: int
    skipped: int


def encode_header(fingerprint: str) -> tuple[bytes, bytes]:
    """A header for a new file, and its fresh generation."""
    generation = secrets.token_bytes(16)
    start = _HEADER.pack(_MAGIC, VERSION, fingerprint.encode(), generation, 0)[:-4]
    return start + zlib.crc32(start).to_bytes(4, "little"), generation


def check_header(data: bytes, fingerprint: str, path: Path) -> bytes:
    """The generation that a file's first bytes name, empty where they are not written in full.

    Raises:
        StorageError: not a memory, damaged, of a newer version, or of another tokenizer.
    """
    if data[:8] != _MAGIC[: len(data)]:
        raise StorageError(f"{path} is not a memory file of localspec; move it away.")
    if len(data) < HEADER_SIZE:
        return b""
    _, version, owner, generation, check = _HEADER.unpack(data)
    if version > VERSION:
        raise StorageError(
            f"A newer localspec has written the memory {path}; upgrade this one, or use --no-memory."
        )
    if zlib.crc32(data[:-4]) != check:
        raise StorageError(
            f"The memory {path} is damaged; move it away, or clear it with `localspec memory forget --all`."
        )
    if owner.rstrip(b"\0") != fingerprint.encode():
        raise StorageError(f"The memory {path} is of another model's tokenizer; move it away.")
    return bytes(generation)


def encode(record: Record) -> bytes:
    """The bytes of one record."""
    name = record.conversation.encode()
    if len(name) > LONGEST_NAME:
        raise ValueError(f"the name of a conversation takes {len(name)} bytes, more than {LONGEST_NAME}")
    about = _ABOUT.pack(record.kind, len(name), record.time)
    body = b"".join((about, name, np.ascontiguousarray(record.tokens, _TOKEN).tobytes()))
    return _HEAD.pack(_MARK, len(body), zlib.crc32(body)) + body


def encode_all(records: Iterable[Record]) -> bytes:
    """The bytes of several records, one after the other."""
    return b"".join(map(encode, records))


def scan(data: bytes) -> Scan:
    """Find the whole records in `data`, which begins where a record does; damage is stepped over."""
    records: list[Record] = []
    at = end = skipped = 0
    while at >= 0:
        found = _record_at(data, at)
        if found is None:
            # A mark inside of tokens is harmless: its checksum does not fit.
            at = data.find(_MARK, at + 1)
            continue
        skipped += at - end
        record, at = found
        end = at
        records.append(record)
    return Scan(records, end, skipped)


def _record_at(data: bytes, at: int) -> tuple[Record, int] | None:
    """The record that begins at `at`, and where it ends; None where there is no whole one."""
    start = at + _HEAD.size
    if start > len(data):
        return None
    mark, size, check = _HEAD.unpack_from(data, at)
    end = start + size
    if mark != _MARK or end > len(data) or size < _ABOUT.size:
        return None
    if zlib.crc32(memoryview(data)[start:end]) != check:
        return None
    kind, name_size, time = _ABOUT.unpack_from(data, start)
    tokens_at = start + _ABOUT.size + name_size
    count = (end - tokens_at) // _TOKEN.itemsize
    if count < 0:
        return None
    name = data[start + _ABOUT.size : tokens_at].decode("utf-8", "replace")
    tokens = np.frombuffer(data, _TOKEN, count, tokens_at).astype(np.int32, copy=False)
    return Record(tokens, name, time, kind), end
