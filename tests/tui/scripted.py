"""An engine that plays a script: same commands and events as the real one, no model."""

from __future__ import annotations

import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from localspec.drafters import METHODS
from localspec.errors import EngineDiedError
from localspec.messages import (
    Cancel,
    Command,
    DraftModelInfo,
    EngineExited,
    Event,
    Failed,
    Finished,
    Generate,
    Hello,
    Load,
    Loaded,
    LoadProgress,
    MemoryUse,
    ModelInfo,
    PrefillProgress,
    Reply,
    SetDrafter,
    SetSpeculation,
    SpeculationChanged,
    Step,
    Timings,
    TokenLogprobs,
    Weigh,
    Weighed,
)
from localspec.model_files import ModelFiles, WantedFiles
from localspec.models.progress import OnProgress, PullProgress
from localspec.stats.metrics import Tally
from localspec.types import StepStats
from localspec.verify import is_exact

Sent = TypeVar("Sent", bound=Command)

MEMORY = MemoryUse(devices=(), engine_rss=212 << 20, system_used=3 << 30, system_total=16 << 30)

INFO = ModelInfo(
    path="model.gguf",
    name="scripted",
    architecture="llama",
    description="llama 135M Q4_1",
    parameters=135_000_000,
    file_bytes=98_000_000,
    vocabulary=49152,
    layers=30,
    gpu_layers=0,
    context=8192,
    trained_context=8192,
    has_chat_template=True,
    can_trim=True,
    sliding_window=0,
    backend="CPU",
    draft="ngram",
    speculation=True,
    speculation_reason="on",
)


def chunks(text: str, size: int) -> list[str]:
    """Text in pieces of `size` characters."""
    return [text[start : start + size] for start in range(0, len(text), size)]


