"""The terminal app: wiring only."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

from textual import work
from textual.app import App
from textual.binding import Binding, BindingType
from textual.command import CommandPalette
from textual.screen import Screen

from localspec import paths
from localspec.chat.store import Store
from localspec.client import EngineClient, EngineLink
from localspec.recording import RecordingLink, ScreenName
from localspec.settings import load_settings
from tui import clipboard
from tui.commands import ActionProvider
from tui.hangup import SIGNALLED, HangUpWatch, LastResort, write_nowhere
from tui.keymap import KEYS
from tui.keys import bindings
from tui.launch import Launch
from tui.leaving import last_words
from tui.screens.chat import ChatScreen
from tui.screens.compare import CompareScreen
from tui.screens.help import HelpScreen
from tui.screens.settings import SettingsScreen
from tui.screens.tokens import TokenScreen
from tui.themes import DARK, LIGHT, check_theme, greys, preferred_theme

__all__ = ["Launch", "LocalspecApp", "run_chat"]

RECORDED_SCREENS: dict[type[Screen[Any]], ScreenName] = {
    ChatScreen: "chat",
    CompareScreen: "compare",
    TokenScreen: "tokens",
}
"""What a recording says of the screen that is shown; of those that lie over another one it says nothing."""


class LocalspecApp(App[None], inherit_bindings=False):
    """The chat in a terminal."""

    TITLE = "localspec"
    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings("app"),
        Binding("ctrl+c", "help_quit", show=False, system=True),
    ]
    COMMANDS = {ActionProvider}
    # A row above would push the last one out of a window that is as low as the app can be.
    INLINE_PADDING = 0
    CSS = "Screen:inline { height: 50%; min-height: 14; max-height: 24; border: none; }"

    def __init__(self, launch: Launch, link: EngineLink, store: Store) -> None:
        super().__init__()
        # Moving things would cost the model frames of CPU time.
        self.animation_level = "none"
        self.register_theme(DARK)
        self.register_theme(LIGHT)
        self.theme = self._known_theme(launch.theme)
        self.use_keys(launch.keymap)
        link = launch.recorded(link)
        self._recording = link if isinstance(link, RecordingLink) else None
        self._chat_screen = ChatScreen(launch, link, store)
        self._hang_up_watch, self._last_resort = HangUpWatch(), LastResort()

    @property
    def chat_screen(self) -> ChatScreen:
        """The one screen that is always there."""
        return self._chat_screen

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Colours that the style sheets use and Textual's own themes do not have."""
        return greys(self.current_theme)

    def on_mount(self) -> None:
        """Show the chat, and end in good order when the system asks for it."""
        self.screen_change_signal.subscribe(self, self._looked_at)
        self.push_screen(self._chat_screen)
        loop = asyncio.get_running_loop()
        for name in ("SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            if number is not None:
                # Not on Windows, and not outside the main thread.
                with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                    loop.add_signal_handler(number, self._signalled, int(number))
        if not self.is_headless:
            self._hang_up_watch.start(partial(self._hung_up, loop))

    def _known_theme(self, name: str | None) -> str:
        if name is not None:
            check_theme(name)
        return name or preferred_theme()

    def use_keys(self, chosen: Mapping[str, str]) -> None:
        """Take the user's own keys, by action id, into use; raises `UsageError` as `tui.keymap.checked`."""
        self.set_keymap(KEYS.use(chosen))

    def on_settings_screen_changed(self, event: SettingsScreen.Changed) -> None:
        """A setting that counts at once was changed."""
        match event.key:
            case "ui.theme":
                self.theme = self._known_theme(None if event.value is None else str(event.value))
            case "ui.panel":
                self._chat_screen.show_panel(bool(event.value))
            case key if key.startswith("sampling."):
                self._chat_screen.chat.setup.resample()
            case _:
                self.use_keys(load_settings().keymap)
                self._chat_screen.acted()

    def _looked_at(self, screen: Screen[Any]) -> None:
        name = RECORDED_SCREENS.get(type(screen))
        if self._recording is not None and name is not None:
            self._recording.looked_at(name)

    def _signalled(self, number: int) -> None:
        self._last_resort.begin(number)
        self.exit(return_code=SIGNALLED + number)

    def _hung_up(self, loop: asyncio.AbstractEventLoop) -> None:
        """The terminal is gone; called in another thread, since the app may be waiting for it for good."""
        write_nowhere()
        self._last_resort.begin(signal.SIGHUP)
        # It may have ended meanwhile.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self._signalled, int(signal.SIGHUP))

    def ended(self) -> None:
        """The app has ended in good order."""
        self._hang_up_watch.stop()
        self._last_resort.cancel()

    def copy_to_clipboard(self, text: str) -> None:
        """Copy what is selected."""
        self.copy(text, "the selection")

    def copy(self, text: str, what: str) -> None:
        """Bring text to the clipboard, and say how; `what` it is, in words."""
        # Within the app it can be pasted in any case.
        self._clipboard = text
        sent = clipboard.terminal_takes_text()
        if sent:
            super().copy_to_clipboard(text)
        self._copy_on(text, what, sent=sent)

    @work(name="copy", exclusive=True)
    async def _copy_on(self, text: str, what: str, *, sent: bool) -> None:
        keep, command = not self._chat_screen.chat.private, clipboard.program()
        how = await asyncio.to_thread(clipboard.copied, text, what, keep=keep, sent=sent, command=command)
        self._chat_screen.hint(how)

    def action_help(self) -> None:
        """Show the help, or close it."""
        if isinstance(self.screen, HelpScreen):
            self.screen.dismiss()
        elif not self._palette_open:
            self.push_screen(HelpScreen(getattr(self.screen, "owner", "chat")))

    def action_command_palette(self) -> None:
        """Search all commands; there is one palette at a time, whatever lies over it."""
        if not self._palette_open:
            super().action_command_palette()

    @property
    def _palette_open(self) -> bool:
        return any(isinstance(screen, CommandPalette) for screen in self.screen_stack)

    def action_help_quit(self) -> None:
        """Say how to quit where people expect ctrl+c to do it."""
        self._chat_screen.hint(f"Nothing is selected to copy; {KEYS['app.quit']} quits.")

    async def action_quit(self) -> None:
        """End the app; the exit status says whether there was a model."""
        self.exit(return_code=self._chat_screen.chat.exit_code)


def run_chat(launch: Launch, *, link: EngineLink | None = None, store: Store | None = None) -> int:
    """Run the chat until the user quits.

    Args:
        launch: what to start with.
        link: the engine; a process of its own when not given.
        store: where conversations are kept; the user's own when not given, or none where that is asked for.

    Returns:
        The exit status: 0, that of the error which left the app without a model, or 128 plus a signal number.

    Raises:
        StorageError: conversations cannot be kept, or the recording cannot be written.
        UsageError: an unknown theme, or keys that cannot be used.
    """
    kept = store or Store(private=launch.private)
    try:
        engine = link or EngineClient(log_path=paths.engine_log())
        app = LocalspecApp(launch, engine, kept)
        try:
            app.run(inline=launch.inline)
        finally:
            app.chat_screen.chat.close()
            app.ended()
        if launch.inline and not launch.private:
            sys.stdout.write(last_words(app.chat_screen.chat.conversation.messages))
        return app.return_code or 0
    finally:
        if store is None:
            kept.close()
