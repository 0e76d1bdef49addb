"""The experiment that the bench reproduces: its figures, as far as its prose gives them.

Source: the third of the project's seed documents, a draft of 2026-10-27 with the title "Speculative decoding:
four times faster when the guess is right, slower when it is wrong" (in Chinese). vLLM 0.31.0 with
Qwen3-Reranker-0.6B in bf16, and vLLM 0.32.0 with Qwen3-0.6B in bf16, n-gram drafts with matches of 2 to 5
tokens, on an 8 GB laptop GPU (Ada). Its tables were pictures; where its prose has no figure, there is none
here.
"""

from __future__ import annotations

from dataclasses import dataclass

WHERE = "vLLM 0.31.0 and 0.32.0, models of 0.6B in bf16, 8 GB laptop GPU"
PASS_MS = {1: 5.7, 9: 7.8}
"""T(1) and T(9): the document's "about 1.4 times"."""

LENGTHS = (2, 4, 8)


@dataclass(frozen=True, slots=True)
class Reference:
    """What the document says of one task at one draft length, one reply at a time.

    Attributes:
        speedup: over its server without speculation.
        said: the speed-up in the document's words.
        acceptance: accepted / drafted.
        acceptance_length: tokens of a step that had a draft.
    """

    task: str
    length: int
    speedup: float | None = None
    said: str = ""
    acceptance: float | None = None
    acceptance_length: float | None = None


ALONE = (
    Reference("copy", 2),
    # 692.6 and 704.1 tok/s in two starts of the server, over 1000 / 5.7 ms.
    Reference("copy", 4, 3.98, "about 4x (698 tok/s, a plain step takes 5.7 ms)"),
    Reference("copy", 8, 6.3, "6.3x", 7.7 / 8, 8.7),
    Reference("chain", 2),
    Reference("chain", 4, 3.0, "about 3x (length not stated)"),
    Reference("chain", 8),
    Reference("random", 2, 0.87, "-13% (third prompt; the second repeats itself, 97% accepted)"),
    Reference("random", 4, 0.90, "-10% (third prompt)", 22 / 175),
    Reference("random", 8, 0.82, "-18% (third prompt)"),
    Reference("explain", 2),
    Reference("explain", 4, 0.97, "0.97x (length not stated)", 0.03),
    Reference("explain", 8),
    Reference("code", 2),
    Reference("code", 4, 3.0, "3x (length not stated; returned unchanged)"),
    Reference("code", 8),
)

ACCEPTED_AT = (0.842, 0.794, 0.770, 0.747)
"""By position, of all drafts of the server with length 4; its tasks were copy, chain and random tokens."""
ACCEPTED_AT_TASKS = ("copy", "chain", "random")
ACCEPTANCE_LENGTH = 4.15
"""Tokens of a step that had a draft: 1 and the four shares, as vLLM counts."""

CONCURRENCY = {
    ("copy", 32): "1.41x",
    ("random", 8): "0.86x to 0.89x (8 and 32)",
    ("random", 32): "0.86x to 0.89x (8 and 32)",
}

IDENTITY_TASKS = ("copy", "chain")
IDENTITY = "10 of 12 (0.31.0; 2 of the chains differ), 12 of 12 (0.32.0)"
IDENTITY_LENGTH = 4

KV_TOKENS = "40,208 to 30,832 tokens: -23% (0.31.0); 38,224 to 37,456: -2% (0.32.0)"
STARTUP = "32 s without, 78 s and 96 s with speculation (0.31.0)"
