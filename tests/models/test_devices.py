"""Devices, memory and cores of the machine at hand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from localspec.errors import EngineError
from localspec.runtime import cores, devices


def test_ggml_sees_a_cpu() -> None:
    found = devices.devices()
    assert "cpu" in {device.kind for device in found}
    for device in found:
        assert device.name
        assert device.description
        assert 0 <= device.free_bytes <= device.total_bytes
    assert devices.backend_name() in {device.backend for device in found}
    assert devices.llama_version().startswith("ggml ")
    assert devices.system_info()


def test_one_copy_of_ggml_is_loaded() -> None:
    if not Path("/proc/self/maps").exists():
        pytest.skip("needs /proc")
    code = """
from localspec.runtime import devices
devices.devices()
import llama_cpp
lines = open("/proc/self/maps").read().splitlines()
print(len({line.split()[-1] for line in lines if "libggml-base" in line}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"


def test_memory_in_use() -> None:
    use = devices.memory_use()
    assert 0 < use.system_used < use.system_total
    assert use.engine_rss > 10_000_000
    assert all(device.source == "ggml" and device.kind == "gpu" for device in use.devices)
    assert abs(devices.memory_use(os.getpid()).engine_rss - use.engine_rss) < 50_000_000


def test_memory_of_a_process_that_is_gone() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert devices.memory_use(child.pid).engine_rss == 0


def test_a_missing_library_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", str(tmp_path))
    with pytest.raises(EngineError, match="is missing from"):
        devices._libraries()
    for name in ("libllama.so", "libllama.dylib", "llama.dll", "ggml.dll", "ggml-base.dll"):
        (tmp_path / name).write_bytes(b"not a library")
    with pytest.raises(EngineError, match="cannot be loaded"):
        devices._libraries()


def test_cores_are_within_the_affinity() -> None:
    allowed = (
        len(psutil.Process().cpu_affinity()) if hasattr(psutil.Process(), "cpu_affinity") else os.cpu_count()
    )
    assert 1 <= devices.physical_cores() <= (allowed or 1)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs affinity masks")
def test_one_allowed_cpu_is_one_core() -> None:
    code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); "
    code += "from localspec.runtime.cores import physical_cores; print(physical_cores())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({"cpu.max": "150000 100000"}, 1),
        ({"cpu.max": "400000 100000"}, 4),
        ({"cpu.max": "50000 100000"}, 1),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu.cfs_quota_us": "200000", "cpu.cfs_period_us": "100000"}, 2),
        ({"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"}, None),
        ({}, None),
    ],
)
def test_the_containers_limit(
    files: dict[str, str], limit: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text + "\n")
    monkeypatch.setattr(cores, "_control_groups", lambda: [tmp_path / "inner", tmp_path])
    assert cores._container_limit() == limit
