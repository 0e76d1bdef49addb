"""What a bench tells of its machine."""

from __future__ import annotations

import getpass
import json
import logging
import platform
from pathlib import Path

import pytest

from localspec import __version__
from localspec.bench.machine import machine_facts
from localspec.errors import EngineError
from localspec.runtime import devices, library


def test_facts_are_plain_and_tell_nothing_private() -> None:
    facts = machine_facts(2)
    text = json.dumps(facts, allow_nan=False)
    assert facts["threads"] == 2
    assert facts["localspec"] == __version__
    assert facts["llama_cpp"].startswith("ggml ")
    assert facts["llama_cpp_python"]
    assert facts["build"]
    assert facts["cpu"]
    assert 1 <= facts["usable_cores"] <= facts["logical_cores"]
    assert facts["memory_bytes"] > 0
    assert {"name", "description", "backend", "kind", "memory_bytes"} == set(facts["devices"][0])
    words = text.replace('"', " ").split()
    assert platform.node() not in words
    assert getpass.getuser() not in words
    assert str(Path.home()) not in text


def test_a_machine_without_a_usable_llama(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> str:
        raise EngineError("It is missing.")

    monkeypatch.setattr("localspec.bench.machine.llama_version", broken)
    monkeypatch.setattr(devices, "devices", broken)
    facts = machine_facts(1)
    assert (facts["llama_cpp"], facts["cpu"], facts["devices"]) == (None, None, [])


def test_looking_around_leaves_the_runtimes_log_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from localspec.errors import ModelFileError
    from localspec.runtime.model import LlamaModel

    library.lib()
    assert library.log_is_taken()
    machine_facts(1)
    odd = tmp_path / "odd.gguf"
    odd.write_bytes(b"GGUF" + b"\0" * 60)
    with caplog.at_level(logging.ERROR), pytest.raises(ModelFileError):
        LlamaModel(odd)
    assert library.recent_errors()
