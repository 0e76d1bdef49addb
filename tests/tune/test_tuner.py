"""Tuning on a machine whose every pass takes the time that the test says: what wins, and what is said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from localspec.bench.tasks import Prompt, Task
from localspec.errors import EngineError, NotEnoughMemoryError, UsageError
from localspec.tune.advice import KEEP, TOO_SHORT
from localspec.tune.copies import Copy
from localspec.tune.records import Tuning
from localspec.types import ChatMessage, DraftOptions, EngineOptions
from tests.tune.machines import Shop, cheap, dear

PLAIN = EngineOptions(draft=DraftOptions("none"))


@pytest.fixture
def shop(tmp_path: Path) -> Callable[..., Shop]:
    return lambda **options: Shop(tmp_path, **options)


def named(tuning: Tuning, name: str) -> Any:
    return next(trial for trial in tuning.trials if trial.name == name)


def test_drafts_that_pay_are_advised(shop: Callable[..., Shop]) -> None:
    mine = shop(engine=PLAIN)
    found = mine.tuner().run()
    assert found.complete
    assert found.advice is not None
    assert found.advice.settings["draft.spec"] == "ngram"
    assert found.advice.speed is not None
    assert found.advice.speed > 1.2
    assert found.advice.within is not None
    assert found.advice.within < 0.05
    best = max(found.of("draft"), key=lambda trial: trial.speed or 0)
    assert best.rounds >= 3
    assert set(best.kinds) == {"copy", "code", "story"}
    assert found.prompts == ("copy", "code", "story")
    present = named(found, "none (plain) (present)")
    assert present.present
    assert (present.speed, present.of_plain) == (1.0, 1.0)
    # Every model and context is given back, within the time that there was.
    assert mine.workshop.open_ones == []
    assert found.seconds <= mine.minutes * 60 * 1.1
    assert mine.done == sorted(mine.done)


def test_drafts_that_never_pay_are_not(shop: Callable[..., Shop]) -> None:
    found = shop(engine=PLAIN, cost=dear).tuner().run()
    assert found.advice is not None
    assert found.advice.settings == {}
    assert found.advice.sentences[0] == KEEP
    assert all((trial.speed or 0) <= 1.02 for trial in found.of("draft"))
    fixed = named(found, "ngram fixed:8")
    assert fixed.slower
    assert fixed.speed < 0.98


def test_drafts_that_cost_are_taken_out_of_the_settings(shop: Callable[..., Shop]) -> None:
    present = EngineOptions(draft=DraftOptions("ngram", 8, policy="fixed"))
    found = shop(engine=present, cost=dear).tuner().run()
    assert found.advice is not None
    assert found.advice.settings.get("draft.spec") == "none" or found.advice.settings.get("draft.policy")
    assert any("Your present settings slow down" in said for said in found.advice.sentences)


def test_noise_does_not_win(shop: Callable[..., Shop]) -> None:
    """With nothing to gain, a machine whose passes scatter by a third finds nothing."""
    mine = shop(engine=PLAIN, cost=lambda name, engine, tokens: 10.0 * tokens, noise=0.3)
    found = mine.tuner().run()
    assert found.advice is not None
    assert found.advice.settings == {}


def test_the_better_engine_is_found_and_carried_on(shop: Callable[..., Shop]) -> None:
    def cost(name: str, engine: EngineOptions, tokens: int) -> float:
        slow = 1.0 if engine.threads == 1 and engine.flash_attention else 1.5
        # A pass has a price of its own, so wide batches read faster.
        return slow * cheap(name, engine, tokens)

    found = shop(cost=cost, minutes=4.0).tuner().run()
    best = max(found.of("engine"), key=lambda trial: trial.speed or 0)
    assert best.settings == {"engine.threads": 1, "engine.flash_attention": True}
    assert best.speed == pytest.approx(1.5, rel=0.01)
    assert found.advice is not None
    assert found.advice.settings.items() >= best.settings.items()
    assert any("no longer gives way" in said for said in found.advice.sentences)
    # The present drafter is tried on the better engine too.
    assert named(found, "auto cost").settings == best.settings
    assert named(found, "auto cost").speed == pytest.approx(1.5, rel=0.05)


def test_a_larger_batch_reads_faster(shop: Callable[..., Shop]) -> None:
    def cost(name: str, engine: EngineOptions, tokens: int) -> float:
        return 10.0 + 0.01 * tokens

    engine = EngineOptions(batch=128, draft=DraftOptions("none"))
    found = shop(cost=cost, engine=engine, minutes=5.0).tuner().run()
    assert found.advice is not None
    assert found.advice.settings.get("engine.batch") == 1024
    assert any("Prompts are read" in said for said in found.advice.sentences)


def test_what_is_refused_has_a_note_and_the_others_go_on(shop: Callable[..., Shop]) -> None:
    mine = shop(engine=PLAIN)
    mine.workshop.refused["flash=False"] = UsageError("llama.cpp refuses it.")
    found = mine.tuner().run()
    refused = named(found, "1 thread, flash off")
    assert refused.speed is None
    assert refused.note == "llama.cpp refuses it."
    assert named(found, "1 thread, flash on").speed is not None


@pytest.mark.parametrize("minutes", [0.001, 0.01, 0.05, 0.2])
def test_what_has_no_time_is_untried_and_nothing_is_invented(
    shop: Callable[..., Shop], minutes: float
) -> None:
    mine = shop(minutes=minutes, quantize=True)
    found = mine.tuner().run()
    assert found.complete
    assert found.advice is not None
    for trial in found.trials:
        assert trial.speed is not None or trial.note
    late = [trial for trial in found.trials if trial.speed is None]
    assert late
    if minutes < 0.05:
        assert found.advice.settings == {}
        assert found.advice.sentences == (TOO_SHORT,)
    assert mine.workshop.open_ones == []
    assert mine.copies.there == []


def test_too_few_kinds_are_too_little_for_advice(shop: Callable[..., Shop]) -> None:
    found = shop(engine=PLAIN, minutes=0.35, drafts=("ngram", "suffix")).tuner().run()
    assert len(found.prompts) < 3
    assert found.advice is not None
    assert "draft.spec" not in found.advice.settings


def test_a_prompt_of_ones_own_is_enough(shop: Callable[..., Shop]) -> None:
    own = Task("prompts", "own", (Prompt("mine", (ChatMessage("user", "abc abc abc"),)),), stops=True)
    found = shop(engine=PLAIN, tasks=(own,)).tuner().run()
    assert found.prompts == ("prompts mine",)
    assert found.kinds == 1
    assert found.advice is not None
    assert found.advice.settings["draft.spec"] == "ngram"


def test_prompts_that_do_not_fit_end_it_at_once(shop: Callable[..., Shop]) -> None:
    long = Task("prompts", "own", (Prompt("1", (ChatMessage("user", "abc " * 500),)),))
    mine = shop(tasks=(long,), engine=EngineOptions(context=256))
    with pytest.raises(UsageError, match=r"No prompt can be used.*context holds 256"):
        mine.tuner().run()
    assert mine.workshop.open_ones == []
    assert mine.clock.now < 1e9


def test_one_that_does_not_fit_is_left_out(shop: Callable[..., Shop]) -> None:
    long = Task("story", "long", (Prompt("1", (ChatMessage("user", "abc " * 500),)),))
    short = Task("copy", "short", (Prompt("1", (ChatMessage("user", "abc abc"),)),))
    found = shop(tasks=(long, short), engine=EngineOptions(context=300)).tuner().run()
    assert found.prompts == ("copy",)
    assert any(note.startswith("story 1 was left out") for note in found.notes)


def test_a_model_that_cannot_roll_back_has_no_drafts_to_tune(shop: Callable[..., Shop]) -> None:
    mine = shop()
    mine.workshop.can_trim = False
    found = mine.tuner().run()
    assert found.of("draft") == []
    assert found.complete
    assert any("cannot be rolled back" in note for note in found.notes)


# --- copies


def faster_copy(name: str, engine: EngineOptions, tokens: int) -> float:
    return {"Q4_0": 4.0, "Q8_0": 11.0}.get(name, 9.0) + tokens


def test_copies_are_compared_in_speed_size_and_fidelity(shop: Callable[..., Shop]) -> None:
    mine = shop(engine=PLAIN, cost=faster_copy, quantize=True, minutes=4.0)
    found = mine.tuner().run()
    trials = {trial.name: trial for trial in found.of("file")}
    plain = trials["Q4_0, none (plain)"]
    assert plain.speed == pytest.approx(2.0, rel=0.02)
    assert plain.bytes == 80
    assert plain.fidelity is not None
    assert plain.fidelity.agreement == 1.0
    assert plain.fidelity.divergence == pytest.approx(0.0, abs=1e-9)
    assert plain.fidelity.tokens > 50
    assert found.advice is not None
    assert found.advice.file_type == "Q4_0"
    said = " ".join(found.advice.sentences)
    assert "localspec models quantize scripted Q4_0" in said
    assert "hardly to be told apart" in said
    assert mine.copies.loss in said
    # What was made for this is gone again.
    assert mine.copies.there == []
    assert list(mine.folder.glob("Q*.gguf")) == []


def test_another_model_in_effect_is_called_so(shop: Callable[..., Shop]) -> None:
    mine = shop(engine=PLAIN, quantize=True, minutes=4.0)
    mine.copies.plans = [Copy("bad", 10)]
    found = mine.tuner().run()
    bad = next(trial for trial in found.of("file"))
    assert bad.fidelity is not None
    assert bad.fidelity.agreement < 0.5
    assert bad.fidelity.divergence > 0.2
    assert found.advice is not None
    assert "another model in effect" in " ".join(found.advice.sentences)


@pytest.mark.parametrize("problem", ["room", "making", "memory", "time"])
def test_a_copy_that_cannot_be_had_is_skipped_and_said(shop: Callable[..., Shop], problem: str) -> None:
    mine = shop(engine=PLAIN, quantize=True, minutes=3.0)
    if problem == "room":
        mine.copies.plans[0] = Copy("Q4_0", 80, "no room on the disk for a copy")
    elif problem == "making":
        mine.copies.broken.add("Q4_0")
    elif problem == "memory":
        mine.workshop.refused["Q4_0"] = NotEnoughMemoryError("There is not enough memory.")
    else:
        mine.copies.made_s = 500.0
    found = mine.tuner().run()
    first = found.of("file")[0]
    assert first.speed is None
    assert first.note is not None
    assert first.note.startswith("untried: ")
    if problem != "time":
        assert any(trial.name.startswith("Q8_0, ") and trial.speed for trial in found.of("file"))
    assert mine.copies.there == []
    assert mine.workshop.open_ones == []


# --- ends


@pytest.mark.parametrize("passes", [1, 30, 400, 2000, 4000])
def test_an_interrupt_keeps_what_is_known_and_leaves_nothing_behind(
    shop: Callable[..., Shop], passes: int
) -> None:
    mine = shop(quantize=True, minutes=4.0)

    def press(count: int) -> None:
        if count == passes:
            raise KeyboardInterrupt

    mine.workshop.after = press
    tuner = mine.tuner()
    with pytest.raises(KeyboardInterrupt):
        tuner.run()
    assert not tuner.found.complete
    assert tuner.found.advice is None
    if passes > 30:
        assert any(trial.speed is not None for trial in tuner.found.trials)
    assert mine.workshop.open_ones == []
    assert mine.copies.there == []


def test_a_failing_present_is_an_error(shop: Callable[..., Shop]) -> None:
    mine = shop()

    def fail(count: int) -> None:
        if count > 50:
            raise EngineError("The engine failed.")

    mine.workshop.after = fail
    with pytest.raises(EngineError):
        mine.tuner().run()
    assert mine.workshop.open_ones == []
