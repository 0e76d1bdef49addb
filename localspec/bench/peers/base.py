"""What the bench asks of another program that serves a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class PeerReply:
    """One completion.

    Attributes:
        text: what was said.
        token_ids: its tokens where the peer tells them, else empty.
        tokens: how many.
        seconds: time of decoding without prefill, as the peer itself counts it where it does.
        timed_tokens: how many tokens `seconds` paid for: the first one comes with the prompt's last pass, so
            one fewer than `tokens`.
        drafted, accepted: its counters of draft tokens for this reply; None where it has none.
        counted_by: who measured: "peer" or "client".
    """

    text: str
    token_ids: tuple[int, ...]
    tokens: int
    seconds: float
    timed_tokens: int
    drafted: int | None = None
    accepted: int | None = None
    counted_by: str = "peer"


class Peer(Protocol):
    """A running program with one model and one configuration.

    Attributes:
        name: the program.
        config: its settings in short, "plain" without speculation.
        about: its version, and what of this machine it uses, as far as it tells.
    """

    name: str
    config: str
    about: str

    def complete(
        self,
        prompt: str | Sequence[int],
        tokens: int,
        temperature: float,
        seed: int,
        *,
        stops: bool = False,
    ) -> PeerReply:
        """Continue `prompt` by `tokens` tokens: exactly as many where the peer can be told so.

        Args:
            prompt: a rendered template, or its token ids, which leave no doubt about special tokens.
            tokens: length of the reply.
            temperature: 0 is greedy; above, the filters are `SamplingParams`'s.
            seed: of the peer's own sampler.
            stops: let the model end the reply sooner; else its end-of-text token is suppressed.

        Raises:
            PeerError: the peer answered with an error, not in time, or is gone; the sentence says which.
        """

    def is_alive(self) -> bool:
        """Whether it can still be asked."""

    def close(self) -> None:
        """End it, or let go of it; never raises."""
