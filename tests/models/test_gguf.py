"""Reading GGUF headers: what a whole file says, and every way in which a file can be something else."""

from __future__ import annotations

import dataclasses
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.errors import LocalspecError, ModelFileError, NotFoundError, UsageError
from localspec.models import ggml_types
from localspec.models.gguf import estimate_memory, read_header
from tests.models.conftest import _text, _value, gguf_bytes

Writer = Callable[..., Path]


def test_a_whole_file(gguf_file: Writer) -> None:
    header = read_header(gguf_file())
    assert (header.architecture, header.name, header.file_type) == ("llama", "Tiny", "Q8_0")
    assert (header.block_count, header.embedding_length, header.context_length) == (2, 64, 128)
    assert header.head_count == (4, 4)
    assert header.head_count_kv == (2, 2)
    assert (header.key_length, header.value_length) == (16, 16)
    assert (header.vocabulary, header.tokenizer, header.pre_tokenizer) == (4, "gpt2", "qwen2")
    assert header.has_chat_template
    assert header.sliding_window == 0
    assert (header.tensor_count, header.parameters, header.tensor_bytes) == (1, 512, 16 * 34)
    assert header.metadata["tokenizer.ggml.token_type"] == (1, 1, 1, 3)
    assert "tokenizer.ggml.tokens" not in header.metadata


def test_memory_is_estimated_from_heads_layers_and_type(gguf_file: Writer) -> None:
    header = read_header(gguf_file())
    # 2 layers x 2 heads x (16 + 16) numbers a token.
    assert estimate_memory(header, 100).kv_bytes == 100 * 128 * 2
    assert estimate_memory(header, 100, "q8_0").kv_bytes == 100 * 128 * 34 // 32
    assert estimate_memory(header, 100, "f32").total_bytes == 100 * 128 * 4 + 16 * 34
    with pytest.raises(UsageError, match="f16"):
        estimate_memory(header, 100, "q3_x")


def test_layers_may_differ(gguf_file: Writer) -> None:
    header = read_header(
        gguf_file(metadata={"llama.attention.head_count_kv": [2, 0], "llama.attention.key_length": 32})
    )
    assert header.head_count_kv == (2, 0)
    assert estimate_memory(header, 10).kv_bytes == 10 * 2 * (32 + 16) * 2


def test_heads_that_are_no_whole_numbers_count_as_none(gguf_file: Writer) -> None:
    header = read_header(gguf_file())
    odd = {**header.metadata, "llama.attention.head_count_kv": (float("nan"), 1.5)}
    header = dataclasses.replace(header, metadata=odd)
    assert header.head_count_kv == (0, 0)


def test_a_file_that_says_little(gguf_file: Writer) -> None:
    path = gguf_file(metadata={"general.architecture": "novel"}, tensors=())
    header = read_header(path)
    assert header.head_count_kv == ()
    assert (header.key_length, header.context_length, header.tensor_bytes) == (0, 0, 0)
    assert estimate_memory(header, 8192).total_bytes == 0


@pytest.mark.model
def test_the_real_model(smollm2_path: Path) -> None:
    header = read_header(smollm2_path)
    assert (header.architecture, header.file_type, header.vocabulary) == ("llama", "Q4_1", 49152)
    assert header.parameters == 134_515_008
    assert header.has_chat_template
    assert header.file_bytes == 98_362_432


def test_a_wide_vocabulary_is_read_quickly(gguf_file: Writer) -> None:
    words = [f"token{number}" for number in range(152_000)]
    path = gguf_file(
        metadata={
            "tokenizer.ggml.tokens": words,
            "tokenizer.ggml.merges": words,
            "tokenizer.ggml.token_type": [1] * 152_000,
        }
    )
    times = []
    for _ in range(5):
        start = time.perf_counter()
        assert read_header(path).vocabulary == 152_000
        times.append(time.perf_counter() - start)
    assert min(times) < 0.05


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no file"):
        read_header(tmp_path / "missing.gguf")


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="is a folder"):
        read_header(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(ModelFileError, match="not a regular file"):
        read_header(tmp_path / "pipe.gguf")


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (b"", "is empty"),
        (b"hello, world", "not a GGUF model"),
        (struct.pack("<Q", 300) + b'{"__metadata__"', "safetensors"),
        (b"tjgg" + bytes(60), "before GGUF"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b"<!DOCTYPE html><html>", "web page"),
        (b"PK\x03\x04" + bytes(60), "zip archive"),
        (b"\x80\x02}q", "pickle"),
        (b"\x1f\x8b\x08", "gzip"),
        (b"GGUF", "damaged or truncated"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1"),
        (b"GGUF" + struct.pack("<IQQ", 9, 0, 0), "version 9"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60), "counts are impossible"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 0), "does not name its architecture"),
    ],
)
def test_other_files_are_named(content: bytes, hint: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=hint) as caught:
        read_header(path)
    assert caught.value.exit_code == 1
    assert "\n" not in str(caught.value)


