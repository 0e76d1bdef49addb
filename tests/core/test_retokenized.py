"""A growing text, tokenized at its end alone: the tokens are those of the whole text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.drafters.retokenized import Retokenized, Texts, ends_in, whole_characters
from localspec.runtime.model import LlamaModel
from localspec.runtime.vocabulary import vocabulary
from tests.core.made_up import EURO, PROSE, MadeUp, words


def test_ends_of_pieces() -> None:
    assert ends_in(b"ab cd", [b"ab", b" ", b"cd"]) == [2, 3, 5]
    assert ends_in(b"ab cd", [b" ab", b" cd"]) == [2, 5]
    assert ends_in(b"  a", [b" ", b" ", b" a"]) == [0, 1, 3]
    assert ends_in(b"a<t>b", [b" a", b"<t>", b" b"]) == [1, 4, 5]
    # A piece that is not in the text cannot be told from what stands there.
    assert ends_in(b"abc", [b"<unk>", b"c"]) == [3, 3]
    assert whole_characters(b"a" + EURO[:2]) == b"a"


@given(words, st.booleans(), st.lists(st.text("abcdef. \n€", max_size=30), max_size=12), st.data())
def test_retokenized_after_cuts(
    known: list[bytes], space: bool, texts: list[str], data: st.DataObject
) -> None:
    made_up = MadeUp(known, space=space)
    running, text = Retokenized(Texts(made_up)), ""
    for piece in texts:
        text = text[: data.draw(st.integers(0, len(text)))]
        running.cut(len(text.encode()))
        before = list(running.tokens)
        text += piece
        kept = running.append(piece.encode())
        assert running.tokens == made_up.of(text)
        assert running.tokens[:kept] == before[:kept]


@pytest.fixture(scope="module")
def real(smollm2_path: Path) -> Iterator[LlamaModel]:
    with vocabulary(smollm2_path) as loaded:
        yield loaded


@pytest.mark.model
@settings(max_examples=25)
@given(st.data())
def test_a_real_tokenizer_piece_by_piece(real: LlamaModel, data: st.DataObject) -> None:
    text = "".join(data.draw(st.lists(st.sampled_from(PROSE.split(" ")), max_size=40)))
    text = " ".join([PROSE, text])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=20)))
    running = Retokenized(Texts(real))
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        running.append(text[start:end].encode())
    assert running.tokens == real.tokenize(text, add_special=True, parse_special=True)
