"""Rules of verification and branches, through the engine, on the real model."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from localspec.engine import Engine
from localspec.errors import BadLogitsError, UsageError
from localspec.messages import Event, Generate, Reply, Step
from localspec.types import ChatMessage, DraftOptions, EngineOptions, SamplingParams, StepStats
from localspec.verify import VERIFIERS

pytestmark = pytest.mark.model

SAMPLING = SamplingParams(temperature=0.8, seed=3)
COPY = "Say this three times: the quick brown fox jumps over the lazy dog, the quick brown cat sleeps."


@pytest.fixture
def answer(smollm2_path: Path) -> Callable[..., tuple[Engine, Reply, list[StepStats]]]:
    """The reply of a new engine, which is closed, and its steps."""

    def answered(
        sampling: SamplingParams = SAMPLING, **options: object
    ) -> tuple[Engine, Reply, list[StepStats]]:
        engine = Engine(smollm2_path, "smollm2", EngineOptions(context=256, threads=1, **options))
        steps: list[StepStats] = []

        def listen(event: Event) -> None:
            if isinstance(event, Step):
                steps.append(event.stats)

        try:
            request = Generate(1, (ChatMessage("user", COPY),), None, sampling, 60, ignore_eos=True)
            reply = engine.generate(request, listen).reply
        finally:
            engine.close()
        return engine, reply, steps

    return answered


def test_every_rule_that_can_judge_ngrams_does_so(answer):
    said = {}
    for rule in VERIFIERS:
        if rule == "adasd":
            continue
        engine, reply, steps = answer(verify=rule, draft=DraftOptions("ngram", 4, policy="fixed"))
        said[rule] = reply.token_ids
        assert (engine._verify, type(engine.session.verifier)) == (rule, VERIFIERS[rule])
        assert sum(step.accepted for step in steps) > 0
    # Without distributions the exact rules come to the same; the lossy one says something of its own.
    assert said["coupled"] == said["rejection"] == said["block"]
    assert said["typical"] != said["coupled"]


def test_a_loaded_model_says_by_which_rule_it_replies(smollm2_path: Path):
    for rule, exact in (("coupled", True), ("typical", False)):
        engine = Engine(smollm2_path, "smollm2", EngineOptions(context=64, threads=1, verify=rule))
        try:
            assert (engine.info.verify, engine.info.exact) == (rule, exact)
            # What a rule learns ends with the reply.
            judges = []
            for number in range(2):
                engine.generate(Generate(number, (ChatMessage("user", "Hi"),), None, SAMPLING, 1))
                judges.append(engine.session.verifier)
            assert judges[0] is not judges[1]
        finally:
            engine.close()


def test_what_cannot_go_together_is_refused_before_anything_is_loaded(tmp_path: Path):
    missing = tmp_path / "missing.gguf"
    for draft in ("ngram", "none"):
        with pytest.raises(UsageError, match=f"the drafter '{draft}' has no distribution"):
            Engine(missing, "missing", EngineOptions(verify="adasd", draft=DraftOptions(draft)))
    with pytest.raises(UsageError, match="no verification rule 'luck'"):
        Engine(missing, "missing", EngineOptions(verify="luck"))
    with pytest.raises(UsageError, match="1 to 16 branches, not 17"):
        Engine(missing, "missing", EngineOptions(draft=DraftOptions(leaves=17)))


def test_branches_are_drafted_where_they_are_asked_for(answer):
    engine, _, steps = answer(draft=DraftOptions("ngram", 12, ngram_min=1, leaves=4, policy="fixed"))
    assert engine.speculation.reason == "on, up to 12 draft tokens a step on 4 branches"
    assert engine.session.context.max_leaves == 16
    assert 1 < max(step.leaves for step in steps) <= 4
    assert all(step.positions <= step.drafted <= 12 for step in steps)
    assert any(step.leaves > 1 and step.accepted for step in steps)
    _, _, chains = answer(draft=DraftOptions("ngram", 12, ngram_min=1, policy="fixed"))
    assert {step.leaves for step in chains} == {1}


def test_a_model_that_returns_nan_is_named(smollm2_path: Path, tmp_path: Path):
    broken = tmp_path / "broken.gguf"
    data = bytearray(smollm2_path.read_bytes())
    key = b"llama.rope.freq_base"
    place = data.index(key) + len(key)
    # A float32, whose value comes after its type.
    assert struct.unpack_from("<I", data, place) == (6,)
    struct.pack_into("<f", data, place + 4, float("nan"))
    broken.write_bytes(data)
    engine = Engine(broken, "my-model", EngineOptions(context=64, threads=1))
    broken.unlink()
    try:
        for temperature in (0.0, 0.8):
            request = Generate(1, (ChatMessage("user", "Hi"),), None, SamplingParams(temperature), 5)
            with pytest.raises(BadLogitsError, match=r"^my-model: .*not numbers \(NaN\)"):
                engine.generate(request)
        assert engine.session.context.length == 0
    finally:
        engine.close()
