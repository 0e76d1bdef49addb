"""A reply in the making, as the engine keeps it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from localspec.messages import Event, Finished, Generate, Timings
from localspec.messages import Reply as ReplyMessage
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

    def finished(self, load_s: float, context_used: int) -> Finished:
        """The whole reply as a message.

        Args:
            load_s: seconds that the model took to load.
            context_used: tokens that the session holds.
        """
        tally, prefilled, reply = self.tally, self.prefilled, self.reply
        assert prefilled is not None and reply.finish_reason is not None  # noqa: S101, PT018 - set by now
        timings = Timings(
            load_s=load_s,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=prefilled.cached,
            prompt_s=self.prompt_s,
            time_to_first_token_s=self.first_token_s,
            generated_tokens=len(reply.token_ids),
            generation_s=tally.total_ns * 1e-9,
            tokens_per_second=tally.tokens_per_second,
        )
        message = ReplyMessage(
            text=reply.text.text,
            token_ids=tuple(reply.token_ids),
            finish_reason=reply.finish_reason,
            seed=self.request.sampling.seed,
            timings=timings,
            speculation=tally.speculation(),
        )
        return Finished(self.request.id, message, context_used)
