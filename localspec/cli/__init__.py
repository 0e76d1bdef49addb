"""The `localspec` command: one module a verb, all of them thin.

Exit codes are those of `localspec.errors`, 130 after Ctrl+C and 143 after SIGTERM. Importing this package
stays cheap, because people wait for `--help`: verbs import what is heavy inside their functions.
"""

from __future__ import annotations

import signal
import sys
import traceback
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from localspec import __version__
from localspec.cli import doctor, models
from localspec.cli.chat import chat
from localspec.cli.common import debugging
from localspec.cli.run import run
from localspec.errors import LocalspecError

__all__ = ["app", "main"]

INTERRUPTED = 130
TERMINATED = 143


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
app.add_typer(models.app, name="models")
app.command("doctor")(doctor.doctor)


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


def main() -> None:
    """Entry point of the `localspec` command."""
    signal.signal(signal.SIGTERM, _terminated)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, _terminated)
    try:
        app(prog_name="localspec")
    except Exception as error:
        if debugging():
            raise
        what = f"{type(error).__name__}: {error}"
        typer.echo(f"localspec: internal error ({what}); run it again with --debug to see where.", err=True)
        sys.exit(1)
