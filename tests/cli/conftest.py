"""The command as a child process, with a scripted engine or the real one."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Command = Callable[..., "subprocess.CompletedProcess[bytes]"]
HERE = Path(__file__).parent


def gguf_text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


@pytest.fixture
def tiny_gguf(tmp_path: Path) -> Path:
    """A file that passes for a model until its weights are wanted."""
    path = tmp_path / "tiny.gguf"
    key = gguf_text("general.architecture") + struct.pack("<I", 8) + gguf_text("llama")
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + key)
    return path


def scripted_command(scenario: str, *args: str) -> list[str]:
    return [sys.executable, str(HERE / "scripted_localspec.py"), scenario, *args]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONWARNINGS": "error", "PYTHONUTF8": "1"}


@pytest.fixture
def scripted() -> Command:
    """Run `localspec ARGS` to its end, with the engine following SCENARIO."""

    def call(scenario: str, *args: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        command = scripted_command(scenario, *args)
        return subprocess.run(
            command, input=stdin, capture_output=True, env=environment(), timeout=60, check=False
        )

    return call


@pytest.fixture
def localspec() -> Command:
    """Run `localspec ARGS` to its end."""

    def call(*args: str, stdin: bytes = b"", **extra: str) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-m", "localspec", *args]
        return subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            env={**environment(), **extra},
            timeout=120,
            check=False,
        )

    return call
