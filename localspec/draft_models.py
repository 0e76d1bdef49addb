"""Draft models and heads beside a target: checked against it, loaded once, and handed out as drafters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from localspec.draft_heads import DraftHeads
from localspec.drafters import Drafter
from localspec.drafters.bridge import TextBridge
from localspec.drafters.guarded import GuardedDrafter
from localspec.drafters.model import ModelDrafter
from localspec.errors import IncompatibleError, LocalspecError
from localspec.messages import DraftModelInfo
from localspec.models.compat import (
    Compatibility,
    check_draft_file,
    compare_headers,
    compare_vocabularies,
)
from localspec.models.gguf import read_header
from localspec.models.heads import head_of
from localspec.runtime.loading import LoadedModel, load_draft
from localspec.runtime.vocabulary import vocabulary, vocabulary_facts
from localspec.types import DraftOptions, EngineOptions
from localspec.verify import GreedyDrawing


class DraftModels:
    """Models and heads that draft for one target; each is loaded when its drafter is first asked for.

    Args:
        target: as it was loaded.
        options: how; draft models are loaded likewise, but for what `DraftOptions` say.
        progress: called with the fraction of a model's weights read.
    """

    def __init__(
        self,
        target: LoadedModel,
        options: EngineOptions,
        progress: Callable[[float], None] | None = None,
    ) -> None:
        self._target = target
        self._options = options
        self._progress = progress
        self._loaded: dict[str, tuple[LoadedModel, Compatibility]] = {}
        self._left_out: dict[str, str] = {}
        self._joined: dict[str, GuardedDrafter] = {}
        self._heads = DraftHeads(target, options, progress)

    @property
    def notes(self) -> list[str]:
        """What is to be said about the models that are loaded or were left out, in a sentence each."""
        loaded = [note for loaded, fit in self._loaded.values() for note in (fit.note, loaded.note) if note]
        failed = [
            f"{name} drafts along no more ({joined.problem.rstrip('.')})."
            for name, joined in self._joined.items()
            if joined.problem is not None
        ]
        return [*loaded, *self._heads.notes, *self._left_out.values(), *failed]

    @property
    def infos(self) -> tuple[DraftModelInfo, ...]:
        """The models that are loaded, and where their layers are."""
        models = tuple(
            DraftModelInfo(
                name=name,
                layers=loaded.model.layers,
                gpu_layers=min(loaded.gpu_layers, loaded.model.layers),
                backend=loaded.backend,
                through_text=fit.verdict == "text",
                memory_estimated=loaded.footprint.buffers_bytes,
                memory_used=loaded.used_bytes,
            )
            for name, (loaded, fit) in self._loaded.items()
        )
        return models + self._heads.infos

    def drafter(self, name: str, options: DraftOptions) -> Drafter:
        """A new drafter on the model of the member `name`; several of one model must not be used in turn.

        Raises:
            NotFoundError, ModelFileError: no such file, or no model.
            IncompatibleError: it cannot draft for this target; says why.
            NotEnoughMemoryError: it does not fit beside the target.
        """
        path = Path({**options.companions, **options.files}[name])
        head = head_of(name, read_header(path))
        if head is not None:
            return self._heads.drafter(name, head, options)
        if name not in self._loaded:
            self._loaded[name] = self._load(path, options)
        loaded, fit = self._loaded[name]
        loaded.context.clear()
        model = self._target.model
        label = Path(name).name
        own, window = loaded.model.vocabulary_size, options.window
        same = fit.verdict == "same"
        inner = ModelDrafter(
            loaded.context,
            model.vocabulary_size if same else own,
            GreedyDrawing(),
            name=label,
            window=window,
            known=own,
        )
        if same:
            return inner
        return TextBridge(inner, target=model, draft=loaded.model)

    def companion(self, name: str, options: DraftOptions) -> Drafter | None:
        """As `drafter`, for a model that nobody asked for: None where it cannot be had or would be slow.

        `notes` then says why. A draft model on the CPU beside a target on a GPU costs more than it saves.
        """
        if name in self._left_out:
            return None
        # What somebody else uses is neither freed nor given another text.
        was_open = name in self._loaded or name in self._heads.names
        if not (was_open and self._too_slow(name)):
            try:
                drafter = self.drafter(name, options)
            except LocalspecError as error:
                self._left_out[name] = f"{name} does not draft along: {error}"
                return None
            if not self._too_slow(name):
                # It ends alone where it fails: nobody has asked for it.
                self._joined[name] = GuardedDrafter(drafter)
                return self._joined[name]
            self._free(name)
        self._left_out[name] = f"{name} does not draft along: the GPU has no room for all of it."
        return None

    def keep_only(self, names: tuple[str, ...]) -> None:
        """Free all models but these."""
        for name in (*self._loaded, *self._heads.names):
            if name not in names:
                self._free(name)

    def close(self) -> None:
        """Free all models."""
        self.keep_only(())

    def _too_slow(self, name: str) -> bool:
        """Whether an open one is on the CPU, all or in part, beside a target on a GPU."""
        if self._target.gpu_layers <= 0:
            return False
        if name not in self._loaded:
            return self._heads.on_cpu(name)
        loaded = self._loaded[name][0]
        return loaded.gpu_layers <= loaded.model.placed_layers

    def _free(self, name: str) -> None:
        if name in self._loaded:
            self._loaded.pop(name)[0].close()
        else:
            self._heads.close(name)

    def _load(self, path: Path, options: DraftOptions) -> tuple[LoadedModel, Compatibility]:
        header, target = read_header(path), read_header(self._target.model.path)
        check_draft_file(header, target=target)
        fit = compare_headers(target, header)
        if fit is None:
            with vocabulary(path) as draft:
                facts = vocabulary_facts(draft)
            fit = compare_vocabularies(vocabulary_facts(self._target.model), facts)
        if fit.verdict == "none":
            raise IncompatibleError(f"{path.name} cannot draft for this model: {fit.reasons[0]}.")
        return load_draft(path, self._options, self._target, options, self._progress), fit
