"""From a file to a context that decodes: sizes checked before native code runs, layers placed on the GPU."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from localspec.errors import IncompatibleError, LocalspecError, NotEnoughMemoryError, UsageError
from localspec.messages import ModelInfo
from localspec.models.cache import snapshots
from localspec.models.compat import check_target_file
from localspec.models.fit import (
    DEFAULT_CONTEXT,
    SMALLEST_CONTEXT,
    SMALLEST_DRAFT_CONTEXT,
    Footprint,
    Machine,
    Sizes,
    gib,
    layers_note,
    plan_pair,
    propose_pair,
)
from localspec.models.gguf import GGUFHeader, read_header
from localspec.models.split import size_on_disk
from localspec.runtime.context import LlamaContext
from localspec.runtime.cores import physical_cores
from localspec.runtime.devices import backend_name, repacked_types, used_gpus
from localspec.runtime.library import forget_buffers, taken_buffers
from localspec.runtime.load import SpareCores
from localspec.runtime.model import LlamaModel
from localspec.trees import MAX_LEAVES
from localspec.types import DraftOptions, EngineOptions

__all__ = ["SMALLEST_CONTEXT", "LoadedModel", "describe", "free_memory", "load", "load_draft"]

_UNKNOWN = Footprint(Sizes())


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model with its context, and where its layers went.

    Attributes:
        model: the weights.
        context: the cache, and passes over the weights.
        gpu_layers: layers on the GPU, the output counted as one.
        backend: what computes.
        footprint: the memory that was estimated for it before it was loaded.
        used_bytes: the buffers that llama.cpp then took, by its own account; to be compared with the buffers
            of `footprint`. The output buffer counts at the size to which it may grow.
        note: what is to be said of where its layers are, in a sentence; "" for nothing.
    """

    model: LlamaModel
    context: LlamaContext
    gpu_layers: int
    backend: str
    footprint: Footprint = _UNKNOWN
    used_bytes: int = 0
    note: str = ""

    def close(self) -> None:
        """Free both, in the order that llama.cpp wants."""
        self.context.close()
        self.model.close()


def load(
    path: Path,
    options: EngineOptions,
    progress: Callable[[float], None] | None = None,
    header: GGUFHeader | None = None,
) -> LoadedModel:
    """Load `path` as `options` say; `header` is the file's, where it has been read already.

    Raises:
        NotFoundError: there is no such file.
        ModelFileError: it is damaged, no GGUF, or of an unknown architecture.
        NotEnoughMemoryError: weights or context do not fit.
        IncompatibleError: it is no language model by itself.
        UsageError: options out of range.
    """
    _check(options)
    spare = SpareCores()
    header = header or read_header(path)
    check_target_file(header)
    free = free_memory()
    own = header.extra_layers > 0 and _has_own_head(path, options.draft)
    draft = _draft_header(path if own else None, options)
    try:
        plan = plan_pair(header, draft, options, free, prediction=own)
    except NotEnoughMemoryError:
        if draft is None or options.needs_draft:
            raise
        # The draft model is loaded later, and will be told that there is no room for it.
        plan = plan_pair(header, None, options, free, prediction=own)
    options = replace(options, context=plan.context)
    return _load(
        path,
        options,
        plan.gpu_layers,
        plan.target,
        spare,
        progress,
        with_prediction=own,
        kept_states=snapshots(header),
    )


def load_draft(
    path: Path,
    options: EngineOptions,
    target: LoadedModel,
    draft: DraftOptions,
    progress: Callable[[float], None] | None = None,
) -> LoadedModel:
    """Load a draft model beside its target, with a cache for as much text as its options let it look back on.

    Its cache is f16 whatever the target's is: quantized, it is known to draft nothing that is accepted.

    Raises:
        NotFoundError, ModelFileError: as for `load`.
        NotEnoughMemoryError: weights or cache do not fit beside the target.
        IncompatibleError: its state cannot be rolled back.
    """
    window = min(draft.window or target.context.capacity, target.context.capacity)
    options = replace(
        options,
        context=max(window, SMALLEST_DRAFT_CONTEXT),
        gpu_layers=draft.gpu_layers,
        kv_type="f16",
    )
    _check(options)
    spare = SpareCores()
    header = read_header(path)
    free = free_memory(target)
    plan = propose_pair(header, None, options, free)
    if not plan.fits:
        raise NotEnoughMemoryError(
            f"The draft model {path.name} needs {gib(plan.target.needed_bytes)} beside the model and "
            f"{gib(free.free_bytes)} of memory are free; choose a smaller draft model, a smaller --context "
            "or --draft suffix, which needs no model."
        )
    loaded = _load(path, options, plan.gpu_layers, plan.target, spare, progress)
    if free.gpus and draft.gpu_layers is None:
        note = layers_note(header, loaded.gpu_layers, plan.target, free.free_vram)
        loaded = replace(loaded, note=note)
    if not loaded.context.can_trim:
        loaded.close()
        raise IncompatibleError(
            f"{path.name} cannot draft: its state cannot be rolled back; choose another --draft."
        )
    return loaded


