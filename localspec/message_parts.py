"""Values inside the messages between engine and app: what was loaded, what a token is, what a reply cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from localspec.types import FinishReason

TokenKind = Literal["accepted", "correction", "bonus"]
SpellingKind = Literal["text", "control", "bytes"]


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Memory of one device in bytes; `source` says who measured it ("ggml", "nvml", "psutil")."""

    name: str
    kind: Literal["gpu", "cpu"]
    used: int
    total: int
    source: str


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Memory now: every GPU that ggml sees, the engine's own resident size, and the system's RAM."""

    devices: tuple[DeviceMemory, ...]
    engine_rss: int
    system_used: int
    system_total: int


@dataclass(frozen=True, slots=True)
class DraftModelInfo:
    """A draft model: its name within `--draft`, and where its layers are.

    `through_text` says that its vocabulary is another one, so that drafts are translated. Memory as for
    `ModelInfo`.
    """

    name: str
    layers: int
    gpu_layers: int
    backend: str
    through_text: bool = False
    memory_estimated: int = 0
    memory_used: int = 0


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What was loaded: identity, shape, abilities, and where its layers went.

    `verify` is the rule of verification; where it is not `exact`, replies are not the model's own ("lossy").
    `memory_estimated` are the bytes of weights, cache and buffers that were expected before loading,
    `memory_used` those that llama.cpp then took by its own account; 0 where that is not known.
    """

    path: str
    name: str
    architecture: str
    description: str
    parameters: int
    file_bytes: int
    vocabulary: int
    layers: int
    gpu_layers: int
    context: int
    trained_context: int
    has_chat_template: bool
    can_trim: bool
    sliding_window: int
    backend: str
    draft: str
    speculation: bool
    speculation_reason: str
    verify: str = "coupled"
    exact: bool = True
    draft_models: tuple[DraftModelInfo, ...] = ()
    memory_estimated: int = 0
    memory_used: int = 0


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token that was possible: its text by itself (control tokens spelled out) and its log-probability."""

    id: int
    text: str
    logprob: float


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """An emitted token's text and log-probability, and the most likely tokens in its place, best first.

    Natural logarithms of the softmax of the model's own logits: before bias, penalties, grammar, filters and
    temperature.
    """

    text: str
    logprob: float
    top: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class EmittedToken:
    """A token of the reply, and what the verifier said of it; `logprobs` where they were asked for."""

    id: int
    kind: TokenKind
    logprobs: TokenLogprobs | None = None


@dataclass(frozen=True, slots=True)
class Spelling:
    """A token by itself: its text, a control token's name, or half a character's bytes in hexadecimal."""

    text: str
    kind: SpellingKind = "text"


@dataclass(frozen=True, slots=True)
class Timings:
    """Times of one reply in seconds; field names are those of `run --json`."""

    load_s: float
    prompt_tokens: int
    cached_tokens: int
    prompt_s: float
    time_to_first_token_s: float | None
    generated_tokens: int
    generation_s: float
    tokens_per_second: float | None


@dataclass(frozen=True, slots=True)
class Speculation:
    """Counters of one reply; field names are those of `run --json`. Ratios are None without a draft."""

    steps: int
    skipped_steps: int
    draft_tokens: int
    accepted_tokens: int
    acceptance_rate: float | None
    acceptance_length: float | None
    accepted_at: tuple[int, ...]
    draft_s: float
    verify_s: float
    sample_s: float
    other_s: float


@dataclass(frozen=True, slots=True)
class Reply:
    """A finished reply: text, tokens, why it ended, and what it cost."""

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    seed: int
    timings: Timings
    speculation: Speculation
