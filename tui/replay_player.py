"""Plays a recorded chat in the app: does what the user did, and lets the recorded engine speak, in time."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from textual.app import App
from textual.screen import Screen

from localspec.chat.rows import title_of
from localspec.chat.store import Store
from localspec.messages import Cancel, Generate, Load, SetDrafter, SetSpeculation
from localspec.models.registry import Resolved
from localspec.recording import Item, ScreenName, Session
from localspec.types import ChatMessage
from tui.compare_runs import Contender, OtherModel
from tui.replay_engine import Played, RecordedEngine
from tui.replay_places import Place, place_of
from tui.screens.chat import ChatScreen
from tui.screens.compare import CompareScreen
from tui.screens.tokens import TokenScreen
from tui.widgets.prompt import Prompt

LONGEST_REST = 4.0
"""Seconds of a recording in which nothing happens, at most: nobody wants to watch others think."""

TICK = 0.02
PATIENCE_S = 10.0
"""How long the app may take to be ready for what comes next."""

TYPED_S = 0.6
"""How long a message stands in the prompt before it is sent."""


class Player:
    """Plays a session once, from its beginning.

    Args:
        session: the recorded chat.
        engine: what the app takes for its engine.
        screen: the chat screen of the app, which is running.
        store: the app's conversations.
        speed: 1 is the recording's own; infinity takes no time.

    Attributes:
        paused: whether time stands still.
        speed: how fast time goes.
        position: seconds of the recording that have been played, long rests shortened.
        length: seconds that there are.
        ended: whether all of it was played.
    """

    def __init__(
        self,
        session: Session,
        engine: RecordedEngine,
        screen: ChatScreen,
        store: Store,
        *,
        speed: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._items = without_rests(session.items)
        self._engine, self._screen, self._store = engine, screen, store
        self._clock = clock
        self._conversations: dict[str, int] = {}
        self._last = clock()
        self.paused = self.ended = False
        self.speed = speed
        self.position = 0.0
        self.length = self._items[-1].at

    async def run(self) -> None:
        """Play to the end."""
        await self._until(lambda: self._engine.alive)
        self._last = self._clock()
        for index, item in enumerate(self._items):
            await self._wait_for(item.at)
            if item.event is not None:
                self._engine.say(item.event)
            elif item.screen is not None:
                await self._look_at(item.screen)
            elif isinstance(item.command, Played):
                await self._repeat(index, item.command)
        self._screen.bridge.hurry()
        self.ended = True

    # --- time

    async def _wait_for(self, at: float) -> None:
        if math.isinf(self.speed) and not self.paused:
            self.position = at
            return
        while self.position < at or self.paused:
            await asyncio.sleep(TICK)
            now = self._clock()
            if not self.paused:
                self.position = min(self.position + (now - self._last) * self.speed, self.length)
            self._last = now

    async def _until(self, condition: Callable[[], bool]) -> bool:
        """Wait for the app, while the recording's time stands still; False where that takes too long."""
        deadline = self._clock() + PATIENCE_S
        while not condition():
            if self._clock() > deadline:
                return False
            self._screen.bridge.hurry()
            await asyncio.sleep(TICK / 2)
        self._last = self._clock()
        return True

    # --- what the user did

    async def _repeat(self, index: int, command: Played) -> None:
        """Have the app send what was sent then."""
        try:
            if await self._sent_by_itself(command):
                return
            match command:
                case Generate(trial=None):
                    await self._ask(command)
                case Generate():
                    await self._compare(index)
                case Load():
                    await self._load(index, command)
                case Cancel():
                    self._stop()
                case SetSpeculation(enabled=enabled):
                    if self._screen.chat.state.wanted != enabled:
                        self._screen.action_toggle_speculation()
                case SetDrafter(draft=draft):
                    self._screen.chat.setup.choose_drafter(draft)
            if not isinstance(command, Cancel):
                await self._until(lambda: self._engine.met(command))
            else:
                self._engine.met(command)
        finally:
            self._engine.passed(command)

    async def _sent_by_itself(self, command: Played) -> bool:
        """Whether the app sends a command without being told, now that it hears what was said before it."""
        engine, chat = self._engine, self._screen.chat
        if isinstance(command, Generate) or isinstance(self._app.screen, CompareScreen):
            # Once it is ready it waits for the user; without an engine it does too.
            sent = [False]

            def settled() -> bool:
                sent[0] = engine.met(command)
                return sent[0] or chat.ready or not engine.alive

            await self._until(settled)
            return sent[0]
        return engine.met(command)

    async def _ask(self, command: Generate) -> None:
        """Ask what was asked, where it was asked: the model is shown the same turns."""
        chat, name = self._screen.chat, command.conversation
        turns = [one for one in command.messages if one.role != "system"]
        if not chat.ready or not turns:
            return
        self._turn_to(name, turns[:-1])
        number = chat.conversation.id
        place = place_of(self._store.tree(number) if number is not None else None, turns)
        if place is None:
            # Something of it was said before the recording began.
            self._open(turns[:-1])
            place = Place(turns[-1].content)
        elif (shown := place.after if place.beside is None else place.beside) is not None:
            self._show(shown)
        if place.beside is None:
            await self._write(place.text)
            chat.submit(place.text)
        else:
            await self._ask_beside(place, place.beside)
        if chat.conversation.id is not None:
            self._conversations[name] = chat.conversation.id

    async def _ask_beside(self, place: Place, beside: int) -> None:
        """Make the reply to a question again, or ask another one in its place."""
        branches = self._screen.chat.branches
        messages = self._screen.chat.conversation.messages
        index = next((at for at, one in enumerate(messages) if one.row_id == beside), None)
        if place.again:
            branches.regenerate(index)
        else:
            branches.edit(index)
            await self._write(place.text)
            branches.send(place.text)

    async def _write(self, text: str) -> None:
        """Let a message stand in the prompt for a moment."""
        prompt = self._screen.query_one("#prompt", Prompt)
        prompt.text = text
        if not math.isinf(self.speed):
            await asyncio.sleep(min(TYPED_S / self.speed, TYPED_S))
        prompt.text = ""

    def _turn_to(self, name: str, before: list[ChatMessage]) -> None:
        """Show the conversation of that name in the recording; one that is new here begins with `before`."""
        chat = self._screen.chat
        number = self._conversations.get(name) if name else chat.conversation.id
        if number is not None and (name or before):
            if number != chat.conversation.id:
                chat.open(number)
        elif before or chat.conversation.messages:
            self._open(before)

    def _show(self, message_id: int) -> None:
        """Show the branch of a message, where it is not on the screen."""
        conversation = self._screen.chat.conversation
        if not any(one.row_id == message_id for one in conversation.messages):
            conversation.show(message_id)
            self._screen.show_conversation()

    def _open(self, turns: list[ChatMessage]) -> None:
        """Show another conversation, of these turns."""
        chat = self._screen.chat
        if not turns:
            chat.new()
            return
        row = self._store.create(model=chat.setup.name, title=title_of(turns[0].content))
        for turn in turns:
            self._store.add_message(row.id, turn.role, turn.content)
        chat.open(row.id)

    async def _load(self, index: int, command: Load) -> None:
        chat, app = self._screen.chat, self._app
        if chat.setup.starting:
            # Its files are being looked for.
            await self._until(lambda: not chat.setup.finder.running)
        elif not self._engine.alive:
            chat.begin()
        elif isinstance(app.screen, CompareScreen):
            await self._compare(index)
        else:
            chat.choose_model(Resolved(command.name, Path(command.path), None))

    def _stop(self) -> None:
        screen = self._app.screen
        if isinstance(screen, CompareScreen) and screen.comparison.running:
            screen.action_stop()
        elif self._screen.chat.replying:
            self._screen.action_stop()

    async def _compare(self, index: int) -> None:
        """Begin the comparison, or the round of one, whose first command is at `index`."""
        screen = self._app.screen
        prompt, ways = self._comparison_at(index)
        if not isinstance(screen, CompareScreen) or screen.comparison.running:
            return
        comparison = screen.comparison
        same = comparison.prompt == prompt and all(way in comparison.contenders for way in ways)
        if same and comparison.can_repeat:
            screen.action_again()
            return
        for side, way in enumerate(ways):
            comparison.choose(side, way)
        screen.query_one("#question", Prompt).text = prompt
        comparison.start(prompt)
        screen.follow()

    def _comparison_at(self, index: int) -> tuple[str, list[Contender]]:
        """The message that was answered two ways from `index` on, and the ways in their order."""
        own = self._screen.chat.setup.file
        prompt, ways, model = "", list[Contender](), None
        for item in self._items[index:]:
            match item.command:
                case Load(name=name, path=path):
                    model = None if own == Path(path) else OtherModel(name, Path(path))
                case Generate(trial=trial, messages=messages) if trial is not None and messages:
                    prompt = prompt or messages[-1].content
                    ways.append(Contender(trial.draft, trial.verify, model))
            if item.screen is not None or len(ways) == 2:
                break
        return prompt, ways

    # --- what the user looked at

    async def _look_at(self, name: ScreenName) -> None:
        app, screen = self._app, self._screen
        while app.screen is not screen:
            await self._leave(app.screen)
        if name == "compare" and await self._until(lambda: screen.chat.state.info is not None):
            screen.action_compare()
        elif name == "tokens":
            screen.action_tokens()
        if name != "chat":
            await self._until(lambda: app.screen is not screen and app.screen.is_mounted)

    async def _leave(self, above: Screen[Any]) -> None:
        """Close a screen over the chat."""
        if isinstance(above, CompareScreen | TokenScreen):
            above.action_back()
        else:
            above.dismiss()
        await self._until(lambda: self._app.screen is not above)

    @property
    def _app(self) -> App[Any]:
        return self._screen.app


def without_rests(items: tuple[Item, ...], longest: float = LONGEST_REST) -> list[Item]:
    """Items with the times between any two of them cut to `longest` seconds."""
    found: list[Item] = []
    before = saved = 0.0
    for item in items:
        saved += max(item.at - before - longest, 0.0)
        before = item.at
        found.append(replace(item, at=item.at - saved))
    return found
