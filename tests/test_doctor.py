"""What doctor makes of machines, terminals and models: facts are made up, findings are functions of them."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localspec.clipboard import copies_file
from localspec.diagnosis import facts, findings
from localspec.diagnosis.backends import Upgrade, better_backend
from localspec.diagnosis.facts import Machine, Place
from localspec.diagnosis.findings import Finding, ModelSpeed, change_first
from localspec.diagnosis.graphics import Graphics, nvidia_versions, pci_makers
from localspec.diagnosis.terminal import Terminal, colors, look_at_terminal, terminal_findings, within
from localspec.runtime.devices import Device

GB = 1_000_000_000
GPU = Device("CUDA0", "NVIDIA Card", "CUDA", "gpu", 7 * GB, 8 * GB)
CPU = Device("CPU", "A processor", "CPU", "cpu", 0, 16 * GB)
CARD = Graphics(makers=("NVIDIA",), nvidia=("RTX 4060",), nvidia_driver="550.1", cuda="12.4")


def machine(**changes: Any) -> Machine:
    values: dict[str, Any] = {
        "devices": (CPU,),
        "backend": "CPU",
        "features": {"AVX": "1", "AVX2": "1", "FMA": "1", "F16C": "1"},
        "cpu_flags": frozenset({"avx", "avx2", "fma", "f16c"}),
        "cores": 8,
        "all_cores": 8,
        "memory_free": 12 * GB,
        "memory_total": 16 * GB,
        "on_battery": None,
        "emulated": False,
    }
    return Machine(**(values | changes))


def one_finding(**changes: Any) -> Finding:
    (finding,) = findings.machine_findings(machine(**changes))
    return finding


def upgrade(**changes: Any) -> Upgrade | None:
    return better_backend(machine(**changes))


def with_tools(*tools: str, **more: Any) -> Graphics:
    return Graphics(tools=frozenset(tools), **more)


NVIDIA: dict[str, Any] = {"makers": ("NVIDIA",), "nvidia": ("RTX 4060",), "cuda": "12.4"}


@pytest.mark.parametrize(
    ("changes", "backend", "words"),
    [
        # An NVIDIA card: with the toolkit, without it, with Vulkan's tools alone, without any compiler.
        ({"graphics": with_tools("nvcc", **NVIDIA)}, "CUDA", ("run `CMAKE_ARGS=-DGGML_CUDA=on", "RTX 4060")),
        (
            {"graphics": with_tools("nvcc", **NVIDIA), "checkout": True},
            "CUDA",
            ("run `make chat ACCEL=cuda`",),
        ),
        ({"graphics": CARD, "checkout": True}, "CUDA", ("install the CUDA toolkit, then run `make chat",)),
        ({"graphics": with_tools("glslc", vulkan=True, **NVIDIA)}, "Vulkan", ("-DGGML_VULKAN=on",)),
        (
            {"graphics": CARD, "compiler": False},
            "CUDA",
            (
                "runtime libraries of CUDA 12.4",
                "--only-binary llama-cpp-python",
                "/whl/cu124 llama-cpp-python==",
            ),
        ),
        ({"graphics": CARD, "compiler": False, "checkout": True}, "CUDA", ("make chat ACCEL=wheel-cu124",)),
        # AMD: with ROCm, with ROCm's runtime alone, without it.
        (
            {"graphics": with_tools("hipcc", makers=("AMD",), rocm="6.3")},
            "ROCm",
            ("run `CMAKE_ARGS=-DGGML_HIP=on",),
        ),
        (
            {"graphics": Graphics(makers=("AMD",), rocm="6.3"), "checkout": True},
            "ROCm",
            ("hipcc", "ACCEL=rocm"),
        ),
        ({"graphics": Graphics(makers=("AMD",), rocm="7.2"), "compiler": False}, "ROCm", ("/whl/rocm72 ",)),
        ({"graphics": Graphics(makers=("AMD",))}, "Vulkan", ("apt install glslc", "-DGGML_VULKAN=on")),
        # Intel: its own compiler, or Vulkan.
        (
            {"graphics": with_tools("icpx", makers=("Intel",))},
            "SYCL",
            ('CMAKE_ARGS="-DGGML_SYCL=on -DCMAKE_C',),
        ),
        ({"graphics": with_tools("glslc", makers=("Intel",), vulkan=True)}, "Vulkan", ("run `CMAKE_ARGS=",)),
        ({"graphics": Graphics(makers=("Intel",)), "compiler": False}, "Vulkan", ("/whl/vulkan ",)),
        ({"system": "Darwin", "architecture": "arm64"}, "Metal", ("-DGGML_METAL=on",)),
        ({"system": "Darwin", "architecture": "arm64", "compiler": False}, "Metal", ("/whl/metal ",)),
        ({"graphics": Graphics(vulkan=True)}, "Vulkan", ("there may be a GPU",)),
        (
            {"graphics": with_tools("nvcc", **NVIDIA), "system": "Windows"},
            "CUDA",
            ('run `$env:CMAKE_ARGS="-DGGML_CUDA=on"; ',),
        ),
    ],
)
def test_the_backend_that_could_be_and_its_command(
    changes: dict[str, Any], backend: str, words: tuple[str, ...]
) -> None:
    better = upgrade(**changes)
    assert better is not None
    assert better.backend == backend
    finding = one_finding(**changes)
    for word in words:
        assert word in finding.text
    assert finding.gain == better.gain > 1


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"system": "Darwin", "architecture": "x86_64"},
        {"system": "Windows", "architecture": "ARM64"},
        {"devices": (GPU, CPU), "backend": "CUDA", "graphics": CARD, "cores": 2, "all_cores": 2},
        {"devices": (Device("Vulkan0", "A GPU", "Vulkan", "igpu", 0, 0), CPU), "backend": "Vulkan"},
    ],
)
def test_nothing_better_is_no_finding(changes: dict[str, Any]) -> None:
    assert upgrade(**changes) is None
    assert list(findings.machine_findings(machine(**changes))) == []


def test_both_ways_to_a_backend_are_known_in_a_checkout() -> None:
    better = upgrade(graphics=CARD, checkout=True)
    assert better is not None
    assert better.command == "make chat ACCEL=cuda"
    assert better.pip.startswith("CMAKE_ARGS=-DGGML_CUDA=on ")
    windows = upgrade(graphics=CARD, checkout=True, system="Windows")
    assert windows is not None
    assert windows.command == windows.pip


@pytest.mark.parametrize(
    ("cuda", "kind"),
    [("12.4", "cu124"), ("12.9", "cu125"), ("13.1", "cu130"), ("11.0", "cu118"), ("", "cu118")],
)
def test_the_wheel_for_a_driver(cuda: str, kind: str) -> None:
    graphics = Graphics(makers=("NVIDIA",), nvidia=("Card",), cuda=cuda)
    better = upgrade(graphics=graphics, compiler=False)
    assert better is not None
    assert f"/whl/{kind} " in better.pip


def test_vulkan_on_an_nvidia_card_can_be_cuda() -> None:
    device = Device("Vulkan0", "Card", "Vulkan", "gpu", 7 * GB, 8 * GB)
    finding = one_finding(devices=(device,), backend="Vulkan", graphics=with_tools("nvcc", **NVIDIA))
    assert finding.level == "note"
    assert "CUDA" in finding.text


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"graphics": Graphics(nvidia=())}, "repair the NVIDIA driver"),
        ({"graphics": Graphics(makers=("NVIDIA",))}, "its driver is not installed"),
        ({"graphics": Graphics(makers=("NVIDIA",)), "container": "docker"}, "--gpus all"),
        ({"features": {"AVX": "1"}}, "without AVX2 and FMA and F16C"),
        ({"features": {"AVX": "1"}, "checkout": True}, "`make clean && make chat ACCEL=cpu`"),
        ({"emulated": True}, "emulated"),
        ({"on_battery": True}, "battery"),
        ({"cores": 2, "all_cores": 2}, "2 cores"),
        ({"cores": 1, "all_cores": 1}, "1 core;"),
        ({"cores": 4, "all_cores": 16, "container": "podman"}, "This podman container may use 4 of"),
        ({"wsl": True}, ".wslconfig"),
        ({"memory_free": GB}, "1.00 GB of RAM are free"),
        ({"devices": (Device("CUDA0", "Card", "CUDA", "gpu", GB, 8 * GB),)}, "1.00 GB of 8.00 GB free"),
        ({"library_error": "It is broken; repair it."}, "It is broken"),
    ],
)
def test_what_is_slow_and_why(changes: dict[str, Any], expected: str) -> None:
    assert expected in one_finding(**changes).text


def test_a_gpu_makes_the_cpus_features_a_note() -> None:
    assert one_finding(devices=(GPU, CPU), backend="CUDA", features={}).level == "note"


def test_the_gain_of_a_card_follows_the_memory_it_replaces() -> None:
    slow = better_backend(machine(graphics=CARD), 20e9)
    fast = better_backend(machine(graphics=CARD), 100e9)
    assert slow is not None
    assert fast is not None
    assert slow.gain == pytest.approx(12.5)
    assert fast.gain == pytest.approx(2.5)


def test_what_to_change_first() -> None:
    assert change_first([]) is None
    assert change_first([Finding("note", "Fine.")]) is None
    slow, slower = Finding("slow", "Slow.", 2.0), Finding("slow", "Slower.", 3.25)
    assert change_first([slow, slower]) == "Slower. Likely gain: about 3.2 times the speed."
    assert change_first([slow, Finding("error", "Broken.")]) == "Broken."


def test_the_first_change_of_a_laptop_on_battery_with_an_unused_card() -> None:
    found = findings.machine_findings(machine(on_battery=True, graphics=CARD, checkout=True), 40e9)
    assert "ACCEL=cuda" in (change_first(found) or "")


@pytest.mark.parametrize(
    ("speed", "found"),
    [
        (ModelSpeed("a", 4 * GB, pass_ms=400.0, expected_ms=100.0), True),
        (ModelSpeed("a", 4 * GB, pass_ms=150.0, expected_ms=100.0), False),
        (ModelSpeed("small", 100_000_000, pass_ms=40.0, expected_ms=5.0), False),
        (ModelSpeed("a", 4 * GB, expected_ms=5.0), False),
        (ModelSpeed("a", 4 * GB, pass_ms=40.0), False),
    ],
)
def test_passes_that_take_longer_than_memory_asks_for(speed: ModelSpeed, found: bool) -> None:
    assert bool(list(findings.speed_findings([speed]))) is found


def test_an_x86_container_on_an_arm_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(sys, "platform", "linux")
    assert facts._is_emulated("processor : 0\nCPU implementer : 0x61\n")
    assert not facts._is_emulated("processor : 0\nflags : fpu avx2\n")


def test_makers_on_the_bus(tmp_path: Path) -> None:
    devices = {
        "0": ("0x030000", "0x8086"),
        "1": ("0x030200", "0x10de"),
        "2": ("0x020000", "0x1002"),
        "3": ("", ""),
    }
    for name, (kind, maker) in devices.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "class").write_text(f"{kind}\n")
        (tmp_path / name / "vendor").write_text(f"{maker}\n")
    (tmp_path / "4").mkdir()
    assert pci_makers(tmp_path) == ("Intel", "NVIDIA")
    assert pci_makers(tmp_path / "missing") == ()


def test_versions_in_the_drivers_table() -> None:
    line = "| NVIDIA-SMI 550.54.15   Driver Version: 550.54.15   CUDA Version: 12.4     |"
    assert nvidia_versions(line) == ("550.54.15", "12.4")
    assert nvidia_versions("no table") == ("", "")


def terminal(**changes: Any) -> list[str]:
    values: dict[str, Any] = {
        "interactive": True,
        "kind": "xterm-256color",
        "columns": 120,
        "rows": 40,
        "colors": 256,
        "unicode": True,
    }
    return [finding.text for finding in terminal_findings(Terminal(**(values | changes)))]


def test_terminals() -> None:
    assert terminal() == []
    assert terminal(interactive=False, columns=1, unicode=False) == []
    assert "localspec run" in terminal(kind="dumb")[0]
    assert "59x40" in terminal(columns=59)[0]
    assert "UTF-8" in terminal(unicode=False)[0]
    assert "colours" in terminal(colors=16)[0]
    assert "set-clipboard" in terminal(within="tmux")[0]
    assert "screen" in terminal(within="screen")[0]
    assert "OSC 52" in terminal(program="Apple_Terminal")[0]


def test_how_a_copy_gets_to_the_clipboard() -> None:
    shown = Terminal(True, "xterm-256color", 120, 40, 256, True)
    osc = "OSC 52, to the clipboard where the terminal runs"
    assert shown.clipboard == osc
    assert replace(shown, within="tmux").clipboard == osc.replace("52,", "52 through tmux,")
    assert replace(shown, clipboard_program="wl-copy").clipboard == f"wl-copy; or else {osc}"
    assert replace(shown, clipboard_program="xclip", passes_copies=False).clipboard == "xclip"
    assert replace(shown, interactive=False).clipboard == ""
    nothing = replace(shown, passes_copies=False).clipboard
    assert nothing == f"none here: what is copied is put into {copies_file()}"
    # Nothing is in the way of a program.
    for deaf in ({"within": "tmux"}, {"within": "screen"}, {"program": "Apple_Terminal"}):
        assert terminal(**deaf, clipboard_program="pbcopy") == []
    assert "in a window" in terminal(passes_copies=False)[0]


def test_doctor_looks_for_the_program_that_the_chat_copies_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    program = tmp_path / "xclip"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    for name in ("SSH_CONNECTION", "SSH_TTY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME", "STY", "TERM_PROGRAM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setenv("TERM", "linux")
    found = look_at_terminal(ask=False)
    assert (found.clipboard_program, found.passes_copies) == ("xclip", False)
    monkeypatch.setenv("SSH_TTY", "/dev/pts/1")
    monkeypatch.setenv("TERM", "xterm")
    found = look_at_terminal(ask=False)
    assert (found.clipboard_program, found.passes_copies) == ("", True)


@pytest.mark.parametrize(
    ("environment", "count"),
    [
        ({"TERM": "xterm-256color"}, 256),
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, 1 << 24),
        ({"TERM": "dumb", "COLORTERM": "truecolor"}, 0),
        ({"TERM": "xterm"}, 16),
        ({"WT_SESSION": "x"}, 1 << 24),
    ],
)
def test_colours(environment: dict[str, str], count: int) -> None:
    assert colors(environment) == count


def test_what_is_between_the_chat_and_the_terminal() -> None:
    assert within({"TMUX": "/tmp/tmux"}) == "tmux"
    assert within({"STY": "1.pts"}) == "screen"
    assert within({"TMUX": ""}) == ""


def test_places() -> None:
    places = {"data": Place(Path("somewhere"), 0, "it may not be written"), "cache": Place(Path("c"), 1, "")}
    (finding,) = findings.place_findings(places)
    assert finding.level == "error"
    assert "LOCALSPEC_HOME" in finding.text
