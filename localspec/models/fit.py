"""Whether a model, and a draft model beside it, fit into this machine, and what would where they do not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from localspec.errors import NotEnoughMemoryError
from localspec.models.cache import snapshots
from localspec.models.footprint import ROWS, Footprint, ModelShape, Settings, Sizes, kv_element, sizes
from localspec.models.gguf import GGUFHeader
from localspec.types import EngineOptions

__all__ = [
    "DEFAULT_CONTEXT",
    "GPU_RESERVE",
    "ROWS",
    "SMALLEST_CONTEXT",
    "SMALLEST_DRAFT_CONTEXT",
    "SMALLEST_PAIR_CONTEXT",
    "Footprint",
    "Machine",
    "Plan",
    "Settings",
    "Sizes",
    "gib",
    "layers_note",
    "plan_pair",
    "propose_pair",
    "sizes",
]

DEFAULT_CONTEXT = 8192
SMALLEST_CONTEXT = 512
SMALLEST_PAIR_CONTEXT = 2048
"""A draft model is not worth a context that is smaller than this, unless the user asks for that."""
SMALLEST_DRAFT_CONTEXT = 64
GPU_RESERVE = 512 * 2**20
"""Bytes of each GPU left free: the driver's workspaces, the desktop, other programs' growth."""
_STEP = 256
_FEWEST_BYTES = 2**20
_SPARE_CACHE = "q8_0"


@dataclass(frozen=True, slots=True)
class Machine:
    """The memory that is free, in bytes.

    Attributes:
        free_ram: system memory.
        free_vram: memory of all GPUs together.
        gpus: how many they are.
        shared: whether the GPUs' memory is the system's.
        repacked: tensor types that the CPU's kernels want laid out anew, see `footprint.Settings`.
    """

    free_ram: int
    free_vram: int = 0
    gpus: int = 0
    shared: bool = False
    repacked: frozenset[int] = frozenset()

    @property
    def free_bytes(self) -> int:
        """All of it."""
        return max(self.free_ram, 0) + (0 if self.shared else self.free_vram)


@dataclass(frozen=True, slots=True)
class Plan:
    """How a model, and a draft model beside it, are to be loaded.

    Attributes:
        context: tokens of the target's context.
        kv_type: element type of its cache.
        gpu_layers: layers of the target on GPUs, the output counted as one.
        draft_context: tokens of the draft model's context; 0 without one.
        draft_gpu_layers: layers of the draft model on GPUs.
        target: memory of the target.
        draft: memory of the draft model; None without one.
        fits: whether all of it is free.
        advice: where it does not fit, one sentence on why and on what would; else what should be said of
            where the layers went, "" for nothing.
    """

    context: int
    kv_type: str
    gpu_layers: int
    draft_context: int
    draft_gpu_layers: int
    target: Footprint
    draft: Footprint | None
    fits: bool
    advice: str


def plan_pair(
    target: GGUFHeader,
    draft: GGUFHeader | None,
    options: EngineOptions,
    machine: Machine,
    *,
    prediction: bool = False,
) -> Plan:
    """A plan that fits, the target's layers first on the GPU, then the draft model's.

    Args:
        target: header of the model.
        draft: header of its draft model; None plans the target alone.
        options: how they are to be loaded; a context that is not given is made as small as it must be.
        machine: what is free.
        prediction: whether the target's prediction layers are read too.

    Raises:
        NotEnoughMemoryError: it does not fit; says what would.
        UsageError: a type of cache that ggml does not have.
    """
    plan = propose_pair(target, draft, options, machine, prediction=prediction)
    if not plan.fits:
        raise NotEnoughMemoryError(plan.advice)
    return plan


def propose_pair(
    target: GGUFHeader,
    draft: GGUFHeader | None,
    options: EngineOptions,
    machine: Machine,
    *,
    prediction: bool = False,
) -> Plan:
    """As `plan_pair`, but what does not fit is a plan too, with `fits` False and advice.

    Raises:
        UsageError: a type of cache that ggml does not have.
    """
    return _Planner(target, draft, options, machine, prediction).plan()


class _Planner:
    def __init__(
        self,
        target: GGUFHeader,
        draft: GGUFHeader | None,
        options: EngineOptions,
        machine: Machine,
        prediction: bool,
    ) -> None:
        self._target = ModelShape(target)
        self._draft = None if draft is None else ModelShape(draft)
        self._options = options
        self._machine = machine
        self._prediction = prediction

    def plan(self) -> Plan:
        trained = self._target.header.context_length or DEFAULT_CONTEXT
        wanted = self._options.context or min(trained, DEFAULT_CONTEXT)
        plan = self._at(wanted)
        if not plan.fits and self._options.context is None:
            smaller = self._largest_context(wanted, self._options.kv_type)
            if smaller and (self._draft is None or smaller >= SMALLEST_PAIR_CONTEXT):
                plan = self._at(smaller)
        return replace(plan, advice=self._note(plan) if plan.fits else self._refusal(plan))

    def _at(self, context: int, kv_type: str | None = None, *, alone: bool = False) -> Plan:
        options, machine = self._options, self._machine
        kv_type = kv_type or options.kv_type
        settings = Settings(
            context=context,
            batch=min(options.batch, context),
            kv_type=kv_type,
            flash_attention=options.flash_attention,
            repacked=machine.repacked,
            snapshots=snapshots(self._target.header),
            prediction=self._prediction,
        )
        layers = self._layers(self._target, settings, machine.free_vram, options.gpu_layers)
        target = self._target.footprint(settings, layers, machine.gpus)
        draft, draft_layers, draft_context = None, 0, 0
        if self._draft is not None and not alone:
            draft_context = max(min(options.draft.window or context, context), SMALLEST_DRAFT_CONTEXT)
            # Of a draft model only the rows that it draws from are read, one a branch.
            settings = replace(
                settings, context=draft_context, batch=min(options.batch, draft_context), kv_type="f16"
            )
            settings = replace(settings, output_rows=settings.sequences, snapshots=0, prediction=False)
            left = machine.free_vram - target.gpu.total_bytes
            draft_layers = self._layers(self._draft, settings, left, options.draft.gpu_layers)
            draft = self._draft.footprint(settings, draft_layers, machine.gpus)
        fits = self._fits(target, draft)
        return Plan(context, kv_type, layers, draft_context, draft_layers, target, draft, fits, "")

    def _layers(self, shape: ModelShape, settings: Settings, free: int, wanted: int | None) -> int:
        """Layers for the GPU: those asked for, else as many as leave the reserve free."""
        everything = shape.layers + 1
        if self._machine.gpus == 0 or shape.layers == 0:
            return 0
        if wanted is not None:
            return min(wanted, everything)
        room = free - self._machine.gpus * GPU_RESERVE
        few, many = 0, everything
        while few < many:
            middle = (few + many + 1) // 2
            if shape.footprint(settings, middle, self._machine.gpus).gpu.total_bytes <= room:
                few = middle
            else:
                many = middle - 1
        return few

    def _fits(self, target: Footprint, draft: Footprint | None) -> bool:
        host, gpu = _together(target, draft)
        machine = self._machine
        if machine.shared:
            return host + gpu <= machine.free_ram and gpu <= machine.free_vram
        return host <= machine.free_ram and gpu <= machine.free_vram

    def _largest_context(self, below: int, kv_type: str, *, alone: bool = False) -> int:
        """Tokens of the largest context under `below` that fits, in steps; 0 where none does."""
        few, many = SMALLEST_CONTEXT // _STEP - 1, (below - 1) // _STEP
        while few < many:
            middle = (few + many + 1) // 2
            if self._at(middle * _STEP, kv_type, alone=alone).fits:
                few = middle
            else:
                many = middle - 1
        return few * _STEP if few * _STEP >= SMALLEST_CONTEXT else 0

    # --- words

    def _note(self, plan: Plan) -> str:
        """What should be known of a plan that fits."""
        if self._draft is None or plan.draft is None or self._machine.gpus == 0:
            return ""
        if self._options.draft.gpu_layers is not None:
            return ""
        left = self._machine.free_vram - plan.target.gpu.total_bytes
        return layers_note(self._draft.header, plan.draft_gpu_layers, plan.draft, left)

    def _refusal(self, plan: Plan) -> str:
        """Why a plan does not fit, and what would."""
        host, gpu = _together(plan.target, plan.draft)
        names = self._target.header.path.name
        if self._draft is not None:
            names += f" with the draft model {self._draft.header.path.name}"
        machine = self._machine
        ram_short = host + (gpu if machine.shared else 0) > machine.free_ram
        if ram_short or machine.gpus == 0:
            need, free, kind = host + (gpu if machine.shared else 0), machine.free_ram, "memory"
        else:
            need, free, kind = gpu, machine.free_vram, "GPU memory"
        *first, last = list(self._choices(plan)) or [""]
        what = "choose a smaller model or close other programs"
        if last:
            what = f"use {', '.join(first)} or {last}" if first else f"use {last}"
        return (
            f"{names} needs {gib(need)} of {kind} with a context of {plan.context} tokens and "
            f"{gib(max(free, 0))} are free; {what}."
        )

    def _choices(self, plan: Plan) -> Iterator[str]:
        """Each thing that alone makes it fit."""
        smaller = self._largest_context(plan.context, plan.kv_type)
        if smaller:
            yield f"--context {smaller} or less"
        if kv_element(plan.kv_type) > kv_element(_SPARE_CACHE):
            if self._at(plan.context, _SPARE_CACHE).fits:
                yield f"--kv-type {_SPARE_CACHE}"
            elif not smaller:
                both = self._largest_context(plan.context, _SPARE_CACHE)
                if both:
                    yield f"--kv-type {_SPARE_CACHE} with --context {both} or less"
        yield from self._fewer_layers(plan)
        if plan.draft is not None:
            yield from self._other_draft(plan, plan.draft)

    def _fewer_layers(self, plan: Plan) -> Iterator[str]:
        """Fewer layers on the GPU, where the user chose how many and fewer fit."""
        options = self._options
        chosen = replace(options, gpu_layers=None, draft=replace(options.draft, gpu_layers=None))
        draft = None if self._draft is None else self._draft.header
        best = _Planner(self._target.header, draft, chosen, self._machine, self._prediction)._at(plan.context)
        if not best.fits:
            return
        if options.gpu_layers is not None and best.gpu_layers < plan.gpu_layers:
            yield f"--gpu-layers {best.gpu_layers} or fewer"
        elif options.draft.gpu_layers is not None and best.draft_gpu_layers < plan.draft_gpu_layers:
            yield f"{best.draft_gpu_layers} or fewer layers of the draft model on the GPU"

    def _other_draft(self, plan: Plan, draft: Footprint) -> Iterator[str]:
        """A smaller draft model, all else of it as it is, or a way to draft without one."""
        alone = self._at(plan.context, alone=True)
        if not alone.fits:
            return
        beside = draft.host + draft.gpu
        left = self._machine.free_ram - alone.target.host.needed_bytes
        if self._machine.shared:
            left -= alone.target.gpu.total_bytes
        weights = left - (beside.needed_bytes - beside.weights_bytes)
        if _FEWEST_BYTES < weights < beside.weights_bytes:
            yield f"a draft model of {gib(weights)} or less"
        else:
            yield "--draft suffix, which needs no draft model"


def layers_note(header: GGUFHeader, gpu_layers: int, draft: Footprint, left: int) -> str:
    """A sentence on a draft model that is not all on the GPU; "" for one that is.

    Args:
        header: of the draft model.
        gpu_layers: layers of it on the GPU, the output counted as one.
        draft: its memory.
        left: bytes of GPU memory that are free beside the target.
    """
    everything = header.block_count + 1
    if gpu_layers >= everything:
        return ""
    where = "on the CPU"
    if gpu_layers:
        where = f"with {everything - gpu_layers} of its {everything} layers on the CPU"
    return (
        f"The draft model {header.path.name} runs {where}: it needs {gib(draft.total_bytes)}, and beside "
        f"the model {gib(max(left, 0))} of GPU memory are left, of which some has to stay free."
    )


def _together(target: Footprint, draft: Footprint | None) -> tuple[int, int]:
    """Bytes that have to be free in the system's memory and on the GPUs."""
    both = (target, draft) if draft is not None else (target,)
    return sum(item.host.needed_bytes for item in both), sum(item.gpu.total_bytes for item in both)


def gib(count: int) -> str:
    """Bytes for people, in the units in which memory is sold."""
    return f"{count / 2**30:.1f} GiB"
