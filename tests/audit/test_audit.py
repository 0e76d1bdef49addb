"""An audit of scripted models: sound ones pass, and every fault that is put in is found and named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from localspec.audit.compare import promise_of
from localspec.bench.driver import Driver, Reply
from localspec.bench.records import Configuration
from localspec.bench.runs import Run
from localspec.drafters import METHODS, Drafter
from localspec.errors import PromptTooLongError, UsageError
from localspec.testing import RandomDrafter, ScriptedModel
from localspec.verify import VERIFIERS, CoupledVerifier, Verifier
from tests.audit.models import (
    PROMPTS,
    RoundingModel,
    StaleModel,
    TooMany,
    WideFaultModel,
    WrongNoise,
    WrongRow,
    audited,
)


def causes(findings) -> set[str]:
    return {one.divergence.cause for one in findings.comparisons if one.divergence is not None}


@pytest.fixture
def trees(monkeypatch: pytest.MonkeyPatch) -> Configuration:
    """A drafter of random trees over few tokens, so that some of them are right."""
    monkeypatch.setitem(METHODS, "random", lambda options, memory: RandomDrafter(32, branches=True))
    return Configuration(draft="random", length=12, leaves=8)


# --- sound models


def test_a_sound_model_says_the_same_everywhere() -> None:
    findings, verdict = audited(ScriptedModel(order=2, spread=3.0))
    assert verdict.same_answer is True
    assert verdict.sentence == "Same answer: all 8 replies are identical token for token."
    assert (verdict.compared, verdict.identical, verdict.explained) == (8, 8, 0)
    assert verdict.notes == ()
    assert all(one.identical and one.drafted for one in findings.comparisons)
    assert {one.token_ids for one in findings.plain} == {one.token_ids for one in findings.comparisons}
    assert findings.noise.repeat_shift == 0
    assert findings.noise.largest_bound == 0
    # Every width that a pass had is measured, also where nothing needs explaining.
    assert [width.width for width in findings.noise.widths] == [1, 2, 3, 4, 5]


def test_trees_are_audited_too(trees: Configuration) -> None:
    findings, verdict = audited(ScriptedModel(order=2, spread=3.0), trees)
    assert verdict.same_answer is True
    assert verdict.identical == verdict.compared == 8
    assert sum(one.accepted for one in findings.comparisons) > 0
    assert findings.noise.is_rounding
    assert max(width.width for width in findings.noise.widths) > 6


def test_what_rounding_decides_is_explained() -> None:
    findings, verdict = audited(RoundingModel(0.1))
    assert verdict.same_answer is True
    assert 0 < verdict.explained == verdict.compared - verdict.identical
    assert causes(findings) <= {"near-tie", "filter"}
    assert "part" in verdict.sentence
    assert "noise of this model up to 0." in verdict.sentence
    for one in findings.comparisons:
        found = one.divergence
        if found is not None and found.cause == "near-tie":
            margin, shift, noise, width = found.margin, found.shift, found.noise, found.width
            assert None not in (margin, shift, noise, width)
            assert 0 <= margin <= shift <= noise
            assert found.within_noise is True
            assert 2 <= width <= 5
    alone, *wide = findings.noise.widths
    assert (alone.width, alone.bound) == (1, 0)
    # Uniform noise up to 0.1 on every logit: two of them part by 0.2 at most.
    assert wide
    assert all(0.15 < width.bound <= 0.2001 and width.rows >= 64 for width in wide)


def test_rounding_of_trees_is_explained(trees: Configuration) -> None:
    findings, verdict = audited(RoundingModel(0.1), trees)
    assert verdict.same_answer is True
    assert verdict.explained > 0
    assert causes(findings) <= {"near-tie", "filter"}


def test_a_token_at_the_border_of_a_filter_is_told_from_a_near_tie() -> None:
    """With much rounding, some tokens are lost or won although their scores are far apart."""
    found = set()
    for seed in range(4):
        model = RoundingModel(0.2, spread=3.0, seed=seed)
        findings, verdict = audited(model, temperatures=(2.0,), tokens=120)
        assert verdict.same_answer is True
        found |= causes(findings)
    assert found == {"near-tie", "filter"}


# --- faults


@pytest.mark.parametrize("amplitude", [0.0, 0.1])
@pytest.mark.parametrize(
    ("rule", "temperatures"),
    [(TooMany, (0.0,)), (TooMany, (0.8,)), (WrongNoise, (0.8,))],
    ids=["too-many-greedy", "too-many-seeded", "noise-of-another-position"],
)
def test_a_rule_that_does_not_keep_to_the_draw_is_found(
    rule: type[Verifier], temperatures: tuple[float, ...], amplitude: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(VERIFIERS, "coupled", rule)
    findings, verdict = audited(RoundingModel(amplitude), temperatures=temperatures)
    assert verdict.same_answer is False
    assert verdict.sentence.startswith("NOT the same answer: ")
    assert "let through a token that the model did not draw" in verdict.sentence
    assert "rule" in causes(findings)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_rows_of_another_token_are_found(temperature: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(VERIFIERS, "coupled", WrongRow)
    findings, verdict = audited(ScriptedModel(order=2, spread=1.5), temperatures=(temperature,))
    assert verdict.same_answer is False
    assert causes(findings) & {"rule", "scores"}


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_cache_that_is_not_rolled_back_is_found(temperature: float) -> None:
    findings, verdict = audited(StaleModel(order=2, spread=3.0), temperatures=(temperature,))
    assert verdict.same_answer is False
    assert causes(findings) == {"scores"}
    assert "scores moved by" in verdict.sentence
    # The measure of rounding is free of the fault, though it uses the same cache.
    assert findings.noise.largest_bound == 0


def test_a_stale_cache_that_changes_no_token_is_told() -> None:
    """A model that is certain of everything says the same from a wrong cache; its scores give it away."""

    class Certain(StaleModel):
        def row(self, tokens):
            row = 0.05 * super().row(tokens)
            row[4 + (tokens[-1] - 3) % 9] += 20
            return row

    _, verdict = audited(Certain(order=2, spread=1.0), temperatures=(0.0,))
    assert verdict.same_answer is True
    assert any("Beware" in note for note in verdict.notes)


def test_passes_that_compute_something_else_explain_nothing() -> None:
    findings, verdict = audited(WideFaultModel())
    assert verdict.same_answer is False
    assert not findings.noise.is_rounding
    assert causes(findings) == {"scores"}
    assert any("no rounding" in note for note in verdict.notes)


class Scribbler(Driver):
    """Writes down another token than was decided, in replies with drafts."""

    def run(self, reply: Reply, drafter: Drafter, *args, **kwargs) -> Run:
        run = super().run(reply, drafter, *args, **kwargs)
        if drafter.name == "none":
            return run
        said = list(run.token_ids)
        said[7] = 4 if said[7] != 4 else 5
        return replace(run, token_ids=tuple(said))


class Forgetful(Driver):
    """Loses the last token of replies with drafts."""

    def run(self, reply: Reply, drafter: Drafter, *args, **kwargs) -> Run:
        run = super().run(reply, drafter, *args, **kwargs)
        return run if drafter.name == "none" else replace(run, token_ids=run.token_ids[:-1])


@pytest.mark.parametrize(("broken", "index"), [(Scribbler, 7), (Forgetful, 59)])
def test_a_reply_that_no_pass_decided_is_found(broken: type[Driver], index: int) -> None:
    model = ScriptedModel(order=2, spread=3.0, eog_logit=-40.0)
    findings, verdict = audited(model, driver=broken(model, model))
    assert verdict.same_answer is False
    assert causes(findings) == {"session"}
    assert "no pass of the model decided" in verdict.sentence
    divergence = findings.comparisons[0].divergence
    assert divergence is not None
    assert divergence.index == index
    assert (divergence.other is None) == (broken is Forgetful)


def test_one_fault_among_near_ties_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken for one prompt of four: the verdict counts it beside what rounding explains."""

    class Seldom(TooMany):
        def verify(self, draft, rows, sampler, history):
            rule = super() if tuple(history[:12]) == PROMPTS[0] else CoupledVerifier()
            return rule.verify(draft, rows, sampler, history)

    monkeypatch.setitem(VERIFIERS, "coupled", Seldom)
    findings, verdict = audited(RoundingModel(0.1))
    assert verdict.same_answer is False
    assert causes(findings) == {"rule", "near-tie"}
    assert verdict.explained > 0
    faults = [one for one in findings.comparisons if one.divergence and not one.divergence.explained]
    assert {findings.plain[one.reply].prompt for one in faults} == {"0"}
    same = verdict.compared - len(faults) - verdict.explained
    assert f"({same} are identical, {verdict.explained} part at near-ties)" in verdict.sentence


