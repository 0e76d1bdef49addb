"""Energy counters of the machine: NVIDIA's GPUs, and the processor where Linux lets us read them.

They count whole devices, whatever runs on them, and are updated 10 to 50 times a second: for a run of several
seconds on a machine that does nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

_POWERCAP = Path("/sys/class/powercap")


class EnergySource(Protocol):
    """Counters that grow. Attributes: name: who counts."""

    name: str

    def read(self) -> Mapping[str, int]:
        """Microjoules by counter; one that cannot be read now is left out."""

    def range_of(self, counter: str) -> int:
        """Value after which the counter starts again from 0; 0 for one that does not."""


class EnergyMeter:
    """Joules between `start` and `stop`, over all devices that count them.

    Args:
        sources: who counts; None takes what this machine has.
    """

    def __init__(self, sources: Sequence[EnergySource] | None = None) -> None:
        self._sources = list(find_sources() if sources is None else sources)
        self._before: list[Mapping[str, int]] = []

    @property
    def source(self) -> str | None:
        """Who counts, such as "NVML" or "NVML + RAPL"; None where nobody does."""
        return " + ".join(source.name for source in self._sources) or None

    def start(self) -> None:
        """Begin an interval; one that was begun before is forgotten."""
        self._before = [source.read() for source in self._sources]

    def stop(self) -> float | None:
        """Joules since `start`; None without it, without counters, or when one of them was lost meanwhile.

        A counter that starts again from 0 is understood once in an interval: at 200 W that takes 20 minutes
        or more.
        """
        before, self._before = self._before, []
        if not before:
            return None
        total = 0
        for source, then in zip(self._sources, before, strict=True):
            now = source.read()
            if now.keys() != then.keys() or not now:
                return None
            for counter, value in now.items():
                grown = value - then[counter]
                if grown < 0:
                    grown += source.range_of(counter)
                if grown < 0:
                    return None
                total += grown
        return total * 1e-6


def find_sources(powercap: Path = _POWERCAP) -> list[EnergySource]:
    """Counters that can be read here, GPUs first."""
    found = (NvmlSource.open(), RaplSource.open(powercap))
    return [source for source in found if source is not None]


class NvmlSource:
    """The board energy of every NVIDIA GPU (Volta and newer), by the optional `nvidia-ml-py`."""

    name = "NVML"

    def __init__(self, nvml: Any, handles: Mapping[str, Any]) -> None:
        self._nvml = nvml
        self._handles = handles

    @classmethod
    def open(cls) -> NvmlSource | None:
        """None without the package, a driver, or a GPU that counts. NVML stays open with the process."""
        try:
            import pynvml
        except ImportError:
            return None
        try:
            pynvml.nvmlInit()
            count = pynvml.nvmlDeviceGetCount()
            handles = {f"gpu{index}": pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)}
        except pynvml.NVMLError:
            return None
        every = cls(pynvml, handles)
        counting = {counter: handles[counter] for counter in every.read()}
        return cls(pynvml, counting) if counting else None

    def read(self) -> Mapping[str, int]:
        """See `EnergySource.read`."""
        values = {}
        for counter, handle in self._handles.items():
            try:
                values[counter] = 1000 * int(self._nvml.nvmlDeviceGetTotalEnergyConsumption(handle))
            except self._nvml.NVMLError:
                continue
        return values

    def range_of(self, counter: str) -> int:  # noqa: ARG002 - the protocol's argument
        """64 bits of millijoules do not run over."""
        return 0


class RaplSource:
    """Processor packages and their memory, by Linux's powercap (Intel's and AMD's RAPL); mostly root's alone.

    Other zones are left out: cores are part of their package, "psys" is the whole platform, packages
    included, and `intel-rapl-mmio` counts the packages a second time.
    """

    name = "RAPL"

    def __init__(self, zones: Mapping[str, Path], ranges: Mapping[str, int]) -> None:
        self._zones = zones
        self._ranges = ranges

    @classmethod
    def open(cls, root: Path = _POWERCAP) -> RaplSource | None:
        """None where there are no counters, or none that may be read."""
        zones: dict[str, Path] = {}
        ranges: dict[str, int] = {}
        for folder in sorted(root.glob("intel-rapl:*")):
            name = _text(folder / "name")
            limit = _number(folder / "max_energy_range_uj")
            counts = name.startswith("package") or name == "dram"
            if counts and limit is not None and _number(folder / "energy_uj") is not None:
                zones[folder.name] = folder / "energy_uj"
                ranges[folder.name] = limit
        return cls(zones, ranges) if zones else None

    def read(self) -> Mapping[str, int]:
        """See `EnergySource.read`."""
        values = {counter: _number(file) for counter, file in self._zones.items()}
        return {counter: value for counter, value in values.items() if value is not None}

    def range_of(self, counter: str) -> int:
        """As the kernel says."""
        return self._ranges[counter]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text.isdigit() else None
