"""What the command does where its streams are closed, full, narrow, or its signals are meant for others."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.conftest import Command, environment, scripted_command

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="shells and signals of POSIX")


def shell(command: list[str], after: str = "", **extra: str) -> subprocess.CompletedProcess[bytes]:
    line = f"{shlex.join(command)} {after}"
    return subprocess.run(
        ["/bin/sh", "-c", line],
        env={**environment(), **extra},
        capture_output=True,
        timeout=60,
        check=False,
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_full_disk_behind_standard_output_is_one_sentence(tiny_gguf: Path, options: list[str]) -> None:
    command = scripted_command("reply", "run", "Hi", "--model", str(tiny_gguf), *options)
    done = shell(command, ">/dev/full")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(b"localspec: Cannot write the output (No space left")


@pytest.mark.parametrize("closed", ["<&-", "2>&-", ">&- 2>&- <&-"])
def test_closed_streams_are_no_trouble(tiny_gguf: Path, closed: str) -> None:
    done = shell(scripted_command("reply", "run", "Hi", "--model", str(tiny_gguf)), closed)
    assert done.returncode == 0
    assert done.stdout.startswith(b"Hallo") or ">&- 2" in closed


def test_closed_standard_input_is_empty_input(tiny_gguf: Path) -> None:
    done = shell(scripted_command("reply", "run", "-", "--model", str(tiny_gguf)), "<&-")
    assert done.returncode == 2
    assert done.stderr == b"localspec: Standard input is empty; give some text to answer.\n"


def test_an_encoding_without_the_characters_is_no_crash(tiny_gguf: Path) -> None:
    command = scripted_command("reply", "run", "Hi", "--model", str(tiny_gguf))
    done = shell(command, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.returncode == 0
    assert done.stdout == b"Hallo, W?rld \x1b[31m??\n"


def test_text_that_was_held_back_is_printed_at_the_end(scripted: Command, tiny_gguf: Path) -> None:
    done = scripted("holds back", "run", "Hi", "--model", str(tiny_gguf))
    assert (done.returncode, done.stdout) == (0, b"Whole E\n")


def test_an_engine_that_gave_up_is_one_sentence(scripted: Command, tiny_gguf: Path) -> None:
    done = scripted("aborts", "run", "Hi", "--model", str(tiny_gguf))
    assert done.returncode == 1
    assert done.stderr == (
        b"localspec: The engine was ended by SIGABRT (llama.cpp gave up; its log says why); "
        b"the reply is incomplete, run the command again.\n"
    )


def test_an_engine_that_gave_up_on_a_model_says_so(scripted: Command, tiny_gguf: Path) -> None:
    done = scripted("load-aborts", "run", "Hi", "--model", str(tiny_gguf))
    assert done.returncode == 1
    assert (
        b"while it was loading tiny; its file may be damaged: fetch it again, or choose another."
        in done.stderr
    )


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_an_ignored_signal_stays_ignored(tiny_gguf: Path, number: signal.Signals) -> None:
    command = scripted_command("endless", "run", "Hi", "--model", str(tiny_gguf))
    line = f"trap '' {number.name.removeprefix('SIG')}; exec {shlex.join(command)}"
    child = subprocess.Popen(["/bin/sh", "-c", line], env=environment(), stdout=subprocess.PIPE, bufsize=0)
    assert child.stdout is not None
    assert child.stdout.read(7) == b"on and "
    child.send_signal(number)
    time.sleep(0.3)
    assert child.poll() is None
    child.terminate()
    child.communicate(timeout=60)
    assert child.returncode == 143
