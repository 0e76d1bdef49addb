"""The `localspec` command in this very process: a new one for each call would take far longer."""

from __future__ import annotations

import subprocess

from typer.testing import CliRunner


def localspec(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command; nobody is there to be asked, and nothing is a terminal."""
    from localspec.cli import app

    done = CliRunner(env=environment).invoke(app, list(arguments), prog_name="localspec")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)
