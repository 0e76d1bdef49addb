"""Copy bandwidth: the system's memory, and ggml's way on the one device that is here for certain."""

from __future__ import annotations

import psutil
import pytest

from localspec.errors import EngineError
from localspec.runtime import bandwidth, devices
from localspec.runtime.bandwidth import copy_bandwidth, measured_bandwidth

SMALL = 64_000_000


@pytest.fixture
def cpu() -> str:
    """Ggml's name of the CPU."""
    return next(device.name for device in devices.devices() if device.kind == "cpu")


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_systems_memory(threads: int) -> None:
    assert 1e8 < bandwidth._system_bandwidth(threads, SMALL) < 1e13
    assert 1e8 < bandwidth._system_bandwidth(threads, SMALL, busy=True) < 1e13


def test_any_device_by_ggml(cpu: str) -> None:
    assert 1e8 < bandwidth._device_bandwidth(cpu, SMALL) < 1e13


def test_tensors_are_copied_and_freed(cpu: str) -> None:
    before = psutil.Process().memory_info().rss
    for _ in range(8):
        with bandwidth._TensorPair(devices.device_handle(cpu), SMALL) as pair:
            pair.copy(1)
    assert psutil.Process().memory_info().rss - before < 4 * SMALL


def test_the_cpu_by_name_is_the_systems_memory(cpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(
        bandwidth, "_system_bandwidth", lambda threads, *_, **__: asked.append(threads) or 1.0
    )
    assert copy_bandwidth(cpu, threads=2) == copy_bandwidth(threads=1) == 1.0
    assert copy_bandwidth() == 1.0
    assert asked == [2, 1, devices.physical_cores()]


def test_a_measurement_takes_a_quarter_of_what_is_free_at_most() -> None:
    assert bandwidth._block_bytes(10**12, bandwidth.MOST_BYTES) == 256_000_000
    assert bandwidth._block_bytes(10**9, bandwidth.MOST_BYTES) == 125_000_000
    with pytest.raises(EngineError, match="Too little memory"):
        bandwidth._block_bytes(200_000_000, bandwidth.MOST_BYTES)


def test_what_cannot_be_measured_is_none(cpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EngineError, match="no device CUDA77"):
        copy_bandwidth("CUDA77")
    assert measured_bandwidth("CUDA77") is None
    with pytest.raises(EngineError, match="no_such_function"):
        devices.base_function("ggml_no_such_function", None)

    def refused(threads: int) -> float:
        raise MemoryError

    monkeypatch.setattr(bandwidth, "_system_bandwidth", refused)
    assert measured_bandwidth() is None


def test_memory_that_is_refused_leaves_nothing_open(cpu: str) -> None:
    pair = bandwidth._TensorPair(devices.device_handle(cpu), 1 << 55)
    with pytest.raises(EngineError, match="gives no memory"):
        pair.__enter__()
    assert pair._opened == []