def describe(
    loaded: LoadedModel,
    name: str,
    *,
    draft: str,
    speculation: bool,
    reason: str,
    verify: str = "coupled",
    exact: bool = True,
) -> ModelInfo:
    """What was loaded, for the client."""
    model, context = loaded.model, loaded.context
    return ModelInfo(
        path=str(model.path),
        name=name,
        architecture=model.architecture,
        description=model.description,
        parameters=model.parameters,
        file_bytes=size_on_disk(model.path),
        vocabulary=model.vocabulary_size,
        layers=model.layers,
        gpu_layers=min(loaded.gpu_layers, model.layers),
        context=context.capacity,
        trained_context=model.trained_context,
        has_chat_template=model.chat_template is not None,
        can_trim=context.can_trim,
        sliding_window=model.sliding_window,
        backend=loaded.backend,
        draft=draft,
        speculation=speculation,
        speculation_reason=reason,
        verify=verify,
        exact=exact,
        memory_estimated=loaded.footprint.buffers_bytes,
        memory_used=loaded.used_bytes,
    )


def free_memory(beside: LoadedModel | None = None) -> Machine:
    """The memory that is free now.

    Args:
        beside: a model that is loaded and has to stay: the system counts the pages of its file as free.
    """
    gpus = used_gpus()
    ram = psutil.virtual_memory().available
    if beside is not None and sys.platform == "linux":
        host = beside.footprint.host
        ram -= host.weights_bytes - host.replaced_bytes
    return Machine(
        free_ram=ram,
        free_vram=sum(device.free_bytes for device in gpus),
        gpus=len(gpus),
        shared=bool(gpus) and (sys.platform == "darwin" or all(device.kind == "igpu" for device in gpus)),
        # Beside a GPU's driver llama.cpp leaves weights in its buffers as they are; Apple's has none.
        repacked=frozenset() if gpus and sys.platform != "darwin" else repacked_types(),
    )


def _has_own_head(path: Path, draft: DraftOptions) -> bool:
    """Whether the prediction layers of the target's own file are to draft, and so have to be loaded."""
    files = (*draft.files.values(), *draft.companions.values())
    return any(Path(file).resolve() == path.resolve() for file in files)


def _draft_header(own: Path | None, options: EngineOptions) -> GGUFHeader | None:
    """Header of the largest draft model that is to be loaded too; None without one that can be read.

    What drafts from the target's own file, `own`, takes nothing that the target's plan has not counted.
    """
    headers = []
    for path in options.draft.files.values():
        if own is not None and Path(path).resolve() == own.resolve():
            continue
        try:
            headers.append(read_header(Path(path)))
        except LocalspecError:
            # What is wrong with it is said when it is loaded.
            continue
    return max(headers, key=lambda header: header.file_bytes, default=None)


def _load(
    path: Path,
    options: EngineOptions,
    layers: int,
    footprint: Footprint,
    spare: SpareCores,
    progress: Callable[[float], None] | None,
    *,
    with_prediction: bool = False,
    kept_states: int = 0,
) -> LoadedModel:
    """Load with so many layers on the GPU, or with fewer where the user did not say how many."""
    without_gpu = False
    while True:
        forget_buffers()
        try:
            model, context = _open(
                path,
                options,
                layers,
                spare,
                progress,
                with_prediction=with_prediction,
                kept_states=kept_states,
                without_gpu=without_gpu,
            )
        except NotEnoughMemoryError:
            if layers == 0 and not without_gpu and used_gpus():
                # Another program may have all of their memory, and there is some in the system.
                without_gpu = True
                continue
            if options.gpu_layers is not None or layers == 0:
                raise
            # The estimate knows nothing of fragmentation and of other programs: leave more room.
            layers = layers * 3 // 4
        else:
            backend = backend_name() if layers else "CPU"
            return LoadedModel(model, context, layers, backend, footprint, _used_bytes(context))


def _used_bytes(context: LlamaContext) -> int:
    buffers = taken_buffers()
    output = max(context.max_rows, context.sequences) * context.model.vocabulary_size * 4
    return sum(output if buffer.kind == "output" else buffer.size_bytes for buffer in buffers)


def _open(
    path: Path,
    options: EngineOptions,
    layers: int,
    spare: SpareCores,
    progress: Callable[[float], None] | None,
    *,
    with_prediction: bool,
    kept_states: int,
    without_gpu: bool,
) -> tuple[LlamaModel, LlamaContext]:
    model = LlamaModel(
        path,
        gpu_layers=layers,
        progress=progress,
        with_prediction=with_prediction,
        without_gpu=without_gpu,
    )
    everything_on_gpu = layers > model.placed_layers
    try:
        context = LlamaContext(
            model,
            capacity=options.context or DEFAULT_CONTEXT,
            batch=options.batch,
            # With every layer on the GPU the CPU only launches work: one thread does, and none waits
            # actively.
            threads=options.threads or (1 if everything_on_gpu else None),
            cores=physical_cores(),
            flash_attention=options.flash_attention,
            kv_type=options.kv_type,
            # Branches of draft trees share cells, so they cost nothing, but a recurrent state for each does.
            sequences=1 if model.is_recurrent else MAX_LEAVES,
            spare=spare,
            snapshots=kept_states,
        )
    except BaseException:
        model.close()
        raise
    return model, context


def _check(options: EngineOptions) -> None:
    checks = (
        (options.context is None or 16 <= options.context < 2**31, "context must be 16 tokens or more"),
        # ggml keeps a fixed array of 512; more end the process.
        (options.threads is None or 1 <= options.threads <= 512, "number of threads must be 1 to 512"),
        (options.gpu_layers is None or options.gpu_layers >= 0, "number of GPU layers must be 0 or more"),
        (options.batch >= 32, "batch size must be 32 or more"),
    )
    for holds, sentence in checks:
        if not holds:
            raise UsageError(f"The {sentence}.")
