"""GPUs by the system's own account, with their drivers and tools: also those that llama.cpp ignores."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

_MAKERS = {"0x10de": "NVIDIA", "0x1002": "AMD", "0x8086": "Intel"}
"""By number on the PCI bus."""

_TOOLS = ("nvcc", "hipcc", "glslc", "icpx")
"""Compilers that a backend is built with."""


@dataclass(frozen=True, slots=True)
class Graphics:
    """What there is to compute on beside the CPU.

    Attributes:
        makers: of the display adapters that the system sees, such as "AMD"; empty where it does not tell.
        nvidia: names by the driver's own tool; None without that tool, empty if it fails.
        nvidia_driver: version of the driver, "" where it is not known.
        cuda: the newest CUDA that the driver runs, such as "12.4"; "" where it is not known.
        rocm: version of AMD's ROCm whose tool sees a GPU, "unknown" where the version is not told, else "".
        vulkan: whether a Vulkan driver is installed.
        tools: those of nvcc, hipcc, glslc and icpx that run.
    """

    makers: tuple[str, ...] = ()
    nvidia: tuple[str, ...] | None = None
    nvidia_driver: str = ""
    cuda: str = ""
    rocm: str = ""
    vulkan: bool = False
    tools: frozenset[str] = frozenset()


def look_at_graphics() -> Graphics:
    """Ask the system and the drivers' tools; takes as long as those, about a tenth of a second."""
    names, driver, cuda = _nvidia()
    return Graphics(
        makers=pci_makers(Path("/sys/bus/pci/devices")),
        nvidia=names,
        nvidia_driver=driver,
        cuda=cuda,
        rocm=_rocm(),
        vulkan=_has_vulkan(),
        tools=frozenset(name for name in _TOOLS if run_tool(name, "--version") is not None),
    )


def run_tool(name: str, *arguments: str) -> str | None:
    """Output of a program; None where it is missing, fails, or takes too long."""
    if shutil.which(name) is None:
        return None
    try:
        answer = subprocess.run(
            [name, *arguments], capture_output=True, text=True, errors="replace", timeout=10, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout if answer.returncode == 0 else None


def pci_makers(bus: Path) -> tuple[str, ...]:
    """Makers of display adapters on Linux's PCI bus, each once."""
    found = set()
    for device in bus.glob("*") if bus.is_dir() else ():
        try:
            kind = (device / "class").read_text(encoding="ascii").strip()
            maker = (device / "vendor").read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            continue
        # 0x03: display controllers; 0x12: accelerators without a display, such as data-centre cards.
        if kind.startswith(("0x03", "0x12")) and maker in _MAKERS:
            found.add(_MAKERS[maker])
    return tuple(sorted(found))


def nvidia_versions(text: str) -> tuple[str, str]:
    """Versions of driver and CUDA in the table that nvidia-smi draws."""
    driver = re.search(r"Driver Version:\s*([\d.]+)", text)
    cuda = re.search(r"CUDA Version:\s*([\d.]+)", text)
    return driver[1] if driver else "", cuda[1] if cuda else ""


def _nvidia() -> tuple[tuple[str, ...] | None, str, str]:
    if shutil.which("nvidia-smi") is None:
        return None, "", ""
    names = run_tool("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
    if names is None:
        return (), "", ""
    driver, cuda = nvidia_versions(run_tool("nvidia-smi") or "")
    return tuple(line.strip() for line in names.splitlines() if line.strip()), driver, cuda


def _rocm() -> str:
    agents = run_tool("rocminfo")
    if agents is None or "gfx" not in agents:
        return ""
    folder = Path(os.environ.get("ROCM_PATH", "/opt/rocm"))
    try:
        return (folder / ".info" / "version").read_text(encoding="ascii").strip() or "unknown"
    except (OSError, ValueError):
        return "unknown"


def _has_vulkan() -> bool:
    if shutil.which("vulkaninfo") is not None:
        return True
    folders = (Path("/usr/share/vulkan/icd.d"), Path("/etc/vulkan/icd.d"))
    # Mesa's drawing on the CPU (lavapipe) is no GPU.
    return any("lvp" not in file.name for folder in folders for file in folder.glob("*.json"))