class ScriptedEngine:
    """An `EngineLink` whose replies are given.

    With a `rate` replies play by the clock, in bursts; without one each drain brings everything that was
    asked for. In manual mode (`replies` empty) the test says each step with `step` and `finish`.
    """

    def __init__(
        self,
        replies: Iterable[str] = (),
        *,
        rate: float | None = None,
        burst: int = 1,
        characters: int = 4,
        load: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._replies = deque(replies)
        self._rate, self._burst, self._characters = rate, burst, characters
        self._load, self._clock = load, clock
        self._due: deque[tuple[float, Event]] = deque()
        self._alive = False
        self._speculating = True
        self._loading: Load | None = None
        self._draft = "ngram"
        self.refuses: dict[str, str] = {}
        self._tally = Tally()
        self._text = ""
        self._time_ns = 0
        self._position = 0
        self._reply_id: int | None = None
        self.sent: list[Command] = []
        self.starts = 0
        self.drains = 0

    # --- the link -----------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        return self._alive

    def start(self) -> None:
        if not self._alive:
            self._alive = True
            self.starts += 1
            self.put(Hello(pid=1, version="0"))

    def send(self, *commands: Command) -> None:
        if not self._alive:
            raise EngineDiedError("The engine is not running.")
        for command in commands:
            self.sent.append(command)
            self._take(command)

    def drain(self) -> list[Event]:
        self.drains += 1
        now = self._clock()
        events: list[Event] = []
        while self._due and self._due[0][0] <= now:
            events.append(self._due.popleft()[1])
        return events

    def kill(self) -> None:
        self.die()

    def close(self) -> None:
        self._alive = False

    # --- the script ---------------------------------------------------------------------------------

    def put(self, event: Event, due: float | None = None) -> None:
        """An event that arrives now, or at a time of the clock."""
        self._due.append((self._clock() if due is None else due, event))

    def loaded(self, verify: str = "coupled") -> None:
        """The model is ready."""
        info = replace(INFO, verify=verify, exact=is_exact(verify))
        if self._loading is not None:
            self._draft = self._loading.options.draft.spec
            info = replace(
                info, path=self._loading.path, name=self._loading.name, draft=self._draft,
                draft_models=self._draft_models(),
            )  # fmt: skip
        self.put(Loaded(info, 0.1, MEMORY))

    def step(self, text: str, *, drafted: int = 0, accepted: int = 0, ms: float = 8.0) -> None:
        """One step of the running reply."""
        assert self._reply_id is not None
        self.put(self._step(self._reply_id, text, drafted, accepted, ms))

    def finish(self, reason: str = "stop") -> None:
        """The running reply ends."""
        assert self._reply_id is not None
        self.put(self._finished(self._reply_id, reason))
        self._reply_id = None

    def fail(self, error: str, message: str) -> None:
        """The running reply, or the load, fails."""
        self.put(Failed(self._reply_id, error, message))
        self._reply_id = None

    def die(self, message: str = "The engine was ended by SIGKILL.") -> None:
        """The process is gone."""
        self._alive = False
        self._due.clear()
        self._reply_id = None
        self.put(EngineExited(message, expected=False))

    def of(self, kind: type[Sent]) -> list[Sent]:
        """Commands of one kind, in order."""
        return [command for command in self.sent if isinstance(command, kind)]

    def _take(self, command: Command) -> None:
        match command:
            case Load(path=path, options=options) if path in self.refuses:
                self.put(LoadProgress(0.5, "loading"))
                self.put(Failed(None, "ModelFileError", self.refuses[path], command="load"))
                self.loaded(options.verify)
            case Load(options=options):
                self._loading = command
                self.put(LoadProgress(0.5, "loading"))
                if self._load:
                    self.loaded(options.verify)
            case SetDrafter(draft=draft) if draft.spec in self.refuses:
                message = self.refuses[draft.spec]
                self.put(Failed(None, "IncompatibleError", message, command="set_drafter"))
            case SetDrafter(draft=draft):
                if draft.files:
                    self.put(LoadProgress(0.5, "drafter"))
                self._draft, self._speculating = draft.spec, True
                self.put(SpeculationChanged(True, draft.spec, "measuring", self._draft_models()))
            case Generate():
                self._begin(command)
            case Weigh(id=number):
                scores = (TokenLogprobs(" the", -0.71), TokenLogprobs(" a", -0.73))
                self.put(Weighed(number, scores, 0.01))
            case Cancel():
                if self._reply_id is not None:
                    self._due.clear()
                    self.finish("cancelled")
            case SetSpeculation(enabled=enabled):
                self._speculating = enabled
                self.put(
                    SpeculationChanged(enabled, self._draft, "switched on" if enabled else "switched off")
                )
            case _:
                pass

    def _draft_models(self) -> tuple[DraftModelInfo, ...]:
        return tuple(
            DraftModelInfo(name, 24, 24, "CUDA") for name in self._draft.split("+") if name not in METHODS
        )

    def _begin(self, command: Generate) -> None:
        self._reply_id = command.id
        self._tally, self._text, self._time_ns = Tally(), "", 0
        prompt = sum(len(message.content) // 4 + 4 for message in command.messages)
        self._position = prompt
        self.put(PrefillProgress(command.id, prompt, prompt, 0, 0.05))
        if not self._replies:
            return
        pieces = chunks(self._replies.popleft(), self._characters)
        due = self._clock()
        while pieces:
            drafts = self._speculating if command.trial is None else command.trial.draft.spec != "none"
            size = self._burst if drafts else 1
            burst, pieces = pieces[:size], pieces[size:]
            seconds = len(burst) / self._rate if self._rate else 0.0
            due += seconds
            text = "".join(burst)
            drafted = 0 if len(burst) == 1 else len(burst)
            step = self._step(command.id, text, drafted, len(burst) - 1, max(seconds * 1e3, 1.0), len(burst))
            self.put(step, due)
        self.put(self._finished(command.id, "stop"), due)

    def _step(
        self, reply_id: int, text: str, drafted: int, accepted: int, ms: float, emitted: int | None = None
    ) -> Step:
        total = int(ms * 1e6)
        part = total // 50
        drafting = part if drafted else 0
        self._time_ns += total
        stats = StepStats(
            index=self._tally.steps,
            time_ns=self._time_ns,
            position=self._position,
            budget=8 if self._speculating else 0,
            drafted=drafted,
            accepted=accepted,
            emitted=accepted + 1 if emitted is None else emitted,
            kind="correction" if accepted < drafted else "bonus",
            source="ngram" if drafted else "",
            match_length=3 if drafted else 0,
            threads=2,
            draft_ns=drafting,
            verify_ns=total - drafting - 2 * part,
            sample_ns=part,
            other_ns=part,
        )
        self._position += stats.emitted
        self._tally.add(stats)
        self._text += text
        return Step(reply_id, text, (), stats)

    def _finished(self, reply_id: int, reason: str) -> Finished:
        tally = self._tally
        timings = Timings(
            load_s=0.1,
            prompt_tokens=20,
            cached_tokens=0,
            prompt_s=0.05,
            time_to_first_token_s=0.06,
            generated_tokens=tally.emitted,
            generation_s=self._time_ns / 1e9,
            tokens_per_second=tally.tokens_per_second,
        )
        # One token for every piece; the same piece is the same token.
        tokens = tuple(zlib.crc32(piece.encode()) % 49152 for piece in chunks(self._text, self._characters))
        reply = Reply(self._text, tokens, reason, 0, timings, tally.speculation())
        return Finished(reply_id, reply, self._position)


Finding = Callable[[Callable[[PullProgress], None]], Path]


@dataclass(frozen=True)
class Scripted(WantedFiles):
    """Files that are found at once, or as `finding` says."""

    finding: Finding | None = None

    def find(self, on_progress: OnProgress | None = None) -> ModelFiles:
        if self.finding is None:
            return super().find(on_progress)
        return ModelFiles(self.finding(on_progress or (lambda progress: None)), self.options)
