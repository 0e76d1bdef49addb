"""What the app leaves behind in a real terminal. The whole chat in one is in `tests/e2e`."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

import psutil
import pytest

from tests.e2e.terminal import Terminal


@pytest.mark.model
def test_a_polite_kill_restores_the_terminal_and_ends_the_engine(
    private_home: Path, smollm2_path: Path
) -> None:
    command = [sys.executable, "-m", "localspec", "chat", "--model", str(smollm2_path), "--threads", "1"]
    terminal = Terminal(command, {**os.environ, "LOCALSPEC_HOME": str(private_home), "NO_COLOR": "1"}, 80, 24)
    try:
        terminal.wait_for("speculation on", "RAM")
        (engine,) = psutil.Process(terminal.process.pid).children()
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.wait_until_ended() == 128 + signal.SIGTERM
        assert not psutil.pid_exists(engine.pid)
        # The alternate screen is left, and the cursor is shown again.
        assert b"\x1b[?1049l" in terminal.written
        assert b"\x1b[?25h" in terminal.written
        colours = re.findall(rb"\x1b\[[0-9;]*[34]8;2;(\d+);(\d+);(\d+)m", terminal.written)
        # NO_COLOR: only greys.
        assert colours
        assert all(red == green == blue for red, green, blue in colours)
    finally:
        terminal.close()


@pytest.mark.model
def test_a_terminal_that_is_closed_under_an_editor_leaves_no_process(
    private_home: Path, smollm2_path: Path
) -> None:
    command = [sys.executable, "-m", "localspec", "chat", "--model", str(smollm2_path), "--threads", "1"]
    editor = "sh -c 'echo EDITING; exec sleep 60'"
    environment = {**os.environ, "LOCALSPEC_HOME": str(private_home), "VISUAL": editor}
    terminal = Terminal(command, environment, 80, 24)
    try:
        terminal.wait_for("speculation on", "RAM")
        processes = psutil.Process(terminal.process.pid).children(recursive=True)
        terminal.send("\x07")
        terminal.wait_for("EDITING")
        editing = set(psutil.Process(terminal.process.pid).children(recursive=True)) - set(processes)
        terminal.hang_up()
        # As the system does with all that has this terminal.
        terminal.process.send_signal(signal.SIGHUP)
        for process in editing:
            process.kill()
        assert terminal.process.wait(timeout=60) == 128 + signal.SIGHUP
        assert psutil.wait_procs(processes, timeout=30)[1] == []
    finally:
        terminal.close()
