"""llama.cpp wrapped, on the real model: rows, roll back, trees, vocabulary, errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from localspec.errors import EngineError, ModelFileError, NotEnoughMemoryError, NotFoundError, UsageError
from localspec.runtime.context import Batch, LlamaContext
from localspec.runtime.loading import load
from localspec.runtime.model import LlamaModel
from localspec.types import EngineOptions

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def model(smollm2_path: Path) -> Iterator[LlamaModel]:
    model = LlamaModel(smollm2_path)
    yield model
    model.close()


@pytest.fixture
def context(model: LlamaModel) -> Iterator[LlamaContext]:
    context = LlamaContext(model, capacity=512, threads=1)
    yield context
    context.close()


def test_facts_of_the_model(model: LlamaModel):
    assert model.architecture == "llama"
    assert model.vocabulary_size == 49_152
    assert model.layers == 30
    assert not model.is_recurrent
    assert "<|im_start|>" in (model.chat_template or "")
    assert model.token_text(2) == "<|im_end|>"
    assert model.token_bytes(2) == b""
    assert 2 in model.eog_tokens


def test_text_survives_the_vocabulary(model: LlamaModel):
    text = "Grüße, 世界! 🙂\n\tdef f(x): return x**2"
    tokens = model.tokenize(text, add_special=False, parse_special=False)
    assert b"".join(map(model.token_bytes, tokens)).decode() == text
    assert model.tokenize("<|im_end|>", add_special=False, parse_special=True) == [2]
    assert len(model.tokenize("<|im_end|>", add_special=False, parse_special=False)) > 1


def test_rows_are_a_view_and_roll_back_is_exact(context: LlamaContext, model: LlamaModel):
    tokens = model.tokenize("The quick brown fox jumps over the lazy", add_special=False, parse_special=False)
    context.decode(tokens[:-1], "none")
    first = context.decode(tokens[-1:], "all").copy()
    assert first.shape == (1, model.vocabulary_size)
    context.decode([11, 12, 13], "all")
    context.keep(len(tokens) - 1)
    assert context.length == len(tokens) - 1
    np.testing.assert_array_equal(context.decode(tokens[-1:], "all"), first)


def test_a_tree_in_one_pass_gives_the_logits_of_its_chains(model: LlamaModel):
    prompt = model.tokenize("Once upon a time in a village", add_special=False, parse_special=False)
    context = LlamaContext(model, capacity=512, threads=1, sequences=3)
    try:
        chains = []
        for branch in ([100, 200, 300], [100, 201, 301]):
            context.clear()
            context.decode(prompt, "none")
            chains.append(context.decode(branch, "all").copy())
        context.clear()
        members = [[0, 1]] * len(prompt)
        positions = list(range(len(prompt)))
        context.decode_batch(Batch(prompt, positions, members, [False] * len(prompt)))
        start = len(prompt)
        rows = context.decode_batch(
            Batch(
                [100, 200, 300, 201, 301],
                [start, start + 1, start + 2, start + 1, start + 2],
                [[0, 1], [0], [0], [1], [1]],
                [True] * 5,
            )
        )
        for row, (branch, place) in enumerate(((0, 0), (0, 1), (0, 2), (1, 1), (1, 2))):
            np.testing.assert_allclose(rows[row], chains[branch][place], atol=2e-3)
    finally:
        context.close()


def test_what_does_not_fit_is_refused_before_native_code_sees_it(context: LlamaContext):
    with pytest.raises(EngineError, match="does not fit"):
        context.decode([1] * 513, "none")
    with pytest.raises(EngineError, match="does not fit"):
        context.decode([1] * 200, "all")


def test_unusable_options_are_sentences(model: LlamaModel, smollm2_path: Path, tmp_path: Path):
    with pytest.raises(UsageError, match="no KV cache type 'q9'"):
        LlamaContext(model, capacity=512, kv_type="q9")
    with pytest.raises(UsageError, match="threads"):
        load(smollm2_path, EngineOptions(threads=0))
    with pytest.raises(NotEnoughMemoryError, match="use --context"):
        load(smollm2_path, EngineOptions(context=100_000_000))
    with pytest.raises(NotFoundError):
        load(tmp_path / "missing.gguf", EngineOptions())


def test_a_damaged_vocabulary_is_a_model_error_not_an_abort(smollm2_path: Path, tmp_path: Path):
    broken = tmp_path / "odd.gguf"
    data = bytearray(smollm2_path.read_bytes())
    place = data.index(b"llama", data.index(b"general.architecture"))
    data[place : place + 5] = b"zebra"
    broken.write_bytes(data)
    with pytest.raises(ModelFileError, match="architecture 'zebra'"):
        load(broken, EngineOptions(threads=1))
