"""What the terminal can do: by its environment, and by its own answers where it may be asked."""

from __future__ import annotations

import os
import re
import select
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from localspec.clipboard import copies_file, program, terminal_takes_text
from localspec.diagnosis.findings import Finding

_SMALLEST = (60, 20)
_PATIENCE_S = 1.0
"""For the terminal's answers; every terminal of the last decades answers the last question at once."""

# Synchronized output (mode 2026)? Which kitty keyboard flags? And last, what are you (answered by all).
_QUESTIONS = "\x1b[?2026$p\x1b[?u\x1b[c"
_LAST_ANSWER = re.compile(rb"\x1b\[\?[\d;]*c")


@dataclass(frozen=True, slots=True)
class Terminal:
    """What standard output is connected to.

    Attributes:
        interactive: whether it is a terminal.
        kind: TERM.
        columns, rows: its size in characters.
        colors: that it announces; 0 without any.
        unicode: whether its encoding is UTF-8.
        within: "tmux", "screen" or "zellij" where one is in between, else "".
        remote: whether it is reached through SSH.
        program: the terminal's own name, where it tells.
        synchronized: whether it draws whole frames (mode 2026); None where it was not asked.
        kitty_keyboard: whether it tells all keys apart; None where it was not asked.
        clipboard_program: what takes copied text for the clipboard of this screen, "" for none.
        passes_copies: whether the terminal may pass text on to a clipboard (OSC 52).
    """

    interactive: bool
    kind: str
    columns: int
    rows: int
    colors: int
    unicode: bool
    within: str = ""
    remote: bool = False
    program: str = ""
    synchronized: bool | None = None
    kitty_keyboard: bool | None = None
    clipboard_program: str = ""
    passes_copies: bool = True

    @property
    def clipboard(self) -> str:
        """How text that is copied in the chat gets to the clipboard, in words; "" where there is no chat."""
        if not self.interactive:
            return ""
        ways = [self.clipboard_program] if self.clipboard_program else []
        if self.passes_copies:
            through = f" through {self.within}" if self.within else ""
            ways.append(f"OSC 52{through}, to the clipboard where the terminal runs")
        # What the app does with text that nothing takes.
        return "; or else ".join(ways) or f"none here: what is copied is put into {copies_file()}"


def look_at_terminal(*, ask: bool = True) -> Terminal:
    """What standard output is connected to.

    Args:
        ask: whether the terminal itself may be asked, which takes at most a second.
    """
    size = shutil.get_terminal_size()
    encoding = (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "")
    interactive = sys.stdout.isatty()
    kind = os.environ.get("TERM", "")
    answers = _answers() if ask and interactive and kind != "dumb" else None
    return Terminal(
        interactive=interactive,
        kind=kind,
        columns=size.columns,
        rows=size.lines,
        colors=colors(os.environ),
        unicode=encoding == "utf8",
        within=within(os.environ),
        remote="SSH_CONNECTION" in os.environ or "SSH_TTY" in os.environ,
        program=os.environ.get("TERM_PROGRAM", ""),
        synchronized=None if answers is None else re.search(rb"\?2026;[123]\$y", answers) is not None,
        kitty_keyboard=None if answers is None else re.search(rb"\x1b\[\?\d*u", answers) is not None,
        clipboard_program=next(iter(program() or ()), ""),
        passes_copies=terminal_takes_text(),
    )


def terminal_findings(terminal: Terminal) -> Iterator[Finding]:
    """What the chat would look like here; nothing where the output is not a terminal."""
    if not terminal.interactive:
        return
    if terminal.kind == "dumb":
        yield Finding("note", "TERM is dumb, so `localspec chat` cannot draw; use `localspec run` here.")
        return
    columns, rows = _SMALLEST
    if terminal.columns < columns or terminal.rows < rows:
        yield Finding(
            "note",
            f"The window has {terminal.columns}x{terminal.rows} characters; {columns}x{rows} are the least.",
        )
    if not terminal.unicode:
        yield Finding("note", "The terminal's encoding is not UTF-8; set LANG to a UTF-8 locale.")
    if terminal.colors < 256:
        yield Finding("note", "The terminal announces few colours; TERM=xterm-256color is usual.")
    if not terminal.clipboard_program:
        yield from _clipboard_findings(terminal)


def _clipboard_findings(terminal: Terminal) -> Iterator[Finding]:
    """Where the terminal is the one way to the clipboard: what keeps it from being one."""
    if terminal.within == "screen":
        yield Finding("note", "GNU screen passes no clipboard on; copying from the chat works outside of it.")
    elif terminal.within == "tmux":
        yield Finding("note", "Copying through tmux needs `set -g set-clipboard on` in its configuration.")
    elif terminal.program == "Apple_Terminal":
        yield Finding("note", "Apple's Terminal takes no clipboard from programs (OSC 52); others do.")
    elif not terminal.passes_copies:
        yield Finding("note", "This console passes no clipboard on; copying from the chat works in a window.")


def colors(environment: Mapping[str, str]) -> int:
    """Colours that the terminal announces."""
    kind = environment.get("TERM", "")
    if kind == "dumb":
        return 0
    if environment.get("COLORTERM", "").lower() in ("truecolor", "24bit") or "WT_SESSION" in environment:
        return 1 << 24
    if "256color" in kind:
        return 256
    return 16 if kind or sys.platform == "win32" else 0


def within(environment: Mapping[str, str]) -> str:
    """The program between this one and the terminal, "" for none."""
    for variable, name in (("TMUX", "tmux"), ("STY", "screen"), ("ZELLIJ", "zellij")):
        if environment.get(variable):
            return name
    return ""


def _answers() -> bytes | None:
    """What the terminal says of itself; None where it cannot be asked or keeps silent."""
    try:
        import termios
        import tty
    except ImportError:
        # Windows: its consoles are asked by the app itself.
        return None
    try:
        descriptor = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    except OSError:
        return None
    try:
        # In the background, asking would stop this process.
        if os.tcgetpgrp(descriptor) != os.getpgrp():
            return None
        before = termios.tcgetattr(descriptor)
        try:
            tty.setcbreak(descriptor)
            os.write(descriptor, _QUESTIONS.encode())
            return _until_last_answer(descriptor)
        finally:
            termios.tcsetattr(descriptor, termios.TCSAFLUSH, before)
    except (OSError, termios.error):
        return None
    finally:
        os.close(descriptor)


def _until_last_answer(descriptor: int) -> bytes | None:
    received, deadline = b"", time.monotonic() + _PATIENCE_S
    while (left := deadline - time.monotonic()) > 0:
        ready, _, _ = select.select([descriptor], [], [], left)
        if not ready:
            break
        received += os.read(descriptor, 4096)
        if _LAST_ANSWER.search(received):
            return received
    return None
