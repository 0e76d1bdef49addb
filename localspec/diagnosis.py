"""What `localspec doctor` looks at, and what it makes of it.

Facts are gathered into plain values first; the findings are functions of those values alone.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from localspec import __version__, paths
from localspec.errors import LocalspecError
from localspec.models.disk import readable_size

if TYPE_CHECKING:
    from localspec.runtime.devices import Device

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


@dataclass(frozen=True, slots=True)
class Report:
    """Facts by section, and the findings, worst first."""

    sections: dict[str, dict[str, Any]]
    findings: tuple[Finding, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON: a key a section, and "findings" as a list of {"level", "text"}."""
        sections = {title.lower(): facts for title, facts in self.sections.items()}
        return {**sections, "findings": [asdict(finding) for finding in self.findings]}


def examine() -> Report:
    """Look at everything; never raises for a broken installation, but reports it."""
    machine, terminal, places = look_at_machine(), look_at_terminal(), look_at_places()
    models, model_findings = _models()
    findings = [
        *machine_findings(machine),
        *terminal_findings(terminal),
        *place_findings(places),
        *model_findings,
    ]
    order = {"error": 0, "slow": 1, "note": 2}
    return Report(
        sections={
            "Versions": _versions(machine),
            "Compute": _compute(machine),
            "Places": {name: str(place.path) for name, place in places.items()},
            "Models": models,
            "Terminal": {
                "interactive": terminal.interactive,
                "kind": terminal.kind,
                "size": f"{terminal.columns}x{terminal.rows}",
                "colors": terminal.colors,
                "unicode": terminal.unicode,
            },
        },
        findings=tuple(sorted(findings, key=lambda finding: order[finding.level])),
    )


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
    version = _installed("llama-cpp-python")
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
    return {name: _place(folder) for name, folder in folders.items()}


def _place(folder: Path) -> Place:
    nearest = next((path for path in (folder, *folder.parents) if os.path.lexists(path)), folder)
    if not nearest.is_dir():
        return Place(folder, 0, f"{nearest} is not a folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        return Place(folder, 0, f"{nearest} may not be written")
    return Place(folder, shutil.disk_usage(nearest).free, "")


def _models() -> tuple[dict[str, Any], list[Finding]]:
    from localspec.models import registry, store

    try:
        known = registry.entries()
    except LocalspecError as error:
        return {}, [Finding("error", str(error))]
    here = [entry.name for entry in known.values() if store.fetched(entry)]
    default = known.get(registry.DEFAULT_MODEL)
    findings = []
    if default is not None and default.name not in here:
        size = f" ({readable_size(default.size)})" if default.size else ""
        findings.append(
            Finding("note", f"The default model {default.name}{size} is fetched by the first chat.")
        )
    place = _place(store.models_dir())
    facts = {"known": len(known), "fetched": here, "folder": str(place.path)}
    if not place.problem:
        facts["free_space"] = readable_size(place.free_bytes)
    return facts, findings


def _versions(machine: Machine) -> dict[str, Any]:
    from localspec.runtime import devices

    return {
        "localspec": __version__,
        "python": f"{platform.python_version()} ({sys.executable})",
        "llama-cpp-python": _installed("llama-cpp-python"),
        "llama.cpp": None if machine.library_error else devices.llama_version(),
        "textual": _installed("textual"),
        "huggingface-hub": _installed("huggingface-hub"),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }


def _compute(machine: Machine) -> dict[str, Any]:
    from localspec.runtime import devices

    facts: dict[str, Any] = {"backend": machine.backend}
    for device in machine.devices:
        memory = f"{readable_size(device.free_bytes)} of {readable_size(device.total_bytes)} free"
        # The CPU's memory is the system's, shown below; ggml calls all of it free.
        told = f", {memory}" if device.total_bytes and device.kind != "cpu" else ""
        facts[device.name] = f"{device.description} ({device.backend}, {device.kind}){told}"
    for number, gpu in enumerate(devices.gpu_activity()):
        power = f", {gpu.power_watts:.0f} W" if gpu.power_watts is not None else ""
        facts[f"activity {number}"] = f"{gpu.name}: {gpu.utilization} % busy{power} (nvml)"
    facts["cores"] = machine.cores
    facts["memory"] = f"{readable_size(machine.memory_free)} of {readable_size(machine.memory_total)} free"
    facts["built with"] = [name for name, value in machine.features.items() if value == "1"]
    return facts


def _installed(package: str) -> str | None:
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
