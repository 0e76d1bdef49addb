"""The A/B screen: one message answered two ways, side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import ClassVar

from rich.text import Text
from textual import events, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import Screen

from localspec.chat.comparisons import Comparisons
from localspec.errors import LocalspecError
from localspec.text import printable
from tui import compare_choices
from tui.chat import Chat
from tui.choices import Choice
from tui.compare import Comparison
from tui.compare_runs import NAMES, SIDES, Contender, Run
from tui.compare_words import contender_name, head_row, title_row, verdict_rows
from tui.conversation import Message, Status
from tui.keys import COMPARE_BAR, Action, Owner, bindings
from tui.reasoning import Thoughts
from tui.screens.choice import ChoiceScreen
from tui.widgets.bars import KeyBar, wrapped
from tui.widgets.prompt import Prompt
from tui.widgets.rows import Row, Rows
from tui.widgets.transcript import Transcript

HINT_SECONDS = 4.0

LOW = 30
"""Rows below which the margins go."""

LOWEST = 16
"""Rows below which all else makes room for the replies: title, frames, and hints in rows of their own."""

WIDE = 80
"""Columns from which on the sides stand beside each other; below, in so few rows, one of them is folded."""


class CompareScreen(Screen[None]):
    """A's and B's replies beside each other, and what they show.

    Args:
        chat: the chat that it was opened from, which it leaves as it is.
        comparison: what is shown; it outlives the screen.
        past: earlier comparisons.
        hurry: called when the engine was sent something.
    """

    CSS_PATH = "compare.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings("compare"),
        Binding("f3", "back_at_once", show=False, priority=True, id="compare.leave"),
        Binding("pageup", "page(-1)", show=False, priority=True, id="compare.page_up"),
        Binding("pagedown", "page(1)", show=False, priority=True, id="compare.page_down"),
    ]
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]
    AUTO_FOCUS = "#question"
    owner: ClassVar[Owner] = "compare"

    def __init__(
        self, chat: Chat, comparison: Comparison, past: Comparisons, hurry: Callable[[], None]
    ) -> None:
        super().__init__()
        self._chat, self.comparison, self._past, self._hurry = chat, comparison, past, hurry
        self._hints, self._hint = 0, ""
        self._front = 0
        self._shown: list[tuple[Run | None, int, bool]] = [(None, 0, False), (None, 0, False)]
        self._thoughts = [Thoughts(), Thoughts()]

    def compose(self) -> ComposeResult:
        """Two columns, what they show, and the message."""
        yield Rows(id="compare-title")
        with Horizontal(id="sides"):
            for name in ("a", "b"):
                with Vertical(id=f"side-{name}", classes="side"):
                    yield Rows(id=f"head-{name}").add_class("head")
                    yield Transcript(id=f"answer-{name}").add_class("answer")
        yield Rows(id="verdict")
        yield Prompt(id="question")
        yield KeyBar(self._press, COMPARE_BAR, id="compare-keys")

    def on_mount(self) -> None:
        """Begin with the chat's last message, or with what was compared last."""
        questions = self._chat.conversation.questions()
        self._question.set_history(questions)
        self._question.border_title = "asked both ways"
        self._question.write(self.comparison.prompt or (questions[-1] if questions else ""))
        self._question.placeholder = "A message to answer both ways"
        self._bring_forward(0)
        self.call_after_refresh(self.follow)

    def on_resize(self, event: events.Resize) -> None:
        """Draw anew for the new size."""
        columns, rows = event.size
        self.set_class(rows < LOW, "-low")
        self.set_class(rows < LOWEST, "-lowest")
        self.set_class(rows < LOWEST and columns < WIDE, "-one")
        self.call_after_refresh(self.follow)

    def follow(self) -> None:
        """Show the comparison as it is now; called once a frame."""
        comparison = self.comparison
        for side in SIDES:
            head = self.query_one(f"#head-{NAMES[side].lower()}", Rows)
            head.show([head_row(comparison, side, head.size.width)])
            self._show(side, comparison.latest(side))
        title = self.query_one("#compare-title", Rows)
        title.show([title_row(comparison, self._chat, title.size.width)])
        verdict = self.query_one("#verdict", Rows)
        verdict.show(self._hint_rows(*verdict.size) or verdict_rows(comparison, *verdict.size))
        self.query_one("#compare-keys", KeyBar).update_from(self._usable)

    # --- actions

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002
        """Whether an action makes sense now."""
        if action == "other_side":
            return self.has_class("-one")
        if action == "again":
            return self.comparison.can_repeat
        if action in ("stop", "back"):
            at_work = self.comparison.running and not self.comparison.stopping
            return at_work if action == "stop" else not at_work
        if action in ("choose_a", "choose_b", "past"):
            return not self.comparison.running
        return True

    def on_prompt_sent(self, event: Prompt.Sent) -> None:
        """Answer the message both ways."""
        if self.comparison.running:
            self.hint("This comparison is at work; esc stops it.")
            return
        if self._chat.state.info is None:
            self.hint("There is no engine; the next message in the chat starts it again.")
            return
        if not self._chat.ready:
            self.hint("The engine is busy with the chat; wait for its reply, or stop it there.")
            return
        self.comparison.start(event.text.strip())
        self._acted()

    def action_stop(self) -> None:
        """End the comparison; what was said so far stays on the screen."""
        self.comparison.stop()
        self._acted()

    def action_back(self) -> None:
        """Go back to the chat; what runs ends."""
        self.comparison.leave()
        self._hurry()
        self.dismiss()

    def action_back_at_once(self) -> None:
        """The same, while it runs too."""
        self.action_back()

    def action_again(self) -> None:
        """One more round."""
        self.comparison.again()
        self._acted()

    def action_page(self, direction: int) -> None:
        """Scroll both replies."""
        for answer in self.query(Transcript):
            answer.page(direction)

    def action_choose_a(self) -> None:
        """Choose how A answers."""
        self._choose(0)

    def action_choose_b(self) -> None:
        """Choose how B answers."""
        self._choose(1)

    def action_other_side(self) -> None:
        """Unfold the side that is folded."""
        self._bring_forward(1 - self._front)
        self.follow()

    def action_past(self) -> None:
        """Choose an earlier comparison, to look at its figures or to make it again."""
        if self.comparison.running:
            return
        found = ChoiceScreen("Earlier comparisons", lambda: compare_choices.past_choices(self._past))
        self.app.push_screen(found, self._pick_past)

    def hint(self, text: str) -> None:
        """Show a sentence for a few seconds."""
        self._hint = printable(text)
        self._question.border_subtitle = Text(self._hint, no_wrap=True, overflow="ellipsis")
        self._hints += 1
        self.set_timer(HINT_SECONDS, partial(self._drop_hint, self._hints))
        self.follow()

    # --- inner steps

    def _hint_rows(self, width: int, height: int) -> list[Row]:
        """The hint, where the prompt has no frame for it."""
        if not (self._hint and self.has_class("-lowest")):
            return []
        return [[(row, "accent")] for row in wrapped(self._hint, width, height)]

    def _bring_forward(self, side: int) -> None:
        """Let a side be the one that is shown where there is room for one."""
        self._front = side
        for other in SIDES:
            self.query_one(f"#side-{NAMES[other].lower()}").set_class(other != side, "-behind")

    def _drop_hint(self, number: int) -> None:
        if number == self._hints:
            self._hint = self._question.border_subtitle = ""
            self.follow()

    @property
    def _question(self) -> Prompt:
        return self.query_one("#question", Prompt)

    def _acted(self) -> None:
        self._hurry()
        self.follow()

    def _press(self, action: Action) -> None:
        owner = self.app if action.owner == "app" else self
        self.call_next(owner.run_action, action.name)

    def _usable(self, action: Action) -> bool:
        return action.owner != "compare" or bool(self.check_action(action.name, ()))

    def _show(self, side: int, run: Run | None) -> None:
        """Bring a column up to its run."""
        answer = self.query_one(f"#answer-{NAMES[side].lower()}", Transcript)
        shown, length, ended = self._shown[side]
        if run is None:
            if shown is not None or not answer.text:
                answer.reset([Message("assistant", "")], "")
            self._shown[side] = (None, 0, False)
            return
        if run is not shown:
            answer.reset([Message("assistant", "", "streaming")], "")
            self._bring_forward(side)
            length, ended = 0, False
        if not length:
            self._thoughts[side] = Thoughts(run.prompt.opening if run.prompt else "")
        thoughts = self._thoughts[side]
        thoughts.hear(run.text[length:])
        if run.stats is not None and not ended:
            status: Status = "complete" if run.whole else "cancelled"
            answer.end(Message("assistant", run.text, status, {**run.stats, **thoughts.kept()}))
            if self.has_class("-lowest"):
                # Its first rows say more than the figures at its end.
                answer.to_start()
            ended = True
        elif len(run.text) > length:
            answer.grow(thoughts)
        self._shown[side] = (run, len(run.text), ended)

    def _choose(self, side: int) -> None:
        """Show what a side is made of; choosing a part of it shows what it can be."""
        if self.comparison.running:
            self.hint("This comparison is at work; esc stops it.")
            return
        now = self.comparison.contenders[side]

        def choose(part: str | None) -> None:
            if part is not None:
                self._choose_part(side, part)

        self.app.push_screen(
            ChoiceScreen(f"How does {NAMES[side]} answer?", lambda: compare_choices.parts(now)), choose
        )

    def _choose_part(self, side: int, part: str) -> None:
        now, target = self.comparison.contenders[side], self._chat.setup.file
        if target is None:
            self.hint("There is no model yet.")
            return

        def find() -> list[Choice]:
            return compare_choices.part_choices(part, now, target)

        def take(chosen: str | None) -> None:
            if chosen is None:
                self._choose(side)
            else:
                self._take(side, part, chosen)

        self.app.push_screen(ChoiceScreen(f"{NAMES[side]}: {compare_choices.TITLES[part]}", find), take)

    @work
    async def _take(self, side: int, part: str, chosen: str) -> None:
        now, target = self.comparison.contenders[side], self._chat.setup.file
        try:
            contender = await asyncio.to_thread(compare_choices.with_part, now, part, chosen, target)
        except LocalspecError as error:
            self.hint(str(error))
            return
        self._set(side, contender)

    def _set(self, side: int, contender: Contender) -> None:
        self.comparison.choose(side, contender)
        self.hint(f"{NAMES[side]} answers {contender_name(contender)}.")
        self._acted()

    def _pick_past(self, chosen: str | None) -> None:
        if chosen is not None:
            self._recall(chosen)

    @work
    async def _recall(self, chosen: str) -> None:
        try:
            found = next((one for one in self._past.newest() if one.id == chosen), None)
            if found is None:
                return
            contenders = await asyncio.to_thread(compare_choices.contenders_of, found, self._chat.setup.file)
        except LocalspecError as error:
            self.hint(str(error))
            return
        for side in SIDES:
            self.comparison.choose(side, contenders[side])
        self._question.text = found.prompt
        self.hint("enter makes this comparison again.")
        self._acted()
