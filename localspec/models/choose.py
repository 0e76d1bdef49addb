"""Which model of a family suits a machine: one that fits, is quick enough, and as large as that allows.

    fits    weights, a cache for 8192 tokens and buffers, in what the machine has in total: what is free now
            changes by the minute, and a name should mean the same model tomorrow.
    quick   6 tokens a second at least; below that people stop reading along. A token takes as long as reading
            the weights that it uses, on the GPU, on the CPU, or a part on each, and on a GPU a little more.
    large   twice the size is worth 2.5 times less speed, and speed beyond 25 tokens a second nothing.

Sizes are compared in their default quantization. Where all of the chosen one lies on the GPU, and a better
quantization of it does so too, at 20 tokens a second and with room for a draft model, that is taken.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from localspec.models.disk import readable_size
from localspec.models.entries import ModelEntry
from localspec.models.families import Catalogue, Family
from localspec.models.fit import DEFAULT_CONTEXT, GPU_RESERVE

__all__ = ["Capacity", "Choice", "alone", "best", "choose", "estimated_bytes"]

Place = Literal["gpu", "both", "cpu"]

SLOWEST = 6.0
"""Tokens a second that a model must make to be chosen."""
FASTEST = 25.0
"""Tokens a second beyond which more are worth nothing."""
SLOWEST_BETTER = 20.0
"""Tokens a second that a better quantization than the default one must make."""
_SPEED_COUNTS = math.log(2) / math.log(2.5)
_MUCH_THE_SAME = 0.9
_THINKING_COSTS = 2.0
"""A model that always thinks before it answers has so many times as much to say."""

_BUFFERS = 512 * 2**20
"""Intermediate results and what the runtime takes for itself."""
_DRAFT_MODEL = 2 * 2**30
"""A small draft model with its cache."""
_LEAST_FOR_SYSTEM, _MOST_FOR_SYSTEM = 5 * 2**29, 2**33
"""System memory that is left for everything else: three eighths, within 2.5 and 8 GiB."""
_SMALLEST_SHARE = 0.1
"""A GPU that can hold less of a model than this is not worth the trouble."""

_RAM_BANDWIDTH = 50e9
"""Bytes a second where it is not known: two channels of DDR4-3200."""
_VRAM_READS, _LEAST_VRAM_BANDWIDTH = 30.0, 150e9
"""The same for a graphics card: cards can read all they hold about so many times a second, or more."""
_EFFICIENCY = 0.7
"""Part of the bandwidth that a pass makes use of."""
_GPU_PASS_S = 2.5e-3
"""What a pass on a GPU takes beside reading: starting some hundred kernels, and the answer's way back."""

_BITS = {
    "Q2_K": 3.0,
    "Q3_K_S": 3.5,
    "Q3_K_M": 3.9,
    "Q3_K_L": 4.3,
    "IQ4_XS": 4.4,
    "Q4_0": 4.6,
    "IQ4_NL": 4.6,
    "MXFP4": 4.7,
    "Q4_K_S": 4.7,
    "Q4_K_M": 4.9,
    "Q4_1": 5.1,
    "Q5_0": 5.6,
    "Q5_K_S": 5.6,
    "Q5_K_M": 5.7,
    "Q6_K": 6.6,
    "Q8_0": 8.5,
    "F16": 16.0,
    "BF16": 16.0,
    "F32": 32.0,
}
"""Bits a weight of whole files, in which some tensors have more than the name says."""
_USUAL_BITS = 4.9


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a machine has.

    Attributes:
        ram: bytes of system memory, in total.
        vram: bytes of all GPUs together, in total.
        gpus: how many they are.
        shared: whether the GPUs' memory is the system's.
        ram_bandwidth: bytes a second of the system's memory that the CPU can use, None where it is not known.
        vram_bandwidth: bytes a second of the slowest GPU's memory, None where it is not known.
    """

    ram: int
    vram: int = 0
    gpus: int = 0
    shared: bool = False
    ram_bandwidth: float | None = None
    vram_bandwidth: float | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """A model for a machine.

    Attributes:
        entry: the model.
        place: where its layers go: all on the GPU, on both, or all on the CPU.
        context: tokens of context that it was chosen for.
        tokens_per_second: expected speed without drafts, None where the machine's bandwidth is not known.
        reason: why it was chosen, one sentence for users.
        suits: whether it fits and is quick enough; False where nothing does and it is only the smallest.
        fits: whether there is room for it at all.
    """

    entry: ModelEntry
    place: Place
    context: int
    tokens_per_second: float | None
    reason: str
    suits: bool = True
    fits: bool = True


def estimated_bytes(entry: ModelEntry) -> int:
    """Size of a model's file: as stated, else by count of weights and quantization; 0 if nothing is known."""
    if entry.size is not None:
        return entry.size
    return int(entry.shape.weights * _bits(entry.quantization) / 8) if entry.shape else 0


