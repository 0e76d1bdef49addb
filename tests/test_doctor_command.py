"""`localspec doctor` as a shell sees it: whatever is broken is told, and nothing is left behind."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localspec import paths
from localspec.calibration.store import CurveStore, Measured
from localspec.diagnosis import inventory, probe, speed
from localspec.diagnosis.facts import look_at_library, look_at_machine
from localspec.errors import EngineError
from localspec.models import registry
from localspec.models.choose import Capacity, choose
from localspec.models.hashes import identity
from localspec.runtime.devices import Device

GB = 1_000_000_000


def localspec(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "localspec", *arguments]
    return subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=120
    )


def report(*options: str, code: int = 0, **environment: str) -> dict[str, Any]:
    done = localspec("doctor", "--json", *options, **environment)
    assert (done.returncode, done.stderr) == (code, ""), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def errors(found: dict[str, Any]) -> list[str]:
    return [finding["text"] for finding in found["findings"] if finding["level"] == "error"]


def test_it_measures_memory_and_leaves_nothing_behind(private_home: Path) -> None:
    found = report()
    assert set(found) == {
        "change_first", "findings", "versions", "compute", "graphics", "speed", "places", "kept", "models",
        "terminal",
    }  # fmt: skip
    assert found["speed"]["memory_bytes_per_second"] > 1e8
    assert found["speed"]["models"] == []
    assert found["kept"]["models"] == {
        "path": str(private_home / "cache" / "models"),
        "size_bytes": 0,
        "removed_by": "`localspec models rm NAME`",
    }
    assert found["terminal"]["interactive"] is False
    assert list(private_home.iterdir()) == []


def test_quick_measures_nothing() -> None:
    found = report("--quick")
    assert found["speed"]["memory_bytes_per_second"] is None


def test_a_registry_that_cannot_be_read_is_a_finding() -> None:
    file = registry.user_file()
    file.parent.mkdir(parents=True)
    file.write_text("[models.mine]\nsource = 7\n")
    assert any("models.toml, line" in text for text in errors(report("--quick", code=1)))


def test_what_a_chat_starts_with_and_what_suits_better(monkeypatch: pytest.MonkeyPatch) -> None:
    capacity = Capacity(ram=16 * GB, vram=8 * GB, gpus=1)
    found = inventory.look_at_models(capacity)
    assert found.facts["present"] == "smollm2"
    assert found.facts["best"]["name"] in registry.entries()
    assert any(found.facts["best"]["name"] in finding.text for finding in found.findings)
    family = registry.catalogue().families["qwen3"]
    monkeypatch.setenv("LOCALSPEC_MODEL", "qwen3")
    assert inventory.look_at_models(capacity).facts["present"] == choose(family, capacity).entry.name
    monkeypatch.setenv("LOCALSPEC_MODEL", "qwenn3")
    assert any(
        "qwenn3" in one.text for one in inventory.look_at_models(capacity).findings if one.level == "error"
    )


def test_settings_that_cannot_be_read_are_a_finding() -> None:
    file = paths.config_dir() / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text("model = [")
    found = inventory.look_at_models(Capacity(ram=16 * GB))
    assert any("config.toml" in one.text for one in found.findings if one.level == "error")


@pytest.mark.parametrize(
    ("code", "stderr", "words"),
    [
        (-signal.SIGILL, "", "another kind of processor"),
        (0xC000001D, "", "another kind of processor"),
        (-signal.SIGSEGV, "noise\nggml: no device\n\n", "exit status -11, ggml: no device"),
        (1, "", "exit status 1)"),
    ],
)
def test_what_ended_the_probe(code: int, stderr: str, words: str) -> None:
    told = probe.what_ended_it(code, stderr)
    assert words in told
    assert "pip install --force-reinstall" in told


@pytest.mark.skipif(sys.platform != "linux", reason="replaces a library of Linux")
def test_a_library_that_crashes_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that dies while it loads the libraries, as one built for another processor does."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, os, signal\n"
        "if 'localspec.diagnosis.probe' in ' '.join(sys.orig_argv): os.kill(os.getpid(), signal.SIGILL)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    library = probe.library()
    assert "illegal instruction" in library.error
    assert library.devices == ()
    assert probe.bandwidth() is None
    with pytest.raises(EngineError, match="illegal instruction"):
        probe.pass_times(tmp_path)
    found = report(code=1)
    assert "illegal instruction" in found["change_first"]
    assert found["compute"]["cores"] >= 1


def test_the_probe_sees_what_this_process_sees() -> None:
    here, there = look_at_library(), probe.library()
    assert there.version == here.version
    assert [device.name for device in there.devices] == [device.name for device in here.devices]
    assert dict(there.features) == dict(here.features)


@pytest.mark.model
def test_passes_of_a_model_that_was_never_used(smollm2_path: Path) -> None:
    times = probe.pass_times(smollm2_path)
    assert sorted(times) == [1, 4]
    assert all(milliseconds > 0 for milliseconds in times.values())


@pytest.mark.model
def test_what_chats_have_measured_is_found(smollm2_path: Path) -> None:
    library = look_at_library()
    machine = look_at_machine(library)
    devices = ", ".join(f"{each.name} {each.description}" for each in library.devices)
    key: dict[str, str | int] = {
        "file": identity(smollm2_path),
        "llama.cpp": str(library.version),
        "devices": devices,
    }
    folder = paths.cache_dir() / "calibration"
    CurveStore(folder, {**key, "llama.cpp": "older"}).save({0: Measured({1: 0.5}, 2, complete=True)})
    assert speed.calibrated({"it": smollm2_path}, str(library.version), library.devices) == {}
    CurveStore(folder, key).save({0: Measured({1: 0.01, 4: 0.02}, 2, complete=True)})
    (folder / "broken.json").write_text("{")
    found = speed.look_at_passes(machine, library.version, {"it": smollm2_path}, None, {}, measure=False)
    (model,) = found.models
    assert (model.name, model.pass_ms, model.measured) == ("it", 10.0, "calibration")
    # Copying may be quicker than the cores can compute.
    quick = replace(machine, cores=2)
    found = speed.look_at_passes(quick, library.version, {"it": smollm2_path}, 60e9, {}, measure=False)
    weights = 134_515_008
    assert found.models[0].expected_ms == pytest.approx(weights / 32e9 * 1e3, rel=0.1)
    assert model.widths == {1: 10.0, 4: 20.0}
    assert model.expected_ms is None


def test_what_memory_allows() -> None:
    card = Device("CUDA0", "Card", "CUDA", "gpu", 8 * GB, 10 * GB)
    assert speed.expected_ms(4 * GB, (), 40e9, {}) == pytest.approx(100)
    assert speed.expected_ms(4 * GB, (card,), 40e9, {"CUDA0": 400e9}) == pytest.approx(10)
    # 8.5 GB on the card, 3.5 GB beside it.
    assert speed.expected_ms(12 * GB, (card,), 40e9, {"CUDA0": 400e9}) == pytest.approx(21.25 + 87.5)
    assert speed.expected_ms(12 * GB, (card,), None, {"CUDA0": 400e9}) is None
    assert speed.expected_ms(4 * GB, (card,), None, {}) is None


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
@pytest.mark.parametrize(
    ("answer", "synchronized", "keyboard"),
    [
        (b"\x1b[?2026;2$y\x1b[?0u\x1b[?62;4c", "yes", "yes"),
        (b"", "not told", "not told"),
    ],
)
def test_a_terminal_is_asked(answer: bytes, synchronized: str, keyboard: str) -> None:
    import pty

    # The child makes the pseudo-terminal its own, as a shell in a window has it.
    code = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    code += "os.execv(sys.argv[1], sys.argv[1:])"
    command = [sys.executable, "-c", code, sys.executable, "-m", "localspec", "doctor", "--quick"]
    terminal, other = pty.openpty()
    child = subprocess.Popen(
        command,
        stdin=other,
        stdout=other,
        stderr=other,
        env={**os.environ, "TERM": "xterm-256color"},
        start_new_session=True,
    )
    os.close(other)
    shown, asked = b"", False
    while select.select([terminal], [], [], 60)[0]:
        try:
            shown += os.read(terminal, 65536)
        except OSError:
            break  # How Linux says that the other end is closed.
        if b"\x1b[c" in shown and not asked:
            asked = True
            os.write(terminal, answer)
    assert child.wait(timeout=60) == 0
    os.close(terminal)
    assert asked
    text = re.sub(r"\x1b\[[0-9;?$]*[a-zA-Z]", "", shown.decode(errors="replace"))
    assert re.search(rf"synchronized\s+{synchronized}\b", text)
    assert re.search(rf"kitty keyboard\s+{keyboard}\b", text)
    assert re.search(r"clipboard\s+.*OSC 52", text)
