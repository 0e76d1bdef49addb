"""Run a command in a pseudo-terminal and read all that it writes there."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Mapping, Sequence


def run_in_terminal(command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str]:
    """Exit code, and everything that was written to the terminal."""
    leader, follower = pty.openpty()
    child = subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, env=environment)
    os.close(follower)
    written = b""
    try:
        while chunk := os.read(leader, 4096):
            written += chunk
    except OSError:
        pass  # Linux reports the closed other end of a terminal as an error.
    os.close(leader)
    return child.wait(timeout=60), written.decode()