def choose(family: Family, capacity: Capacity) -> Choice:
    """The size of `family` for a machine; the smallest, with a sentence on it, where none suits."""
    return _pick(family, capacity)[0]


def alone(entry: ModelEntry, capacity: Capacity) -> Choice:
    """How one model would run on a machine, whether it suits or not."""
    return choose(Family(entry.name, sizes=(entry,)), capacity)


def best(catalogue: Catalogue, capacity: Capacity) -> Choice | None:
    """The best of what `choose` takes of each recommended family; None where there is no such family.

    Of much the same size and speed the family that comes first in the catalogue is taken.
    """
    picked = [_pick(family, capacity) for family in catalogue.families.values() if family.recommended]
    most = max((one.worth for choice, one in picked if choice.suits), default=0.0)
    for choice, one in picked:
        if choice.suits and one.worth >= most * _MUCH_THE_SAME:
            return choice
    return min((choice for choice, _ in picked), key=lambda choice: _weights(choice.entry), default=None)


def _pick(family: Family, capacity: Capacity) -> tuple[Choice, _Placed]:
    """What is chosen, and the default file of its size."""
    placed = [_Placed.of(entry, capacity) for entry in family.sizes]
    one = max(placed, key=lambda each: each.worth)
    if one.worth == 0:
        smallest = placed[-1]
        choice = smallest.choice(_warning(smallest, capacity))
        return replace(choice, suits=False, fits=smallest.fits), smallest
    better = max(_better(one, family, capacity), key=lambda other: other.bytes, default=one)
    return better.choice(_reason(better, capacity, one)), one


@dataclass(frozen=True, slots=True)
class _Placed:
    """A model on a machine: `bytes` of its file, whether and where it `fits`, and tokens a second."""

    entry: ModelEntry
    bytes: int
    needed: int
    place: Place
    fits: bool
    speed: float
    known: bool

    @staticmethod
    def of(entry: ModelEntry, capacity: Capacity) -> _Placed:
        size = estimated_bytes(entry)
        kept = (entry.shape.cache_bytes if entry.shape else 0) * _context(entry)
        needed = size + kept + _BUFFERS
        on_gpu = _gpu_room(capacity)
        on_cpu = _ram_room(capacity.ram)
        share = min(max(on_gpu - _BUFFERS, 0) / max(size + kept, 1), 1.0)
        place: Place = "gpu" if share == 1 else "both" if share >= _SMALLEST_SHARE else "cpu"
        if place == "cpu":
            share = 0.0
        if capacity.shared or place == "cpu":
            fits = needed <= on_cpu
        else:
            fits = place == "gpu" or needed + _BUFFERS <= on_gpu + on_cpu
        speed, known = _speed(entry, size, share, capacity)
        return _Placed(entry, size, needed, place, fits, speed, known)

    @property
    def worth(self) -> float:
        """What decides between models: size and speed; 0 for one that does not suit."""
        speed = self.speed / (_THINKING_COSTS if self.entry.thinking == "always" else 1.0)
        if not self.fits or speed < SLOWEST:
            return 0.0
        return max(_weights(self.entry), 1) * math.pow(min(speed, FASTEST), _SPEED_COUNTS)

    def choice(self, reason: str) -> Choice:
        speed = self.speed if self.known else None
        return Choice(self.entry, self.place, _context(self.entry), speed, reason)


def _better(default: _Placed, family: Family, capacity: Capacity) -> Iterator[_Placed]:
    """Better quantizations of a model that lies on the GPU, which do so too and are quick."""
    if default.place != "gpu":
        return
    room = _ram_room(capacity.ram) if capacity.shared else math.inf
    for entry in family.files.get(default.entry.name, ()):
        one = _Placed.of(entry, capacity)
        larger = one.bytes > default.bytes and _bits(entry.quantization) <= _BITS["Q8_0"]
        has_room = one.needed + _DRAFT_MODEL <= min(_gpu_room(capacity), room)
        if larger and has_room and one.speed >= SLOWEST_BETTER:
            yield one


