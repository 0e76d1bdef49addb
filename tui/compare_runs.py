"""What a comparison is made of: two ways, their runs, and where these part. No widgets here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from statistics import median
from typing import Any

from localspec.messages import PrefillProgress, TokenLogprobs
from localspec.stats.metrics import Tally
from localspec.types import ChatMessage, DraftOptions, EngineOptions
from localspec.verify import make_verifier, shares_noise

SIDES = (0, 1)
NAMES = ("A", "B")


@dataclass(frozen=True, slots=True)
class OtherModel:
    """A model that is not the chat's, and its file."""

    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to make a reply; `model` is None for the chat's own."""

    draft: DraftOptions
    verify: str = "coupled"
    model: OtherModel | None = None


@dataclass
class Run:
    """One reply of one side.

    Attributes:
        side: 0 for A, 1 for B.
        round: number of the round, from 0.
        text: what it has said so far.
        tally: its steps.
        prompt: how far the prompt is read, None before that.
        prompt_s: seconds that reading it took, once the reply has ended.
        token_ids: all of them, likewise.
        stats: what a footer says, once it has ended; None while it is written.
        whole: whether it ended by itself.
    """

    side: int
    round: int
    text: str = ""
    tally: Tally = field(default_factory=Tally)
    prompt: PrefillProgress | None = None
    prompt_s: float = 0.0
    token_ids: tuple[int, ...] = ()
    stats: dict[str, Any] | None = None
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Parting:
    """Where two replies part.

    Attributes:
        index: place in the replies.
        scores: of A's token and of B's, as the model alone weighs them; empty where not measured.
        margin: by how many logits A's wins the draw, the noise of the seed included; None where not measured.
        ended: "A" or "B" where one reply had ended there, else "".
    """

    index: int
    scores: tuple[TokenLogprobs, ...] = ()
    margin: float | None = None
    ended: str = ""


def rounds_of(runs: Sequence[Run]) -> list[tuple[Run, Run]]:
    """A's and B's run of every round that is whole."""
    sides = [{run.round: run for run in runs if run.side == side and run.whole} for side in SIDES]
    return [(sides[0][number], sides[1][number]) for number in sides[0] if number in sides[1]]


def rate_of(runs: Sequence[Run], side: int) -> float | None:
    """Tokens per second of a side: the median over its whole runs; None before there are any."""
    rates = [run.tally.tokens_per_second for run in runs if run.side == side and run.whole]
    known = [rate for rate in rates if rate is not None]
    return median(known) if known else None


def first_difference(one: Run, other: Run) -> int | None:
    """The place of the first token in which two whole runs differ; None where they are the same."""
    pairs = enumerate(zip_longest(one.token_ids, other.token_ids))
    return next((index for index, (mine, theirs) in pairs if mine != theirs), None)


def asked(history: tuple[ChatMessage, ...], prompt: str) -> tuple[ChatMessage, ...]:
    """What the model is asked with: the chat up to its last message if that is `prompt`, else with it added.

    Args:
        history: all turns of the chat.
        prompt: what the user wants to be answered.
    """
    turns = list(history)
    said = turns[:-1] if turns and turns[-1].role == "assistant" else turns
    if said and said[-1].role == "user":
        last = said[-1].content
        if last == prompt or last.endswith(f"\n\n{prompt}"):
            return tuple(said)
    if turns and turns[-1].role == "user":
        turns[-1] = replace(turns[-1], content=f"{turns[-1].content}\n\n{prompt}")
    else:
        turns.append(ChatMessage("user", prompt))
    return tuple(turns)


def promise_of(contenders: tuple[Contender, Contender], *, draws: bool) -> str:
    """What the rules promise of each other's text: "text", "distribution" or "lossy".

    Args:
        contenders: A and B.
        draws: whether tokens are drawn, instead of the likeliest being taken.
    """
    rules = [make_verifier(one.verify) for one in contenders if one.draft.spec != "none"]
    if not all(rule.exact for rule in rules):
        return "lossy"
    return "text" if not draws or all(shares_noise(rule) for rule in rules) else "distribution"


def usual_contenders(options: EngineOptions) -> tuple[Contender, Contender]:
    """Without drafts, and as a chat with `options` drafts; automatically where that does not draft."""
    spec = "auto" if options.draft.spec == "none" else options.draft.spec
    plain = replace(options.draft, spec="none", length=None, policy="cost", files={})
    return Contender(plain), Contender(replace(options.draft, spec=spec), options.verify)
