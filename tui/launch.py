"""How the app is started."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from localspec.client import EngineLink
from localspec.model_files import WantedFiles, draft_label
from localspec.models.registry import Resolved
from localspec.recording import ChatRecorder, RecordingLink
from localspec.types import EngineOptions, SamplingParams


@dataclass(frozen=True)
class Launch:
    """What the chat starts with; nothing in it changes while the app runs.

    Attributes:
        files: the model, its draft models, and how the engine loads them. They are found in a thread, and
            fetched first where they are missing.
        sampling: how replies are sampled.
        sampling_of: the same for a model with the recommendations of its entry; None samples all alike.
        system_prompt: what new conversations begin with.
        max_tokens: longest reply.
        think: whether models reason before a reply, where they have a switch for it; None leaves it to them.
        conversation: the conversation to open: an id, the last one, or a new one.
        record: file that the chat is recorded in, see `localspec.recording`.
        refreshed: the same launch with the sampling that the settings say now; None where they do not count.
        fresh_seeds: draw a new seed for every reply; the one in `sampling` is then not used.
        theme: name of a theme; None takes one that suits the terminal.
        keymap: the user's own keys, by the action's id; see `tui.keymap`.
        panel: whether the live panel is shown at first.
        private: keep nothing of what is said.
        replayed: what is shown was recorded, and nothing new is said.
        inline: draw in the flow of the terminal, not on a screen of its own.
        demo: nobody has named a model: a better one than this is offered.
    """

    files: WantedFiles
    sampling: SamplingParams
    sampling_of: Callable[[Mapping[str, float]], SamplingParams] | None = None
    refreshed: Callable[[Launch], Launch] | None = None
    system_prompt: str | None = None
    max_tokens: int | None = None
    think: bool | None = None
    conversation: int | Literal["last", "new"] = "last"
    record: Path | None = None
    fresh_seeds: bool = False
    theme: str | None = None
    keymap: Mapping[str, str] = field(default_factory=dict)
    panel: bool = True
    private: bool = False
    replayed: bool = False
    inline: bool = False
    demo: bool = False

    @property
    def model_name(self) -> str:
        """The name of the first model, as it is shown."""
        return self.files.model.name

    @property
    def options(self) -> EngineOptions:
        """How the engine loads the first model."""
        return self.files.options

    def sampling_for(self, model: Resolved) -> SamplingParams:
        """How replies of `model` are sampled."""
        if self.sampling_of is None:
            return self.sampling
        return self.sampling_of(model.entry.sampling.given() if model.entry else {})

    def recorded(self, link: EngineLink) -> EngineLink:
        """`link`, recorded where that was asked for; raises `StorageError` where that cannot be written."""
        if self.record is None:
            return link
        draft, verify = self.options.draft.spec, self.options.verify
        about = {"model": self.model_name, "draft": draft_label(draft), "verify": verify}
        return RecordingLink(link, ChatRecorder(self.record, about))
