"""`localspec chat`: the terminal app."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from localspec.cli import common
from localspec.cli.serve import HOST, PORT, TABS, check_host, served
from localspec.cli.serve import serve as serve_chat
from localspec.errors import UsageError

if TYPE_CHECKING:
    from tui.app import Launch


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
    inline: Annotated[
        bool, typer.Option("--inline", help="Draw in the flow of the terminal, under what stands there.")
    ] = False,
    serve: Annotated[
        bool, typer.Option("--serve", help="Show the app in a browser; needs localspec[serve].")
    ] = False,
    port: Annotated[
        int, typer.Option("--port", min=1, max=65535, metavar="N", help="Where --serve listens.")
    ] = PORT,
    host: Annotated[
        str,
        typer.Option("--host", metavar="ADDRESS", help="Address of this machine that --serve listens on."),
    ] = HOST,
    tabs: Annotated[
        int, typer.Option("--serve-tabs", min=1, metavar="N", help="Tabs that may chat at once.")
    ] = TABS,
    anyway: Annotated[bool, typer.Option("--serve-anyway", help="Serve where others can reach it.")] = False,
    record: Annotated[
        Path | None,
        typer.Option("--record", metavar="FILE", help="Record the chat, for `localspec replay FILE`."),
    ] = None,
) -> None:
    """Chat in the terminal.

    Goes on with the last conversation, unless --new, --conversation or --system says otherwise.
    """
    _check_ways(plain=plain, inline=inline, serve=serve, record=record)
    serving = serve and not served()
    if serving:
        check_host(host, anyway=anyway)
    elif not plain and not served():
        need_terminal("chat")
    if new and conversation is not None:
        raise UsageError("--new and --conversation exclude each other; give one of them.")
    if private and conversation is not None:
        raise UsageError("A private chat is a new one; leave out --conversation or --private.")
    if private and record is not None:
        # One keeps nothing of what is said, the other all of it.
        raise UsageError("A private chat is not recorded; leave out --record or --private.")
    plan = common.plan(flags, needs_draft=False)
    if serving:
        serve_chat(host, port, tabs)
        return

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
        refreshed=partial(_refreshed, flags),
        fresh_seeds=plan.settings.sampling.seed is None,
        theme=plan.settings.ui.theme,
        keymap=plan.settings.keymap,
        panel=plan.settings.ui.panel,
        private=private,
        inline=inline,
        demo=flags.model is None and not names_model(),
    )
    raise typer.Exit(run_chat(launch))


def _refreshed(flags: common.Flags, launch: Launch) -> Launch:
    """The same launch with the sampling that flags and settings say now."""
    from localspec.settings import load_settings, merge, sampling_params

    given = asdict(flags)
    given.pop("chat_template")
    now = merge(load_settings(), **given)
    entry = launch.files.model.entry
    return replace(
        launch,
        sampling=sampling_params(now, entry.sampling.given() if entry else None),
        sampling_of=partial(sampling_params, now),
        fresh_seeds=now.sampling.seed is None,
    )


def _check_ways(*, plain: bool, inline: bool, serve: bool, record: Path | None) -> None:
    """Raise `UsageError` for two ways to show the chat at once."""
    ways = [f"--{name}" for name, given in (("plain", plain), ("inline", inline), ("serve", serve)) if given]
    if len(ways) > 1:
        raise UsageError(f"{' and '.join(ways)} exclude each other; give one of them.")
    if serve and record is not None:
        # Every tab of the browser is a chat.
        raise UsageError("A served chat is not recorded; leave out --serve or --record.")
    if inline and os.name == "nt":
        raise UsageError("--inline needs a terminal of Linux or macOS; leave it out.")


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
