"""What the facts mean: one sentence for each thing that is broken, slow or worth knowing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from localspec.diagnosis.backends import better_backend, rebuild
from localspec.diagnosis.facts import Machine, Place
from localspec.models.disk import readable_size

Level = Literal["error", "slow", "note"]

_LITTLE_MEMORY = 1_500_000_000
_FEW_CORES = 4
# Flags of the CPU, and llama.cpp's names of the same; without one of these a build is several times slower.
_CPU_FEATURES = {"avx": "AVX", "avx2": "AVX2", "fma": "FMA", "f16c": "F16C", "asimddp": "DOTPROD"}

_BATTERY_GAIN, _EMULATED_GAIN, _FEATURES_GAIN, _SWAPPING_GAIN = 1.5, 4.0, 2.5, 3.0
"""Rough, and only to tell what to change first."""

_SLOW_PASS = 2.5
"""Times that its memory traffic takes beyond which a pass of a large model has another trouble."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence on what is broken (error), what costs speed (slow), or what is worth knowing (note).

    Attributes:
        level: which of these.
        text: the sentence.
        gain: how many times faster replies are likely to be once it is changed; 1 where it does not matter.
    """

    level: Level
    text: str
    gain: float = 1.0


@dataclass(frozen=True, slots=True)
class ModelSpeed:
    """How fast a model is here.

    Attributes:
        name: as users call it.
        weight_bytes: that a pass over one token reads.
        pass_ms: T(1) as measured; None where it was not.
        expected_ms: what reading the weights takes at the bandwidth of copying, as far as the cores can make
            use of it; None where not measured.
        widths: T(n) in milliseconds by n, where more than T(1) was measured.
        measured: by what: "calibration" (earlier, by a chat), "doctor" (now), "" for not at all.
    """

    name: str
    weight_bytes: int
    pass_ms: float | None = None
    expected_ms: float | None = None
    widths: Mapping[int, float] | None = None
    measured: str = ""


def change_first(findings: Iterable[Finding]) -> str | None:
    """The one thing to change first: what is broken, else what gains most; None where nothing gains."""
    known = list(findings)
    broken = next((finding for finding in known if finding.level == "error"), None)
    if broken is not None:
        return broken.text
    best = max(known, key=lambda finding: finding.gain, default=None)
    if best is None or best.gain <= 1.0:
        return None
    return f"{best.text} Likely gain: about {best.gain:.2g} times the speed."


def machine_findings(machine: Machine, bandwidth: float | None = None) -> Iterator[Finding]:
    """What the machine's hardware and the build of llama.cpp mean for speed.

    Args:
        machine: the facts.
        bandwidth: of the system's memory in bytes a second, where it was measured.
    """
    if machine.library_error:
        yield Finding("error", machine.library_error)
        return
    yield from _backend(machine, bandwidth)
    yield from _processor(machine)
    if machine.memory_free < _LITTLE_MEMORY:
        yield Finding(
            "slow",
            f"Only {readable_size(machine.memory_free)} of RAM are free; close other programs, or choose a "
            "small model.",
            _SWAPPING_GAIN,
        )
    for gpu in machine.gpus:
        if gpu.total_bytes and gpu.free_bytes < gpu.total_bytes // 4:
            yield Finding(
                "slow",
                f"{gpu.name} has {readable_size(gpu.free_bytes)} of {readable_size(gpu.total_bytes)} free; "
                "close what uses it, or fewer layers will fit.",
                2.0,
            )


def _backend(machine: Machine, bandwidth: float | None) -> Iterator[Finding]:
    graphics = machine.graphics
    if not machine.gpus and graphics.nvidia == ():
        yield Finding("slow", "nvidia-smi is here but fails; repair the NVIDIA driver to use the GPU.", 5.0)
        return
    if not machine.gpus and graphics.nvidia is None and "NVIDIA" in graphics.makers:
        if machine.container:
            what = f"this {machine.container} container cannot use it; start it with `--gpus all`"
        else:
            what = "its driver is not installed; install NVIDIA's driver, then run `localspec doctor` again"
        yield Finding("slow", f"An NVIDIA GPU is here, but {what}.", 5.0)
        return
    upgrade = better_backend(machine, bandwidth)
    if upgrade is not None:
        needs = f"install {upgrade.needs}, then run" if upgrade.needs else "run"
        reason = upgrade.reason[0].upper() + upgrade.reason[1:]
        yield Finding(
            "slow" if upgrade.gain >= 2.0 else "note",
            f"{reason}; to use it through {upgrade.backend}, {needs} `{upgrade.command}`.",
            upgrade.gain,
        )
    elif machine.gpus and graphics.nvidia and len(machine.gpus) < len(graphics.nvidia):
        yield Finding(
            "note",
            f"llama.cpp sees {len(machine.gpus)} of {len(graphics.nvidia)} GPUs; CUDA_VISIBLE_DEVICES "
            "may hide the others.",
        )


def _processor(machine: Machine) -> Iterator[Finding]:
    missing = [
        name
        for flag, name in _CPU_FEATURES.items()
        if flag in machine.cpu_flags and machine.features.get(name) != "1"
    ]
    if missing:
        # With a GPU only the layers that do not fit there are computed by the CPU.
        yield Finding(
            "note" if machine.gpus else "slow",
            f"llama.cpp was built without {' and '.join(missing)}, which this CPU has; rebuild it here: "
            f"`{rebuild(machine)}`",
            1.0 if machine.gpus else _FEATURES_GAIN,
        )
    if machine.emulated:
        yield Finding(
            "slow",
            "This Python runs on an emulated processor; install one that is built for this machine's own.",
            _EMULATED_GAIN,
        )
    if machine.on_battery:
        yield Finding(
            "slow",
            "The machine runs on battery, which often halves the speed; plug it in.",
            _BATTERY_GAIN,
        )
    if not machine.gpus and machine.cores < _FEW_CORES:
        cores = "1 core" if machine.cores == 1 else f"{machine.cores} cores"
        yield Finding(
            "note", f"This process may use {cores}; models of up to about 2B parameters stay comfortable."
        )
    if machine.all_cores >= 2 * machine.cores:
        where = f"This {machine.container} container" if machine.container else "This process"
        yield Finding(
            "note",
            f"{where} may use {machine.cores} of the machine's {machine.all_cores} cores; allow it more "
            "where prompts are slow.",
        )
    if machine.wsl:
        yield Finding(
            "note",
            "WSL gives Linux a part of the machine's memory (half of it by default); `memory=` in "
            ".wslconfig raises it for larger models.",
        )


def speed_findings(speeds: Iterable[ModelSpeed]) -> Iterator[Finding]:
    """Models whose passes take far longer than their memory traffic."""
    for speed in speeds:
        # Small models spend their time elsewhere: on starting kernels, on the vocabulary.
        if not speed.pass_ms or not speed.expected_ms or speed.weight_bytes < 500_000_000:
            continue
        ratio = speed.pass_ms / speed.expected_ms
        if ratio > _SLOW_PASS:
            yield Finding(
                "slow",
                f"A pass of {speed.name} takes {speed.pass_ms:.0f} ms, and reading its weights alone would "
                f"take {speed.expected_ms:.0f} ms; look for other programs at work, power saving or heat, "
                "and try `localspec tune`.",
                ratio / 1.5,
            )


def place_findings(places: Mapping[str, Place]) -> Iterator[Finding]:
    """Folders that cannot be used."""
    for name, place in places.items():
        if place.problem:
            yield Finding(
                "error",
                f"The {name} folder {place.path} cannot be used ({place.problem}); make it writable or set "
                "LOCALSPEC_HOME to a folder that is.",
            )
