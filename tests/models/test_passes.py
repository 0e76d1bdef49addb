"""Bytes that a pass over one token reads, and hashes that are computed once."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from localspec import paths
from localspec.errors import ModelFileError
from localspec.models import hashes, store
from localspec.models.gguf import read_header
from localspec.models.hashes import file_sha256
from localspec.models.passes import cache_bytes_of_a_pass, weight_bytes_of_a_pass
from tests.models.conftest import Q8_0

Writer = Callable[..., Path]

TABLE = ("token_embd.weight", (64, 8), Q8_0)
NORM = ("blk.0.attn_norm.weight", (64,), 0)
MATRIX = ("blk.1.attn_q.weight", (64, 64), Q8_0)
TABLE_BYTES, NORM_BYTES, MATRIX_BYTES = 16 * 34, 64 * 4, 128 * 34


def test_a_tied_table_is_read_as_the_output(gguf_file: Writer) -> None:
    header = read_header(gguf_file(tensors=(TABLE, NORM, MATRIX)))
    assert header.tensor_sizes == {TABLE[0]: TABLE_BYTES, NORM[0]: NORM_BYTES, MATRIX[0]: MATRIX_BYTES}
    assert header.tensor_bytes == TABLE_BYTES + NORM_BYTES + MATRIX_BYTES
    assert weight_bytes_of_a_pass(header) == header.tensor_bytes


def test_tables_are_looked_up(gguf_file: Writer) -> None:
    tensors = (
        TABLE,
        NORM,
        MATRIX,
        ("output.weight", (64, 8), Q8_0),
        ("per_layer_token_embd.weight", (64, 8), 0),
    )
    header = read_header(gguf_file(tensors=tensors))
    assert weight_bytes_of_a_pass(header) == NORM_BYTES + MATRIX_BYTES + TABLE_BYTES


@pytest.mark.parametrize(
    "names",
    [
        ("blk.0.ffn_up_exps.weight", "blk.0.ffn_gate_up_exps.weight", "blk.1.ffn_down_exps.bias"),
        ("blk.0.ffn_gate.0.weight", "blk.0.ffn_up.7.weight", "blk.0.ffn_down.3.weight"),
    ],
)
def test_of_experts_the_used_share_is_read(names: tuple[str, ...], gguf_file: Writer) -> None:
    always = (NORM, ("blk.0.ffn_up_shexp.weight", (64, 64), Q8_0), ("blk.0.ffn_gate_inp.weight", (64, 8), 0))
    tensors = (*always, *((name, (64, 8, 8), Q8_0) for name in names))
    experts = {"llama.expert_count": 8, "llama.expert_used_count": 2}
    header = read_header(gguf_file(metadata=experts, tensors=tensors))
    assert header.experts == (8, 2)
    assert weight_bytes_of_a_pass(header) == NORM_BYTES + MATRIX_BYTES + 64 * 8 * 4 + 3 * MATRIX_BYTES // 4
    dense = read_header(gguf_file(tensors=tensors))
    assert dense.experts == (0, 0)
    assert weight_bytes_of_a_pass(dense) == dense.tensor_bytes


def test_layers_for_further_tokens_are_not_read(gguf_file: Writer) -> None:
    header = read_header(gguf_file(metadata={"llama.nextn_predict_layers": 1}, tensors=(TABLE, NORM, MATRIX)))
    assert weight_bytes_of_a_pass(header) == TABLE_BYTES + NORM_BYTES


def test_of_the_cache_a_window_is_read_at_least(gguf_file: Writer) -> None:
    header = read_header(gguf_file())
    assert cache_bytes_of_a_pass(header, 100) == 100 * 128 * 2
    assert cache_bytes_of_a_pass(header, 100, "q8_0") == 100 * 128 * 34 // 32
    sliding = read_header(gguf_file(metadata={"llama.attention.sliding_window": 32}))
    assert cache_bytes_of_a_pass(sliding, 100) == 32 * 128 * 2
    assert cache_bytes_of_a_pass(sliding, 8) == 8 * 128 * 2


# --- hashes


def test_a_file_is_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(b"weights")
    expected = hashlib.sha256(b"weights").hexdigest()
    assert file_sha256(path) == expected
    assert str(path.resolve()) in json.loads((paths.cache_dir() / "hashes.json").read_text())
    other = tmp_path / "b.gguf"
    other.write_bytes(b"others")
    assert file_sha256(other) == hashlib.sha256(b"others").hexdigest()
    monkeypatch.setattr(hashes.hashlib, "sha256", lambda: pytest.fail("hashed again"))
    assert file_sha256(path) == expected
    assert not list(paths.cache_dir().glob("*.tmp"))


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="Cannot read"):
        file_sha256(tmp_path / "missing.gguf")


def test_a_changed_file_is_hashed_again(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(b"weights")
    before = file_sha256(path)
    path.write_bytes(b"heavier")
    os.utime(path, ns=(1, 1))
    assert file_sha256(path) == hashlib.sha256(b"heavier").hexdigest() != before


def test_the_receipt_of_a_fetched_model_is_believed_while_it_fits(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(b"weights")
    store.write_receipt("somewhere", [path], ["f" * 64])
    assert file_sha256(path) == "f" * 64
    os.utime(path, ns=(1, 1))
    assert file_sha256(path) == hashlib.sha256(b"weights").hexdigest()


@pytest.mark.parametrize(
    "content", ["", "[]", '{"x": 1}', "no json", '{"PATH": [1, 2, 3]}', '{"PATH": {"stamp": 1}}']
)
def test_a_damaged_cache_costs_time_only(content: str, tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(b"weights")
    paths.ensure(paths.cache_dir())
    (paths.cache_dir() / "hashes.json").write_text(content.replace("PATH", str(path)))
    assert file_sha256(path) == hashlib.sha256(b"weights").hexdigest()


def test_a_cache_that_cannot_be_written_costs_time_only(tmp_path: Path) -> None:
    paths.cache_dir().parent.mkdir(parents=True, exist_ok=True)
    paths.cache_dir().write_text("a file where the folder belongs")
    path = tmp_path / "a.gguf"
    path.write_bytes(b"weights")
    assert file_sha256(path) == hashlib.sha256(b"weights").hexdigest()
