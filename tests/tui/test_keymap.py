"""Keys of the user's own: checked, in use, and shown wherever keys are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from textual.binding import Binding, BindingType

from localspec.config_file import edited
from localspec.errors import UsageError
from localspec.settings import config_file, load_settings
from tests.tui.helpers import running
from tui.app import LocalspecApp
from tui.commands import ActionProvider
from tui.keymap import FIXED, KEYS, RESERVED, checked, listed, written
from tui.keys import ALL_ACTIONS
from tui.screens.chat import ChatScreen
from tui.screens.compare import CompareScreen
from tui.screens.help import HelpScreen, help_sections
from tui.screens.history import HistoryScreen
from tui.screens.models import ModelsScreen
from tui.screens.settings import SettingsScreen
from tui.screens.tokens import TokenScreen

SCREENS = {
    "chat": ChatScreen,
    "compare": CompareScreen,
    "history": HistoryScreen,
    "models": ModelsScreen,
    "settings": SettingsScreen,
    "tokens": TokenScreen,
}


@pytest.fixture(autouse=True)
def default_keys() -> Iterator[None]:
    yield
    KEYS.use({})


@pytest.mark.parametrize(
    ("keys", "meant", "shown"),
    [
        ("f12", "f12", "f12"),
        ("F12", "f12", "f12"),
        ("Ctrl+S", "ctrl+s", "ctrl+s"),
        ("shift+ctrl+s", "ctrl+shift+s", "ctrl+shift+s"),
        ("shift+Up, f12", "shift+up,f12", "shift+up, f12"),
        ("ctrl+pgup", "ctrl+pageup", "ctrl+page up"),
        ("alt+?", "alt+question_mark", "alt+?"),
        ("ctrl+full_stop", "ctrl+full_stop", "ctrl+."),
        ("alt+9", "alt+9", "alt+9"),
    ],
)
def test_keys_as_people_write_them(keys: str, meant: str, shown: str) -> None:
    assert checked({"chat.speculation": keys}) == {"chat.speculation": meant}
    KEYS.use({"chat.speculation": keys})
    action = next(action for action in ALL_ACTIONS if action.id == "chat.speculation")
    assert KEYS.shown(action) == shown


@pytest.mark.parametrize(
    ("chosen", "wrong"),
    [
        ({"chat.speculate": "f12"}, "no action chat.speculate; did you mean chat.speculation?"),
        ({"zzz": "f12"}, "`localspec config keys` lists all"),
        ({"command.temp": "f12"}, "written in the prompt (/temp 0.7) and has no key"),
        ({"chat.new": ""}, "write keys like f12"),
        ({"chat.new": "f12,"}, "write keys like f12"),
        ({"chat.new": "crtl+x"}, "write keys like f12"),
        ({"chat.new": "f99"}, "write keys like f12"),
        ({"chat.new": "ctrl+"}, "write keys like f12"),
        ({"chat.new": "x\x1b"}, "write keys like f12"),
        ({"chat.new": "enter"}, "cannot be enter, which sends and chooses"),
        ({"chat.new": "ctrl+i"}, "cannot be ctrl+i, which completes"),
        ({"app.quit": "ctrl+c"}, "cannot be ctrl+c, which copies"),
        ({"chat.new": "n"}, "cannot be n, which is written there"),
        ({"app.help": "?"}, "cannot be ?, which is written there"),
        ({"chat.new": "f2"}, "cannot be f2, the key of chat.speculation"),
        ({"app.theme": "f9"}, "cannot be f9, the key of chat.keep_model"),
        ({"chat.new": "f12", "chat.open": "f12"}, "cannot be f12, the key of"),
        ({"compare.again": "f3"}, "has its use on another screen"),
        ({"app.theme": "f3"}, "f3"),
        ({"tokens.ghosts": "s"}, "cannot be s, the key of tokens.score"),
    ],
)
def test_keys_that_cannot_be(chosen: dict[str, str], wrong: str) -> None:
    KEYS.use({"chat.new": "f12"})
    with pytest.raises(UsageError) as caught:
        KEYS.use(chosen)
    assert wrong in str(caught.value)
    assert "\x1b" not in str(caught.value)
    # Those from before still count.
    assert KEYS["chat.new"] == "f12"


def test_keys_that_can_be() -> None:
    # Exchanged, moved away from, shared as before, on different screens, letters where nothing is written.
    swapped = checked({"chat.speculation": "f3", "chat.compare": "f2"})
    assert swapped == {"chat.speculation": "f3", "chat.compare": "f2"}
    assert checked({"chat.new": "f4", "chat.tokens": "f12"})
    assert checked({"compare.stop": "escape"})
    assert checked({"history.rename": "ctrl+e", "chat.editor": "ctrl+e"})
    assert checked({"tokens.ghosts": "x"}) == {"tokens.ghosts": "x"}
    for action in listed():
        assert checked({action.id: action.key})[action.id] == action.key, action


def test_the_tables_know_the_screens() -> None:
    def keys_of(bindings: list[BindingType]) -> set[str]:
        made = list(Binding.make_bindings(bindings))
        own = {binding.id for binding in made} - {action.id for action in ALL_ACTIONS}
        return {binding.key for binding in made if binding.id in own}

    for owner, screen in SCREENS.items():
        further = keys_of(screen.BINDINGS) - set(RESERVED)
        assert further == FIXED.get(owner, frozenset()), owner
    assert keys_of(LocalspecApp.BINDINGS) <= set(RESERVED)
    for action in listed():
        if action.id == "compare.back":
            # The key that leads there leads back, too; it is the screen's own.
            continue
        assert ", ".join(map(written, action.key.split(","))) == action.shown.replace(" or ", ", "), action


async def test_own_keys_do_what_they_say_and_are_shown() -> None:
    own = {"chat.speculation": "f12", "chat.tokens": "f2", "app.help": "f11", "compare.stop": "f12"}
    async with running(keymap=own, size=(160, 40)) as app:
        await app.ready()
        await app.until(lambda: "f12 speculation" in app.keys and "f2 tokens" in app.keys)
        assert "f11 help" in app.keys
        assert "f12 switches it off" in app.transcript.text
        wanted = app.chat.state.wanted
        await app.pilot.press("f12")
        await app.until(lambda: app.chat.state.wanted != wanted)
        await app.pilot.press("f2")
        await app.until(lambda: isinstance(app.app.screen, TokenScreen))
        await app.pilot.press("f4")
        await app.until(lambda: app.app.screen is app.screen)
        # What shared its key with one that has moved still has it.
        await app.pilot.press("f3")
        await app.until(lambda: isinstance(app.app.screen, CompareScreen))
        await app.pilot.press("escape")
        await app.until(lambda: app.app.screen is app.screen)
        await app.pilot.press("f1")
        await app.pilot.pause()
        assert app.app.screen is app.screen
        await app.pilot.press("f11")
        await app.until(lambda: isinstance(app.app.screen, HelpScreen))
        explained = {pair for _, pairs in help_sections() for pair in pairs}
        assert ("f12", "Switch speculation on or off") in explained
        await app.pilot.press("f11")
        await app.until(lambda: app.app.screen is app.screen)
        hits = [hit async for hit in ActionProvider(app.screen).search("speculation on or off")]
        assert [hit.help for hit in hits] == ["Reply  ·  f12"]


async def test_keys_that_cannot_be_stop_the_app_at_its_start() -> None:
    with pytest.raises(UsageError, match=r"the key of chat\.speculation"):
        async with running(keymap={"chat.new": "f2"}):
            pass


def test_the_file_may_say_it_in_several_ways() -> None:
    file = config_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text('[keymap]\nchat.new = "f12"\n"chat.open" = ["f11", "alt+o"]\n')
    assert load_settings().keymap == {"chat.new": "f12", "chat.open": "f11,alt+o"}
    assert edited("# own\n", {"keymap.chat.new": "f12"}) == '# own\n\n[keymap]\n"chat.new" = "f12"\n'
    for text, wrong in (('keymap = "f12"', "a group of settings"), ("[keymap]\nx = 5", "a valid string")):
        file.write_text(text)
        with pytest.raises(UsageError, match=wrong):
            load_settings()
