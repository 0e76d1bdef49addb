"""How a draft model draws, and what it says of its chances."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.constrained import ConstrainedSampler
from localspec.drafters.growing import grown
from localspec.sampling import Sampler
from localspec.types import Budget, SamplingParams
from localspec.verify import RuleDrawing, make_verifier
from tests.core.test_model_drafter import GREEDY


def test_chances_of_shared_draws_depend_on_the_noise_and_others_do_not() -> None:
    row = np.array([2.0, 1.0, 0.0, -1.0] + [-9.0] * 8, np.float32)
    sampling = SamplingParams(temperature=1.0, top_k=4, top_p=1.0, min_p=0.0, seed=1)
    shared = RuleDrawing(Sampler(sampling), make_verifier("coupled"))
    apart = RuleDrawing(Sampler(sampling), make_verifier("rejection"))
    firsts: set[float] = set()
    for position in range(1, 30):
        text = [4] * position
        one, two = shared.draw(row, text, (), 2), apart.draw(row, text, (), 2)
        assert one.tokens[0] == Sampler(sampling).sample(row, position)
        assert one.probs is None
        assert one.chances[0] > one.chances[1] > 0
        assert two.chances == apart.draw(row, [4] * 77, (), 2).chances
        assert two.probs is not None
        assert two.probs.sum() == pytest.approx(1.0)
        firsts.add(round(one.chances[0], 6))
    assert len(firsts) > 5


class Only:
    """Allows one token."""

    def __init__(self, token: int) -> None:
        self._token = token

    def allowed(self, said: Sequence[int], ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        return ids == self._token


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_where_a_grammar_forbids_all_that_a_head_knows_its_draft_ends(temperature: float) -> None:
    """It drafts a part of the vocabulary; the target has the others too."""
    known = np.array([1.0, 0.5, 0.0, -np.inf], np.float32)
    allowed, lacking = (
        RuleDrawing(
            ConstrainedSampler(SamplingParams(temperature=temperature), Only(token)), make_verifier("coupled")
        )
        for token in (2, 3)
    )
    assert allowed.draw(known, [1], (), 2).tokens == (2,) or temperature == 0.0
    assert lacking.draw(known, [1], (), 2).tokens == ()
    for leaves in (1, 2):
        budget = Budget(3, leaves, drawing=lacking)
        draft = grown(
            [1], budget, source="head", greedy=lacking, row=known, following=lambda _: pytest.fail("went on")
        )
        assert len(draft) == 0


def test_greedy_chances_are_the_rows() -> None:
    row = np.log(np.array([0.5, 0.3, 0.1, 0.1], np.float32))
    found = RuleDrawing(Sampler(GREEDY), make_verifier("rejection")).draw(row, [1], (), 2)
    assert found.tokens == (0, 1)
    assert found.chances == pytest.approx((0.5, 0.3))
    assert found.probs is None
    adasd = RuleDrawing(Sampler(GREEDY), make_verifier("adasd")).draw(row, [1], (), 2)
    assert adasd.probs is not None
    assert adasd.probs.tolist() == [1.0, 0.0, 0.0, 0.0]
