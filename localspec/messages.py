"""Typed messages between the engine's process and its client; `wire` turns them into lines.

Commands go to the engine, events come back. Every class carries its own tag in `type`, so a line can be read
by a person and replayed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from localspec.types import (
    ChatMessage,
    DraftOptions,
    EngineOptions,
    FinishReason,
    SamplingParams,
    StepStats,
    Trial,
)

TokenKind = Literal["accepted", "correction", "bonus"]

# --- values inside messages -------------------------------------------------------------------------


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


# --- commands ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Load:
    """Load a model file, replacing the one that is loaded.

    Where it fails, the one before is loaded again: `Failed` comes first, then `Loaded` once more.
    """

    path: str
    name: str
    options: EngineOptions = field(default_factory=EngineOptions)
    type: Literal["load"] = "load"


@dataclass(frozen=True, slots=True)
class Generate:
    """Answer the last of `messages` (or continue the raw `prompt`, where that is given).

    `grammar` is GBNF that the reply keeps to (`localspec.grammar.grammar_of_schema` makes it of a JSON
    schema); `logprobs` asks for log-probabilities of the emitted tokens and of so many others at each place.
    `conversation` is what the reply is remembered under, for later drafts; without it it is not remembered.
    `think` switches reasoning on or off where the chat template can; None is llama.cpp's way.
    A `trial` is made otherwise than replies of the chat, and leaves no trace in it.
    """

    id: int
    messages: tuple[ChatMessage, ...] = ()
    prompt: str | None = None
    sampling: SamplingParams = field(default_factory=SamplingParams)
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    grammar: str | None = None
    logprobs: int | None = None
    conversation: str = ""
    think: bool | None = None
    trial: Trial | None = None
    type: Literal["generate"] = "generate"


@dataclass(frozen=True, slots=True)
class Weigh:
    """Say how far apart the model finds two tokens, where two replies to `request` part after `said`."""

    id: int
    request: Generate
    said: tuple[int, ...]
    tokens: tuple[int, int]
    type: Literal["weigh"] = "weigh"


@dataclass(frozen=True, slots=True)
class Cancel:
    """End the running reply within one step; what it has said so far stays."""

    type: Literal["cancel"] = "cancel"


@dataclass(frozen=True, slots=True)
class SetSpeculation:
    """Switch speculation on or off, from the next step on."""

    enabled: bool
    type: Literal["set_speculation"] = "set_speculation"


@dataclass(frozen=True, slots=True)
class SetDrafter:
    """Use another drafter from the next step on; where it fails, the one before stays."""

    draft: DraftOptions
    type: Literal["set_drafter"] = "set_drafter"


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Free the model and end the process."""

    type: Literal["shutdown"] = "shutdown"


Command = Load | Generate | Weigh | Cancel | SetSpeculation | SetDrafter | Shutdown
# --- events -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hello:
    """The engine's process is up."""

    pid: int
    version: str
    type: Literal["hello"] = "hello"


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """Weights are being read: `fraction` of them, 0 to 1; `stage` is "loading" or "drafter"."""

    fraction: float
    stage: str
    type: Literal["load_progress"] = "load_progress"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model is ready."""

    info: ModelInfo
    load_s: float
    memory: MemoryUse
    type: Literal["loaded"] = "loaded"


@dataclass(frozen=True, slots=True)
class PrefillProgress:
    """Prompt tokens: `done` of `total` are in the cache, `cached` of them from earlier turns."""

    id: int
    done: int
    total: int
    cached: int
    elapsed_s: float
    type: Literal["prefill_progress"] = "prefill_progress"


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a reply: the text that became certain, its tokens, and the raw counters."""

    id: int
    text: str
    tokens: tuple[EmittedToken, ...]
    stats: StepStats
    type: Literal["step"] = "step"


@dataclass(frozen=True, slots=True)
class MemoryChanged:
    """Memory use, sent about once a second while working."""

    memory: MemoryUse
    type: Literal["memory_changed"] = "memory_changed"


@dataclass(frozen=True, slots=True)
class SpeculationChanged:
    """Speculation's state: `draft` is the value of `--draft`, `reason` says why in words."""

    enabled: bool
    draft: str
    reason: str
    draft_models: tuple[DraftModelInfo, ...] = ()
    type: Literal["speculation_changed"] = "speculation_changed"


@dataclass(frozen=True, slots=True)
class Note:
    """Something that the user should see once, such as turns dropped from a full context."""

    text: str
    type: Literal["note"] = "note"


@dataclass(frozen=True, slots=True)
class Finished:
    """A reply is complete."""

    id: int
    reply: Reply
    context_used: int
    type: Literal["finished"] = "finished"


@dataclass(frozen=True, slots=True)
class Weighed:
    """Two tokens as the model weighs them; `scores` is empty where it was cancelled.

    `margin` is by how many logits the first one wins the draw of this seed, the noise of the seed included;
    where greedy, the difference of the two log-probabilities.
    """

    id: int
    scores: tuple[TokenLogprobs, ...]
    margin: float | None
    type: Literal["weighed"] = "weighed"


@dataclass(frozen=True, slots=True)
class Failed:
    """A command failed; `error` names a class of `localspec.errors`, `id` the reply, None for a load.

    `command` is the type of the command. `unloaded` says that no model is loaded any more.
    """

    id: int | None
    error: str
    message: str
    detail: str = ""
    command: str = ""
    unloaded: bool = False
    type: Literal["failed"] = "failed"


@dataclass(frozen=True, slots=True)
class EngineExited:
    """Made by the client: the engine's process is gone. `expected` after a shutdown."""

    message: str
    expected: bool
    type: Literal["engine_exited"] = "engine_exited"


Event = (
    Hello
    | LoadProgress
    | Loaded
    | PrefillProgress
    | Step
    | MemoryChanged
    | SpeculationChanged
    | Note
    | Finished
    | Weighed
    | Failed
    | EngineExited
)
