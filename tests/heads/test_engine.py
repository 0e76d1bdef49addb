"""Heads in the engine: chosen, switched, toggled, joined with others, judged by every rule, refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.engine import Engine
from localspec.errors import IncompatibleError, ModelFileError
from localspec.messages import Event, Generate, Step
from localspec.types import ChatMessage, DraftOptions, EngineOptions, SamplingParams
from localspec.verify import VERIFIERS
from tests.heads import alphabet, randoms
from tests.heads.cases import ALL, Case
from tests.heads.making import Made
from tests.heads.rigs import GREEDY, WARM

COUNT = 60
QUESTION = "hello world: xyz"
NAMED = {case.name: case for case in ALL}
SOFT = 9.0
"""Sharpness of targets that leave other letters a chance at a temperature."""
NO_DRAFTS = DraftOptions("none")


def draft(case: Case, made: Made, spec: str = "head", policy: str = "fixed:3") -> DraftOptions:
    """Options with the case's head as the member `head` of `spec`."""
    target, head = case.files(made)
    member = f"{case.kind}:HEAD" if head else case.kind
    return DraftOptions(spec.replace("head", member), policy=policy, files={member: str(head or target)})


@contextmanager
def engine(
    case: Case, made: Made, options: DraftOptions | None = None, verify: str = "coupled"
) -> Iterator[Engine]:
    opened = Engine(
        case.files(made)[0],
        "target",
        EngineOptions(
            context=512,
            threads=1,
            gpu_layers=0,
            flash_attention=False,
            kv_type="f32",
            draft=options or draft(case, made),
            verify=verify,
        ),
    )
    try:
        yield opened
    finally:
        opened.close()


def ask(
    engine: Engine, *turns: ChatMessage, sampling: SamplingParams = GREEDY, count: int = COUNT
) -> tuple[tuple[int, ...], list[Step]]:
    """The reply's tokens and its steps."""
    events: list[Event] = []
    request = Generate(1, turns, None, sampling, count, ignore_eos=True)
    reply = engine.generate(request, events.append).reply
    return reply.token_ids, [event for event in events if isinstance(event, Step)]


def user(text: str) -> ChatMessage:
    return ChatMessage("user", text)


def accepted(steps: list[Step]) -> int:
    return sum(step.stats.accepted for step in steps)


def sources(steps: list[Step]) -> set[str]:
    return {step.stats.source for step in steps if step.stats.drafted}


@pytest.mark.parametrize("case", ALL, ids=str)
def test_a_chat_says_what_it_says_without_drafts(made: Made, case: Case) -> None:
    """Two turns, the second with drafting switched off and on in between."""
    with engine(case, made) as head, engine(case, made, NO_DRAFTS) as plain:
        first, steps = ask(head, user(QUESTION))
        assert first == ask(plain, user(QUESTION))[0]
        assert sources(steps) == {case.kind}
        turns = [user(QUESTION), ChatMessage("assistant", bytes(first).decode()), user("xyz")]
        head.set_speculation(False)
        said, steps = ask(head, *turns, sampling=WARM)
        assert said == ask(plain, *turns, sampling=WARM)[0]
        assert sources(steps) == set()
        head.set_speculation(True)
        said, steps = ask(head, *turns, user("abc"))
        assert said == ask(plain, *turns, user("abc"))[0]
        assert sources(steps) == {case.kind}


@pytest.mark.parametrize("name", ["eagle3", "mtp", "mtp-three", "mtp-hybrid", "dflash", "dspark"])
def test_put_in_and_out_between_the_turns(made: Made, name: str) -> None:
    case = NAMED[name]
    with engine(case, made) as one:
        right = accepted(ask(one, user(QUESTION))[1])
        for spec in ("none", "head", "ngram", "head"):
            one.set_drafter(draft(case, made, spec))
            said, steps = ask(one, user(QUESTION), user("abc" * 8))
            assert list(said) == alphabet.text_after(ord("c"), COUNT)
            if spec == "head":
                assert sources(steps) == {case.kind}
                assert accepted(steps) > right / 2


