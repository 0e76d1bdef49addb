"""What `localspec doctor` looks at, gathered into plain values."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from localspec import paths
from localspec.diagnosis.graphics import Graphics, look_at_graphics, run_tool
from localspec.errors import LocalspecError

if TYPE_CHECKING:
    from localspec.runtime.devices import Device


@dataclass(frozen=True, slots=True)
class Library:
    """llama.cpp as it is installed.

    Attributes:
        devices: as ggml sees them.
        backend: the one that computes, "none" where it cannot be loaded.
        features: what it was built with.
        version: of ggml, and the commit of llama.cpp.
        error: why it cannot be loaded, "" if it can.
    """

    devices: tuple[Device, ...] = ()
    backend: str = "none"
    features: Mapping[str, str] = field(default_factory=dict)
    version: str | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Machine:
    """What decides how fast models run here.

    Attributes:
        devices: as ggml sees them.
        backend: the one that computes.
        features: what llama.cpp was built with.
        cpu_flags: what the CPU has, lowercase; empty where the system does not tell.
        cores: physical cores that this process may use.
        memory_free, memory_total: RAM in bytes.
        on_battery: None without a battery.
        emulated: whether the processor is imitated by another kind.
        library_error: why llama.cpp cannot be loaded, "" if it can.
        graphics: GPUs, their drivers and tools, whether llama.cpp uses them or not.
        system: "Linux", "Darwin" or "Windows".
        architecture: such as "x86_64" or "arm64".
        container: kind of container that this runs in, "" outside of one.
        wsl: whether this is Linux within Windows.
        compiler: whether there is a C++ compiler.
        checkout: whether `make` installed this, in a checkout.
        all_cores: physical cores of the machine, also those that this process may not use.
    """

    devices: tuple[Device, ...]
    backend: str
    features: Mapping[str, str]
    cpu_flags: frozenset[str]
    cores: int
    memory_free: int
    memory_total: int
    on_battery: bool | None
    emulated: bool
    library_error: str = ""
    graphics: Graphics = field(default_factory=Graphics)
    system: str = "Linux"
    architecture: str = "x86_64"
    container: str = ""
    wsl: bool = False
    compiler: bool = True
    checkout: bool = False
    all_cores: int = 0

    @property
    def gpus(self) -> tuple[Device, ...]:
        """GPUs that llama.cpp uses."""
        return tuple(device for device in self.devices if device.kind in ("gpu", "igpu"))


@dataclass(frozen=True, slots=True)
class Place:
    """A folder of localspec; `problem` is "" if it can be used."""

    path: Path
    free_bytes: int
    problem: str


def look_at_library() -> Library:
    """llama.cpp's libraries, loaded into this process; those that cannot be are told by `error`."""
    from localspec.runtime import devices

    try:
        devices.silence()
        return Library(
            devices=tuple(devices.devices()),
            backend=devices.backend_name(),
            features=devices.system_info(),
            version=devices.llama_version(),
        )
    except LocalspecError as error:
        return Library(error=str(error))


def look_at_machine(library: Library | None = None) -> Machine:
    """Gather what decides about speed.

    Args:
        library: llama.cpp, where it was looked at already; None loads it into this process.
    """
    import psutil

    from localspec.runtime.cores import physical_cores

    library = library or look_at_library()
    memory = psutil.virtual_memory()
    cpu_info = _read(Path("/proc/cpuinfo"))
    cores = physical_cores()
    return Machine(
        devices=library.devices,
        backend=library.backend,
        features=library.features,
        cpu_flags=_cpu_flags(cpu_info),
        cores=cores,
        memory_free=memory.available,
        memory_total=memory.total,
        on_battery=_on_battery(),
        emulated=_is_emulated(cpu_info),
        library_error=library.error,
        graphics=look_at_graphics(),
        system=platform.system(),
        architecture=platform.machine(),
        container=_container(),
        wsl="microsoft" in platform.release().lower(),
        compiler=any(run_tool(name, "--version") is not None for name in _compilers()),
        checkout=(Path(__file__).parents[2] / "scripts" / "setup_env.py").is_file(),
        all_cores=psutil.cpu_count(logical=False) or cores,
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


def _compilers() -> tuple[str, ...]:
    own = os.environ.get("CXX", "").split(" ")[0]
    return tuple(name for name in (own, "c++", "g++", "clang++", "cl") if name)


def _cpu_flags(cpu_info: str) -> frozenset[str]:
    for line in cpu_info.splitlines():
        name, _, value = line.partition(":")
        if name.strip().lower() in ("flags", "features"):
            return frozenset(value.lower().split())
    return frozenset()


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


def _container() -> str:
    """Kind of container by the marks that their engines leave."""
    if Path("/.dockerenv").exists():
        return "docker"
    if Path("/run/.containerenv").exists():
        return "podman"
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return "kubernetes"
    return os.environ.get("container", "")  # noqa: SIM112 - systemd writes it in lowercase