def test_missing_tensor_data_is_counted(gguf_file: Writer) -> None:
    path = gguf_file(data=bytes(16 * 34 - 100))
    with pytest.raises(
        ModelFileError, match=r"truncated: 100 bytes of .* are missing; fetch the model again"
    ):
        read_header(path)


def test_every_cut_is_found(tmp_path: Path) -> None:
    whole = gguf_bytes(data=bytes(16 * 34))
    path = tmp_path / "cut.gguf"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ModelFileError):
            read_header(path)
    path.write_bytes(whole)
    read_header(path)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_damage_never_surprises(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    content = bytearray(gguf_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.gguf"
    path.write_bytes(content)
    try:
        header = read_header(path)
        estimate_memory(header, 100)
        _ = (header.key_length, header.has_chat_template, header.file_type, header.split_count)
    except LocalspecError as error:
        assert "\n" not in str(error)  # noqa: PT017


def test_sizes_are_those_of_the_library() -> None:
    import ctypes

    from localspec.runtime import devices

    library = ctypes.CDLL(str(next(devices.library_folder().glob("libllama.*"))))
    library.ggml_type_size.restype = ctypes.c_size_t
    library.ggml_blck_size.restype = ctypes.c_int64
    library.ggml_type_name.restype = ctypes.c_char_p
    for kind, (block, size) in ggml_types.TENSOR_TYPES.items():
        assert (library.ggml_blck_size(kind), library.ggml_type_size(kind)) == (block, size)
    for name in ("f16", "q8_0", "q4_0", "bf16", "iq4_nl"):
        kind = ggml_types.KV_TYPES[name]
        assert library.ggml_type_name(kind).decode() == name
        assert ggml_types.bytes_per_element(name) == pytest.approx(
            library.ggml_type_size(kind) / library.ggml_blck_size(kind)
        )


def test_the_fingerprint_is_that_of_the_tokenizer(gguf_file: Writer) -> None:
    def fingerprint(**metadata: Any) -> str:
        keys = {key.replace("__", "."): value for key, value in metadata.items()}
        return read_header(gguf_file(metadata=keys)).fingerprint

    usual = fingerprint()
    assert len(usual) == 32
    same = {"general__name": "Other", "general__file_type": 2, "tokenizer__chat_template": "{{ 1 }}"}
    assert fingerprint(**same, tokenizer__ggml__padding_token_id=3) == usual
    others = [
        {"tokenizer__ggml__tokens": ["b", "a", "é", ""]},
        {"tokenizer__ggml__tokens": ["a", "b", "é"]},
        {"tokenizer__ggml__token_type": [1, 1, 3, 1]},
        {"tokenizer__ggml__merges": ["a b"]},
        {"tokenizer__ggml__pre": "llama-bpe"},
        {"tokenizer__ggml__eos_token_id": 1},
    ]
    assert len({usual, *(fingerprint(**other) for other in others)}) == 7


def test_the_fingerprint_does_not_depend_on_the_order_of_keys(tmp_path: Path) -> None:
    found = set()
    for keys in (("model", "pre"), ("pre", "model")):
        values = {f"tokenizer.ggml.{key}": key for key in keys} | {"tokenizer.ggml.tokens": ["a", "b"]}
        head = b"".join(_text(key) + _value(value) for key, value in values.items())
        architecture = _text("general.architecture") + _value("llama")
        path = tmp_path / f"{keys[0]}.gguf"
        path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 4) + head + architecture)
        found.add(read_header(path).fingerprint)
    assert len(found) == 1
    (tmp_path / "none.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + architecture)
    assert read_header(tmp_path / "none.gguf").fingerprint == ""
