"""The A/B screen: where things stand, and that all can be reached."""

from __future__ import annotations

import pytest

from tests.tui.helpers import running
from tests.tui.scripted import ScriptedEngine
from tests.tui.test_compare import TEXT, opened
from tui.commands import ActionProvider
from tui.keys import COMPARE_ACTIONS
from tui.screens.compare import CompareScreen
from tui.screens.help import HelpScreen, help_sections
from tui.state import Phase
from tui.widgets.transcript import Transcript


@pytest.mark.parametrize("size", [(60, 24), (80, 24), (120, 36)])
async def test_columns_stand_beside_each_other_where_there_is_room(size: tuple[int, int]) -> None:
    async with running(ScriptedEngine(["A first answer.", TEXT, TEXT]), size=size) as app:
        look = await opened(app)
        await app.pilot.press("enter")
        await look.ends()
        a, b = (look.screen.query_one(f"#side-{side}").region for side in "ab")
        assert (a.y == b.y) is (size[0] >= 80)
        assert (a.x == b.x) is (size[0] < 80)
        assert "tokens are identical" in look.rows("verdict")
        assert look.screen.query_one("#answer-b", Transcript).size.height >= 3


async def test_every_action_has_a_key_a_command_a_help_line_and_a_method() -> None:
    async with running() as app:
        await app.ready()
        await app.pilot.press("f3")
        await app.until(lambda: isinstance(app.app.screen, CompareScreen))
        screen = app.app.screen
        provider = ActionProvider(screen)
        offered = {str(hit.text or hit.display) async for hit in provider.discover()}
        explained = {(key, title) for _, pairs in help_sections() for key, title in pairs}
        bound = {one.id: one for some in screen._bindings.key_to_bindings.values() for one in some}
        for action in COMPARE_ACTIONS:
            assert hasattr(screen, f"action_{action.name}"), action.id
            assert bound[action.id].key == action.key
            assert (action.shown, action.title) in explained
            assert action.title in offered
        # Nothing of the chat's, which is not on screen.
        assert "New chat" not in offered
        assert "Help" in offered
        await app.pilot.press("f1")
        await app.until(lambda: isinstance(app.app.screen, HelpScreen))
        assert str(app.app.screen.query(".heading").first().render()) == "A/B (f3)"


async def test_there_is_nothing_to_compare_without_a_model() -> None:
    async with running(ScriptedEngine(load=False)) as app:
        await app.until(lambda: app.chat.state.phase is Phase.LOADING)
        await app.pilot.press("f3")
        assert "There is no model yet" in app.activity
        assert app.app.screen is app.screen
