"""The command palette: every action of the table in `keys`."""

from __future__ import annotations

from functools import partial

from textual.command import DiscoveryHit, Hit, Hits, Provider

from tui.keymap import KEYS
from tui.keys import ALL_ACTIONS, Action


class ActionProvider(Provider):
    """Offers every action that can be used now, with its key."""

    async def discover(self) -> Hits:
        """All of them, before anything is typed."""
        for action in self._usable():
            yield DiscoveryHit(action.title, partial(self._run, action), help=_help(action))

    async def search(self, query: str) -> Hits:
        """Those whose title matches."""
        matcher = self.matcher(query)
        for action in self._usable():
            score = matcher.match(action.title)
            if score > 0:
                yield Hit(
                    score,
                    matcher.highlight(action.title),
                    partial(self._run, action),
                    help=_help(action),
                )

    def _usable(self) -> list[Action]:
        # A screen that is not the chat offers its own, and the app's.
        own = getattr(self.screen, "owner", "chat")
        return [
            action for action in ALL_ACTIONS if action.owner in ("app", own) and action.id != "app.commands"
        ]

    async def _run(self, action: Action) -> None:
        owner = self.app if action.owner == "app" else self.screen
        await owner.run_action(action.name)


def _help(action: Action) -> str:
    return f"{action.group}  ·  {KEYS.shown(action)}"
