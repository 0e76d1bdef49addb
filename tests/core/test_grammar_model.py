"""llama.cpp's grammar sampler on a real vocabulary, and constrained replies of the real model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from localspec.constrained import ConstrainedSampler
from localspec.engine import Engine
from localspec.errors import EngineError, UsageError
from localspec.grammar import grammar_of_schema
from localspec.messages import Event, Generate, Reply, Step
from localspec.runtime.grammar import Grammar
from localspec.runtime.model import LlamaModel
from localspec.sampling import Sampler
from localspec.types import ChatMessage, DraftOptions, EngineOptions, SamplingParams

pytestmark = pytest.mark.model

ARRAY = r"""
root ::= "[" (item ("," item)*)? "]"
item ::= root | "\"" [a-zé€]{0,9} "\"" | [0-9]+
"""


@pytest.fixture(scope="module")
def model(smollm2_path: Path) -> Iterator[LlamaModel]:
    model = LlamaModel(smollm2_path)
    yield model
    model.close()


def tokens_of(model: LlamaModel, text: str) -> list[int]:
    return model.tokenize(text, add_special=False, parse_special=True)


def accepts(model: LlamaModel, grammar: Grammar, text: str) -> bool:
    """Whether a reply may be `text`, as the model's tokenizer cuts it."""
    said = tokens_of(model, text)
    for place, token in enumerate(said):
        if not grammar.allowed(said[:place], np.array([token]))[0]:
            return False
    return bool(grammar.allowed(said, np.array(sorted(model.eog_tokens))).all())


def test_a_state_is_that_of_the_tokens_alone(model: LlamaModel):
    """Forwards, back, and along other branches: as a new grammar that is told the same from the start."""
    random = np.random.default_rng(5)
    ids = np.sort(random.choice(model.vocabulary_size, 3000, replace=False))
    everything = np.arange(model.vocabulary_size)
    with closing(Grammar(model, ARRAY)) as grammar:
        said: list[int] = []
        for turn in range(40):
            if turn % 5 == 4:
                said = said[: random.integers(0, len(said) + 1)]
            open_ones = np.setdiff1d(
                everything[grammar.allowed(said, everything)], list(model.eog_tokens), assume_unique=True
            )
            said.append(int(random.choice(open_ones)) if len(open_ones) else model.eos)
            if said[-1] == model.eos:
                said = []
            with closing(Grammar(model, ARRAY)) as other:
                assert (grammar.allowed(said, ids) == other.allowed(said, ids)).all()


def test_long_replies_keep_few_states(model: LlamaModel):
    letter, digit = (tokens_of(model, text)[0] for text in ("a", "1"))
    ids = np.array([letter, digit, model.eos])
    with closing(Grammar(model, 'root ::= "a"{3,} "1"')) as grammar:
        for length in (2, 700, 699, 450, 3, 2, 600):
            assert grammar.allowed([letter] * length, ids).tolist() == [True, length >= 3, False]
        assert len(grammar._states) <= 256
        assert grammar.allowed([*[letter] * 500, digit], ids).tolist() == [False, False, True]
        assert grammar.allowed([*[letter] * 500, digit, model.eos], ids).tolist() == [False, False, True]


def test_a_token_that_was_forbidden_does_not_reach_native_code(model: LlamaModel):
    a, b = (tokens_of(model, text)[0] for text in "ab")
    with closing(Grammar(model, 'root ::= "aaa"')) as grammar:
        for said in ([b], [a, b], [model.eos]):
            with pytest.raises(EngineError, match="which it forbids"):
                grammar.allowed(said, np.array([a]))
        assert grammar.allowed([a], np.array([a, b, model.eos])).tolist() == [True, False, False]


def test_characters_may_be_cut_anywhere(model: LlamaModel):
    with closing(Grammar(model, 'root ::= "é€😀" [à-ÿ]+')) as grammar:
        assert len(tokens_of(model, "é€😀ü")) > 4
        assert accepts(model, grammar, "é€😀üé")
        assert not accepts(model, grammar, "é€😀z")
        assert not accepts(model, grammar, "é€😁ü")


