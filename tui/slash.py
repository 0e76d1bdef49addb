"""Commands that are written in the prompt, such as `/temp 0.7`. No widgets here."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import replace

from localspec.chat.rows import HOTTEST, SEEDS
from localspec.chat.store import Store
from localspec.errors import LocalspecError, UsageError
from tui.chat import Chat
from tui.exporting import ExportKind, write_export
from tui.keymap import KEYS
from tui.keys import SLASH_COMMANDS, Action

_WRITTEN = re.compile(r"/([A-Za-z]\w*)(?:\s+(.*))?", re.DOTALL)

OWN = "-"
"""What gives a setting of the chat up again."""


def written_command(text: str) -> tuple[Action, str] | None:
    """The command that a text is, and what follows its name; None where it is a message.

    Raises:
        UsageError: it looks like a command, and is none.
    """
    match = _WRITTEN.fullmatch(text.rstrip())
    if match is None:
        return None
    name, argument = match.group(1).lower(), (match.group(2) or "").strip()
    action = SLASH_COMMANDS.get(name)
    if action is None:
        near = difflib.get_close_matches(name, SLASH_COMMANDS, 1)
        instead = f"did you mean /{near[0]}?" if near else f"{KEYS['app.help']} shows all;"
        raise UsageError(f"There is no command /{name}; {instead} a space before it sends it as a message.")
    if argument and not action.argument:
        raise UsageError(f"/{name} stands alone; a space before it sends it as a message.")
    return action, argument


class Commands:
    """What commands do that change the conversation on screen.

    Args:
        chat: its chat.
        store: where conversations are.
    """

    def __init__(self, chat: Chat, store: Store) -> None:
        self._chat, self._store = chat, store
        self._known: dict[str, Callable[[str], str]] = {
            "temp": self._temperature,
            "seed": self._seed,
            "system": self._system,
            "think": self._think,
            "spec": self._speculation,
            "export": self._export,
        }

    def run(self, name: str, argument: str) -> str | None:
        """Do what a command says; returns a sentence about it, None where it is not one of these.

        Raises:
            LocalspecError, OSError: it cannot be done.
        """
        command = self._known.get(name)
        return None if command is None else command(argument)

    def _temperature(self, text: str) -> str:
        conversation, requests = self._chat.conversation, self._chat.requests
        if text:
            try:
                value = None if text == OWN else float(text)
            except ValueError:
                value = -1.0
            if value is not None and not (0 <= value < HOTTEST):
                raise UsageError(
                    "A temperature is a number from 0 up, such as /temp 0.7; /temp - gives it up."
                )
            conversation.configure(wishes=replace(conversation.wishes, temperature=value))
        return f"Temperature of this chat: {requests.sampling(conversation).temperature:g}."

    def _seed(self, text: str) -> str:
        conversation = self._chat.conversation
        if text:
            usable = text == OWN or (text.isdecimal() and len(text) < 20 and int(text) < SEEDS)
            if not usable:
                raise UsageError("A seed is a whole number from 0 up, such as /seed 7; /seed - gives it up.")
            seed = None if text == OWN else int(text)
            conversation.configure(wishes=replace(conversation.wishes, seed=seed))
        fixed = self._chat.requests.fixed_seed(conversation)
        return "Each reply has a seed of its own." if fixed is None else f"Seed of this chat: {fixed}."

    def _system(self, text: str) -> str:
        conversation = self._chat.conversation
        if text:
            conversation.configure(system_prompt="" if text == OWN else text)
        prompt = conversation.system_prompt
        told = " ".join(prompt.split())
        return f"The model is told: {told}" if prompt else "The model is told nothing before the chat."

    def _think(self, text: str) -> str:
        conversation = self._chat.conversation
        if text:
            think = None if text == OWN else _switch("think", text)
            conversation.configure(wishes=replace(conversation.wishes, think=think))
        wanted = self._chat.requests.think(conversation)
        if wanted is None:
            return "Whether it reasons first is left to the model."
        return f"Reasoning first: {'on' if wanted else 'off'}, where the model has a switch for it."

    def _speculation(self, text: str) -> str:
        if text:
            self._chat.set_speculation(_switch("spec", text))
        return f"Speculation: {'on' if self._chat.state.wanted else 'off'}."

    def _export(self, text: str) -> str:
        kinds: dict[str, ExportKind] = {"": "md", "md": "md", "json": "json"}
        kind = kinds.get(text.lower())
        if kind is None:
            raise UsageError("A chat is written as Markdown or as JSON: /export md or /export json.")
        number = self._chat.conversation.id
        tree = self._store.tree(number) if number is not None else None
        if tree is None:
            raise LocalspecError("There is nothing to write yet.")
        return write_export(tree, kind)


def _switch(name: str, text: str) -> bool:
    if text.lower() not in ("on", "off"):
        raise UsageError(f"Write /{name} on or /{name} off.")
    return text.lower() == "on"
