"""What can happen to a drafter of hidden states between two drafts, in any order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hypothesis import strategies as st

from localspec.control import FixedLength, Off
from localspec.drafters.none import NoDrafter
from localspec.sampling import Sampler
from localspec.session import Session, StopRules
from localspec.types import SamplingParams

GREEDY = SamplingParams(temperature=0)

Happening = tuple[str, int | list[int]]

_PROMPTS = st.lists(st.integers(4, 6), min_size=1, max_size=40)
HAPPENINGS: st.SearchStrategy[list[Happening]] = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["prompt", "more", "cancel"]), _PROMPTS),
        st.tuples(st.just("cut"), st.integers(1, 60)),
        st.tuples(st.sampled_from(["say", "off", "branches"]), st.integers(1, 25)),
        st.tuples(st.sampled_from(["swap", "clear", "close"]), st.just(0)),
    ),
    max_size=12,
)


def say(session: Session, tokens: int) -> None:
    """A greedy reply, or more of it."""
    for _ in session.reply(Sampler(GREEDY), StopRules(max_tokens=tokens, ignore_eos=True)):
        pass


def happen(session: Session, happenings: Sequence[Happening]) -> None:
    """A prompt, and then all of these, with the session's own drafter."""
    drafter = session.drafter
    session.prefill([4, 5, 6])
    for what, value in happenings:
        if isinstance(value, list):
            _read(session, what, value)
        elif what == "cut":
            session.prefill(session.tokens[:value])
        elif what == "swap":
            session.use_drafter(NoDrafter())
            say(session, 2)
            session.use_drafter(drafter)
        elif what == "clear":
            session.context.clear()
            session.tokens = []
            session.prefill([4, 5, 6, 4])
        elif what == "close":
            drafter.close()
            drafter.begin(session.tokens)
        else:
            policies = {"say": FixedLength(3), "off": Off(), "branches": FixedLength(5, leaves=3)}
            session.controller = policies[what]
            say(session, value)


def _read(session: Session, what: str, tokens: list[int]) -> None:
    if what == "cancel":
        asked: Iterator[bool] = iter([False, True])
        session.prefill([*tokens, *[4] * 200], cancelled=lambda: next(asked, True))
    session.prefill({"prompt": tokens}.get(what, [*session.tokens, *tokens]))
