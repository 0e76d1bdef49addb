"""A target with recurrent layers: what is dropped is dropped from its states too, or refused."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from localspec.control import FixedLength
from localspec.drafters.base import Drafter
from localspec.drafters.ngram import NgramDrafter
from localspec.drafters.none import NoDrafter
from localspec.drafters.suffix import SuffixDrafter
from localspec.engine import Engine
from localspec.errors import RollbackRefusedError
from localspec.messages import Event, Generate, Step
from localspec.models.cache import snapshots, state_bytes
from localspec.models.gguf import GGUFHeader, read_header
from localspec.runtime.context import LlamaContext
from localspec.runtime.library import taken_buffers
from localspec.runtime.loading import LoadedModel, load
from localspec.session import Session
from localspec.types import Budget, ChatMessage, Draft, DraftOptions, EngineOptions, SamplingParams
from tests.heads import alphabet
from tests.heads.making import Made
from tests.heads.rigs import GREEDY, WARM, told

TEXT = [ord("a") + number * 7 % 26 for number in range(150)]
OPTIONS = EngineOptions(context=512, threads=1, gpu_layers=0, batch=64, flash_attention=False, kv_type="f32")


@pytest.fixture(scope="module")
def header(made: Made) -> GGUFHeader:
    # Its logits depend on the recurrent states.
    return read_header(made(alphabet.target_hybrid, reads_noise=0.3, sharpness=9.0))


@pytest.fixture(scope="module")
def loaded(header: GGUFHeader) -> Iterator[LoadedModel]:
    loaded = load(header.path, OPTIONS)
    yield loaded
    loaded.close()


@pytest.fixture
def context(loaded: LoadedModel) -> LlamaContext:
    loaded.context.clear()
    return loaded.context


def read(context: LlamaContext, count: int) -> None:
    """The first `count` tokens of the text, and nothing else."""
    context.clear()
    for start in range(0, count, context.max_batch):
        context.decode(TEXT[start : min(start + context.max_batch, count)], "none")


class WrongAfter:
    """Drafts the text that will be said, right for some tokens and then wrong."""

    name, remembers = "wrong-after", False
    needs = NgramDrafter(2, 5, "recent", 1).needs

    def __init__(self, said: list[int], seed: int) -> None:
        self._said = said
        self._random = random.Random(seed)

    def begin(self, tokens: object) -> None:
        pass

    def commit(self, outcome: object) -> None:
        pass

    def close(self) -> None:
        pass

    def propose(self, tokens: Sequence[int], budget: Budget) -> Draft:
        right = self._random.randint(0, budget.tokens)
        ahead = self._said[len(tokens) : len(tokens) + budget.tokens]
        return Draft.chain([token if place < right else 65 for place, token in enumerate(ahead)])


def test_states_are_kept_and_rows_bounded_by_them(loaded: LoadedModel, header: GGUFHeader) -> None:
    context = loaded.context
    assert context.can_trim
    assert not context.can_trim_far
    assert context.snapshots == snapshots(header) == context.max_rows - 1 > 3
    assert context.max_leaves == 1
    assert snapshots(replace(header, metadata={**header.metadata, "general.architecture": "mamba"})) == 0


def test_they_are_in_the_estimate_of_memory(loaded: LoadedModel, header: GGUFHeader) -> None:
    assert loaded.footprint.buffers_bytes == pytest.approx(loaded.used_bytes, rel=0.1)
    # Prediction layers are read, and counted, where they are to draft.
    draft = DraftOptions(spec="mtp", files={"mtp": str(header.path)})
    predicting = load(header.path, replace(OPTIONS, draft=draft))
    predicting.close()
    more = predicting.footprint.buffers_bytes - loaded.footprint.buffers_bytes
    assert more == pytest.approx(predicting.used_bytes - loaded.used_bytes, rel=0.02)
    assert more > 100_000


def test_as_much_of_the_states_as_llama_cpp_takes(header: GGUFHeader) -> None:
    sizes, kept = state_bytes(header), snapshots(header)
    loaded = load(header.path, OPTIONS)
    try:
        taken = [buffer.size_bytes for buffer in taken_buffers() if buffer.kind == "RS"]
    finally:
        loaded.close()
    # llama.cpp reports hundredths of a MiB.
    assert sum(taken) == pytest.approx((1 + kept) * sum(sizes), abs=2**20 / 100)


def test_without_kept_states_there_is_no_roll_back(loaded: LoadedModel) -> None:
    bare = LlamaContext(loaded.model, capacity=256, threads=1)
    try:
        assert not bare.can_trim
        assert not bare.can_trim_far
        assert bare.max_rows > bare.snapshots == 0
    finally:
        bare.close()


def test_after_a_roll_back_as_if_it_had_not_been_read(context: LlamaContext) -> None:
    numbers = np.random.default_rng(1)
    for start in range(70, 100):
        drafted = int(numbers.integers(1, context.snapshots + 1))
        right = int(numbers.integers(0, drafted + 1))
        wrong = numbers.integers(ord("a"), ord("z") + 1, drafted - right).tolist()
        read(context, start)
        context.decode([*TEXT[start : start + 1 + right], *wrong], "all")
        context.keep(start + 1 + right)
        after = context.decode(TEXT[start + 1 + right : start + 4 + right], "all").copy()
        read(context, start + 1 + right)
        straight = context.decode(TEXT[start + 1 + right : start + 4 + right], "all")
        np.testing.assert_allclose(after, straight, atol=1e-4)


def test_states_matter(context: LlamaContext) -> None:
    """Else the test above would show nothing."""
    read(context, 60)
    one = context.decode([TEXT[60]], "all").copy()
    context.clear()
    context.decode(TEXT[:60][::-1], "none")
    assert np.abs(one - context.decode([TEXT[60]], "all")).max() > 0.01


def test_what_is_not_kept_is_refused(context: LlamaContext) -> None:
    read(context, 60)
    context.decode(TEXT[60:63], "all")
    with pytest.raises(RollbackRefusedError, match="last 3 tokens"):
        # The state before a pass is not among those of the pass.
        context.keep(60)
    context.keep(62)
    with pytest.raises(RollbackRefusedError, match="last 1 tokens"):
        context.keep(61)
    context.decode(TEXT[62:64], "all")
    context.keep(63)
    read(context, 60)
    with pytest.raises(RollbackRefusedError):
        context.keep(60 - context.snapshots - 1)
    assert context.length == 60


@pytest.mark.parametrize("params", [GREEDY, WARM], ids=["greedy", "warm"])
def test_any_drafts_leave_the_text_as_it_is(loaded: LoadedModel, params: SamplingParams) -> None:
    def reply(drafter: Drafter) -> tuple[list[int], int]:
        loaded.context.clear()
        session = Session(
            loaded.context,
            loaded.model,
            drafter=drafter,
            controller=FixedLength(loaded.context.snapshots + 3),
        )
        made = told(session, None, prompt, 120, params)
        return made.tokens, made.accepted

    prompt = TEXT[:40] * 2
    plain, _ = reply(NoDrafter())
    drafters: list[Drafter] = [NgramDrafter(1, 3, "recent", 1), SuffixDrafter(None)]
    drafters += [WrongAfter([*prompt, *plain], seed) for seed in range(6)]
    accepted = 0
    for drafter in drafters:
        tokens, right = reply(drafter)
        assert tokens == plain
        accepted += right
    assert accepted > 100


def test_a_later_prompt_is_read_as_far_as_it_has_to_be(loaded: LoadedModel) -> None:
    loaded.context.clear()
    session = Session(loaded.context, loaded.model, drafter=SuffixDrafter(None), controller=FixedLength(4))
    first = told(session, None, TEXT[:50], 40, GREEDY)
    said = [*TEXT[:50], *first.tokens]
    for prompt in ([*said, *TEXT[:20]], [*said[:60], *TEXT[:20]], said[:30], [*said, *TEXT[20:90]]):
        again = told(session, None, prompt, 30, GREEDY)
        with_fresh = load(loaded.model.path, OPTIONS)
        try:
            fresh = Session(
                with_fresh.context, with_fresh.model, drafter=NoDrafter(), controller=FixedLength(0)
            )
            assert again.tokens == told(fresh, None, prompt, 30, GREEDY).tokens
        finally:
            with_fresh.close()
    # What goes on from all that was said is not read anew.
    prompt = [*session.tokens, *TEXT[:5]]
    assert session.prefill(prompt).cached == len(session.tokens) - 6


def spoken(engine: Engine) -> tuple[tuple[int, ...], int]:
    """A reply of the engine's, and how many of its tokens had been drafted."""
    events: list[Event] = []
    request = Generate(1, (ChatMessage("user", "abc" * 20),), None, GREEDY, 60, ignore_eos=True)
    tokens = engine.generate(request, events.append).reply.token_ids
    return tokens, sum(event.stats.accepted for event in events if isinstance(event, Step))


def test_the_engine_drafts_with_it_and_says_so(header: GGUFHeader, monkeypatch: pytest.MonkeyPatch) -> None:
    options = replace(OPTIONS, draft=DraftOptions("ngram", policy="fixed:4"))
    with closing(Engine(header.path, "hybrid", options)) as engine:
        assert engine.info.can_trim
        assert engine.info.speculation
        plain, _ = spoken(engine)
        engine.set_speculation(False)
        assert spoken(engine) == (plain, 0)
        engine.set_speculation(True)
        again, accepted = spoken(engine)
        assert again == plain
        assert accepted > 5
    # As with an architecture whose states llama.cpp keeps none of.
    monkeypatch.setattr("localspec.runtime.loading.snapshots", lambda _header: 0)
    with closing(Engine(header.path, "hybrid", options)) as engine:
        assert not engine.info.can_trim
        assert not engine.info.speculation
        assert "cannot be rolled back" in engine.info.speculation_reason
        assert spoken(engine) == (plain, 0)
