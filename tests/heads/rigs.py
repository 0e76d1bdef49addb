"""A session of our own over a target and a head, and a record of what was drafted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from localspec.control import Controller, FixedLength
from localspec.draft_heads import DraftHeads
from localspec.drafters.base import Drafter, FeatureDrafter
from localspec.drafters.hidden import HiddenDrafter
from localspec.drafters.none import NoDrafter
from localspec.models.gguf import read_header
from localspec.models.heads import head_facts
from localspec.runtime.loading import LoadedModel, load
from localspec.sampling import Sampler
from localspec.session import Reply, Session, StopRules
from localspec.target import HeadContext, Tap
from localspec.text import ReplyText
from localspec.types import Advice, Budget, Draft, DraftOptions, EngineOptions, Outcome, SamplingParams
from tests.heads.cases import Case
from tests.heads.making import Made

GREEDY = SamplingParams(temperature=0.0)
WARM = SamplingParams(temperature=0.8, top_k=0, top_p=1.0, min_p=0.0, seed=11)
"""Nothing is filtered, or the sure targets of these tests would leave nothing to draw."""
CAPACITY = 512
BATCH = 64
"""Small, so that prompts take several passes."""


class Recorder:
    """Passes everything on to a drafter, and keeps what it proposed."""

    def __init__(self, drafter: FeatureDrafter) -> None:
        self._drafter = drafter
        self.name, self.needs, self.remembers = drafter.name, drafter.needs, drafter.remembers
        self.drafts: list[Draft] = []

    def begin(self, tokens: Sequence[int]) -> None:
        self._drafter.begin(tokens)

    def observe(self, start: int, tokens: Sequence[int]) -> None:
        self._drafter.observe(start, tokens)

    def holds(self, tokens: Sequence[int], advice: Advice | None = None) -> int:
        return self._drafter.holds(tokens, advice)

    def propose(self, tokens: Sequence[int], budget: Budget) -> Draft:
        draft = self._drafter.propose(tokens, budget)
        self.drafts.append(draft)
        return draft

    def commit(self, outcome: Outcome) -> None:
        self._drafter.commit(outcome)

    def close(self) -> None:
        self._drafter.close()


@dataclass
class Told:
    """A reply and how it came about.

    Attributes:
        tokens: of the reply.
        drafts: tokens of every draft, as it was proposed.
        drafted: draft tokens that were verified.
        accepted: how many of them were accepted.
        places: for each draft, tokens of the session before it.
    """

    tokens: list[int]
    drafts: list[tuple[int, ...]] = field(default_factory=list)
    drafted: int = 0
    accepted: int = 0
    places: list[int] = field(default_factory=list)


@dataclass
class Rig:
    """A loaded pair and a session over it."""

    case: Case
    session: Session
    recorder: Recorder
    drafter: HiddenDrafter
    another: Callable[[], Drafter]
    """Makes one more drafter on the same head, as a change of drafter does that fails later."""

    def reply(
        self,
        prompt: Sequence[int],
        count: int,
        *,
        params: SamplingParams = GREEDY,
        controller: Controller | None = None,
    ) -> Told:
        """A reply of `count` tokens, with drafts of the case's length unless told otherwise."""
        self.session.controller = controller or FixedLength(self.case.length)
        return told(self.session, self.recorder, prompt, count, params)

    def draft(self, tokens: Sequence[int]) -> tuple[int, ...]:
        """What is drafted after `tokens`, read from the first one on."""
        self.session.context.clear()
        self.session.tokens = []
        self.session.drafter.close()
        return self.reply(tokens, self.case.length + 1).drafts[0]


def told(
    session: Session, recorder: Recorder | None, prompt: Sequence[int], count: int, params: SamplingParams
) -> Told:
    """A reply of `count` tokens."""
    before = len(recorder.drafts) if recorder else 0
    session.prefill(prompt)
    reply = Reply(ReplyText(()))
    made = Told([])
    for emission in session.reply(Sampler(params), StopRules(max_tokens=count, ignore_eos=True), reply):
        made.drafted += emission.stats.drafted
        made.accepted += emission.stats.accepted
        if emission.stats.budget:
            made.places.append(emission.stats.position)
    made.tokens = list(reply.token_ids)
    if recorder:
        made.drafts = [draft.tokens for draft in recorder.drafts[before:]]
    return made


@contextmanager
def opened_target(case: Case, made: Made) -> Iterator[LoadedModel]:
    """The target, in full precision: in half, the width of a pass would decide near ties."""
    target, head = case.files(made)
    options = EngineOptions(
        context=CAPACITY,
        threads=1,
        gpu_layers=0,
        batch=BATCH,
        flash_attention=False,
        kv_type="f32",
        draft=DraftOptions(case.kind, files={case.kind: str(head or target)}),
    )
    loaded = load(target, options)
    try:
        yield loaded
    finally:
        loaded.close()


@contextmanager
def opened(
    case: Case,
    made: Made,
    *,
    tap: Callable[[Tap], Tap] | None = None,
    head: Callable[[HeadContext], HeadContext] | None = None,
    length: int | None = None,
) -> Iterator[Rig]:
    """A rig for `case`.

    Args:
        case: which.
        made: makes the files.
        tap: wraps what the drafter reads of the target.
        head: wraps the head's passes.
        length: draft tokens a step; None: the case's.
    """
    files = case.files(made)
    facts = head_facts(read_header(files[1] or files[0]))
    assert facts is not None
    assert facts.kind == case.kind
    with opened_target(case, made) as loaded:
        options = EngineOptions(context=CAPACITY, threads=1, gpu_layers=0, flash_attention=False)
        heads = DraftHeads(loaded, options)
        try:
            drafter = heads.drafter("head", facts, options.draft)
            assert isinstance(drafter, HiddenDrafter)
            if tap:
                drafter._tap = tap(drafter._tap)
            if head:
                drafter._head = head(drafter._head)
            recorder = Recorder(drafter)
            session = Session(
                loaded.context, loaded.model, drafter=recorder, controller=FixedLength(case.length)
            )
            yield Rig(
                replace(case, length=length or case.length),
                session,
                recorder,
                drafter,
                lambda: heads.drafter("head", facts, options.draft),
            )
        finally:
            heads.close("head")


def plain(
    case: Case, made: Made, prompt: Sequence[int], count: int, params: SamplingParams = GREEDY
) -> list[int]:
    """The reply without drafts, by a context of its own."""
    with opened_target(case, made) as loaded:
        session = Session(loaded.context, loaded.model, drafter=NoDrafter(), controller=FixedLength(0))
        return told(session, None, prompt, count, params).tokens
