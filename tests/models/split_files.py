"""Splits a GGUF file as llama.cpp's own tool does: all metadata in the first part, tensors in all of them."""

from __future__ import annotations

import struct

_WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_TEXT, _ARRAY, _U16, _I32 = 8, 9, 2, 5
_ALIGNMENT = 32


def split_name(stem: str, number: int, count: int) -> str:
    """Name of a part; `number` counts from 1."""
    return f"{stem}-{number:05d}-of-{count:05d}.gguf"


def split_bytes(data: bytes, count: int) -> list[bytes]:
    """The contents of `count` files that together are the model `data`."""
    version, tensor_count, key_count = struct.unpack_from("<IQQ", data, 4)
    at = 24
    for _ in range(key_count):
        at = _after_value(data, _after_text(data, at))
    keys = data[24:at]
    infos: list[tuple[bytes, int]] = []
    for _ in range(tensor_count):
        began = at
        at = _after_text(data, at)
        at += 4 + 8 * struct.unpack_from("<I", data, at)[0] + 4
        infos.append((data[began:at], struct.unpack_from("<Q", data, at)[0]))
        at += 8
    contents = data[-(-at // _ALIGNMENT) * _ALIGNMENT :]
    ends = sorted({offset for _, offset in infos} | {len(contents)})
    each = -(-len(infos) // count)
    parts = []
    for number in range(count):
        chosen = infos[number * each : (number + 1) * each]
        own = _key("split.no", _U16, "<H", number) + _key("split.count", _U16, "<H", count)
        own += _key("split.tensors.count", _I32, "<i", tensor_count)
        head = b"GGUF" + struct.pack("<IQQ", version, len(chosen), 3 + (key_count if number == 0 else 0))
        head += (keys if number == 0 else b"") + own
        body = b""
        for info, offset in chosen:
            head += info + struct.pack("<Q", len(body))
            tensor = contents[offset : ends[ends.index(offset) + 1]]
            body += tensor + b"\0" * (-len(tensor) % _ALIGNMENT)
        parts.append(head + b"\0" * (-len(head) % _ALIGNMENT) + body)
    return parts


def _key(name: str, kind: int, layout: str, value: int) -> bytes:
    return struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", kind) + struct.pack(layout, value)


def _after_text(data: bytes, at: int) -> int:
    return at + 8 + int(struct.unpack_from("<Q", data, at)[0])


def _after_value(data: bytes, at: int) -> int:
    kind = struct.unpack_from("<I", data, at)[0]
    at += 4
    if kind == _TEXT:
        return _after_text(data, at)
    if kind != _ARRAY:
        return at + _WIDTHS[kind]
    inner, length = struct.unpack_from("<IQ", data, at)
    at += 12
    if inner != _TEXT:
        return at + _WIDTHS[inner] * int(length)
    for _ in range(length):
        at = _after_text(data, at)
    return at
