"""Several sequences in one batch of the real model: rows, roll back of one alone, a measurement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from localspec.bench.joint import ParallelSession
from localspec.bench.parallel import ForcedText, forced_member, measure_parallel
from localspec.control import FixedLength
from localspec.drafters.ngram import NgramDrafter
from localspec.errors import EngineError
from localspec.runtime.context import LlamaContext
from localspec.runtime.model import LlamaModel
from localspec.runtime.sequences import LlamaSequences
from localspec.types import DraftOptions
from tests.bench.test_parallel import member

pytestmark = pytest.mark.model

SAID = (
    "The capital of France is Paris. The capital of Italy is",
    "def add(a, b):\n    return a + b\n\ndef add(a, b):\n    return",
    "one two three four one two three four one two",
)


@pytest.fixture(scope="module")
def llama(smollm2_path: Path) -> Iterator[LlamaModel]:
    model = LlamaModel(smollm2_path)
    yield model
    model.close()


@pytest.fixture
def sequences(llama: LlamaModel) -> Iterator[LlamaSequences]:
    view = LlamaSequences(LlamaContext(llama, capacity=512, threads=1, sequences=3))
    yield view
    view.close()


@pytest.fixture
def single(llama: LlamaModel) -> Iterator[LlamaContext]:
    context = LlamaContext(llama, capacity=512, threads=1)
    yield context
    context.close()


def prompts(llama: LlamaModel) -> list[list[int]]:
    return [llama.tokenize(text, add_special=False, parse_special=False) for text in SAID]


@pytest.mark.parametrize("length", [0, 4])
def test_greedy_sequences_of_the_real_model(
    llama: LlamaModel, sequences: LlamaSequences, single: LlamaContext, length: int
):
    session = ParallelSession(sequences)
    session.begin([member(prompt, NgramDrafter(), FixedLength(length)) for prompt in prompts(llama)])
    steps = list(session.run(20))
    accepted = sum(stats.accepted for step in steps for stats in step.stats.values())
    assert accepted > 5 or length == 0
    for prompt, said in zip(prompts(llama), session.tokens, strict=True):
        assert len(said) == len(prompt) + 20
        single.clear()
        single.decode(prompt[:-1], "none")
        for place in range(len(prompt), len(said)):
            # Along the text said together: the token is the best one alone, up to a near-tie.
            row = single.decode([said[place - 1]], "all")[0]
            assert row.max() - row[said[place]] < 1.0


def test_rolling_one_sequence_back_leaves_it_and_the_others_as_they_were(
    llama: LlamaModel, sequences: LlamaSequences, single: LlamaContext
):
    given = prompts(llama)
    for number, prompt in enumerate(given):
        sequences.decode({number: prompt}, "none")
    sequences.decode({1: [11]}, "none")
    sequences.decode({2: [7] * 9, 0: [8, 9, 10]}, "all")
    sequences.keep(0, len(given[0]))
    sequences.keep(2, len(given[2]) + 2)
    assert [sequences.length(n) for n in range(3)] == [len(given[0]), len(given[1]) + 1, len(given[2]) + 2]
    rows = [sequences.decode({number: [13]}, "all")[0].copy() for number in range(3)]

    # Decoded afresh alone, with each token at the same place of a pass as wide, so that kernels round alike.
    def afresh(number: int, passes: Sequence[Sequence[int]], kept: int) -> np.ndarray:
        single.clear()
        for tokens in (given[number], *passes):
            single.decode(tokens, "none")
        single.keep(len(given[number]) + kept)
        return single.decode([13], "all")[0]

    np.testing.assert_allclose(rows[0], afresh(0, [], 0), atol=2e-3)
    np.testing.assert_allclose(rows[1], afresh(1, [[11]], 1), atol=2e-3)
    np.testing.assert_allclose(rows[2], afresh(2, [[7, 7, *range(20, 30)]], 2), atol=2e-3)


def test_a_measurement_on_the_real_model(llama: LlamaModel, sequences: LlamaSequences):
    texts = [
        ForcedText(
            tuple(prompt), tuple(llama.tokenize(" three four" * 12, add_special=False, parse_special=False))
        )
        for prompt in prompts(llama)[:2]
    ]
    candidate = partial(forced_member, draft=DraftOptions("ngram", 4))
    (result,) = measure_parallel(sequences, texts, 3, [candidate], tokens=10, runs=1)
    assert result.baseline.tokens == result.timing.tokens <= 3 * 10
    assert result.counts.accepted > 0
    assert result.counts.emitted == result.timing.tokens


def test_what_the_view_refuses(llama: LlamaModel):
    sequences = LlamaSequences(LlamaContext(llama, capacity=64, threads=1, sequences=2))
    try:
        with pytest.raises(EngineError, match="there is no 2"):
            sequences.decode({2: [1]}, "all")
        sequences.decode({0: [1] * 40}, "none")
        with pytest.raises(EngineError, match="beside 40 in the cache"):
            sequences.decode({1: [1] * 25}, "none")
        assert sequences.decode({1: [1] * 24}, "none").shape == (0, llama.vocabulary_size)
        sequences.keep(1, 10)
        assert sequences.decode({1: [1] * 14}, "all").shape == (14, llama.vocabulary_size)
        sequences.clear()
        assert (sequences.length(0), sequences.length(1)) == (0, 0)
    finally:
        sequences.close()
