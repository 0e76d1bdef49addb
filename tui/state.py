"""What the live figures show, as one fold over the engine's events. No widgets here."""

from __future__ import annotations

from collections import deque
from enum import Enum, auto

from localspec.messages import (
    DraftModelInfo,
    EngineExited,
    Event,
    Failed,
    Finished,
    Hello,
    Loaded,
    LoadProgress,
    MemoryChanged,
    MemoryUse,
    ModelInfo,
    Note,
    PrefillProgress,
    Scored,
    SpeculationChanged,
    Step,
)
from localspec.stats.metrics import RateWindow, Tally
from localspec.types import StepStats
from localspec.verify import is_exact

SAMPLE_NS = 250_000_000
"""Engine time between two points of the sparkline."""

SAMPLES = 120
"""Points that are kept: half a minute."""

PLAIN_STEPS = 8
"""Undrafted steps that a base rate needs before it is shown."""


class Phase(Enum):
    """What the engine is doing, as far as the app knows."""

    STARTING = auto()
    LOADING = auto()
    READY = auto()
    PREFILL = auto()
    WRITING = auto()
    DOWN = auto()


class LiveState:
    """The engine as seen from the app; `apply` takes every event in order.

    Attributes:
        phase: what the engine is doing.
        load: progress of loading the model, or a draft model beside it; None while none is being read.
        prefill: progress of the running prompt, None outside of it.
        info: the loaded model.
        memory: the last memory report.
        wanted: whether the user wants speculation.
        speculating: whether the engine says that it is on; None before it said so.
        draft: the drafter, as `--draft` names it.
        draft_models: the models among its members, and where their layers are.
        verify: the rule of verification.
        exact: whether that rule keeps the model's own distribution; where not, replies are marked "lossy".
        reason: why speculation is on or off, in words.
        reply: counters of the current reply, or of the last one.
        plain: its steps without a draft, from which the base rate is measured.
        rates: tokens per second, one point per `SAMPLE_NS` of engine time.
        lengths: verified draft tokens a step, means over the same times.
        context_used: tokens in the context, None before the first prompt.
    """

    def __init__(self, *, speculation: bool, draft: str, verify: str = "coupled") -> None:
        self.phase = Phase.STARTING
        self.load: LoadProgress | None = None
        self.prefill: PrefillProgress | None = None
        self.info: ModelInfo | None = None
        self.memory: MemoryUse | None = None
        self.wanted = speculation
        self.speculating: bool | None = None
        self.draft = draft
        self.draft_models: tuple[DraftModelInfo, ...] = ()
        self.verify = verify
        self.exact = is_exact(verify)
        self.reason = ""
        self.context_used: int | None = None
        self.rates: deque[float] = deque(maxlen=SAMPLES)
        self.lengths: deque[float] = deque(maxlen=SAMPLES)
        self.begin_reply()

    def begin_reply(self) -> None:
        """Start the figures of a new reply; the sparkline goes on."""
        self.reply = Tally()
        self.plain = Tally()
        self._window = RateWindow()
        self._sampled = Tally()
        self._next_sample_ns = SAMPLE_NS

    @property
    def busy(self) -> bool:
        """Whether a reply is being made."""
        return self.phase in (Phase.PREFILL, Phase.WRITING)

    @property
    def on_gpu(self) -> bool:
        """Whether the model computes on a GPU, so that drawing costs it nothing."""
        return self.info is not None and self.info.gpu_layers > 0

    @property
    def rate(self) -> float | None:
        """Tokens per second: over the last second while writing, of the whole reply afterwards."""
        if self.phase is Phase.WRITING:
            return self._window.rate()
        return self.reply.tokens_per_second

    @property
    def draft_length(self) -> float | None:
        """Verified draft tokens a step: lately while writing, of the whole reply afterwards."""
        if self.phase is Phase.WRITING and self.lengths:
            return self.lengths[-1]
        return self.reply.drafted / self.reply.steps if self.reply.steps else None

    @property
    def base_rate(self) -> float | None:
        """Measured tokens per second of this reply's steps without a draft; None until there are enough.

        An earlier reply's would be of another context length, and of a machine that did other things.
        """
        return self.plain.tokens_per_second if self.plain.steps >= PLAIN_STEPS else None

    @property
    def speedup(self) -> float | None:
        """The reply's rate over the base rate."""
        rate, base = self.reply.tokens_per_second, self.base_rate
        return rate / base if rate is not None and base else None

    def apply(self, event: Event) -> None:
        """Take one event."""
        match event:
            case LoadProgress(stage="drafter"):
                self.load = event
            case LoadProgress():
                self.phase, self.load = Phase.LOADING, event
            case Loaded(info=info, memory=memory):
                self.phase, self.load = Phase.READY, None
                self.info, self.memory = info, memory
                self.speculating, self.draft, self.reason = (
                    info.speculation,
                    info.draft,
                    info.speculation_reason,
                )
                self.draft_models = info.draft_models
                self.verify, self.exact = info.verify, info.exact
                self.context_used = None
            case PrefillProgress():
                self.phase, self.prefill = Phase.PREFILL, event
                self.context_used = event.done
            case Step(stats=stats):
                self.phase, self.prefill = Phase.WRITING, None
                self._count(stats)
            case MemoryChanged(memory=memory):
                self.memory = memory
            case SpeculationChanged(enabled=enabled, draft=draft, reason=reason):
                self.speculating, self.draft, self.reason = enabled, draft, reason
                self.draft_models = event.draft_models
                if self.load is not None and self.load.stage == "drafter":
                    self.load = None
            case Finished(context_used=used):
                self.phase, self.prefill = Phase.READY, None
                self.context_used = used
            case Failed(id=reply_id):
                self.prefill = self.load = None
                if self.info is None:
                    self.phase = Phase.DOWN
                elif reply_id is not None:
                    self.phase = Phase.READY
            case EngineExited():
                self.phase = Phase.DOWN
                self.prefill = self.load = None
                self.info = None
            case Hello() | Note():
                pass

    def aside(self, event: Event) -> None:
        """Take an event of something that is not the chat's: what the engine does, without its figures."""
        self.prefill = self.load = None
        match event:
            case PrefillProgress() | Scored(ended=False):
                self.phase = Phase.PREFILL
            case Step():
                self.phase = Phase.WRITING
            case _:
                self.phase = Phase.READY

    def _count(self, stats: StepStats) -> None:
        self.reply.add(stats)
        if stats.drafted == 0:
            self.plain.add(stats)
        self._window.add(stats)
        self._sampled.add(stats)
        self.context_used = stats.position + stats.emitted
        if stats.time_ns >= self._next_sample_ns:
            rate = self._window.rate()
            if rate is not None:
                self.rates.append(rate)
            self.lengths.append(self._sampled.drafted / self._sampled.steps)
            self._sampled = Tally()
            self._next_sample_ns = stats.time_ns - stats.time_ns % SAMPLE_NS + SAMPLE_NS
