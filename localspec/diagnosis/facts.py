"""What `localspec doctor` looks at, gathered into plain values."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from localspec import paths
from localspec.errors import LocalspecError

if TYPE_CHECKING:
    from localspec.runtime.devices import Device


@dataclass(frozen=True, slots=True)
class Machine:
    """What decides how fast models run here.

    Attributes:
        devices: as ggml sees them.
        backend: the one that computes.
        features: what llama.cpp was built with.
        cpu_flags: what the CPU has, lowercase; empty where the system does not tell.
        nvidia_gpus: names by the driver's own tool; None without that tool, empty if it fails.
        has_vulkan: whether a Vulkan driver is installed.
        cores: physical cores that this process may use.
        memory_free, memory_total: RAM in bytes.
        on_battery: None without a battery.
        emulated: whether the processor is imitated by another kind.
        library_error: why llama.cpp cannot be loaded, "" if it can.
    """

    devices: tuple[Device, ...]
    backend: str
    features: Mapping[str, str]
    cpu_flags: frozenset[str]
    nvidia_gpus: tuple[str, ...] | None
    has_vulkan: bool
    cores: int
    memory_free: int
    memory_total: int
    on_battery: bool | None
    emulated: bool
    library_error: str = ""


@dataclass(frozen=True, slots=True)
class Terminal:
    """What the terminal can do; `colors` is 0 without any."""

    interactive: bool
    kind: str
    columns: int
    rows: int
    colors: int
    unicode: bool


@dataclass(frozen=True, slots=True)
class Place:
    """A folder of localspec; `problem` is "" if it can be used."""

    path: Path
    free_bytes: int
    problem: str


def look_at_machine() -> Machine:
    """Gather what decides about speed; a broken llama.cpp is told by `library_error`."""
    import psutil

    from localspec.runtime import devices

    found: tuple[Device, ...] = ()
    backend, features, problem = "none", dict[str, str](), ""
    try:
        devices.silence()
        found = tuple(devices.devices())
        backend, features = devices.backend_name(), devices.system_info()
    except LocalspecError as error:
        problem = str(error)
    memory = psutil.virtual_memory()
    cpu_info = _read(Path("/proc/cpuinfo"))
    return Machine(
        devices=found,
        backend=backend,
        features=features,
        cpu_flags=_cpu_flags(cpu_info),
        nvidia_gpus=_nvidia_gpus(),
        has_vulkan=shutil.which("vulkaninfo") is not None,
        cores=devices.physical_cores(),
        memory_free=memory.available,
        memory_total=memory.total,
        on_battery=_on_battery(),
        emulated=_is_emulated(cpu_info),
        library_error=problem,
    )


def look_at_terminal() -> Terminal:
    """What standard output is connected to."""
    size = shutil.get_terminal_size()
    encoding = (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "")
    return Terminal(
        interactive=sys.stdout.isatty(),
        kind=os.environ.get("TERM", ""),
        columns=size.columns,
        rows=size.lines,
        colors=_colors(os.environ),
        unicode=encoding == "utf8",
    )


def look_at_places() -> dict[str, Place]:
    """Every folder of localspec; none is created."""
    folders = {
        "config": paths.config_dir(),
        "data": paths.data_dir(),
        "cache": paths.cache_dir(),
        "log": paths.log_dir(),
    }
    return {name: look_at_place(folder) for name, folder in folders.items()}


def look_at_place(folder: Path) -> Place:
    """Whether a folder can be used or made, and the space there."""
    nearest = next((path for path in (folder, *folder.parents) if os.path.lexists(path)), folder)
    if not nearest.is_dir():
        return Place(folder, 0, f"{nearest} is not a folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        return Place(folder, 0, f"{nearest} may not be written")
    return Place(folder, shutil.disk_usage(nearest).free, "")


def installed_version(package: str) -> str | None:
    """Version of an installed package, None without it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _cpu_flags(cpu_info: str) -> frozenset[str]:
    for line in cpu_info.splitlines():
        name, _, value = line.partition(":")
        if name.strip().lower() in ("flags", "features"):
            return frozenset(value.lower().split())
    return frozenset()


def _nvidia_gpus() -> tuple[str, ...] | None:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    command = [tool, "--query-gpu=name", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(line.strip() for line in answer.stdout.splitlines() if line.strip())


def _on_battery() -> bool | None:
    import psutil

    try:
        battery = psutil.sensors_battery()
    except (AttributeError, OSError, RuntimeError):
        return None
    if battery is None or battery.power_plugged is None:
        return None
    return not battery.power_plugged


def _is_emulated(cpu_info: str) -> bool:
    machine = platform.machine().lower()
    if machine not in ("x86_64", "amd64"):
        return False
    if sys.platform == "darwin":
        return _sysctl("sysctl.proc_translated") == "1"
    if sys.platform == "win32":
        return "arm" in os.environ.get("PROCESSOR_IDENTIFIER", "").lower()
    # An x86 container on an ARM machine sees that machine's description, or Apple's translator.
    return "CPU implementer" in cpu_info or "VirtualApple" in cpu_info


def _sysctl(name: str) -> str:
    try:
        answer = subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout.strip()


def _colors(environment: Mapping[str, str]) -> int:
    """Colours that the terminal announces."""
    kind = environment.get("TERM", "")
    if kind == "dumb":
        return 0
    if environment.get("COLORTERM", "").lower() in ("truecolor", "24bit") or "WT_SESSION" in environment:
        return 1 << 24
    if "256color" in kind:
        return 256
    return 16 if kind or sys.platform == "win32" else 0
