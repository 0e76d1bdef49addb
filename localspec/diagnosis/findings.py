"""What the facts mean: one sentence for each thing that is broken, slow or worth knowing."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from localspec.diagnosis.facts import Machine, Place, Terminal, installed_version
from localspec.models.disk import readable_size

Level = Literal["error", "slow", "note"]

_SMALLEST_TERMINAL = (60, 20)
_LITTLE_MEMORY = 1_500_000_000
_FEW_CORES = 4
# Flags of the CPU, and llama.cpp's names of the same; without one of these a build is several times slower.
_CPU_FEATURES = {"avx": "AVX", "avx2": "AVX2", "fma": "FMA", "f16c": "F16C", "asimddp": "DOTPROD"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence on what is broken (error), what costs speed (slow), or what is worth knowing (note)."""

    level: Level
    text: str


def machine_findings(machine: Machine) -> Iterator[Finding]:
    """What the machine's hardware and the build of llama.cpp mean for speed."""
    if machine.library_error:
        yield Finding("error", machine.library_error)
        return
    gpus = [device for device in machine.devices if device.kind in ("gpu", "igpu")]
    if not gpus:
        yield from _unused_gpu(machine)
    missing = [
        name
        for flag, name in _CPU_FEATURES.items()
        if flag in machine.cpu_flags and machine.features.get(name) != "1"
    ]
    if missing:
        names = " and ".join(missing)
        yield Finding(
            "slow",
            f"llama.cpp was built without {names}, which this CPU has; rebuild it here: {_rebuild('')}",
        )
    if machine.emulated:
        yield Finding(
            "slow",
            "This Python runs on an emulated processor; install one that is built for this machine's own.",
        )
    if machine.on_battery:
        yield Finding("slow", "The machine runs on battery, which often halves the speed; plug it in.")
    if not gpus and machine.cores < _FEW_CORES:
        cores = "1 core" if machine.cores == 1 else f"{machine.cores} cores"
        yield Finding(
            "note", f"This process may use {cores}; models of up to about 2B parameters stay comfortable."
        )
    if machine.memory_free < _LITTLE_MEMORY:
        yield Finding(
            "slow",
            f"Only {readable_size(machine.memory_free)} of RAM are free; close other programs, or choose a "
            "small model.",
        )
    for gpu in gpus:
        if gpu.total_bytes and gpu.free_bytes < gpu.total_bytes // 4:
            yield Finding(
                "slow",
                f"{gpu.name} has {readable_size(gpu.free_bytes)} of {readable_size(gpu.total_bytes)} free; "
                "close what uses it, or fewer layers will fit.",
            )


def _unused_gpu(machine: Machine) -> Iterator[Finding]:
    if machine.nvidia_gpus:
        names = ", ".join(machine.nvidia_gpus)
        yield Finding(
            "slow",
            f"llama.cpp does not use the GPU ({names}): it was built for the CPU; rebuild it with the CUDA "
            f"toolkit installed: {_rebuild('-DGGML_CUDA=on')}",
        )
    elif machine.nvidia_gpus is not None:
        yield Finding("slow", "nvidia-smi is here but fails; repair the NVIDIA driver to use the GPU.")
    elif sys.platform == "darwin" and platform.machine() == "arm64":
        yield Finding(
            "slow",
            f"llama.cpp was built without Metal; rebuild it: {_rebuild('-DGGML_METAL=on')}",
        )
    elif machine.has_vulkan:
        yield Finding(
            "note",
            "A Vulkan driver is installed; if this machine has a GPU, rebuild llama.cpp with the Vulkan SDK "
            f"to use it: {_rebuild('-DGGML_VULKAN=on')}",
        )


def _rebuild(options: str) -> str:
    version = installed_version("llama-cpp-python")
    wanted = f"llama-cpp-python=={version}" if version else "llama-cpp-python"
    install = f"{sys.executable} -m pip install --force-reinstall --no-cache-dir --no-deps {wanted}"
    if not options:
        return f"`{install}`"
    if sys.platform == "win32":
        return f'`$env:CMAKE_ARGS="{options}"; {install}`'
    return f"`CMAKE_ARGS={options} {install}`"


def terminal_findings(terminal: Terminal) -> Iterator[Finding]:
    """What the chat would look like here; nothing where the output is not a terminal."""
    if not terminal.interactive:
        return
    if terminal.kind == "dumb":
        yield Finding("note", "TERM is dumb, so `localspec chat` cannot draw; use `localspec run` here.")
        return
    columns, rows = _SMALLEST_TERMINAL
    if terminal.columns < columns or terminal.rows < rows:
        yield Finding(
            "note",
            f"The window has {terminal.columns}x{terminal.rows} characters; {columns}x{rows} are the least.",
        )
    if not terminal.unicode:
        yield Finding("note", "The terminal's encoding is not UTF-8; set LANG to a UTF-8 locale.")
    if terminal.colors < 256:
        yield Finding("note", "The terminal announces few colours; TERM=xterm-256color is usual.")


def place_findings(places: Mapping[str, Place]) -> Iterator[Finding]:
    """Folders that cannot be used."""
    for name, place in places.items():
        if place.problem:
            yield Finding(
                "error",
                f"The {name} folder {place.path} cannot be used ({place.problem}); make it writable or set "
                "LOCALSPEC_HOME to a folder that is.",
            )
