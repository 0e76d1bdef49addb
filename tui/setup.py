"""Which model and which drafter the engine has, and which are on their way. No widgets here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from localspec.errors import LocalspecError
from localspec.messages import Command, Load, ModelInfo, SetDrafter, SetSpeculation
from localspec.model_files import ModelFiles, WantedFiles
from localspec.models.progress import PullProgress
from localspec.models.registry import Resolved
from localspec.types import DraftOptions, EngineOptions, SamplingParams
from tui.finder import FileFound, FileMissing, FileProgress, FinderEvent, ModelFinder
from tui.launch import Launch
from tui.state import LiveState, Phase
from tui.view import View


@dataclass(slots=True)
class _Change:
    """Another model on its way; `files` is None while they are looked for."""

    wanted: WantedFiles
    files: ModelFiles | None = None


class Setup:
    """What a chat is made with: finds files, tells the engine, and keeps what it has agreed to.

    A change counts when the engine says that it is done: one that fails leaves all as it was.

    Args:
        launch: what the chat starts with.
        state: the engine as the live figures show it.
        view: what the user sees.
        send: sends a command; False where there is nobody to take it.
        fail: told where there will be no model.

    Attributes:
        finder: looks for files.
        fetching: progress of a download, None outside of it.
        options: how models are loaded, with the drafter of now.
    """

    def __init__(
        self,
        launch: Launch,
        state: LiveState,
        view: View,
        send: Callable[[Command], bool],
        fail: Callable[[LocalspecError], None],
    ) -> None:
        self._launch, self._state, self._view = launch, state, view
        self._send, self._fail = send, fail
        self._wanted = launch.files
        self._files: ModelFiles | None = None
        self._change: _Change | None = None
        self._asked: DraftOptions | None = None
        self._chosen = False
        self._starting = False
        self.finder = ModelFinder()
        self.fetching: PullProgress | None = None
        self.options: EngineOptions = launch.options

    @property
    def model(self) -> Resolved:
        """The model that answers."""
        return self._wanted.model

    @property
    def name(self) -> str:
        """Name of the model that answers."""
        return self._wanted.model.name

    @property
    def file(self) -> Path | None:
        """File of the model that answers, None before it is found."""
        return self._files.path if self._files else None

    @property
    def coming_model(self) -> Resolved:
        """The model that is being looked for or loaded."""
        return self._change.wanted.model if self._change else self.model

    @property
    def coming(self) -> str:
        """Name of the model that is being looked for or loaded."""
        return self.coming_model.name

    @property
    def starting(self) -> bool:
        """Whether the first model is on its way."""
        return self._starting

    @property
    def searching(self) -> bool:
        """Whether the files of another model are being looked for, while this one goes on."""
        return self._change is not None and self._change.files is None

    @property
    def switching(self) -> bool:
        """Whether the engine has been told to load another model."""
        return self._change is not None and self._change.files is not None

    @property
    def sampling(self) -> SamplingParams:
        """How replies are sampled."""
        if self._wanted is self._launch.files:
            return self._launch.sampling
        return self._launch.sampling_for(self._wanted.model)

    @property
    def fresh_seeds(self) -> bool:
        """Whether every reply has a seed of its own."""
        return self._launch.fresh_seeds

    def resample(self) -> None:
        """Sample as the settings say now; raises `UsageError` where they cannot be read."""
        if self._launch.refreshed is not None:
            self._launch = self._launch.refreshed(self._launch)

    # --- models

    def begin(self) -> None:
        """Find the model and have it loaded."""
        self._starting = True
        if self._files is None:
            self.finder.start(self._wanted.find)
        else:
            self._load(self._wanted, self._files)

    def choose_model(self, model: Resolved) -> bool:
        """Change to another model; False where there is none to go on with meanwhile: then begin anew."""
        # Draft models that were chosen later are here; those of the beginning may have yet to be fetched.
        files = self.options.draft.files
        drafts = {name: one for name, one in self._launch.files.drafts.items() if name in files}
        wanted = WantedFiles(model, self.options, drafts)
        if self._change is not None and self._change.wanted == wanted:
            # On its way already.
            return True
        if self._state.info is None and (self._files is None or not self._starting):
            self._wanted, self._files, self._change = wanted, None, None
            return False
        self._change = _Change(wanted)
        self.finder.start(wanted.find)
        return True

    def stay(self) -> None:
        """Give up the change: it failed, or is not wanted any more."""
        if self.searching:
            self.finder.abandon()
            self.fetching = None
        self._change = None

    def found(self, event: FinderEvent) -> None:
        """Take what the finder says."""
        if self._change is None and not self._starting:
            # Said before the search was given up.
            return
        match event:
            case FileProgress(progress=progress):
                self.fetching = progress
            case FileFound(files=files):
                self.fetching = None
                if self._change is not None:
                    self._change.files = files
                    self._load(self._change.wanted, files)
                else:
                    self._files = files
                    self.options = self._options_for(files) if self._chosen else files.options
                    self._load(self._wanted, files)
                for note in files.notes:
                    self._view.show_note(note, "note")
            case FileMissing(error=error):
                self.fetching = None
                if self._change is None:
                    self._fail(error)
                else:
                    self._change = None
                    self._view.show_note(str(error), "error")

    def loaded(self, info: ModelInfo) -> bool:
        """Take note of what was loaded; whether it is another model than before."""
        self._starting = False
        change, changed = self._change, False
        if change is not None and change.files is not None and info.path == str(change.files.path):
            self._wanted, self._files, self._change = change.wanted, change.files, None
            self.options, changed = self._options_for(change.files), True
        if info.draft != self.options.draft.spec:
            # Chosen while the model was loading.
            self._send(self._draft_with(self.options.draft))
        if info.speculation != self._state.wanted:
            self._send(SetSpeculation(self._state.wanted))
        return changed

    def failed(self) -> None:
        """There is no model."""
        self._starting = False
        self.stay()

    def lost(self) -> None:
        """The engine is gone; a model that it was loading may be what ended it."""
        self._asked = None
        if self.switching:
            self._change = None

    def _load(self, wanted: WantedFiles, files: ModelFiles) -> None:
        options = replace(self._options_for(files), speculation=self._state.wanted)
        if self._send(Load(str(files.path), wanted.model.name, options)) and not self._state.busy:
            self._state.phase = Phase.LOADING

    def _options_for(self, files: ModelFiles) -> EngineOptions:
        """The options of now, with the draft models that suit the model of `files`."""
        draft = replace(self.options.draft, companions=files.options.draft.companions)
        return replace(self.options, draft=draft)

    # --- drafters

    def choose_drafter(self, draft: DraftOptions) -> None:
        """Use another drafter, from the next step on; its files are there."""
        if self._state.info is not None:
            self._send(self._draft_with(draft))
            return
        self._chosen = True
        self.options = replace(self.options, draft=draft)
        self._state.draft = draft.spec

    def drafting(self, spec: str) -> bool:
        """Take note of the engine's drafter; whether it is the one that was asked for last."""
        asked = self._asked
        if asked is None or asked.spec != spec:
            return False
        self.options = replace(self.options, draft=asked)
        self._asked = None
        self._state.wanted = True
        return True

    def keep_drafter(self) -> None:
        """The change of the drafter failed."""
        self._asked = None

    def _draft_with(self, draft: DraftOptions) -> SetDrafter:
        self._asked = draft
        return SetDrafter(draft)
