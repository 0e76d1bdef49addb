"""From a head's file, or a target's own prediction layers, to passes and a cache beside the target."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from localspec.errors import IncompatibleError, NotEnoughMemoryError
from localspec.models.fit import gib, layers_note, propose_pair
from localspec.models.footprint import Footprint, ModelShape, Settings, Sizes, kv_element
from localspec.models.gguf import GGUFHeader, read_header
from localspec.models.heads import HeadFacts, check_head, head_note
from localspec.runtime.cores import physical_cores
from localspec.runtime.devices import backend_name
from localspec.runtime.ext import missing
from localspec.runtime.features import FinalTap, LayerTap
from localspec.runtime.head import MAX_BATCH, MAX_ROWS, HeadShape, LlamaHead
from localspec.runtime.library import forget_buffers, taken_buffers
from localspec.runtime.loading import LoadedModel, free_memory
from localspec.runtime.model import LlamaModel
from localspec.target import Tap
from localspec.trees import MAX_LEAVES
from localspec.types import DraftOptions, EngineOptions

_SNAPSHOTS = 16
"""Rows that a head of recurrent layers can take back: what it drafts is dropped again."""
_MOST_THREADS = 4
"""A head is small: more threads wait for each other longer than they compute."""


@dataclass(slots=True)
class LoadedHead:
    """A head beside its target. Close it before the target's context: it reads the target's weights.

    Attributes:
        facts: what its file says.
        head: its passes and its cache.
        tap: the target's states that it reads.
        model: its weights; the target's own where the head lies in the target's file.
        gpu_layers: layers on the GPU, the output counted as one.
        backend: what computes.
        footprint: the memory that was estimated for it.
        used_bytes: the buffers that llama.cpp then took, by its own account.
        note: what a user should know of the pair, in a sentence; "" for nothing.
    """

    facts: HeadFacts
    head: LlamaHead
    tap: Tap
    model: LlamaModel
    gpu_layers: int
    backend: str
    footprint: Footprint
    used_bytes: int
    note: str = ""
    _undo: ExitStack = field(default_factory=ExitStack, repr=False)

    def close(self) -> None:
        """Free all of it; once is enough."""
        self._undo.close()


def load_head(
    facts: HeadFacts,
    target: LoadedModel,
    options: EngineOptions,
    draft: DraftOptions,
    progress: Callable[[float], None] | None = None,
) -> LoadedHead:
    """Open the head that `facts` describe beside `target`; everything is checked before native code runs.

    Raises:
        IncompatibleError: it was made for another target, or this target or this build of llama.cpp hands
            out no hidden states.
        ModelFileError: a damaged file.
        NotEnoughMemoryError: it does not fit beside the target.
    """
    path = Path(facts.path)
    own = path.resolve() == target.model.path.resolve()
    header, target_header = read_header(path), read_header(target.model.path)
    check_head(facts, target_header)
    lacking = missing()
    if lacking:
        raise IncompatibleError(lacking)
    free, layers, note = free_memory(target), target.gpu_layers, ""
    if own:
        footprint = _own_footprint(header, facts, target, options)
        if footprint.needed_bytes > free.free_bytes:
            raise NotEnoughMemoryError(
                f"The prediction layers of {path.name} need {gib(footprint.needed_bytes)} for a cache and "
                f"passes of their own and {gib(free.free_bytes)} of memory are free; choose a smaller "
                "--context or --draft suffix, which needs no further memory."
            )
    else:
        plan = propose_pair(
            header,
            None,
            replace(
                options,
                context=target.context.capacity,
                batch=MAX_BATCH,
                gpu_layers=draft.gpu_layers if target.gpu_layers else 0,
                kv_type="f16",
            ),
            free,
        )
        if not plan.fits:
            raise NotEnoughMemoryError(
                f"The head {path.name} needs {gib(plan.target.needed_bytes)} beside the model and "
                f"{gib(free.free_bytes)} of memory are free; choose a smaller --context or --draft suffix, "
                "which needs no further file."
            )
        footprint, layers = plan.target, plan.gpu_layers
        if free.gpus and target.gpu_layers and draft.gpu_layers is None:
            note = layers_note(header, layers, plan.target, free.free_vram)
    with ExitStack() as undo:
        forget_buffers()
        model = target.model
        if not own:
            model = LlamaModel(
                path, gpu_layers=layers, progress=progress, with_prediction=facts.kind == "mtp"
            )
            undo.callback(model.close)
        on_gpu = layers > model.layers
        head = LlamaHead(
            model,
            target.context,
            _shape(facts),
            capacity=target.context.capacity,
            threads=1 if on_gpu else options.threads or min(physical_cores(), _MOST_THREADS),
            snapshots=_SNAPSHOTS if facts.kind == "mtp" and model.is_recurrent else 0,
            sequences=MAX_LEAVES if facts.kind == "eagle3" else 1,
            flash_attention=options.flash_attention,
        )
        undo.callback(head.close)
        tap: Tap
        if facts.kind == "mtp":
            tap = FinalTap(target.context, on=False)
        else:
            tap = LayerTap(target.context, facts.target_layers, on=False)
        undo.callback(tap.close)
        said = [one for one in (head_note(facts, header, target_header), note) if one]
        return LoadedHead(
            facts=facts,
            head=head,
            tap=tap,
            model=model,
            gpu_layers=layers,
            backend=backend_name() if layers else "CPU",
            footprint=footprint,
            used_bytes=sum(buffer.size_bytes for buffer in taken_buffers()),
            note=" ".join(said),
            _undo=undo.pop_all(),
        )


def _own_footprint(
    header: GGUFHeader, facts: HeadFacts, target: LoadedModel, options: EngineOptions
) -> Footprint:
    """What prediction layers take whose weights came with the target's: a cache, and buffers for passes."""
    settings = Settings(
        context=target.context.capacity,
        batch=MAX_BATCH,
        rows=MAX_ROWS,
        flash_attention=options.flash_attention,
        sequences=1,
    )
    whole = ModelShape(header).footprint(settings, target.gpu_layers)
    width = max(header.head_count_kv, default=0) * (header.key_length + header.value_length)
    cache = Sizes(kv_bytes=int(facts.prediction_layers * settings.context * width * kv_element("f16")))
    host, gpu = (
        Sizes(compute_bytes=part.compute_bytes, output_bytes=part.output_bytes)
        for part in (whole.host, whole.gpu)
    )
    return Footprint(host, gpu + cache) if target.gpu_layers else Footprint(host + cache, gpu)


def _shape(facts: HeadFacts) -> HeadShape:
    return HeadShape(
        kind=facts.kind,
        width=facts.width,
        features=facts.features,
        causal=facts.causal,
        block=facts.block,
        prediction_layers=max(1, facts.prediction_layers),
    )
