"""What the bench asks of another program that serves a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class PeerReply:
    """One completion.

    Attributes:
        text: what was said.
        token_ids: its tokens where the peer tells them.
        tokens: how many.
        seconds: time of decoding without prefill, as the peer itself counts it where it does.
        drafted, accepted: its counters of draft tokens for this reply; None where it has none.
        counted_by: who measured: "peer" or "client".
    """

    text: str
    token_ids: tuple[int, ...]
    tokens: int
    seconds: float
    drafted: int | None = None
    accepted: int | None = None
    counted_by: str = "peer"


class Peer(Protocol):
    """A running program with one model and one configuration.

    Attributes:
        name: the program.
        config: its settings in short, "plain" without speculation.
    """

    name: str
    config: str

    def complete(self, prompt: str, tokens: int, temperature: float, seed: int) -> PeerReply:
        """Continue `prompt` (a rendered template) by exactly `tokens` tokens where the peer can be told so.

        Raises:
            PeerError: the peer answered with an error, not in time, or is gone; the sentence says which.
        """

    def close(self) -> None:
        """End it, or let go of it; never raises."""
