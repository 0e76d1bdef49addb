"""How near two models' distributions are, by hand and on scripted ones."""

from __future__ import annotations

import math

import numpy as np
import pytest

from localspec.bench.driver import Driver, Reply
from localspec.tune.budget import Deadline
from localspec.tune.fidelity import divergences, fidelity, in_words
from localspec.tune.records import Fidelity
from localspec.tune.rivals import Asked
from tests.tune.machines import TimedModel

FOREVER = Deadline(lambda: 0, 1)
OVER = Deadline(lambda: 1, 0)


def driver(seed: int) -> Driver:
    model = TimedModel(lambda tokens: None, capacity=256, max_batch=64, seed=seed)
    return Driver(model, model)


ASKED = [
    Asked("copy", f"copy {n}", Reply((5, 6, 7), tokens=40, forced=tuple(4 + (i * n) % 20 for i in range(40))))
    for n in (3, 7)
]


def test_divergence_by_hand() -> None:
    one = np.log(np.array([[0.5, 0.5], [0.9, 0.1]], dtype=np.float32)) + 3
    other = np.log(np.array([[0.5, 0.5], [0.5, 0.5]], dtype=np.float32))
    same, apart = divergences(one, other)
    assert same == pytest.approx(0, abs=1e-6)
    assert apart == pytest.approx(0.9 * math.log(1.8) + 0.1 * math.log(0.2), abs=1e-5)


def test_masked_tokens_do_not_matter() -> None:
    row = np.array([[0.0, 1.0, -np.inf]], dtype=np.float32)
    assert divergences(row, row) == [0.0]


def test_a_model_agrees_with_itself_at_every_place_of_the_replies() -> None:
    found = fidelity(driver(0), driver(0), ASKED, FOREVER)
    assert found == Fidelity(tokens=80, divergence=0.0, agreement=1.0)
    # Both sides have to take the same places: the first is what follows the prompt.
    model = TimedModel(lambda tokens: None, capacity=256, max_batch=64, seed=0)
    other = TimedModel(lambda tokens: None, capacity=256, max_batch=64, seed=1)
    expected = []
    for asked in ASKED:
        sequence = [*asked.reply.prompt, *(asked.reply.forced or ())]
        for place in range(3, len(sequence)):
            rows = [each.row(sequence[:place])[None] for each in (model, other)]
            expected += divergences(*rows)
    measured = fidelity(driver(0), driver(1), ASKED, FOREVER)
    assert measured is not None
    assert measured.divergence == pytest.approx(np.mean(expected))


def test_without_time_there_is_none() -> None:
    assert fidelity(driver(0), driver(0), ASKED, OVER) is None


@pytest.mark.parametrize(
    ("divergence", "agreement", "words"),
    [
        (
            0.001,
            0.999,
            "at no place of 100 it prefers another token: its replies are hardly to be told apart",
        ),
        (0.03, 0.95, "at 5 of 100 places it prefers another token: its replies differ in wording"),
        (0.1, 0.88, "its replies often differ"),
        (0.2184, 0.944, "its replies often differ"),
        (0.001, 0.5, "another model in effect"),
        (0.9, 0.99, "another model in effect"),
    ],
)
def test_what_it_means(divergence: float, agreement: float, words: str) -> None:
    assert words in in_words(Fidelity(tokens=9, divergence=divergence, agreement=agreement))
