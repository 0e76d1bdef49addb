"""Heads beside a target: checked against it, opened once, and handed out as drafters."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from localspec.drafters import Drafter
from localspec.drafters.dflash import DFlashDrafter
from localspec.drafters.dspark import DSparkDrafter
from localspec.drafters.eagle3 import Eagle3Drafter
from localspec.drafters.mtp import MtpDrafter
from localspec.messages import DraftModelInfo
from localspec.models.heads import HeadFacts, Kind
from localspec.runtime.head_loading import LoadedHead, load_head
from localspec.runtime.loading import LoadedModel
from localspec.types import DraftOptions, EngineOptions
from localspec.verify import GreedyDrawing

if TYPE_CHECKING:
    from localspec.drafters.hidden import HiddenDrafter

_MAKERS: dict[Kind, tuple[type[HiddenDrafter], Callable[[HeadFacts], dict[str, Any]]]] = {
    "eagle3": (Eagle3Drafter, lambda facts: {}),  # noqa: ARG005 - every maker takes the facts
    "mtp": (MtpDrafter, lambda facts: {"prediction_layers": facts.prediction_layers}),
    "dflash": (DFlashDrafter, lambda facts: {"block": facts.block, "mask": facts.mask_token}),
    "dspark": (
        DSparkDrafter,
        lambda facts: {
            "block": facts.block,
            "mask": facts.mask_token,
            "from_anchor": facts.from_anchor,
            "has_confidence": facts.has_confidence,
        },
    ),
}


class DraftHeads:
    """Heads that draft for one target; each is opened when its drafter is first asked for.

    Args:
        target: as it was loaded.
        options: how.
        progress: called with the fraction of a head's weights read.
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
        self._loaded: dict[str, LoadedHead] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Members of `--draft` whose heads are open."""
        return tuple(self._loaded)

    @property
    def notes(self) -> list[str]:
        """What is to be said about those that are open, in a sentence each."""
        return [loaded.note for loaded in self._loaded.values() if loaded.note]

    @property
    def infos(self) -> tuple[DraftModelInfo, ...]:
        """Those that are open, and where their layers are."""
        return tuple(
            DraftModelInfo(
                name=name,
                layers=loaded.model.layers,
                gpu_layers=min(loaded.gpu_layers, loaded.model.layers),
                backend=loaded.backend,
                through_text=False,
                memory_estimated=loaded.footprint.buffers_bytes,
                memory_used=loaded.used_bytes,
            )
            for name, loaded in self._loaded.items()
        )

    def on_cpu(self, name: str) -> bool:
        """Whether an open head computes on the CPU, all or in part."""
        loaded = self._loaded[name]
        return loaded.gpu_layers <= loaded.model.placed_layers

    def drafter(self, name: str, facts: HeadFacts, options: DraftOptions) -> Drafter:
        """A new drafter on the head of the member `name`; several of one head must not be used in turn.

        Raises:
            IncompatibleError, ModelFileError, NotEnoughMemoryError: see `load_head`.
        """
        if name not in self._loaded:
            self._loaded[name] = load_head(facts, self._target, self._options, options, self._progress)
        loaded = self._loaded[name]
        make, more = _MAKERS[facts.kind]
        return make(
            loaded.head,
            loaded.tap,
            vocabulary=self._target.model.vocabulary_size,
            greedy=GreedyDrawing(),
            name=facts.kind,
            **more(facts),
        )

    def close(self, name: str) -> None:
        """Free the head of a member."""
        self._loaded.pop(name).close()