def _speed(entry: ModelEntry, size: int, share: float, capacity: Capacity) -> tuple[float, bool]:
    """Tokens a second with so much of the weights on the GPU, and whether they rest on known bandwidths."""
    used = size * (entry.shape.active / entry.shape.weights if entry.shape else 1.0)
    ram, vram = capacity.ram_bandwidth, capacity.vram_bandwidth
    if capacity.shared:
        vram = vram or ram
    usual = max(_VRAM_READS * capacity.vram / max(capacity.gpus, 1), _LEAST_VRAM_BANDWIDTH)
    usual = _RAM_BANDWIDTH if capacity.shared else usual
    seconds = used * share / (vram or usual) + used * (1 - share) / (ram or _RAM_BANDWIDTH)
    known = (share == 0 or vram is not None) and (share == 1 or ram is not None)
    beside = _GPU_PASS_S if share else 0.0
    return 1 / max(seconds / _EFFICIENCY + beside, 1e-9), known


def _context(entry: ModelEntry) -> int:
    return min(entry.context or DEFAULT_CONTEXT, DEFAULT_CONTEXT)


def _gpu_room(capacity: Capacity) -> int:
    return max(capacity.vram - capacity.gpus * GPU_RESERVE, 0) if capacity.gpus else 0


def _ram_room(ram: int) -> int:
    return max(ram - min(max(ram * 3 // 8, _LEAST_FOR_SYSTEM), _MOST_FOR_SYSTEM), 0)


def _weights(entry: ModelEntry) -> int:
    return entry.shape.weights if entry.shape else 0


def _bits(quantization: str) -> float:
    """Bits a weight; of variants such as UD-Q4_K_XL those of the nearest kind that is known."""
    name = quantization.upper()
    if name in _BITS:
        return _BITS[name]
    kind = re.search(r"(?:I?Q|TQ|F|BF)\d+", name)
    alike = [bits for known, bits in _BITS.items() if kind and known.startswith(kind[0].removeprefix("I"))]
    return max(alike, default=_USUAL_BITS)


# --- words


def _label(one: _Placed) -> str:
    name = " ".join(part for part in (one.entry.name.partition(":")[0], one.entry.quantization) if part)
    return f"{name} ({readable_size(one.bytes)})"


def _reason(one: _Placed, capacity: Capacity, default: _Placed) -> str:
    ram, vram = _memory(capacity.ram), _memory(capacity.vram)
    speed = f", about {one.speed:.0f} tokens/s" if one.known else ""
    if one.place == "gpu":
        where = f"this machine's {vram} of GPU memory"
        if capacity.shared:
            where = f"the {ram} of memory that this machine's GPU shares"
        also = "" if one is default else f", in a better quantization than {default.entry.quantization}"
        return f"{_label(one)} fits {where}{also}."
    if one.place == "both":
        return (
            f"{_label(one)} does not fit the {vram} of GPU memory as a whole, and is fast enough with a part "
            f"of it on the CPU{speed}."
        )
    return f"{_label(one)} fits this machine's {ram} of memory, and is fast enough on its CPU{speed}."


def _warning(one: _Placed, capacity: Capacity) -> str:
    if one.fits:
        return f"{_label(one)} is the smallest one, and even that will be slow on this machine."
    memory, room = f"{_memory(capacity.ram)} of memory", _ram_room(capacity.ram)
    if capacity.gpus and not capacity.shared:
        memory += f" and {_memory(capacity.vram)} of GPU memory"
        room += _gpu_room(capacity)
    left = f"about {readable_size(room)}" if room else "nothing"
    short = f"it takes {readable_size(one.needed)}, and the system leaves {left} of this machine's {memory}"
    return f"{_label(one)} is the smallest one, and it may not fit: {short}."


def _memory(count: int) -> str:
    """Memory as it is sold: "8 GB" for a card that says 8188 MiB."""
    gib = count / 2**30
    return f"{gib:.0f} GB" if gib >= 1.5 else f"{gib:.1f} GB"
