"""Figures of simulations by hand, the best possible against the bench's, tables and documents."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from localspec.bench.oracle import oracle_ms
from localspec.cost import CostCurve
from localspec.errors import UsageError
from localspec.simulate.costs import PassCost
from localspec.simulate.figures import Ideal, figures
from localspec.simulate.inputs import Recording
from localspec.simulate.replay import Simulated
from localspec.simulate.report import document, headline, label, print_report, report
from localspec.simulate.study import Outcome, configurations, simulate
from localspec.types import DraftOptions, StepStats

CURVE = CostCurve({1: 0.010, 2: 0.012, 5: 0.020})
NGRAM = (2, 5, "recent", 1)


def step(drafted: int, accepted: int, match: int, draft_us: int = 100) -> StepStats:
    return StepStats(
        index=0,
        time_ns=0,
        position=10,
        budget=4,
        drafted=drafted,
        accepted=accepted,
        emitted=accepted + 1,
        kind="correction" if accepted < drafted else "bonus",
        source="ngram" if drafted else "",
        match_length=match,
        threads=0,
        draft_ns=draft_us * 1000,
        verify_ns=round(CURVE(drafted + 1) * 1e9),
        sample_ns=0,
        other_ns=0,
    )


def outcome(*steps: StepStats, spec: str = "ngram") -> Outcome:
    emitted = sum(each.emitted for each in steps)
    reply = Simulated(steps, 2_000_000, emitted * 10_000_000, (1000, 2000, 3000, 4000))
    return Outcome(DraftOptions(spec, 4, policy="fixed"), False, (reply,))


def recordings(*lengths: int) -> list[Recording]:
    return [Recording(f"reply {n}", (1, 2), tuple(range(n)), f"c{n}") for n in lengths]


def test_theory_beside_what_was_simulated():
    # Drafts of 4 in two steps of three; five of six positions that were looked at were accepted.
    made = outcome(step(4, 4, 3), step(4, 1, 2), step(0, 0, 0))
    theory = figures(made, CURVE, Ideal(CURVE, 8, 5), timed=False).theory
    assert theory is not None
    alpha = 5 / 6
    tau = (2 * sum(alpha**n for n in range(5)) + 1) / 3
    assert theory.tau == pytest.approx(tau)
    assert theory.speedup == pytest.approx(tau / ((2 * 2.0 + 1) / 3))
    assert theory.break_even is not None
    assert sum(theory.break_even**n for n in range(5)) == pytest.approx(2.0)
    assert theory.best_length == 4
    slower = figures(made, CURVE, Ideal(CURVE, 8, 5), timed=True).theory
    assert slower is not None
    assert slower.speedup == pytest.approx(tau / ((2 * 2.0 + 1) / 3 + 0.01))


def test_figures_by_hand():
    made = outcome(step(4, 4, 3), step(4, 1, 2), step(0, 0, 0))
    found = figures(made, CURVE, Ideal(CURVE, 8, 5), timed=True)
    # 8 tokens plain: 80 ms; passes over 5, 5 and 1 tokens: 50 ms; drafting 0.3 ms.
    assert found.speedup == pytest.approx(80 / 50)
    assert found.speedup_drafting == found.predicted == pytest.approx(80 / 50.3)
    assert (found.tally.emitted, found.tally.steps, found.wasted) == (8, 3, 3)
    assert found.wasted_per_token == pytest.approx(3 / 8)
    assert found.tally.acceptance_length == pytest.approx(8 / 3)
    assert found.tally.conditional_acceptance == pytest.approx(5 / 6)
    assert (found.propose.calls, found.propose.p50) == (4, pytest.approx(2.5))
    assert found.begin_ms == (2.0, 2.0)
    bins = [(m.shortest, m.longest, m.steps, m.drafted, m.accepted, m.emitted) for m in found.matches]
    assert bins == [(0, 0, 1, 0, 0, 1), (2, 2, 1, 4, 1, 2), (3, 3, 1, 4, 4, 5)]
    assert [m.speedup for m in found.matches] == pytest.approx([1.0, 1.0, 2.5])
    # Twice 4 tokens at 17.33 ms; 5, 2 and 1 would take 42 ms.
    assert found.best == pytest.approx(0.08 / (2 * CURVE(4)))


def test_without_a_tokens_time_drafting_is_not_weighed():
    found = figures(outcome(step(4, 4, 3)), CURVE, Ideal(CURVE, 5, 5), timed=False)
    assert found.speedup_drafting is None
    assert found.predicted == found.speedup == 2.5


@given(
    costs=st.lists(st.floats(0.5, 3.0), min_size=1, max_size=6),
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=4),
)
def test_the_best_possible_is_the_benchs(costs, lengths):
    points = dict(enumerate(costs, 1))
    curve = CostCurve(points)
    ideal = Ideal(curve, max(lengths), curve.longest).speedup(lengths)
    spent = sum(oracle_ms(length, points) or 0 for length in lengths)
    assert ideal == pytest.approx(sum(lengths) * points[1] / spent)


@given(text=st.lists(st.integers(0, 3), min_size=4, max_size=60), length=st.integers(1, 8))
def test_no_drafter_beats_the_best_possible(text, length):
    cost = PassCost("test", CostCurve({1: 1.0, 2: 1.1, 4: 2.0}), None)
    said = [Recording("one", tuple(text[:2]), tuple(text[2:]), "one")]
    options = configurations(["none", "ngram"], [length], [1, 3], [NGRAM])
    found = report([simulate(said, each, cost.seconds) for each in options], said, cost)
    assert all(line.figures.predicted <= line.figures.best + 1e-9 for line in found.lines)
    assert [line.figures.predicted for line in found.lines] == sorted(
        (line.figures.predicted for line in found.lines), reverse=True
    )
    assert json.loads(json.dumps(document(found), allow_nan=False))["format"] == 1


def test_configurations_that_would_be_the_same_are_one():
    picks = [NGRAM, (2, 5, "first", 1)]
    found = configurations(["none", "ngram"], [2, 4], [1], picks)
    assert [label(each) for each in found] == [
        "none",
        "ngram 2",
        "ngram 2, first",
        "ngram 4",
        "ngram 4, first",
    ]
    assert label(DraftOptions("ngram", 8, 3, 4, "frequent", 2, leaves=4, policy="fixed")) == (
        "ngram 8, 4 branches, match 3-4, frequent, 2 hits"
    )


@pytest.mark.parametrize("spec", ["smollm2", "other.gguf"])
def test_a_drafter_that_needs_a_model_is_refused(spec):
    with pytest.raises(UsageError, match=f"--draft {spec} needs a model, and a simulation has none"):
        configurations([spec], [4], [1], [NGRAM])


def test_an_unknown_drafter_is_just_that():
    with pytest.raises(UsageError, match="no drafting method 'telepathy'"):
        configurations(["telepathy"], [4], [1], [NGRAM])


def test_headlines():
    cost = PassCost("test", CURVE.scaled(100), 10.0)
    good, poor = outcome(step(4, 4, 3)), outcome(*[step(4, 0, 2)] * 5)
    plain = outcome(*[step(0, 0, 0, draft_us=0)] * 5, spec="none")
    said = recordings(5)
    assert headline(report([poor, good], said, cost)).startswith("Best: ngram 4, 2.49x plain decoding")
    assert headline(report([plain, poor], said, cost)).startswith("No drafter here is faster")
    assert headline(report([plain], said, cost)).startswith("Nothing drafts here")


@pytest.mark.parametrize("width", [80, 140])
def test_tables_fit(width):
    cost = PassCost("test", CostCurve({1: 1.0, 9: 1.4}), 5.0)
    said = [Recording("evil \x1b[31m", (1, 2, 3), (1, 2, 3) * 20, "one"), *recordings(30)]
    options = configurations(["none", "ngram"], [4, 8], [1, 4], [NGRAM, (3, 12, "frequent", 2)])
    found = report([simulate(said, each, cost.seconds) for each in options], said, cost, ["A note."])
    out = io.StringIO()
    print_report(found, Console(file=out, width=width), per_reply=True)
    text = out.getvalue()
    assert max(map(len, text.split("\n"))) <= width
    assert "\x1b" not in text
    for words in (
        "Draft",
        "speed",
        "Accepted at",
        "Speed by match",
        "A note.",
        "Best: ngram 8",
        "5 ms a token",
    ):
        assert words in text
    assert text.count("reply 30") == len(options)
    rows = document(found)["rows"]
    assert [row["label"] for row in rows] == [line.label for line in found.lines]
    for row in rows:
        assert sum(each["tokens"] for each in row["per_reply"]) == row["tokens"] == 90
        assert sum(each["steps"] for each in row["by_match_length"]) == row["steps"]
