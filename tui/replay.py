"""`localspec replay`: the app, playing a recorded chat."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, ClassVar

from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Input

from localspec.chat.store import Store
from localspec.model_files import WantedFiles
from localspec.models.registry import Resolved
from localspec.recording import Session
from localspec.types import SamplingParams
from tui.app import RECORDED_SCREENS, LocalspecApp
from tui.launch import Launch
from tui.replay_engine import RecordedEngine
from tui.replay_player import Player
from tui.widgets.prompt import Prompt
from tui.widgets.rows import Rows, spread

__all__ = ["ReplayApp", "run_replay"]

REFRESH_S = 0.25
FASTEST, SLOWEST = 64.0, 0.125

WIDE = 76
"""Columns of a bar that has room for all its keys."""


class ReplayBar(Rows):
    """Says that this is a recording, how far it is, and which keys there are for it."""

    DEFAULT_CSS = """
    ReplayBar {
        dock: top;
        height: 1;
        padding: 0 2 0 3;
        background: $panel;
    }
    """

    def update_from(self, player: Player, session: Session) -> None:
        """Show where the player is."""
        state = "ended" if player.ended else "paused" if player.paused else "playing"
        sign = {"ended": "■", "paused": "‖", "playing": "▶"}[state]
        left = [
            (f"{sign} RECORDING", "warning"),
            (f"  {state}  ", "muted"),
            (f"{_clock(player.position)} / {_clock(player.length)}", "value"),
        ]
        if player.speed != 1 and math.isfinite(player.speed):
            left.append((f"  speed {player.speed:g}", "muted"))
        if session.recorded:
            left.append((f"  of {session.recorded}", "faint"))
        right = [("space", "key"), (" pause  ", "muted"), ("q", "key"), (" leave", "muted")]
        if self.size.width >= WIDE:
            right = [("+ -", "key"), (" speed  ", "muted"), *right]
        self.show([spread(left, right, self.size.width)])


class ReplayApp(LocalspecApp):
    """The app without a model: everything that it shows was recorded.

    Args:
        session: the recorded chat.
        store: a private one, for the conversations that are played.
        speed: 1 is the recording's own; infinity takes no time.
        theme: name of a theme; None takes one that suits the terminal.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "pause", show=False, priority=True),
        Binding("q", "leave", show=False, priority=True),
        Binding("plus,equals_sign", "speed(2)", show=False, priority=True),
        Binding("minus", "speed(0.5)", show=False, priority=True),
        Binding(
            "enter,escape,f2,f6,f7,f8,f9,ctrl+g,ctrl+n,ctrl+o,ctrl+r,ctrl+t,alt+left,alt+right,alt+s",
            "refuse",
            show=False,
            priority=True,
        ),
    ]

    def __init__(
        self, session: Session, store: Store, *, speed: float = 1.0, theme: str | None = None
    ) -> None:
        engine = RecordedEngine(session)
        super().__init__(launch_of(session, theme), engine, store)
        self._session = session
        self.player = Player(session, engine, self.chat_screen, store, speed=speed)

    def on_mount(self) -> None:
        """Play as soon as the chat is there."""
        self.chat_screen.bridge.quick = True
        self.screen_change_signal.subscribe(self, self._marked)
        self.set_interval(REFRESH_S, self._follow)
        self.run_worker(self.player.run())

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that would change the chat do nothing in it; on other screens they lead back."""
        if action in ("pause", "leave", "speed"):
            # Letters are typed in the palette.
            return not isinstance(self.focused, Input)
        if action == "refuse":
            return self.screen is self.chat_screen or isinstance(self.focused, Prompt)
        return super().check_action(action, parameters)

    def action_pause(self) -> None:
        """Stop the time, or let it go on."""
        self.player.paused = not self.player.paused
        self._follow()

    def action_speed(self, factor: float) -> None:
        """Let the time go faster or slower."""
        self.player.speed = min(max(self.player.speed * factor, SLOWEST), FASTEST)
        self._follow()

    def action_leave(self) -> None:
        """End the app."""
        self.exit(return_code=0)

    def action_refuse(self) -> None:
        """Say why a key does nothing."""
        self.chat_screen.hint("This is a recording: space pauses it, q leaves.")

    def _marked(self, screen: Screen[Any]) -> None:
        """Put the bar on a screen that has none yet, and let nobody write there."""
        if type(screen) not in RECORDED_SCREENS or screen.query(ReplayBar):
            return
        screen.mount(ReplayBar())
        self.call_after_refresh(self._follow)

    def _follow(self) -> None:
        for bar in self.screen.query(ReplayBar):
            bar.update_from(self.player, self._session)
        for prompt in self.screen.query(Prompt):
            prompt.read_only = True


def launch_of(session: Session, theme: str | None = None) -> Launch:
    """How the app is started to play a session."""
    load, first = session.load, session.first
    system = [turn.content for turn in first.messages if turn.role == "system"] if first else []
    return Launch(
        files=WantedFiles(Resolved(load.name, Path(load.path), None), load.options),
        sampling=first.sampling if first else SamplingParams(),
        system_prompt=system[0] if system else None,
        max_tokens=first.max_tokens if first else None,
        conversation="new",
        theme=theme,
        private=True,
        replayed=True,
    )


def run_replay(session: Session, *, speed: float = 1.0, theme: str | None = None) -> int:
    """Play a recorded chat until the user leaves.

    Args:
        session: the chat.
        speed: 1 is its own; infinity takes no time.
        theme: name of a theme; None takes one that suits the terminal.

    Returns:
        The exit status.

    Raises:
        UsageError: an unknown theme.
    """
    store = Store(private=True)
    try:
        app = ReplayApp(session, store, speed=speed, theme=theme)
        try:
            app.run()
        finally:
            app.chat_screen.chat.close()
        return app.return_code or 0
    finally:
        store.close()


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
