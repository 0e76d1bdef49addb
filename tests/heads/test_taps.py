"""Taps hand out what belongs to the newest pass, row for row, and leave each other alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from localspec.errors import EngineError
from localspec.runtime import features
from localspec.runtime.context import LlamaContext
from localspec.runtime.ext import ext
from localspec.runtime.features import FinalTap, LayerTap
from localspec.runtime.model import LlamaModel
from localspec.types import Draft
from tests.heads import alphabet, randoms
from tests.heads.making import Made

WIDTH = 64
TOKENS = [number * 7 % 256 for number in range(40)]


@pytest.fixture(scope="module")
def model(made: Made) -> Iterator[LlamaModel]:
    opened = LlamaModel(made(randoms.target), gpu_layers=0)
    yield opened
    opened.close()


@pytest.fixture
def context(model: LlamaModel) -> Iterator[LlamaContext]:
    opened = LlamaContext(model, capacity=256, batch=64, threads=1, sequences=4, kv_type="f32")
    yield opened
    opened.close()


def test_a_row_holds_the_layers_in_the_order_in_which_they_were_asked_for(context: LlamaContext) -> None:
    taps = [LayerTap(context, (layer,)) for layer in (0, 1, 2)]
    joined = LayerTap(context, (2, 0, 1))
    context.decode(TOKENS, "none")
    alone = [tap.rows(slice(None)) for tap in taps]
    assert joined.width == 3 * WIDTH
    assert joined.rows(slice(None)).shape == (40, 3 * WIDTH)
    assert_array_equal(joined.rows(slice(None)), np.hstack([alone[2], alone[0], alone[1]]))
    assert_array_equal(joined.rows([7, 3]), joined.rows(slice(None))[[7, 3]])
    assert_array_equal(joined.rows(slice(2, 5)), joined.rows([2, 3, 4]))
    assert joined.rows([]).shape == (0, 3 * WIDTH)


def test_rows_do_not_depend_on_outputs_or_on_the_width_of_the_pass(context: LlamaContext) -> None:
    tap = LayerTap(context, (0, 2))
    context.decode(TOKENS, "none")
    whole = tap.rows(slice(None))
    context.clear()
    context.decode(TOKENS, "all")
    assert_array_equal(tap.rows(slice(None)), whole)
    context.clear()
    pieces = []
    for start in range(0, 40, 8):
        context.decode(TOKENS[start : start + 8], "none")
        pieces.append(tap.rows(slice(0, 8)))
    assert_allclose(np.vstack(pieces), whole, atol=1e-5)


def test_rows_of_a_tree_are_those_of_its_nodes(context: LlamaContext) -> None:
    tap = LayerTap(context, (2,))
    context.decode(TOKENS, "none")
    context.decode_tree(5, Draft(tokens=(1, 2, 3), parents=(-1, -1, 1)))
    tree = tap.rows(slice(None))
    assert tree.shape == (4, WIDTH)
    context.keep_path(())
    context.keep(40)
    context.decode([5, 2, 3], "all")
    assert_allclose(tap.rows(slice(None)), tree[[0, 2, 3]], atol=1e-5)


def test_what_was_read_stays_when_the_next_pass_comes(context: LlamaContext) -> None:
    tap = LayerTap(context, (1,))
    context.decode(TOKENS[:4], "none")
    rows = tap.rows(slice(None))
    before = rows.copy()
    context.decode(TOKENS[4:8], "none")
    assert_array_equal(rows, before)
    assert not np.allclose(tap.rows(slice(None)), before)


def test_one_that_is_closed_leaves_the_layers_of_others_on(context: LlamaContext) -> None:
    one, other = LayerTap(context, (0, 1)), LayerTap(context, (1, 2))
    context.decode(TOKENS, "none")
    wanted = other.rows(slice(None))
    one.close()
    one.close()
    assert_array_equal(other.rows(slice(None)), wanted)
    context.clear()
    context.decode(TOKENS, "none")
    assert_array_equal(other.rows(slice(None)), wanted)
    with pytest.raises(EngineError):
        one.rows([0])
    other.close()
    assert not features._kept[context].total()


def test_one_made_later_reads_from_the_next_pass_on(context: LlamaContext) -> None:
    context.decode(TOKENS[:8], "none")
    tap = LayerTap(context, (1,))
    with pytest.raises(EngineError, match="No pass"):
        tap.rows([0])
    context.decode(TOKENS[8:], "none")
    assert tap.rows(slice(None)).shape == (32, WIDTH)


def test_states_are_kept_while_somebody_wants_them(context: LlamaContext) -> None:
    tap = LayerTap(context, (1, 2), on=False)
    assert not features._kept.get(context, Counter()).total()
    context.decode(TOKENS[:8], "none")
    with pytest.raises(EngineError, match="No pass"):
        tap.rows([0])
    tap.resume()
    tap.resume()
    with pytest.raises(EngineError, match="No pass"):
        tap.rows([0])
    context.decode(TOKENS[8:16], "none")
    wanted = tap.rows(slice(None))
    tap.pause()
    assert_array_equal(tap.rows(slice(None)), wanted)
    tap.pause()
    assert not features._kept[context].total()
    with pytest.raises(EngineError, match="No pass"):
        tap.rows([0])
    context.keep(8)
    context.decode(TOKENS[8:16], "none")
    tap.resume()
    context.keep(8)
    context.decode(TOKENS[8:16], "none")
    assert_allclose(tap.rows(slice(None)), wanted, atol=1e-5)
    tap.close()
    tap.pause()
    assert not features._kept[context].total()


def test_a_hushed_context_keeps_nothing_and_goes_on_with_what_is_wanted_then(context: LlamaContext) -> None:
    tap, late = LayerTap(context, (1,)), LayerTap(context, (2,), on=False)
    context.decode(TOKENS[:8], "none")
    wanted = tap.rows(slice(None))
    features.hush(context, True)
    features.hush(context, True)
    for _ in range(2):
        with pytest.raises(EngineError, match="No pass"):
            tap.rows([0])
        context.decode(TOKENS[8:16], "none")
    # Whoever begins or ends to want states meanwhile is heard afterwards.
    late.resume()
    context.decode(TOKENS[16:24], "none")
    with pytest.raises(EngineError, match="No pass"):
        late.rows([0])
    features.hush(context, False)
    with pytest.raises(EngineError, match="No pass"):
        tap.rows([0])
    context.clear()
    context.decode(TOKENS[:8], "none")
    assert_allclose(tap.rows(slice(None)), wanted, atol=1e-5)
    assert late.rows(slice(None)).shape == (8, WIDTH)
    features.hush(context, True)
    tap.close()
    features.hush(context, False)
    context.clear()
    context.decode(TOKENS[:8], "none")
    assert features._kept[context].total() == 1
    assert late.rows(slice(None)).shape == (8, WIDTH)
    with pytest.raises(EngineError):
        tap.rows([0])


@pytest.mark.parametrize("outputs", ["all", "none"])
def test_final_states_are_those_of_all_tokens(made: Made, outputs: str) -> None:
    model = LlamaModel(made(alphabet.target_mtp), gpu_layers=0, with_prediction=True)
    context = LlamaContext(model, capacity=256, batch=64, threads=1, kv_type="f32")
    tap = FinalTap(context)
    context.decode(TOKENS, outputs)
    whole = tap.rows(slice(None))
    assert whole.shape == (40, tap.width)
    assert np.abs(whole).sum(axis=1).all()
    context.clear()
    context.decode(TOKENS[:20], "none")
    context.decode(TOKENS[20:], "none")
    assert_allclose(tap.rows(slice(None)), whole[20:], atol=1e-5)
    tap.close()
    context.decode([1], "all")
    assert not ext().get_nextn(context.handle)
    context.close()
    model.close()


def test_each_row_is_copied_once(context: LlamaContext, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    real = np.empty

    def counted(shape: tuple[int, int], kind: type) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        made.append(int(np.prod(shape)))
        return real(shape, kind)

    tap = LayerTap(context, (0, 1, 2))
    context.decode(TOKENS, "none")
    monkeypatch.setattr(np, "empty", counted)
    rows = tap.rows(slice(0, 10))
    assert made == [rows.size]
    assert rows.base is None