def test_control_tokens_are_no_text(model: LlamaModel):
    start, end = tokens_of(model, "<|im_start|>")[0], model.eos
    assert model.token_bytes(start) == b""
    ids = np.array([start, end, tokens_of(model, "x")[0]])
    with closing(Grammar(model, "root ::= .*")) as grammar:
        assert grammar.allowed([], ids).tolist() == [False, True, True]
    for name in ("<|im_start|>", f"<[{start}]>"):
        with closing(Grammar(model, f'root ::= {name} "x"')) as grammar:
            assert grammar.allowed([], ids).tolist() == [True, False, False]
            assert grammar.allowed([start], ids).tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "empty"),
        ('root ::= "a', "not closed"),
        ("root ::= <[999999]>", "no token of this model"),
        ("root ::= <two words>", "no token of this model"),
        ('root ::= (""| "a")* "b"', "left recursion detected"),
    ],
)
def test_a_grammar_that_cannot_be_used_is_a_sentence(model: LlamaModel, text: str, what: str):
    with pytest.raises(UsageError, match=what):
        Grammar(model, text)


def test_a_grammar_of_too_many_readings_is_given_up(model: LlamaModel, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("localspec.runtime.grammar._TOO_LONG_S", 0.05)
    a = tokens_of(model, "a")[0]
    with closing(Grammar(model, 's ::= "a" s "b" | "a" s "c" | "x"\nroot ::= s')) as grammar:
        with pytest.raises(UsageError, match="too many readings"):
            grammar.allowed([a] * 60, np.array([a]))
        assert grammar.allowed([a], np.array([a]))[0]


# --- JSON schemas


def is_person(value: Any) -> bool:
    assert list(value) in (["name", "age"], ["name", "age", "tags"], ["name", "age", "tags", "more"])
    tags = value.get("tags", [])
    return len(value["name"]) <= 6 and -5 <= value["age"] <= 120 and set(tags) <= {"r\n", 'g"', "b\\"}


def is_moment(value: Any) -> bool:
    date.fromisoformat(value["day"])
    UUID(value["id"])
    return value["score"] is None or (type(value["score"]) in (int, float) and value["score"] >= 0)


def is_tree(value: Any) -> bool:
    return all(is_tree(kid) for kid in value["kids"]) and len(value["kids"]) <= 1


PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "age": {"type": "integer", "minimum": -5, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["r\n", 'g"', "b\\"]}, "minItems": 1, "maxItems": 3},
        "more": {"type": "boolean"},
    },
    "required": ["name", "age"],
}
MOMENT = {
    "type": "object",
    "properties": {
        "day": {"type": "string", "format": "date"},
        "id": {"type": "string", "format": "uuid"},
        "score": {"anyOf": [{"type": "number", "minimum": 0}, {"type": "null"}]},
    },
    "required": ["day", "id", "score"],
}
TREE = {
    "type": "object",
    "properties": {"kids": {"type": "array", "items": {"$ref": "#"}, "maxItems": 1}},
    "required": ["kids"],
}
TUPLE = {
    "type": "array",
    "prefixItems": [{"type": "null"}, {"type": "string", "minLength": 2, "maxLength": 2}],
}
SCHEMAS: dict[str, tuple[dict[str, Any], Callable[[Any], bool]]] = {
    "person": (PERSON, is_person),
    "moment": (MOMENT, is_moment),
    "tree": (TREE, is_tree),
    "tuple": (TUPLE, lambda value: value[0] is None and len(value[1]) == 2),
    "map": ({"additionalProperties": {"type": "null"}}, lambda value: set(value.values()) <= {None}),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_random_replies_are_what_the_schema_says(model: LlamaModel, name: str):
    schema, holds = SCHEMAS[name]
    random = np.random.default_rng(3)
    finished = 0
    with closing(Grammar(model, grammar_of_schema(json.dumps(schema)))) as grammar:
        for seed in range(4):
            sampler = ConstrainedSampler(SamplingParams(temperature=1.0, seed=seed), grammar)
            said: list[int] = []
            while not set(said) & model.eog_tokens and len(said) < 250:
                row = random.normal(0, 3, model.vocabulary_size).astype(np.float32)
                # Quotes and brackets that close, so that no text goes on for ever.
                row[[tokens_of(model, text)[0] for text in ('"', "}", "]")]] += 9
                said.append(sampler.sample(row, len(said), said))
            if said[-1] in model.eog_tokens:
                text = b"".join(map(model.token_bytes, said)).decode()
                assert holds(json.loads(text)), text
                finished += 1
    assert finished > 0


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (PERSON, '{"name": "Ann", "age": -5}', '{"age": 5, "name": "Ann"}'),
        (
            PERSON,
            '{\n  "name":"é",\n  "age":120,\n  "tags":["r\\n","b\\\\"]\n}',
            '{"name": "Ann", "age": 121}',
        ),
        (PERSON, '{"name": "a\\"\\u00e9", "age": 7}', '{"name": "a\nb", "age": 7}'),
        (MOMENT, None, '{"day": "2023-02-29", "id":'),
        ({"type": "number"}, "-1.5e-07", "01"),
        ({"type": "string"}, '"\\ud7ff\\uE000"', '"\\ud800"'),
        (
            {"type": "string", "format": "date-time"},
            '"2024-12-31T23:59:59.5+01:00"',
            '"2024-12-31T24:00:00Z"',
        ),
        ({"type": "array", "items": {"type": "integer"}, "maxItems": 2}, "[1, 2]", "[1, 2, 3]"),
        ({}, '{"a": [1, {"b": null}], "c": "d"}', "{'a': 1}"),
    ],
)
def test_what_a_schema_lets_through(model: LlamaModel, schema: Any, good: str | None, bad: str):
    with closing(Grammar(model, grammar_of_schema(json.dumps(schema)))) as grammar:
        assert good is None or accepts(model, grammar, good)
        assert not accepts(model, grammar, bad)