# --- what rules promise


def test_promises() -> None:
    assert promise_of("coupled", 0.8) == promise_of("rejection", 0) == promise_of("block", 0) == "text"
    assert promise_of("rejection", 0.8) == promise_of("block", 0.8) == "distribution"
    assert promise_of("typical", 0) == promise_of("adasd", 0.8) == "lossy"
    with pytest.raises(UsageError, match="rule"):
        promise_of("nonsense", 0)


def test_rules_that_keep_the_distribution_are_compared_greedily_only() -> None:
    rules = [Configuration(draft="ngram", length=4, verify=rule) for rule in ("rejection", "block")]
    findings, verdict = audited(ScriptedModel(order=2, spread=3.0), *rules)
    assert verdict.same_answer is True
    assert verdict.compared == 8
    assert all(findings.plain[one.reply].temperature == 0 for one in findings.comparisons)
    assert len(verdict.notes) == 2
    assert all("may differ by design" in note for note in verdict.notes)


def test_without_a_promise_there_is_no_verdict() -> None:
    rule = Configuration(draft="ngram", length=4, verify="rejection")
    findings, verdict = audited(ScriptedModel(order=2, spread=3.0), rule, temperatures=(0.8,))
    assert (verdict.same_answer, verdict.compared, findings.comparisons) == (None, 0, ())
    assert "No promise was tested" in verdict.sentence
    assert "--temperature 0" in verdict.notes[0]


