"""How a draft model draws, and what it says of its chances."""

from __future__ import annotations

import numpy as np
import pytest

from localspec.sampling import Sampler
from localspec.types import SamplingParams
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


def test_greedy_chances_are_the_rows() -> None:
    row = np.log(np.array([0.5, 0.3, 0.1, 0.1], np.float32))
    found = RuleDrawing(Sampler(GREEDY), make_verifier("rejection")).draw(row, [1], (), 2)
    assert found.tokens == (0, 1)
    assert found.chances == pytest.approx((0.5, 0.3))
    assert found.probs is None
    adasd = RuleDrawing(Sampler(GREEDY), make_verifier("adasd")).draw(row, [1], (), 2)
    assert adasd.probs is not None
    assert adasd.probs.tolist() == [1.0, 0.0, 0.0, 0.0]