# --- replies

UNFILTERED = SamplingParams(temperature=0.8, top_k=0, top_p=1.0, min_p=0.0)
"""No token is at the border of a filter, so that rounding shows in the margin alone."""

PROMPTS = (
    ('Describe a person as JSON, such as {"name": "Ann", "age": 31, "tags": ["red", "blue"]}', "person"),
    ('Measure as JSON: [{"city": "Rome", "dry": true}, {"city": "Oslo", "dry": false}]', "cities"),
)
GRAMMARS = {
    "person": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 20},
            "age": {"type": "integer", "minimum": 0, "maximum": 120},
            "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "maxItems": 4},
        },
        "required": ["name", "age", "tags"],
    },
    "cities": {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 12}, "dry": {"type": "boolean"}},
            "required": ["city", "dry"],
        },
        "minItems": 2,
        "maxItems": 3,
    },
}


@pytest.fixture(scope="module")
def engines(smollm2_path: Path) -> Iterator[dict[str, Engine]]:
    """One without drafts, one with."""
    opened = {
        spec: Engine(
            smollm2_path,
            "smollm2",
            EngineOptions(context=512, threads=1, draft=DraftOptions(spec=spec, length=6, policy="fixed")),
        )
        for spec in ("none", "ngram")
    }
    yield opened
    for engine in opened.values():
        engine.close()


def asked(engine: Engine, turn: int, **more: Any) -> tuple[Reply, list[Step]]:
    prompt, name = PROMPTS[turn % len(PROMPTS)]
    steps: list[Step] = []

    def listen(event: Event) -> None:
        if isinstance(event, Step):
            steps.append(event)

    wanted: dict[str, Any] = {
        "sampling": SamplingParams(temperature=0.8, seed=turn),
        "grammar": grammar_of_schema(json.dumps(GRAMMARS[name])),
        "max_tokens": 200,
    }
    request = Generate(1, (ChatMessage("user", prompt),), **{**wanted, **more})
    return engine.generate(request, listen).reply, steps


