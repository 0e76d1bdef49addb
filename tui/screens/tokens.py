"""The token view: a reply of the chat as tokens, and where each of them came from."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from tui.chat import Chat
from tui.keys import TOKEN_BAR, Action, Owner, bindings
from tui.token_reading import Reading
from tui.token_words import (
    NOT_RECORDED,
    NOTHING,
    UNSPELLED,
    WAITING,
    detail_rows,
    legend_row,
    title_row,
)
from tui.tokens import Record
from tui.widgets.bars import KeyBar
from tui.widgets.rows import Rows
from tui.widgets.token_text import TokenRows, TokenText

PATIENCE_S = 0.5
"""Seconds between two looks while nothing comes from the engine."""

LOW = 24
"""Rows below which less is said about a token."""


class TokenScreen(Screen[None]):
    """Tokens as flowing text, what their signs mean, and all about the one under the cursor.

    Args:
        chat: the chat that it was opened from.
        hurry: called when the engine was sent something.
    """

    CSS_PATH = "tokens.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings("tokens"),
        Binding("left", "step(-1)", show=False, priority=True, id="tokens.left"),
        Binding("right", "step(1)", show=False, priority=True, id="tokens.right"),
        Binding("up", "line(-1)", show=False, priority=True, id="tokens.up"),
        Binding("down", "line(1)", show=False, priority=True, id="tokens.down"),
        Binding("home", "end(-1)", show=False, priority=True, id="tokens.home"),
        Binding("end", "end(1)", show=False, priority=True, id="tokens.end"),
        Binding("pageup", "page(-1)", show=False, priority=True, id="tokens.page_up"),
        Binding("pagedown", "page(1)", show=False, priority=True, id="tokens.page_down"),
    ]
    owner: ClassVar[Owner] = "tokens"

    def __init__(self, chat: Chat, hurry: Callable[[], None]) -> None:
        super().__init__()
        self._chat, self._hurry = chat, hurry
        self.reading = Reading(chat)

    def compose(self) -> ComposeResult:
        """Title, signs, tokens, and the one under the cursor."""
        yield Rows(id="tokens-title")
        yield TokenRows(id="legend")
        yield TokenText(self._chat.tokens, id="tokens")
        yield TokenRows(id="details")
        yield KeyBar(self._press, TOKEN_BAR, id="tokens-keys")

    def on_mount(self) -> None:
        """Show the newest reply; what does not come is asked for again."""
        self.call_after_refresh(self.follow)
        self.set_interval(PATIENCE_S, self.follow)

    def on_resize(self, event: events.Resize) -> None:
        """Draw anew for the new size."""
        self.set_class(event.size.height < LOW, "-low")
        self.call_after_refresh(self.follow)

    def follow(self) -> None:
        """Show the reply as it is now; called once a frame."""
        self.reading.follow()
        record = self.reading.record
        self._tokens.show(record, self._sentence(record))
        title, legend = self.query_one("#tokens-title", Rows), self.query_one("#legend", TokenRows)
        title.show([title_row(self.reading, title.size.width)])
        legend.show([legend_row(record, legend.size.width, ghosts=self._tokens.ghosts)])
        self.query_one("#tokens-keys", KeyBar).update_from(self._usable)
        self._tell()

    def on_token_text_moved(self) -> None:
        """Tell about another token."""
        self._tell()

    # --- actions

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002
        """Whether an action makes sense now."""
        if action == "score":
            return self.reading.can_score
        if action in ("earlier", "later"):
            number = self.reading.number + (1 if action == "later" else -1)
            return 0 <= number < len(self.reading.replies)
        return True

    def action_back(self) -> None:
        """Go back to the chat."""
        self.reading.leave()
        self._hurry()
        self.dismiss()

    def action_ghosts(self) -> None:
        """Show or hide rejected tokens."""
        self._tokens.toggle_ghosts()
        self.follow()

    def action_next_correction(self) -> None:
        """Go to the next correction."""
        self._found(self._tokens.correction(1))

    def action_previous_correction(self) -> None:
        """Go to the last correction before."""
        self._found(self._tokens.correction(-1))

    def action_next_draft(self) -> None:
        """Go to the next draft."""
        self._found(self._tokens.draft(1))

    def action_previous_draft(self) -> None:
        """Go to the last draft before."""
        self._found(self._tokens.draft(-1))

    def action_score(self) -> None:
        """Have the reply's tokens scored."""
        self.reading.score()
        self._acted()

    def action_earlier(self) -> None:
        """Look at the reply before."""
        self.reading.move(-1)
        self._acted()

    def action_later(self) -> None:
        """Look at the reply after."""
        self.reading.move(1)
        self._acted()

    def action_step(self, direction: int) -> None:
        """Go to the next or the last token."""
        self._tokens.step(direction)

    def action_line(self, direction: int) -> None:
        """Go to the next or the last row."""
        self._tokens.line(direction)

    def action_page(self, direction: int) -> None:
        """Go on or back by a screenful."""
        self._tokens.page(direction)

    def action_end(self, direction: int) -> None:
        """Go to the first or the last token."""
        self._tokens.end(direction)

    # --- inner steps

    @property
    def _tokens(self) -> TokenText:
        return self.query_one("#tokens", TokenText)

    def _sentence(self, record: Record | None) -> str:
        """What is said where there are no tokens."""
        reading = self.reading
        if not reading.replies:
            return NOTHING
        if record is None:
            return NOT_RECORDED
        if not record.passes:
            return NOTHING if record.ended else WAITING
        if not reading.model_is_here:
            return f"{record.model} wrote this reply; its tokens can be read while that model is loaded."
        return UNSPELLED if reading.unanswered else ""

    def _tell(self) -> None:
        details = self.query_one("#details", TokenRows)
        size = details.size
        details.show(detail_rows(self.reading, self._tokens.item, size.width, size.height))

    def _found(self, found: bool) -> None:
        if not found:
            self.app.bell()

    def _acted(self) -> None:
        self._hurry()
        self.follow()

    def _press(self, action: Action) -> None:
        owner = self.app if action.owner == "app" else self
        self.call_next(owner.run_action, action.name)

    def _usable(self, action: Action) -> bool:
        return action.owner != "tokens" or bool(self.check_action(action.name, ()))
