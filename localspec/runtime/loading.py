"""From a file to a context that decodes: sizes checked before native code runs, layers placed on the GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from localspec.errors import IncompatibleError, NotEnoughMemoryError, UsageError
from localspec.messages import ModelInfo
from localspec.models.gguf import GGUFHeader, estimate_memory, read_header
from localspec.runtime.context import LlamaContext
from localspec.runtime.cores import physical_cores
from localspec.runtime.devices import backend_name, devices
from localspec.runtime.load import SpareCores
from localspec.runtime.model import LlamaModel
from localspec.runtime.offload import Demand, layers_that_fit
from localspec.trees import MAX_LEAVES
from localspec.types import DraftOptions, EngineOptions

DEFAULT_CONTEXT = 8192
SMALLEST_CONTEXT = 512
SMALLEST_DRAFT_CONTEXT = 64
_BUFFERS = 128 * 2**20
"""Compute buffers of a small model, a lower bound."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model with its context, and where its layers went."""

    model: LlamaModel
    context: LlamaContext
    gpu_layers: int
    backend: str

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
        UsageError: options out of range.
    """
    _check(options)
    spare = SpareCores()
    header = header or read_header(path)
    gpus = [device for device in devices() if device.kind in ("gpu", "igpu")]
    free = sum(device.free_bytes for device in gpus)
    capacity = _capacity(header, options, free)
    estimate = estimate_memory(header, capacity, options.kv_type)
    demand = Demand(estimate.weights_bytes, estimate.kv_bytes, header.block_count)
    if options.gpu_layers is not None:
        layers = min(options.gpu_layers, header.block_count + 1) if gpus else 0
    else:
        layers = layers_that_fit(demand, free, len(gpus))
    while True:
        try:
            model, context = _open(path, options, capacity, layers, spare, progress)
        except NotEnoughMemoryError:
            if options.gpu_layers is not None or layers == 0:
                raise
            # The estimate knows nothing of fragmentation and of other programs: leave more room.
            layers = layers * 3 // 4
        else:
            return LoadedModel(model, context, layers, backend_name() if layers else "CPU")


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
    loaded = load(
        path,
        replace(
            options,
            context=max(window, SMALLEST_DRAFT_CONTEXT),
            gpu_layers=draft.gpu_layers,
            kv_type="f16",
        ),
        progress,
    )
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
        file_bytes=model.path.stat().st_size,
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
    )


def _open(
    path: Path,
    options: EngineOptions,
    capacity: int,
    layers: int,
    spare: SpareCores,
    progress: Callable[[float], None] | None,
) -> tuple[LlamaModel, LlamaContext]:
    model = LlamaModel(path, gpu_layers=layers, progress=progress)
    everything_on_gpu = layers > model.layers
    try:
        context = LlamaContext(
            model,
            capacity=capacity,
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
        )
    except BaseException:
        model.close()
        raise
    return model, context


def _capacity(header: GGUFHeader, options: EngineOptions, free_gpu: int) -> int:
    """Context size: the one asked for, if it fits; else the model's own, at most 8192 and what fits."""
    trained = header.context_length or DEFAULT_CONTEXT
    wanted = options.context or min(trained, DEFAULT_CONTEXT)
    available = psutil.virtual_memory().available + free_gpu
    estimate = estimate_memory(header, wanted, options.kv_type)
    need = estimate.total_bytes + _BUFFERS
    if need <= available:
        return wanted
    room = available - estimate.weights_bytes - _BUFFERS
    fitting = int(room / max(estimate.kv_bytes / wanted, 1)) // 256 * 256
    if fitting < SMALLEST_CONTEXT:
        raise NotEnoughMemoryError(
            f"{header.path.name} needs {_gib(need)} with a context of {wanted} tokens and "
            f"{_gib(available)} of "
            "memory are free; choose a smaller model or close other programs."
        )
    if options.context is None:
        return fitting
    raise NotEnoughMemoryError(
        f"A context of {wanted} tokens needs {_gib(estimate.kv_bytes)} beside "
        f"{_gib(estimate.weights_bytes)} of "
        f"weights and {_gib(available)} of memory are free; use --context {fitting} or less, or --kv-type "
        f"q8_0."
    )


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


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"
