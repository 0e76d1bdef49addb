"""How the app is started."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from localspec.models.progress import PullProgress
from localspec.stats.recorder import Recorder
from localspec.types import EngineOptions, SamplingParams

ResolveModel = Callable[[Callable[[PullProgress], None]], Path]


@dataclass(frozen=True)
class Launch:
    """What the chat starts with; nothing in it changes while the app runs.

    Attributes:
        model_name: name shown.
        options: how the engine loads the model.
        sampling: how replies are sampled.
        resolve_model: called in a thread; returns the model's file and fetches it first where it is missing,
            telling its progress. Raises `LocalspecError`.
        system_prompt: what new conversations begin with.
        max_tokens: longest reply.
        conversation: the conversation to open: an id, the last one, or a new one.
        record: JSONL file that every step's counters are written to.
        fresh_seeds: draw a new seed for every reply; the one in `sampling` is then not used.
        theme: name of a theme; None takes one that suits the terminal.
        panel: whether the live panel is shown at first.
        private: keep nothing of what is said.
    """

    model_name: str
    options: EngineOptions
    sampling: SamplingParams
    resolve_model: ResolveModel
    system_prompt: str | None = None
    max_tokens: int | None = None
    conversation: int | Literal["last", "new"] = "last"
    record: Path | None = None
    fresh_seeds: bool = False
    theme: str | None = None
    panel: bool = True
    private: bool = False

    def recorder(self) -> Recorder | None:
        """The recording that was asked for; raises `StorageError` where it cannot be written."""
        if self.record is None:
            return None
        draft, verify = self.options.draft.spec, self.options.verify
        return Recorder(self.record, {"model": self.model_name, "draft": draft, "verify": verify})
