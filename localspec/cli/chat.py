"""`localspec chat`: the terminal app."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from localspec.cli import common
from localspec.errors import UsageError


@common.with_shared_options
def chat(
    flags: common.Flags,
    new: Annotated[bool, typer.Option("--new", help="Start a new conversation.")] = False,
    conversation: Annotated[
        int | None, typer.Option("--conversation", min=1, metavar="ID", help="Open that conversation.")
    ] = None,
    private: Annotated[
        bool, typer.Option("--private", help="Keep nothing of this chat, on no disk and in no memory.")
    ] = False,
    plain: Annotated[
        bool, typer.Option("--plain", help="Lines in, text out: for screen readers and pipes.")
    ] = False,
    record: Annotated[
        Path | None,
        typer.Option("--record", metavar="FILE", help="Record the chat, for `localspec replay FILE`."),
    ] = None,
) -> None:
    """Chat in the terminal.

    Goes on with the last conversation, unless --new, --conversation or --system says otherwise.
    """
    if not plain:
        need_terminal("chat")
    if new and conversation is not None:
        raise UsageError("--new and --conversation exclude each other; give one of them.")
    if private and conversation is not None:
        raise UsageError("A private chat is a new one; leave out --conversation or --private.")
    if private and record is not None:
        # One keeps nothing of what is said, the other all of it.
        raise UsageError("A private chat is not recorded; leave out --record or --private.")
    plan = common.plan(flags, needs_draft=False)

    # A system prompt belongs to the conversation that begins with it.
    opened: int | Literal["last", "new"] = "new" if new or private or flags.system is not None else "last"
    chosen = opened if conversation is None else conversation
    if plain:
        from localspec.cli.plain import run_plain

        raise typer.Exit(run_plain(plan, opened=chosen, private=private, record=record))
    # The library knows the app here and in `replay` alone.
    from localspec.settings import names_model
    from tui.app import Launch, run_chat

    launch = Launch(
        files=plan.files,
        sampling=plan.sampling,
        sampling_of=plan.sampling_of,
        system_prompt=plan.system,
        max_tokens=plan.max_tokens,
        think=plan.settings.chat.think,
        conversation=chosen,
        record=record,
        fresh_seeds=plan.settings.sampling.seed is None,
        theme=plan.settings.ui.theme,
        panel=plan.settings.ui.panel,
        private=private,
        demo=flags.model is None and not names_model(),
    )
    raise typer.Exit(run_chat(launch))


def need_terminal(verb: str) -> None:
    """Raise `UsageError` where the app has nothing to draw on."""
    chats = verb == "chat"
    # Textual draws on standard error: where that goes elsewhere, the screen would stay blank.
    if not (sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()):
        instead = "use `localspec chat --plain` or `localspec run` in pipes" if chats else "run it in one"
        raise UsageError(f"localspec {verb} needs a terminal; {instead}.")
    if os.environ.get("TERM", "") in ("", "dumb") and os.name != "nt":
        instead = "use `localspec chat --plain` there" if chats else "run it in another one"
        raise UsageError(f"localspec {verb} cannot draw on a dumb terminal (TERM); {instead}.")
