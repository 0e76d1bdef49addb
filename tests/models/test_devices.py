"""Devices, memory and cores of the machine at hand, and what doctor makes of other machines."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from localspec.diagnosis import facts, findings
from localspec.diagnosis.facts import Machine, Place, Terminal
from localspec.diagnosis.findings import Finding
from localspec.errors import EngineError
from localspec.runtime import cores, devices
from localspec.runtime.devices import Device


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


GB = 1_000_000_000
GPU = Device("CUDA0", "NVIDIA Card", "CUDA", "gpu", 7 * GB, 8 * GB)
CPU = Device("CPU", "A processor", "CPU", "cpu", 0, 16 * GB)


def machine(**changes: Any) -> Machine:
    values: dict[str, Any] = {
        "devices": (CPU,),
        "backend": "CPU",
        "features": {"AVX": "1", "AVX2": "1", "FMA": "1", "F16C": "1"},
        "cpu_flags": frozenset({"avx", "avx2", "fma", "f16c"}),
        "nvidia_gpus": None,
        "has_vulkan": False,
        "cores": 8,
        "memory_free": 12 * GB,
        "memory_total": 16 * GB,
        "on_battery": None,
        "emulated": False,
    }
    return Machine(**(values | changes))


def one_finding(**changes: Any) -> Finding:
    (finding,) = findings.machine_findings(machine(**changes))
    return finding


def test_no_gpu_is_no_finding() -> None:
    assert list(findings.machine_findings(machine())) == []
    assert list(findings.machine_findings(machine(devices=(GPU, CPU), nvidia_gpus=("Card",), cores=2))) == []


def test_an_nvidia_gpu_that_is_not_used() -> None:
    finding = one_finding(nvidia_gpus=("RTX 4060",))
    assert finding.level == "slow"
    assert "RTX 4060" in finding.text
    assert "-DGGML_CUDA=on" in finding.text
    assert "pip install --force-reinstall" in finding.text


def test_a_broken_nvidia_driver() -> None:
    assert "driver" in one_finding(nvidia_gpus=()).text


def test_a_vulkan_driver_that_is_not_used() -> None:
    finding = one_finding(has_vulkan=True)
    assert finding.level == "note"
    assert "-DGGML_VULKAN=on" in finding.text


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"features": {"AVX": "1"}}, "without AVX2 and FMA and F16C"),
        ({"emulated": True}, "emulated"),
        ({"on_battery": True}, "battery"),
        ({"cores": 2}, "2 cores"),
        ({"cores": 1}, "1 core;"),
        ({"memory_free": GB}, "1.00 GB of RAM are free"),
        ({"devices": (Device("CUDA0", "Card", "CUDA", "gpu", GB, 8 * GB),)}, "1.00 GB of 8.00 GB free"),
        ({"library_error": "It is broken; repair it."}, "It is broken"),
    ],
)
def test_what_is_slow_and_why(changes: dict[str, Any], expected: str) -> None:
    assert expected in one_finding(**changes).text


def test_an_x86_container_on_an_arm_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(sys, "platform", "linux")
    assert facts._is_emulated("processor : 0\nCPU implementer : 0x61\n")
    assert not facts._is_emulated("processor : 0\nflags : fpu avx2\n")


def terminal(**changes: Any) -> list[str]:
    values: dict[str, Any] = {
        "interactive": True,
        "kind": "xterm-256color",
        "columns": 120,
        "rows": 40,
        "colors": 256,
        "unicode": True,
    }
    return [finding.text for finding in findings.terminal_findings(Terminal(**(values | changes)))]


def test_terminals() -> None:
    assert terminal() == []
    assert terminal(interactive=False, columns=1, unicode=False) == []
    assert "localspec run" in terminal(kind="dumb")[0]
    assert "59x40" in terminal(columns=59)[0]
    assert "UTF-8" in terminal(unicode=False)[0]
    assert "colours" in terminal(colors=16)[0]


@pytest.mark.parametrize(
    ("environment", "colors"),
    [
        ({"TERM": "xterm-256color"}, 256),
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, 1 << 24),
        ({"TERM": "dumb", "COLORTERM": "truecolor"}, 0),
        ({"TERM": "xterm"}, 16),
        ({"WT_SESSION": "x"}, 1 << 24),
    ],
)
def test_colours(environment: dict[str, str], colors: int) -> None:
    assert facts._colors(environment) == colors


def test_places() -> None:
    places = {"data": Place(Path("somewhere"), 0, "it may not be written"), "cache": Place(Path("c"), 1, "")}
    (finding,) = findings.place_findings(places)
    assert finding.level == "error"
    assert "LOCALSPEC_HOME" in finding.text
