"""Which drafters are tried, what they are called, and which settings make them."""

from __future__ import annotations

import pytest

from localspec.bench.records import Configuration
from localspec.tune.advice import advise
from localspec.tune.draft_stage import default_drafts, draft_changes, draft_options
from localspec.tune.engine_stage import changes, engines
from localspec.tune.records import Trial, Tuning
from localspec.tune.rivals import configuration_of, draft_name
from localspec.types import DraftOptions, EngineOptions

AUTO = DraftOptions()


def test_every_drafter_with_policy_and_lengths_and_none_without_the_present_one() -> None:
    names = [draft_name(options) for options in draft_options(AUTO, ("auto", "ngram", "none"))]
    assert names == [
        *("auto fixed:2", "auto fixed:4", "auto fixed:8"),
        *("ngram cost", "ngram fixed:2", "ngram fixed:4", "ngram fixed:8"),
        "none (plain)",
    ]
    # One length may be written in several ways.
    present = DraftOptions("ngram", 4, policy="fixed")
    assert "ngram fixed:4" not in [draft_name(each) for each in draft_options(present, ("ngram",))]


def test_two_names_of_one_drafter_are_tried_once() -> None:
    assert default_drafts(AUTO) == ("auto", "ngram")
    assert default_drafts(DraftOptions("none")) == ("ngram", "suffix")
    own = DraftOptions("suffix+small.gguf", files={"small.gguf": "small.gguf"})
    assert default_drafts(own) == ("suffix+small.gguf", "ngram", "suffix")


@pytest.mark.parametrize(
    ("options", "configuration", "name"),
    [
        (DraftOptions("none"), Configuration(draft="none"), "none (plain)"),
        (AUTO, Configuration(draft="auto", policy="cost"), "auto cost"),
        (
            DraftOptions("ngram", 6),
            Configuration(draft="ngram", length=6, policy="cost"),
            "ngram cost, 6 at most",
        ),
        (DraftOptions("ngram", policy="fixed"), Configuration(draft="ngram", length=8), "ngram fixed:8"),
        (DraftOptions("ngram", 3, policy="fixed"), Configuration(draft="ngram", length=3), "ngram fixed:3"),
        (
            DraftOptions("suffix", policy="fixed:4", leaves=2),
            Configuration(draft="suffix", length=4, leaves=2),
            "suffix fixed:4, 2 branches",
        ),
    ],
)
def test_what_it_is_called_and_how_the_bench_runs_it(
    options: DraftOptions, configuration: Configuration, name: str
) -> None:
    assert configuration_of(options) == configuration
    assert draft_name(options) == name


def test_only_what_changes_is_written() -> None:
    present = DraftOptions("ngram", 8, policy="fixed", leaves=2)
    new = DraftOptions("ngram", policy="fixed:4")
    assert draft_changes(present, new) == {
        "draft.policy": "fixed:4",
        "draft.length": None,
        "draft.leaves": 1,
    }
    assert draft_changes(present, DraftOptions("none")) == {"draft.spec": "none"}
    assert draft_changes(present, present) == {}
    engine = EngineOptions(threads=4, batch=256)
    assert changes(EngineOptions(), engine) == {"engine.threads": 4, "engine.batch": 256}


def test_threads_with_and_without_flash_attention() -> None:
    found = engines(EngineOptions(threads=2, flash_attention=True), (2, 1))
    assert list(found) == ["2 threads, flash off", "1 thread, flash on", "1 thread, flash off"]


def test_the_engine_is_advised_where_too_few_prompts_were_asked() -> None:
    """Passes tell of the engine, whatever the prompts; drafts are another matter."""
    engine = Trial(
        stage="engine", name="1 thread", settings={"engine.threads": 1}, speed=1.3, within=0.01, rounds=4
    )
    draft = Trial(
        stage="draft", name="ngram cost", settings={"draft.spec": "ngram"}, speed=2.0, within=0.01, rounds=4
    )
    found = Tuning(
        model="m", file="m", minutes=1.0, started="", prompts=("copy",), kinds=6, trials=(engine, draft)
    )
    advice = advise(found, "")
    assert advice.settings == {"engine.threads": 1}
    assert advice.speed is None
    assert "too little to advise" in advice.sentences[0]
    enough = found.model_copy(update={"prompts": ("copy", "code", "story")})
    assert advise(enough, "").settings == {"draft.spec": "ngram"}