def all_but_tied(engine: Engine, plain: Reply, drafted: Reply) -> bool:
    """Whether the first other token is one that rounding alone may have preferred.

    Args:
        engine: has just made `plain`.
    """
    pairs = enumerate(zip(plain.token_ids, drafted.token_ids, strict=False))
    place, (token, other) = next((place, pair) for place, pair in pairs if pair[0] != pair[1])
    context, tokens = engine.session.context, engine.session.tokens
    position = len(tokens) - len(plain.token_ids) + place
    context.clear()
    context.decode(tokens[: position - 1], "none")
    row = context.decode(tokens[position - 1 : position], "all")[0]
    return abs(Sampler(replace(UNFILTERED, seed=drafted.seed)).margin(row, position, (), token, other)) < 1.0


def test_constrained_replies_parse_and_are_those_without_speculation(engines: dict[str, Engine]):
    accepted = 0
    for turn in range(6):
        sampling = replace(UNFILTERED, seed=turn)
        drafted, _ = asked(engines["ngram"], turn, sampling=sampling)
        plain, _ = asked(engines["none"], turn, sampling=sampling)
        assert drafted.finish_reason == "stop"
        assert isinstance(json.loads(drafted.text), dict if turn % 2 == 0 else list)
        assert drafted.token_ids == plain.token_ids or all_but_tied(engines["none"], plain, drafted)
        accepted += drafted.speculation.accepted_tokens
    assert accepted > 30


def test_trees_and_lossy_rules_keep_to_the_grammar_too(smollm2_path: Path):
    chain, tree = (DraftOptions("ngram", 12, leaves=leaves, policy="fixed") for leaves in (1, 4))
    for options in ({"draft": tree}, {"draft": chain, "verify": "typical"}):
        engine = Engine(smollm2_path, "smollm2", EngineOptions(context=512, threads=1, **options))
        try:
            reply, steps = asked(engine, 1)
        finally:
            engine.close()
        assert isinstance(json.loads(reply.text), list)
        assert sum(step.stats.accepted for step in steps) > 0


def test_a_grammar_holds_for_one_reply_alone(engines: dict[str, Engine]):
    engine = engines["ngram"]
    free, _ = asked(engine, 0, grammar=None)
    with pytest.raises(UsageError, match="forbids every token as the first"):
        asked(engine, 0, grammar=r"root ::= [^\x00-\U0010FFFF]")
    with pytest.raises(UsageError, match="after 1 token"):
        asked(engine, 0, grammar=r'root ::= "{" [^\x00-\U0010FFFF]', sampling=SamplingParams(temperature=0))
    with pytest.raises(UsageError, match="empty"):
        asked(engine, 0, grammar="")
    with pytest.raises(UsageError, match="ignore-eos"):
        asked(engine, 0, ignore_eos=True)
    with pytest.raises(UsageError, match="between 0 and 20"):
        asked(engine, 0, logprobs=21)
    nothing, _ = asked(engine, 0, grammar='root ::= ""')
    assert (nothing.text, len(nothing.token_ids), nothing.finish_reason) == ("", 1, "stop")
    assert asked(engine, 0, grammar=None)[0].token_ids == free.token_ids


def test_logprobs_are_those_of_plain_decoding(engines: dict[str, Engine]):
    found = []
    for engine in engines.values():
        reply, steps = asked(engine, 1, logprobs=4)
        tokens = [token for step in steps for token in step.tokens]
        assert tuple(token.id for token in tokens) == reply.token_ids
        assert "".join(token.logprobs.text for token in tokens if token.logprobs) == reply.text + "<|im_end|>"
        found.append([(token.id, token.logprobs) for token in tokens if token.logprobs])
    plain, drafted = found
    assert plain[0][0] == drafted[0][0]
    for (token, one), (same, other) in zip(plain, drafted, strict=False):
        # Passes of other widths are rounded otherwise, and near a tie another token may follow.
        if token != same:
            break
        assert one.logprob == pytest.approx(other.logprob, abs=0.5)
        assert len(one.top) == 4
        assert sum(np.exp(alternative.logprob) for alternative in one.top) <= 1 + 1e-6
        assert [other.logprob for other in one.top] == sorted((o.logprob for o in one.top), reverse=True)
