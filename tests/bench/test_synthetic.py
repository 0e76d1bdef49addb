"""Synthetic acceptance: rates as written, dice that keep to them, a text that follows the recording."""

from __future__ import annotations

import pytest

from localspec.bench.synthetic import SyntheticDrafter, SyntheticVerifier, expected_length, parse_rates
from localspec.control import FixedLength
from localspec.drafters.ngram import NgramDrafter
from localspec.errors import UsageError
from localspec.sampling import Sampler
from localspec.session import Session, StopRules
from localspec.stats.metrics import Tally
from localspec.testing import ScriptedModel
from localspec.types import SamplingParams


def test_one_rate_is_a_constant_conditional_probability() -> None:
    assert parse_rates("0.5", 3) == (0.5, 0.25, 0.125)
    assert parse_rates("0", 2) == (0.0, 0.0)
    assert parse_rates("1", 2) == (1.0, 1.0)


def test_a_list_is_unconditional_and_ends_where_it_ends() -> None:
    assert parse_rates("0.9,0.5", 4) == (0.9, 0.5, 0.0, 0.0)
    assert parse_rates("0.9,0.5,0.4", 2) == (0.9, 0.5)


@pytest.mark.parametrize(("wanted", "length"), [(1.0, 4), (2.5, 4), (4.9, 4), (1.3, 1), (9.0, 8)])
def test_a_length_is_what_its_rates_emit(wanted: float, length: int) -> None:
    assert expected_length(parse_rates(f"length:{wanted}", length)) == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize(
    "text",
    ["", "x", "nan", "inf", "-0.1", "1.2", "0.5,0.6", "length:0.5", "length:6", "length:2,3", "mean:2"],
)
def test_anything_else_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(UsageError, match="--synthetic"):
        parse_rates(text, 4)


def run(rates: tuple[float, ...], length: int, tokens: int, seed: int = 1) -> tuple[list[int], Tally]:
    model = ScriptedModel(order=3, spread=2.0)
    prompt = [5, 6, 7, 8]
    text = [4 + (place * 7 + place // 3) % 20 for place in range(tokens)]
    sequence = prompt + text
    session = Session(
        model,
        model,
        drafter=SyntheticDrafter(NgramDrafter(), sequence),
        controller=FixedLength(length),
        verifier=SyntheticVerifier(sequence, rates, seed),
    )
    session.prefill(prompt)
    rules = StopRules(max_tokens=tokens, ignore_eos=True)
    steps = [e.stats for e in session.reply(Sampler(SamplingParams(temperature=0)), rules)]
    assert session.tokens == sequence
    return session.tokens, Tally(steps)


def test_the_dice_keep_to_the_rates_by_position() -> None:
    rates = (0.8, 0.6, 0.3, 0.0)
    _, tally = run(rates, 4, 3000)
    # Some 1,100 drafts: five standard deviations are 0.075 at most.
    assert tally.acceptance_at() == pytest.approx(list(rates), abs=0.075)
    assert tally.acceptance_length == pytest.approx(expected_length(rates), abs=0.15)


def test_sure_and_hopeless_drafts() -> None:
    assert run((1.0, 1.0, 1.0), 3, 400)[1].acceptance_length == pytest.approx(4.0, abs=0.05)
    assert run((0.0, 0.0, 0.0), 3, 100)[1].acceptance_length == 1.0


def test_the_same_seed_falls_alike() -> None:
    one, two, other = (run(parse_rates("0.6", 5), 5, 300, seed)[1] for seed in (3, 3, 4))
    assert one.accepted_at == two.accepted_at
    assert one.accepted_at != other.accepted_at