@pytest.mark.parametrize("name", ["eagle3", "mtp", "dflash", "dspark"])
def test_together_with_what_was_said_before(made: Made, name: str) -> None:
    case = NAMED[name]
    with engine(case, made, draft(case, made, "suffix+head", "cost")) as one:
        # The alphabet has been said once: from then on a match is found, and the head draws level.
        said, steps = ask(one, user("hi"), count=200)
        assert list(said) == alphabet.text_after(ord("i"), 200)
        again, _ = ask(one, user("hi"), user("q"), count=100)
        assert list(again) == alphabet.text_after(ord("q"), 100)
        assert accepted(steps) >= 0


@pytest.mark.parametrize("name", ["eagle3", "mtp", "dflash", "dspark"])
def test_auto_takes_an_installed_one_along(made: Made, name: str) -> None:
    case = NAMED[name]
    options = DraftOptions("auto", policy="fixed:3", companions=draft(case, made).files)
    with engine(case, made, options) as one:
        said, steps = ask(one, user(QUESTION))
        assert list(said) == alphabet.text_after(ord("z"), COUNT)
        assert case.kind in sources(steps)


@pytest.mark.parametrize("rule", VERIFIERS)
@pytest.mark.parametrize("name", ["eagle3", "mtp", "mtp-three", "dflash", "dspark"])
def test_every_rule_judges_what_it_drafts(made: Made, name: str, rule: str) -> None:
    case = NAMED[name].with_target(sharpness=SOFT)
    with engine(case, made, verify=rule) as one:
        said, steps = ask(one, user(QUESTION))
        assert list(said) == alphabet.text_after(ord("z"), COUNT)
        assert accepted(steps) > COUNT / 2
        said, steps = ask(one, user(QUESTION), sampling=WARM)
        assert len(said) == COUNT
        assert accepted(steps) > 5


@pytest.mark.parametrize("name", ["eagle3", "eagle3-reduced", "random-eagle3", "random-eagle3-wide"])
def test_eagle3_on_branches_says_the_same(made: Made, name: str) -> None:
    case = NAMED[name]
    options = replace(draft(case, made, policy="fixed:8"), leaves=4)
    with engine(case, made, options) as one, engine(case, made, NO_DRAFTS) as plain:
        for sampling in (GREEDY, WARM):
            said, steps = ask(one, user(QUESTION), sampling=sampling)
            assert said == ask(plain, user(QUESTION), sampling=sampling)[0]
            assert sources(steps) == {"eagle3"}
            if name.startswith("random"):
                # One that is sure of each token has no use for a second.
                assert max(step.stats.leaves for step in steps) > 1
            else:
                assert accepted(steps) > COUNT / 2


@pytest.mark.parametrize(
    ("case", "error"),
    [
        (Case("", "eagle3", randoms.target, {"layers": 2}, alphabet.eagle3), "reads layer 2"),
        (Case("", "mtp", alphabet.target, {}, alphabet.target_mtp, {"part": "heads"}), "architecture"),
        (Case("", "mtp", alphabet.target_mtp, {"part": "trunk"}, alphabet.target_mtp), "whole model"),
        (Case("", "dflash", alphabet.target, {}, randoms.dflash, {"width": 96}), "96 values"),
        (Case("", "dflash", alphabet.target_hybrid, {}, alphabet.eagle3), "EAGLE-3"),
        (Case("", "mtp", alphabet.target), "it is no head"),
    ],
    ids=["fewer-layers", "other-architecture", "a-whole-model", "another-width", "another-kind", "none"],
)
def test_what_does_not_fit_is_said_before_it_runs(made: Made, case: Case, error: str) -> None:
    with pytest.raises(IncompatibleError, match=error) as raised, engine(case, made):
        pass
    assert raised.value.exit_code == 4


def test_a_truncated_head_is_said_to_be_one(made: Made, tmp_path: Path) -> None:
    whole = made(alphabet.eagle3)
    torn = tmp_path / "torn.gguf"
    torn.write_bytes(whole.read_bytes()[:-4000])
    options = DraftOptions("eagle3:HEAD", files={"eagle3:HEAD": str(torn)})
    with pytest.raises(ModelFileError, match="truncated"), engine(NAMED["eagle3"], made, options):
        pass
