"""GGUF headers that are huge, or that lie: read within limits of time and memory, or refused."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from localspec.errors import ModelFileError, NotFoundError
from localspec.models.gguf import GGUFHeader, read_header
from tests.models.conftest import _text, _value, gguf_bytes

Writer = Callable[..., Path]

LIMIT_BYTES = 50_000_000
LIMIT_S = 2.0
"""Generous: the machine may be busy. It takes a tenth of the 0.3 s that are promised."""
GB = 10**9


def large_file(path: Path, size: int = 5 * GB) -> Path:
    """A file like that of a model of 8 billion parameters: its header is real, its data a hole."""
    words = [f"tok{number:07}" for number in range(128_000)]
    merges = [f"a{number:05} b{number:05}" for number in range(280_000)]
    tensors: list[tuple[str, tuple[int, ...], int]] = [("token_embd.weight", (4096, 128_000), 8)]
    for layer in range(60):
        matrices = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
        tensors += [(f"blk.{layer}.{name}.weight", (2048, 3072), 8) for name in matrices]
        tensors += [(f"blk.{layer}.{name}.weight", (4096,), 0) for name in ("attn_norm", "ffn_norm")]
    data = gguf_bytes(
        metadata={
            "general.name": "Large",
            "llama.block_count": 60,
            "tokenizer.ggml.tokens": words,
            "tokenizer.ggml.token_type": [1] * len(words),
            "tokenizer.ggml.merges": merges,
            "tokenizer.chat_template": "{{ messages }}" * 1000,
        },
        tensors=tuple(tensors),
        data=b"",
    )
    with path.open("wb") as file:
        file.write(data)
        file.truncate(size)
    return path


READING = """
import json, re, resource, sys, time
from pathlib import Path
from localspec.models.gguf import read_header

