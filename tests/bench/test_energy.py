"""Energy counters: a made powercap tree, and a double of NVML."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from localspec.bench.energy import EnergyMeter, NvmlSource, RaplSource, find_sources


def zone(root: Path, folder: str, name: str, microjoules: int, limit: int = 262_143_328_850) -> Path:
    where = root / folder
    where.mkdir(parents=True)
    (where / "name").write_text(name + "\n")
    (where / "energy_uj").write_text(f"{microjoules}\n")
    (where / "max_energy_range_uj").write_text(f"{limit}\n")
    return where / "energy_uj"


def rapl(root: Path) -> EnergyMeter:
    source = RaplSource.open(root)
    assert source is not None
    return EnergyMeter([source])


def test_packages_and_their_memory_are_summed(tmp_path: Path) -> None:
    package = zone(tmp_path, "intel-rapl:0", "package-0", 1_000_000)
    memory = zone(tmp_path, "intel-rapl:0:1", "dram", 500_000)
    second = zone(tmp_path, "intel-rapl:1", "package-1", 0)
    others = [
        zone(tmp_path, "intel-rapl:0:0", "core", 0),
        zone(tmp_path, "intel-rapl:2", "psys", 0),
        zone(tmp_path, "intel-rapl-mmio:0", "package-0", 0),
    ]
    meter = rapl(tmp_path)
    assert meter.source == "RAPL"
    meter.start()
    package.write_text("4000000\n")
    memory.write_text("750000\n")
    second.write_text("10\n")
    for other in others:
        other.write_text("99000000\n")
    assert meter.stop() == pytest.approx(3.25001)


def test_a_counter_that_starts_again(tmp_path: Path) -> None:
    package = zone(tmp_path, "intel-rapl:0", "package-0", 9_000_000, limit=10_000_000)
    meter = rapl(tmp_path)
    meter.start()
    package.write_text("500000\n")
    assert meter.stop() == pytest.approx(1.5)


def test_a_counter_that_is_lost_or_makes_no_sense(tmp_path: Path) -> None:
    package = zone(tmp_path, "intel-rapl:0", "package-0", 9_000_000, limit=0)
    meter = rapl(tmp_path)
    meter.start()
    package.write_text("1\n")
    assert meter.stop() is None
    meter.start()
    package.write_text("not a number\n")
    assert meter.stop() is None
    meter.start()
    package.unlink()
    assert meter.stop() is None


def test_a_stop_without_a_start(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0", 0)
    meter = rapl(tmp_path)
    assert meter.stop() is None
    meter.start()
    assert meter.stop() == 0
    assert meter.stop() is None


def test_nothing_to_read(tmp_path: Path) -> None:
    assert RaplSource.open(tmp_path / "missing") is None
    zone(tmp_path, "intel-rapl:0", "package-0", 0).unlink()
    zone(tmp_path, "intel-rapl:0:0", "core", 0)
    assert RaplSource.open(tmp_path) is None
    meter = EnergyMeter([])
    meter.start()
    assert meter.stop() is None
    assert meter.source is None


class Nvml(ModuleType):
    """The part of `pynvml` that is used, with three GPUs, the last one without a counter."""

    class NVMLError(Exception):
        """As the original's."""

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.millijoules = [5_000, 7_000]
        self.broken = False

    def nvmlInit(self) -> None:  # noqa: N802
        if self.broken:
            raise self.NVMLError

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 3

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:  # noqa: N802
        if handle >= len(self.millijoules):
            raise self.NVMLError
        return self.millijoules[handle]


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    double = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", double)
    return double


def test_gpus_are_summed_and_come_first(nvml: Nvml, tmp_path: Path) -> None:
    package = zone(tmp_path, "intel-rapl:0", "package-0", 0)
    meter = EnergyMeter(find_sources(tmp_path))
    assert meter.source == "NVML + RAPL"
    meter.start()
    nvml.millijoules = [6_500, 7_250]
    package.write_text("250000\n")
    assert meter.stop() == pytest.approx(2.0)


def test_gpus_without_counters_or_driver(nvml: Nvml) -> None:
    meter = EnergyMeter([found for found in [NvmlSource.open()] if found])
    meter.start()
    nvml.millijoules.pop()
    assert meter.stop() is None
    nvml.millijoules = []
    assert NvmlSource.open() is None
    nvml.broken = True
    assert NvmlSource.open() is None


def test_this_machine() -> None:
    meter = EnergyMeter()
    meter.start()
    joules = meter.stop()
    assert (joules is None) == (meter.source is None)
