"""The `localspec` command: one module a verb, all of them thin.

Exit codes are those of `localspec.errors`, 130 after Ctrl+C and 143 after SIGTERM. Importing this package
stays cheap, because people wait for `--help`: verbs import what is heavy inside their functions.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import signal
import sys
import traceback
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from localspec import __version__
from localspec.cli import config, doctor, history, memory, models, train
from localspec.cli.audit import audit
from localspec.cli.bench import bench
from localspec.cli.chat import chat
from localspec.cli.common import debugging
from localspec.cli.replay import replay
from localspec.cli.run import run
from localspec.cli.simulate import simulate
from localspec.cli.tune import tune
from localspec.errors import LocalspecError

__all__ = ["app", "main"]

INTERRUPTED = 130
TERMINATED = 143
_FULL = {errno.ENOSPC, errno.EFBIG, errno.EIO, getattr(errno, "EDQUOT", errno.ENOSPC)}


class Commands(TyperGroup):
    """The verbs, with every error turned into one sentence and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run a verb; an error becomes a line on standard error and its exit code."""
        try:
            return super().invoke(ctx)
        except LocalspecError as error:
            if debugging():
                traceback.print_exc()
            else:
                typer.echo(f"localspec: {error}", err=True)
            raise typer.Exit(error.exit_code) from error
        except KeyboardInterrupt as error:
            raise typer.Exit(INTERRUPTED) from error


app = typer.Typer(
    name="localspec",
    cls=Commands,
    help="Chat with a local GGUF model, sped up by speculative decoding that shows its work.",
    no_args_is_help=True,
    # Plain help: drawing it with rich would add a tenth of a second to every call.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.command("chat")(chat)
app.command("run")(run)
app.command("replay")(replay)
app.command("bench")(bench)
app.command("audit")(audit)
app.command("simulate")(simulate)
app.command("tune")(tune)
app.add_typer(train.app, name="train")
app.add_typer(models.app, name="models")
app.add_typer(history.app, name="history")
app.add_typer(memory.app, name="memory")
app.command("doctor")(doctor.doctor)
app.add_typer(config.app, name="config")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"localspec {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    pass


def _terminated(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001 - the shape of a handler
    # Unwinds through every `finally`, so that the engine ends and the terminal is restored.
    sys.exit(TERMINATED)


def _prepare_streams() -> None:
    """Closed standard streams lead nowhere, and a character that an encoding lacks is no reason to stop."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # Not closed at the end, like the streams that it stands for.
            nowhere = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(nowhere, mode, encoding="utf-8", closefd=False))
    out = sys.stdout
    if isinstance(out, io.TextIOWrapper) and out.errors == "strict":
        # Names of files may hold bytes that are no text; they leave as they came.
        utf8 = out.encoding.lower().replace("_", "-") in ("utf-8", "utf8")
        out.reconfigure(errors="surrogateescape" if utf8 else "replace")


def main() -> None:
    """Entry point of the `localspec` command."""
    _prepare_streams()
    signal.signal(signal.SIGTERM, _terminated)
    # `nohup` has it ignored, so that a long fetch outlives the terminal.
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _terminated)
    try:
        app(prog_name="localspec")
    except Exception as error:
        if debugging():
            raise
        typer.echo(f"localspec: {_sentence(error)}", err=True)
        if _is_full(error):
            _forget_output()
        sys.exit(1)


def _is_full(error: Exception) -> bool:
    """Whether standard output could not be written."""
    return isinstance(error, OSError) and error.errno in _FULL and error.filename is None


def _forget_output() -> None:
    """What waits to be written leads nowhere: Python would fail over it once more, with its own status."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and _is_full(error):
        return f"Cannot write the output ({error.strerror}); free some space there and run it again."
    what = f"internal error ({type(error).__name__}: {error})"
    return f"{what}; run it again with LOCALSPEC_DEBUG=1 to see where."
