"""A reply in the making, as the engine keeps it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from localspec.messages import Event, Generate
from localspec.session import Prefilled, Reply
from localspec.stats.metrics import Tally


@dataclass
class Work:
    """What is known of it so far.

    Attributes:
        request: what was asked.
        emit: takes its events.
        cancelled: whether it is to end.
        started: clock when it was asked for.
        reply: its text and tokens.
        tally: its steps.
        prefilled: of the prompt; None before that.
        whole: whether the session holds the whole prompt.
        prompt_text: of the newest prompt; its tokens are counted in `prompt_tokens`.
        prompt_s: seconds that were spent on prompts.
        first_token_s: seconds from the start to the first token.
        dropped: messages that the prompt leaves out.
        memory_at: clock when memory in use was last told; `reason_at` likewise for `reason`.
        reason: why speculation is as it is, as it was last told.
    """

    request: Generate
    emit: Callable[[Event], None]
    cancelled: Callable[[], bool]
    started: float
    reply: Reply
    tally: Tally = field(default_factory=Tally)
    prefilled: Prefilled | None = None
    whole: bool = False
    prompt_text: str = ""
    prompt_tokens: int = 0
    prompt_s: float = 0.0
    first_token_s: float | None = None
    dropped: int = 0
    memory_at: float = 0.0
    reason: str = ""
    reason_at: float = 0.0
