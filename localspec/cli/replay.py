"""`localspec replay`: a recorded chat, played again in the app."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from localspec.cli import common
from localspec.cli.chat import need_terminal
from localspec.errors import UsageError


def replay(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="What `localspec chat --record FILE` has written.")
    ],
    speed: Annotated[
        float, typer.Option("--speed", metavar="X", help="Play so many times as fast, 0.125 to 64.")
    ] = 1.0,
    fast: Annotated[bool, typer.Option("--fast", help="Play all of it at once.")] = False,
    debug: common.DebugOption = False,  # noqa: ARG001 - its callback has done all there is to do
) -> None:
    """Play a recorded chat in the app, without a model.

    Space pauses, + and - change the speed, q leaves. Long rests are shortened.
    """
    if not 0.125 <= speed <= 64:
        raise UsageError("--speed is a number from 0.125 to 64; 1 is the recording's own.")
    if fast and speed != 1.0:
        raise UsageError("--fast and --speed exclude each other; give one of them.")
    from localspec.recording import read_session

    session = read_session(file)
    need_terminal("replay")
    from localspec.settings import load_settings
    from tui.replay import run_replay

    raise typer.Exit(run_replay(session, speed=math.inf if fast else speed, theme=load_settings().ui.theme))