def peak():
    status = Path("/proc/self/status")
    if status.exists():
        # What getrusage tells there is that of the parent, where that was larger.
        return int(re.search(r"VmHWM:\\s+(\\d+) kB", status.read_text())[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

before, start = peak(), time.perf_counter()
header = read_header(Path(sys.argv[1]))
took = time.perf_counter() - start
print(json.dumps({"s": took, "bytes": peak() - before, "tensors": header.tensor_count,
                  "vocabulary": header.vocabulary, "size": header.file_bytes}))
"""


def read_apart(path: Path) -> dict[str, Any]:
    """What reading costs a process of its own: seconds, and bytes that its peak of memory grew by."""
    done = subprocess.run(
        [sys.executable, "-c", READING, str(path)], capture_output=True, text=True, check=True, timeout=60
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.skipif(sys.platform == "win32", reason="needs files with holes, and getrusage")
def test_a_file_of_five_gigabytes(tmp_path: Path) -> None:
    found = read_apart(large_file(tmp_path / "large.gguf"))
    assert (found["tensors"], found["vocabulary"], found["size"]) == (541, 128_000, 5 * GB)
    assert found["bytes"] < LIMIT_BYTES
    assert found["s"] < LIMIT_S


def header_of(keys: bytes, count: int = 1, tensors: int = 0) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, count) + keys


def text_of_length(length: int) -> bytes:
    return struct.pack("<Q", length)


BIG = 4 * GB
LIES = {
    "a key": (header_of(text_of_length(BIG)), "impossible length"),
    "a text": (header_of(_text("k") + struct.pack("<I", 8) + text_of_length(BIG), 2), "architecture"),
    "a text past the end": (header_of(_text("k") + struct.pack("<I", 8) + text_of_length(6 * GB)), "ends"),
    "an array of numbers": (header_of(_text("k") + struct.pack("<IIQ", 9, 0, BIG), 2), "architecture"),
    "an array of texts": (header_of(_text("k") + struct.pack("<IIQ", 9, 8, BIG // 8)), "impossible"),
    "an array past the end": (header_of(_text("k") + struct.pack("<IIQ", 9, 12, 2**61)), "ends"),
    "an array of arrays": (header_of(_text("k") + struct.pack("<IIQ", 9, 9, 1)), "unknown type 9"),
    "a wide vocabulary": (
        header_of(_text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 1) + text_of_length(BIG), 2),
        "vocabulary",
    ),
    "many keys": (header_of(b"", 300_000_000), "counts are impossible"),
    "many tensors": (header_of(b"", 0, 200_000_000), "counts are impossible"),
    "keys of zeros": (header_of(b"", 60_000), "twice"),
    "tensors of zeros": (header_of(b"", 0, 60_000), "twice"),
    "a shape": (
        header_of(_text("t") + struct.pack("<I4QIQ", 4, *[2**63] * 4, 0, 0), 0, 1),
        "impossible size",
    ),
    "an offset": (header_of(_text("t") + struct.pack("<IQIQ", 1, 1, 0, 2**64 - 1), 0, 1), "impossible size"),
    "dimensions": (header_of(_text("t") + struct.pack("<I", 2**32 - 1), 0, 1), "impossible shape"),
    "tensors in one place": (
        header_of(b"".join(_text(f"t{n}") + struct.pack("<IQIQ", 1, GB, 0, 0) for n in range(3)), 0, 3),
        "overlap",
    ),
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.skipif(sys.platform == "win32", reason="needs files with holes")
def test_counts_that_lie_allocate_nothing(lie: str, tmp_path: Path) -> None:
    """In a file of 5 GB there is room for all that they claim."""
    content, reason = LIES[lie]
    path = tmp_path / "lie.gguf"
    with path.open("wb") as file:
        file.write(content)
        file.truncate(5 * GB)
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError, match=reason) as caught:
            read_header(path)
        assert tracemalloc.get_traced_memory()[1] < LIMIT_BYTES // 4
    finally:
        tracemalloc.stop()
    assert len(str(caught.value)) < 600


def _keys(value: bytes, count: int) -> bytes:
    """Keys with the same value each, after the architecture."""
    keys = [_text("general.architecture") + _value("llama")]
    return header_of(b"".join([*keys, *(_text(f"k{number}") + value for number in range(count))]), count + 1)


@pytest.mark.parametrize("kept", ["texts", "numbers"])
def test_what_is_too_much_in_all_is_stepped_over(kept: str, tmp_path: Path) -> None:
    """Each of them is within its limit, and a file may have thousands."""
    value = struct.pack("<IQ", 8, 2**20) + bytes(2**20) if kept == "texts" else _value([1] * 1024)
    path = tmp_path / "much.gguf"
    path.write_bytes(_keys(value, 40 if kept == "texts" else 2000))
    header = read_header(path)
    sizes = [len(item) for item in header.metadata.values() if isinstance(item, str | tuple)]
    assert sum(sizes) <= 2**24
    assert len(header.metadata) <= (17 if kept == "texts" else 1025)


@pytest.mark.skipif(sys.platform == "win32", reason="needs files with holes")
def test_too_many_names_and_too_many_texts(tmp_path: Path) -> None:
    path = tmp_path / "many.gguf"
    names = b"".join(_text("n" * 65_000 + str(number)) + _value(1) for number in range(300))
    path.write_bytes(header_of(names, 300))
    with pytest.raises(ModelFileError, match="impossible length"):
        read_header(path)
    texts = struct.pack("<IIQ", 9, 8, 2**22) + bytes(2**25)
    path.write_bytes(_keys(texts, 3))
    with pytest.raises(ModelFileError, match="vocabulary has an impossible size"):
        read_header(path)


def test_a_long_text_is_stepped_over(gguf_file: Writer) -> None:
    header = read_header(gguf_file(metadata={"tokenizer.huggingface.json": "x" * 3_000_000}))
    assert "tokenizer.huggingface.json" not in header.metadata
    assert header.vocabulary == 4


@pytest.mark.parametrize("cut", ["magic", "version", "counts", "keys", "vocabulary", "tensors", "data"])
def test_a_cut_in_every_section(cut: str, tmp_path: Path) -> None:
    whole = gguf_bytes()
    at = {
        "magic": 3,
        "version": 7,
        "counts": 20,
        "keys": whole.index(b"general.name") + 20,
        "vocabulary": whole.index("é".encode()),
        "tensors": whole.index(b"token_embd") + 30,
        "data": len(whole) - 1,
    }[cut]
    path = tmp_path / "cut.gguf"
    path.write_bytes(whole[:at])
    with pytest.raises(ModelFileError):
        read_header(path)


def test_numbers_that_lie_are_of_no_consequence(gguf_file: Writer) -> None:
    from localspec.models.fit import sizes
    from localspec.models.lookalikes import purpose

    def lying(value: Any) -> GGUFHeader:
        keys = ("context_length", "embedding_length", "attention.head_count", "attention.key_length")
        return read_header(gguf_file(metadata={f"llama.{key}": value for key in keys}))

    for value in (2**32 - 1, 0, True, 1.5, [], [-1, 7], "many"):
        header = lying(value)
        assert header.context_length >= 0
        assert header.key_length >= 0
        assert sizes(header, context=512).total_bytes > 0
        assert purpose(header) == ""


def test_a_model_of_too_many_layers(gguf_file: Writer) -> None:
    with pytest.raises(ModelFileError, match="number of layers"):
        read_header(gguf_file(metadata={"llama.block_count": 2**31}))


def test_an_architecture_that_is_no_text(gguf_file: Writer) -> None:
    with pytest.raises(ModelFileError, match="architecture"):
        read_header(gguf_file(metadata={"general.architecture": 3}))


def later_part() -> bytes:
    values = {"split.no": 1, "split.count": 2}
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 2)
    head += b"".join(_text(key) + _value(value) for key, value in values.items())
    head += _text("output.weight") + struct.pack("<I2QIQ", 2, 64, 8, 8, 0)
    return head + bytes(-len(head) % 32 + 16 * 34)


def test_a_split_model_is_read_as_a_whole(gguf_file: Writer) -> None:
    first = gguf_file("m-00001-of-00002.gguf", metadata={"split.no": 0, "split.count": 2})
    second = first.with_name("m-00002-of-00002.gguf")
    with pytest.raises(ModelFileError, match="is missing"):
        read_header(first)
    second.write_bytes(later_part())
    header = read_header(first)
    assert (header.tensor_count, header.parameters, header.tensor_bytes) == (2, 1024, 2 * 16 * 34)
    with pytest.raises(ModelFileError, match="part 2 of a split model; give the path of its first part"):
        read_header(second)
    second.write_bytes(later_part()[:-1])
    with pytest.raises(ModelFileError, match="truncated"):
        read_header(first)


def test_links(gguf_file: Writer, tmp_path: Path) -> None:
    link = tmp_path / "link.gguf"
    link.symlink_to(gguf_file())
    assert read_header(link).vocabulary == 4
    gguf_file().unlink()
    with pytest.raises(NotFoundError, match="is a link, and the file"):
        read_header(link)
    circle = tmp_path / "circle.gguf"
    circle.symlink_to(circle)
    with pytest.raises((NotFoundError, ModelFileError)):
        read_header(circle)


@pytest.mark.parametrize(
    ("label", "shown"), [("8B", "8B"), ("", "512"), ("x" * 99, "512"), ("8\x1b[2J", "512")]
)
def test_the_label_of_its_size(label: str, shown: str, gguf_file: Writer) -> None:
    assert read_header(gguf_file(metadata={"general.size_label": label})).size_label == shown