def test_a_lossy_rule_is_no_fault() -> None:
    rules = [Configuration(draft="ngram", length=4, verify=rule) for rule in ("coupled", "typical")]
    findings, verdict = audited(ScriptedModel(order=2, spread=1.0), *rules, temperatures=(1.2,))
    lossy = [one for one in findings.comparisons if one.verify == "typical"]
    assert all(one.promise == "lossy" for one in lossy)
    assert any(not one.identical for one in lossy)
    assert causes(findings) == {"lossy"}
    assert verdict.same_answer is True
    assert verdict.compared == 4
    assert [note for note in verdict.notes if note.startswith("typical is lossy")]


def test_a_rule_without_what_it_needs_is_refused() -> None:
    with pytest.raises(UsageError, match="no distribution"):
        audited(ScriptedModel(), Configuration(draft="ngram", length=4, verify="adasd"))


# --- other honest words


def test_replies_without_a_draft_prove_nothing_and_say_so() -> None:
    _, verdict = audited(ScriptedModel(order=2, can_trim=False))
    assert verdict.same_answer is True
    assert any("ngram drafted nothing at all" in note for note in verdict.notes)
    _, verdict = audited(ScriptedModel(order=2), Configuration(draft="none"))
    assert verdict.notes == ()


def test_a_reply_that_ends_early_is_compared_whole() -> None:
    findings, verdict = audited(ScriptedModel(order=2, spread=2.0, eog_logit=3.0))
    assert verdict.same_answer is True
    assert any(one.token_ids[-1] == 0 and len(one.token_ids) < 60 for one in findings.plain)


def test_a_prompt_without_room_for_its_reply_is_refused_before_anything_is_asked() -> None:
    model = ScriptedModel(capacity=64)
    with pytest.raises(PromptTooLongError, match=r"letters 0 needs 72 .* holds 64; raise --context"):
        audited(model)
    assert model.passes == []


def test_a_context_that_a_reply_just_fits_is_full_for_both() -> None:
    _, verdict = audited(ScriptedModel(order=2, capacity=72))
    assert verdict.identical == verdict.compared == 8
