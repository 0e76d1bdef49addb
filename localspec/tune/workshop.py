"""Contexts to measure on: models are loaded once, and every setting gets a context of its own over them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from localspec.bench.prompts import PromptVocabulary
from localspec.chat.template import ChatTemplate
from localspec.draft_models import DraftModels
from localspec.drafters import Drafter, make_drafter, models_of
from localspec.runtime.context import LlamaContext
from localspec.runtime.cores import physical_cores
from localspec.runtime.loading import SMALLEST_CONTEXT, LoadedModel, load
from localspec.target import TargetContext
from localspec.trees import MAX_LEAVES
from localspec.types import DraftOptions, EngineOptions


class Bench(Protocol):
    """A context with its vocabulary: what a driver and a prompt need."""

    @property
    def context(self) -> TargetContext:
        """The cache."""

    @property
    def vocabulary(self) -> PromptVocabulary:
        """The model's tokens."""

    @property
    def template(self) -> ChatTemplate:
        """The model's chat template."""

    def drafter(self, options: DraftOptions) -> Drafter:
        """A new drafter for this target; raises `LocalspecError` for one that it cannot have."""

    def close(self) -> None:
        """Free the context; the model stays."""


class Workshop(Protocol):
    """Makes contexts."""

    def open(self, path: Path, engine: EngineOptions, capacity: int) -> Bench:
        """A context of `capacity` tokens as `engine` says otherwise.

        Raises:
            NotEnoughMemoryError: it does not fit.
            UsageError: settings that llama.cpp refuses together.
            LocalspecError: the file cannot be loaded.
        """

    def release(self, path: Path) -> None:
        """Free the model of `path`; its contexts were closed."""


@dataclass(slots=True)
class LlamaBench:
    """A context of llama.cpp; see `Bench`."""

    loaded: LoadedModel
    template: ChatTemplate
    engine: EngineOptions
    models: DraftModels | None = None

    @property
    def context(self) -> LlamaContext:
        """The cache."""
        return self.loaded.context

    @property
    def vocabulary(self) -> PromptVocabulary:
        """The model's tokens."""
        return self.loaded.model

    def drafter(self, options: DraftOptions) -> Drafter:
        """See `Bench`; draft models are loaded when first asked for, and stay until `close`."""
        if not models_of(options.spec):
            return make_drafter(options)
        if self.models is None:
            self.models = DraftModels(self.loaded, self.engine)
        models = self.models
        return make_drafter(options, None, lambda name: models.drafter(name, options))

    def close(self) -> None:
        """Free the context and draft models."""
        if self.models is not None:
            self.models.close()
            self.models = None
        self.context.close()


class LlamaWorkshop:
    """Contexts of llama.cpp.

    A copy of a model is put where the first model is: with another share of it
    on the GPU the comparison would not be fair.
    """

    def __init__(self) -> None:
        self._models: dict[Path, LoadedModel] = {}

    def open(self, path: Path, engine: EngineOptions, capacity: int) -> LlamaBench:
        """See `Workshop`."""
        loaded = self._models.get(path)
        if loaded is None:
            loaded = self._models[path] = self._load(path, engine)
        model = loaded.model
        on_gpu = loaded.gpu_layers > model.placed_layers
        context = LlamaContext(
            model,
            capacity=capacity,
            batch=engine.batch,
            threads=engine.threads or (1 if on_gpu else None),
            cores=physical_cores(),
            flash_attention=engine.flash_attention,
            kv_type=engine.kv_type,
            sequences=1 if model.is_recurrent else MAX_LEAVES,
            snapshots=loaded.context.snapshots,
        )
        template = ChatTemplate.of(model, engine.chat_template)
        mine = LoadedModel(model, context, loaded.gpu_layers, loaded.backend)
        return LlamaBench(mine, template, replace(engine, context=capacity))

    def _load(self, path: Path, engine: EngineOptions) -> LoadedModel:
        """A model whose context is closed again: it only says which layers go to the GPU."""
        first = next(iter(self._models.values()), None)
        if first is not None:
            engine = replace(engine, context=SMALLEST_CONTEXT, gpu_layers=first.gpu_layers)
        loaded = load(path, replace(engine, threads=1))
        loaded.context.close()
        return loaded

    def release(self, path: Path) -> None:
        """See `Workshop`."""
        loaded = self._models.pop(path, None)
        if loaded is not None:
            loaded.close()

    def close(self) -> None:
        """Free all models; their contexts were closed."""
        for path in list(self._models):
            self.release(path)
