"""Draft trees on real models: every node sees its own branch alone, and the branch that is kept goes on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from localspec.control import FixedLength
from localspec.drafters.ngram import NgramDrafter
from localspec.errors import EngineError
from localspec.runtime.context import LlamaContext
from localspec.runtime.model import LlamaModel
from localspec.runtime.quantize import requantize
from localspec.sampling import Sampler
from localspec.session import Session, StopRules
from localspec.trees import leaves_of
from localspec.types import Draft, Rows, SamplingParams, StepStats

pytestmark = pytest.mark.model

TEXT = (
    " The scheduler keeps a queue of waiting requests, and every step it gives each of them a token budget."
)

# 16 nodes on 4 branches: the node that each goes on from, the word of the text it begins with, its length.
BRANCHES = ((-1, 3, 6), (1, 10, 4), (4, 0, 3), (-1, 14, 3))


@contextmanager
def in_f16(source: Path, folder: Path) -> Iterator[LlamaModel]:
    """The model in a type whose rounding hardly depends on the width of a pass and the order of the cache."""
    path = folder / f"{source.stem}.f16.gguf"
    requantize(source, path, "F16", threads=1)
    model = LlamaModel(path)
    try:
        yield model
    finally:
        model.close()
        path.unlink()


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaModel]:
    with in_f16(smollm2_path, tmp_path_factory.mktemp("models")) as model:
        yield model


@pytest.fixture(scope="module")
def gemma3(gemma3_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaModel]:
    with in_f16(gemma3_path, tmp_path_factory.mktemp("models")) as model:
        yield model


class Side:
    """A context with branches beside one that decodes every branch alone."""

    def __init__(self, model: LlamaModel) -> None:
        self.tree = LlamaContext(model, capacity=1024, threads=1, kv_type="f32", sequences=4)
        self.alone = LlamaContext(model, capacity=1024, threads=1, kv_type="f32")
        self.sentence = model.tokenize(TEXT, add_special=False, parse_special=False)
        self.said: list[int] = []
        if model.adds_bos:
            self.extend([model.bos])

    def close(self) -> None:
        self.tree.close()
        self.alone.close()

    def extend(self, tokens: Sequence[int]) -> None:
        for context in (self.tree, self.alone):
            context.decode(tokens, "none")
        self.said += tokens

    def read_up_to(self, length: int) -> None:
        """Both contexts hold `length` tokens of the sentence, said again and again."""
        while len(self.said) < length:
            self.extend(self.sentence[: length - len(self.said)])

    def draft(self) -> Draft:
        """A tree whose branches go on in the middle of the sentence."""
        tokens: list[int] = []
        parents: list[int] = []
        for parent, start, length in BRANCHES:
            for place in range(length):
                parents.append(len(tokens) - 1 if place else parent)
                tokens.append(self.sentence[start + place])
        return Draft(tuple(tokens), tuple(parents))

    def rows_alone(self, tokens: Sequence[int], width: int) -> Rows:
        """Rows of a chain decoded alone, in a pass as wide as that of the tree; the cache stays as it was."""
        held = self.alone.length
        rows = self.alone.decode([*tokens, *[self.sentence[0]] * (width - len(tokens))], "all")
        rows = rows[: len(tokens)].copy()
        self.alone.keep(held)
        return rows

    def check(self, *ends: int) -> None:
        """One tree: every row, then what comes after the paths to `ends`; the last of these stays."""
        draft, root, held = self.draft(), self.sentence[1], len(self.said)
        assert (len(draft), len(leaves_of(draft))) == (16, 4)
        rows = self.tree.decode_tree(root, draft).copy()
        for leaf in leaves_of(draft):
            path = draft.path_to(leaf)
            alone = self.rows_alone([root, *(draft.tokens[node] for node in path)], len(rows))
            same(rows[[0, *(node + 1 for node in path)]], alone)
        for turn, path in enumerate([(), *map(draft.path_to, ends)]):
            if turn:
                self.tree.keep(held)
                self.tree.decode_tree(root, draft)
            self.tree.keep_path(path)
            assert self.tree.length == held + 1 + len(path)
            chain = [root, *(draft.tokens[node] for node in path)]
            last = self.sentence[self.sentence.index(chain[-1]) + 1]
            alone = self.rows_alone([*chain, last], len(rows))[-1:]
            same(self.tree.decode([last], "all"), alone)
            self.tree.keep(held + len(chain))
        self.alone.decode(chain, "none")
        self.said += chain


def same(rows: Rows, alone: Rows) -> None:
    # The cells of branches that were kept lie in another order, and sums are rounded accordingly.
    np.testing.assert_allclose(rows, alone, atol=0.3)
    assert rows.argmax(axis=1).tolist() == alone.argmax(axis=1).tolist()


def test_a_tree_of_sixteen_on_four_branches(smollm2: LlamaModel):
    side = Side(smollm2)
    try:
        side.read_up_to(70)
        side.check(5, 9, 12, 15, 3)
        side.check(15, 12)
        side.check(9)
    finally:
        side.close()


def test_trees_across_the_sliding_window(gemma3: LlamaModel):
    assert gemma3.sliding_window == 512
    side = Side(gemma3)
    try:
        side.read_up_to(70)
        side.check(5, 12)
        side.read_up_to(500)
        # The second one crosses the border of the window, the third begins beyond it.
        for kept in (9, 5, 12):
            side.check(kept)
        assert len(side.said) > 512
        side.read_up_to(600)
        side.check(3, 9)
    finally:
        side.close()


def test_what_a_context_refuses(smollm2: LlamaModel):
    context = LlamaContext(smollm2, capacity=32, threads=1, sequences=2)
    try:
        assert context.max_leaves == 2
        with pytest.raises(EngineError, match="on 3 branches"):
            context.decode_tree(5, Draft((1, 2, 3), (-1, -1, -1)))
        context.decode([5] * 30, "none")
        with pytest.raises(EngineError, match="does not fit"):
            context.decode_tree(5, Draft((1, 2), (-1, -1)))
        with pytest.raises(EngineError, match="no draft tree"):
            context.keep_path((0,))
        # After all that the cache is as it was; shorter, it takes the tree.
        context.keep(29)
        assert context.decode_tree(5, Draft((1, 2), (-1, -1))).shape == (3, smollm2.vocabulary_size)
        context.keep_path((1,))
        assert context.length == 31
    finally:
        context.close()


PROMPTS = (
    TEXT * 2 + " The scheduler",
    "def area(w, h):\n    return w * h\n\ndef volume(w, h, d):\n    return w * h * d\n\ndef area_of(",
    "One morning the old fisherman found a letter in a bottle. The letter said:",
)


@pytest.mark.parametrize("prompt", PROMPTS, ids=["copy", "code", "free"])
def test_one_seed_one_text_with_chains_and_trees(smollm2: LlamaModel, prompt: str):
    """The same text at T = 0.8, or a divergence at which two tokens were all but tied."""
    context = LlamaContext(smollm2, capacity=256, threads=1, kv_type="f32", sequences=4)
    sampler = Sampler(SamplingParams(temperature=0.8, seed=5))
    tokens = smollm2.tokenize(prompt, add_special=True, parse_special=False)

    def said(length: int, leaves: int) -> tuple[list[int], list[StepStats]]:
        drafting = FixedLength(length, leaves=leaves)
        session = Session(context, smollm2, drafter=NgramDrafter(1, 4), controller=drafting)
        context.clear()
        session.prefill(tokens)
        steps = [step.stats for step in session.reply(sampler, StopRules(max_tokens=40))]
        assert context.length == len(session.tokens) - 1
        return session.tokens, steps

    try:
        plain, _ = said(0, 1)
        chained, chains = said(8, 1)
        branched, trees = said(12, 4)
        assert {step.leaves for step in chains} == {1}
        assert max(step.leaves for step in trees) > 1
        for other in (chained, branched):
            if other == plain:
                continue
            place = next(n for n, (one, two) in enumerate(zip(plain, other, strict=False)) if one != two)
            context.clear()
            context.decode(plain[: place - 1], "none")
            row = context.decode(plain[place - 1 : place], "all")[0]
            assert abs(sampler.margin(row, place, (), plain[place], other[place])) < 0.5
    finally:
        context.close()
