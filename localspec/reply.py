"""A reply in the making, as the session extends it: when it ends, what a step adds, what it has grown to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from localspec.messages import EmittedToken, Step
from localspec.text import ReplyText
from localspec.types import FinishReason, StepStats


def never() -> bool:
    """Nothing is cancelled."""
    return False


@dataclass(frozen=True, slots=True)
class StopRules:
    """When a reply ends.

    Attributes:
        max_tokens: tokens at most; None means until the context is full.
        stop: strings that end the reply; they are cut off the text.
        ignore_eos: do not stop at end-of-generation tokens (the sampler should forbid them).
        cancelled: asked before every step and prefill chunk.
    """

    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    cancelled: Callable[[], bool] = never


@dataclass(frozen=True, slots=True)
class Emission:
    """What one step added to a reply; `refused` and `confidence` as in `localspec.messages.Step`."""

    tokens: tuple[EmittedToken, ...]
    text: str
    stats: StepStats
    refused: tuple[int, ...] = ()
    confidence: tuple[float, ...] = ()

    def step(self, number: int) -> Step:
        """The same as a message of reply `number`."""
        return Step(number, self.text, self.tokens, self.stats, self.refused, self.confidence)


@dataclass
class Reply:
    """A reply while it grows; `finish_reason` is set when it ends.

    It may be continued by another call of `Session.reply`: its steps count on, and so does its clock.
    """

    text: ReplyText
    token_ids: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    steps: int = 0
    began_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Prefilled:
    """What a prefill did: prompt tokens in all, and how many of them the cache already held."""

    total: int
    cached: int
    seconds: float
