"""What is kept about a reply beside its text: the figures of its footer."""

from __future__ import annotations

from typing import Any, TypedDict, Unpack

from localspec.messages import Reply
from localspec.stats.metrics import Tally


class Parts(TypedDict):
    """Who made a reply: model, drafter, rule of verification, and whether that rule is exact."""

    model: str
    draft: str
    verify: str
    exact: bool


def reply_stats(reply: Reply, **parts: Unpack[Parts]) -> dict[str, Any]:
    """What is kept about a finished reply."""
    return {
        **parts,
        "finish_reason": reply.finish_reason,
        "tokens_per_second": reply.timings.tokens_per_second,
        "prompt_tokens": reply.timings.prompt_tokens,
        "cached_tokens": reply.timings.cached_tokens,
        "generated_tokens": reply.timings.generated_tokens,
        "time_to_first_token_s": reply.timings.time_to_first_token_s,
        "acceptance_rate": reply.speculation.acceptance_rate,
        "acceptance_length": reply.speculation.acceptance_length,
    }


def partial_stats(tally: Tally, **parts: Unpack[Parts]) -> dict[str, Any]:
    """The same of a reply that the engine never finished."""
    return {
        **parts,
        "finish_reason": "failed",
        "tokens_per_second": tally.tokens_per_second,
        "generated_tokens": tally.emitted,
        "acceptance_rate": tally.acceptance_rate,
        "acceptance_length": tally.acceptance_length,
    }
