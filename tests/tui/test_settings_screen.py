"""The settings screen: what it says of each setting, and what a change does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from textual.widgets import Input, OptionList, Static

from localspec.messages import Generate
from localspec.settings import config_file, load_settings, sampling_params
from tests.tui.helpers import Running, running
from tests.tui.scripted import ScriptedEngine
from tui.keymap import KEYS, listed
from tui.launch import Launch
from tui.screens.choice import ChoiceScreen
from tui.screens.settings import SettingsScreen
from tui.settings_rows import read_rows

TEXT = '# mine\nmodel = "smollm2"\n\n[engine]\nthreads = 2 # of four\n'


@pytest.fixture(autouse=True)
def file(private_home: object) -> Iterator[None]:
    path = config_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(TEXT)
    yield
    KEYS.use({})


async def opened(app: Running) -> SettingsScreen:
    await app.ready()
    await app.pilot.press("alt+s")
    await app.until(lambda: isinstance(app.app.screen, SettingsScreen) and app.app.screen.listed)
    screen = app.app.screen
    assert isinstance(screen, SettingsScreen)
    return screen


def text(screen: SettingsScreen, part: str) -> str:
    return str(screen.query_one(f"#settings-{part}", Static).content)


async def narrow(app: Running, screen: SettingsScreen, words: str) -> None:
    screen.query_one("#settings-filter", Input).value = words
    await app.pilot.pause()


def row(screen: SettingsScreen, key: str) -> str:
    options = screen.query_one(OptionList).options
    return " ".join(str(next(option.prompt for option in options if option.id == key)).split())


def test_every_setting_and_every_action_has_a_row() -> None:
    rows = {row.key: row for row in read_rows(("localspec-dark",))}
    assert {f"keymap.{action.id}" for action in listed()} < set(rows)
    assert len([key for key in rows if not key.startswith("keymap.")]) == len(list(_known()))
    assert all(row.description and row.allowed and row.shown for row in rows.values() if row.value != "")
    assert rows["engine.threads"].allowed == "a whole number from 1 to 512"
    assert rows["sampling.top_p"].allowed == "a number above 0, at most 1"
    assert rows["engine.context"].allowed == "a whole number from 1"
    assert rows["draft.ngram_pick"].options == ("recent", "frequent", "first")
    assert rows["ui.theme"].options == (None, "localspec-dark")
    assert (rows["engine.threads"].shown, rows["engine.threads"].origin) == ("2", "config.toml")
    assert rows["keymap.chat.stop"].shown == "esc"
    switch = rows["chat.think"]
    assert (switch.shown, switch.next_option, switch.toggles) == ("not set", True, True)


def _known() -> Iterator[tuple[str, str]]:
    from localspec.config_values import known_keys

    return known_keys()


async def test_a_number_is_changed_checked_and_given_up() -> None:
    async with running() as app:
        screen = await opened(app)
        await narrow(app, screen, "engine threads")
        assert screen.listed == ("engine.threads",)
        assert row(screen, "engine.threads") == "threads 2 config.toml"
        assert "engine.threads  CPU threads" in text(screen, "details")
        assert "a whole number from 1 to 512" in text(screen, "details")
        assert "from the next start on" in text(screen, "details")
        await app.pilot.press("enter")
        value = screen.query_one("#settings-value", Input)
        await app.until(lambda: value.has_focus)
        assert value.value == "2"
        value.value = "many"
        await app.pilot.press("enter")
        await app.until(lambda: "Not written" in text(screen, "said"))
        assert config_file().read_text() == TEXT
        value.value = "3"
        await app.pilot.press("enter")
        await app.until(lambda: "engine.threads is 3, from the next start on." in text(screen, "said"))
        assert config_file().read_text() == TEXT.replace("threads = 2", "threads = 3")
        assert screen.query_one("#settings-filter", Input).has_focus
        await app.pilot.press("delete")
        await app.until(lambda: "given up: not set" in text(screen, "said"))
        assert load_settings().engine.threads is None
        assert "# mine" in config_file().read_text()
        await app.pilot.press("delete")
        await app.until(lambda: "engine.threads is not set" in text(screen, "said"))
        # One key leaves a value as it is, the next one the screen.
        await app.pilot.press("enter")
        await app.until(lambda: value.has_focus)
        await app.pilot.press("escape")
        await app.until(lambda: not value.has_focus and app.app.screen is screen)
        await app.pilot.press("escape")
        await app.until(lambda: app.app.screen is app.screen)
        assert app.prompt.has_focus


async def test_panel_theme_and_keys_count_at_once() -> None:
    async with running(size=(140, 40)) as app:
        screen = await opened(app)
        await narrow(app, screen, "ui.panel")
        await app.pilot.press("enter")
        await app.until(lambda: "ui.panel is off, at once." in text(screen, "said"))
        await app.until(lambda: not app.panel.display)
        await narrow(app, screen, "ui.theme")
        await app.pilot.press("enter")
        await app.until(lambda: isinstance(app.app.screen, ChoiceScreen))
        await app.until(lambda: app.app.screen.query_one(OptionList).option_count > 5)
        await app.pilot.press(*"localspec-light", "enter")
        await app.until(lambda: app.app.theme == "localspec-light" and app.app.screen is screen)
        await app.pilot.press("delete")
        await app.until(lambda: app.app.theme == "localspec-dark")
        await narrow(app, screen, "keymap.chat.speculation")
        await app.pilot.press("enter")
        value = screen.query_one("#settings-value", Input)
        await app.until(lambda: value.has_focus)
        value.value = "f3"
        await app.pilot.press("enter")
        await app.until(lambda: "the key of chat.compare" in text(screen, "said"))
        value.value = "f12"
        await app.pilot.press("enter")
        await app.until(lambda: "chat.speculation is f12, at once." in text(screen, "said"))
        assert '[keymap]\n"chat.speculation" = "f12"' in config_file().read_text()
        await app.pilot.press("escape")
        wanted = app.chat.state.wanted
        await app.until(lambda: "f12 speculation" in app.keys)
        await app.pilot.press("f12")
        await app.until(lambda: app.chat.state.wanted != wanted)


async def test_a_key_that_another_action_has_taken_over_is_not_given_back() -> None:
    written = '[keymap]\n"chat.speculation" = "f12"\n"chat.drafter" = "f2"\n'
    config_file().write_text(written)
    KEYS.use(load_settings().keymap)
    async with running(size=(140, 40)) as app:
        screen = await opened(app)
        await narrow(app, screen, "keymap.chat.speculation")
        await app.pilot.press("delete")
        await app.until(lambda: "f2" in text(screen, "said"))
        assert config_file().read_text() == written


async def test_sampling_counts_from_the_next_reply_on() -> None:
    def refreshed(launch: Launch) -> Launch:
        now = load_settings()
        return replace(launch, sampling=sampling_params(now), fresh_seeds=now.sampling.seed is None)

    async with running(ScriptedEngine(["One.", "Two."]), refreshed=refreshed, fresh_seeds=True) as app:
        await app.ready()
        await app.send("one")
        await app.until(lambda: "One." in app.transcript.text and not app.chat.busy)
        screen = await opened(app)
        for key, value in (("temperature", "0.25"), ("seed", "77")):
            await narrow(app, screen, f"sampling.{key}")
            await app.pilot.press("enter")
            editor = screen.query_one("#settings-value", Input)
            await app.until(lambda editor=editor: editor.has_focus)
            editor.value = value
            await app.pilot.press("enter")
            said = f"sampling.{key} is {value}, from the next reply on."
            await app.until(lambda said=said: said in text(screen, "said"))
        await app.pilot.press("escape")
        await app.send("two")
        await app.until(lambda: len(app.engine.of(Generate)) == 2)
        first, second = app.engine.of(Generate)
        assert first.sampling.temperature != 0.25
        assert (second.sampling.temperature, second.sampling.seed) == (0.25, 77)


async def test_the_environment_beats_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_UI__PANEL", "true")
    async with running() as app:
        screen = await opened(app)
        await narrow(app, screen, "ui.panel")
        assert "LOCALSPEC_UI" in row(screen, "ui.panel")
        assert "from: LOCALSPEC_UI__PANEL" in text(screen, "details")
        await app.pilot.press("enter")
        await app.until(lambda: "beats it" in text(screen, "said"))
        assert app.panel.display


async def test_a_broken_file_is_told_and_left_alone() -> None:
    config_file().write_text("[engine\n")
    async with running() as app:
        await app.ready()
        await app.send("/settings")
        await app.until(lambda: isinstance(app.app.screen, SettingsScreen))
        screen = app.app.screen
        assert isinstance(screen, SettingsScreen)
        await app.until(lambda: "not valid TOML" in text(screen, "said"))
        await app.pilot.press("enter", "delete", "down", "pageup", "escape")
        await app.until(lambda: app.app.screen is app.screen)
        assert config_file().read_text() == "[engine\n"


async def test_keys_move_past_headings_in_a_small_window() -> None:
    async with running(size=(60, 20)) as app:
        screen = await opened(app)
        rows = screen.query_one(OptionList)
        first = rows.highlighted_option
        assert first is not None
        assert first.id == "model"
        seen = {first.id}
        for _ in range(len(screen.listed)):
            await app.pilot.press("down")
            assert rows.highlighted_option is not None
            seen.add(rows.highlighted_option.id)
        assert seen == set(screen.listed)
        await app.pilot.press(*["pageup"] * 20)
        assert rows.highlighted_option.id == "model"
        widths = {len(str(option.prompt)) for option in rows.options}
        assert max(widths) <= rows.size.width
