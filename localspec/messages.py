"""Typed messages between the engine's process and its client; `wire` turns them into lines.

Commands go to the engine, events come back. Every class carries its own tag in `type`, so a line can be read
by a person and replayed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from localspec.message_parts import DeviceMemory as DeviceMemory
from localspec.message_parts import DraftModelInfo as DraftModelInfo
from localspec.message_parts import EmittedToken as EmittedToken
from localspec.message_parts import MemoryUse as MemoryUse
from localspec.message_parts import ModelInfo as ModelInfo
from localspec.message_parts import Reply as Reply
from localspec.message_parts import Speculation as Speculation
from localspec.message_parts import Spelling as Spelling
from localspec.message_parts import SpellingKind as SpellingKind
from localspec.message_parts import Timings as Timings
from localspec.message_parts import TokenKind as TokenKind
from localspec.message_parts import TokenLogprob as TokenLogprob
from localspec.message_parts import TokenLogprobs as TokenLogprobs
from localspec.types import ChatMessage, DraftOptions, EngineOptions, SamplingParams, StepStats, Trial

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
class Score:
    """Say how likely each of a reply's `tokens` was, in one pass over prompt and reply.

    Attributes:
        request: what the reply answers.
        tokens: the reply, whole or its beginning.
        also: for each token another one to be scored in its place, -1 for none; may be empty.
        alternatives: most likely tokens at each place that are wanted.
    """

    id: int
    request: Generate
    tokens: tuple[int, ...]
    also: tuple[int, ...] = ()
    alternatives: int = 5
    type: Literal["score"] = "score"


@dataclass(frozen=True, slots=True)
class Spell:
    """Spell tokens of the model file `path`, within a step; of another file than the one loaded none is."""

    path: str
    tokens: tuple[int, ...]
    type: Literal["spell"] = "spell"


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


Command = Load | Generate | Weigh | Score | Spell | Cancel | SetSpeculation | SetDrafter | Shutdown

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
    """Prompt tokens: `done` of `total` are in the cache, `cached` of them from earlier turns.

    `opening` is the mark that the prompt ends with where the reply begins within reasoning, "<think>" say.
    """

    id: int
    done: int
    total: int
    cached: int
    elapsed_s: float
    opening: str = ""
    type: Literal["prefill_progress"] = "prefill_progress"


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a reply: the text that became certain, its tokens, and the raw counters.

    `refused` are the draft's tokens from the first one on that the model did not say: of a chain its rest, of
    a tree the likeliest branch from there. `confidence` is the draft's own, of its tokens among `tokens` and
    then of those in `refused`; empty where it had none.
    """

    id: int
    text: str
    tokens: tuple[EmittedToken, ...]
    stats: StepStats
    refused: tuple[int, ...] = ()
    confidence: tuple[float, ...] = ()
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
class Scored:
    """Log-probabilities of a part of a reply; the parts come in order.

    Attributes:
        start: place of the first of them in the reply.
        scores: one a token; a token that was asked for beside it is the last of `top`, unless it is among the
            likeliest anyway.
        ended: whether this is the last part; fewer than were asked for where it was cancelled.
        shortened: whether oldest messages are left out that the reply's beginning had still seen.
    """

    id: int
    start: int
    scores: tuple[TokenLogprobs, ...]
    ended: bool
    shortened: bool = False
    type: Literal["scored"] = "scored"


@dataclass(frozen=True, slots=True)
class Spelled:
    """Tokens of the model file `path`, spelled."""

    path: str
    tokens: tuple[int, ...]
    spellings: tuple[Spelling, ...]
    type: Literal["spelled"] = "spelled"


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
    | Scored
    | Spelled
    | Failed
    | EngineExited
)
