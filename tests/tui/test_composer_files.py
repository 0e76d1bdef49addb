"""Files that a message names, what the prompt suggests, and the user's own editor."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from localspec.chat.store import Store
from localspec.errors import UsageError
from localspec.messages import Generate
from tests.tui.helpers import Running, running
from tests.tui.scripted import ScriptedEngine
from tui.completion import suggestions_for
from tui.editor import edited
from tui.mentions import with_files
from tui.widgets.suggestions import Suggestions


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes.md").write_text("first\n```\ncode\n```\nlast\n")
    Path("src").mkdir()
    Path("src/app.py").write_text("print(1)\n")
    Path("src/a b.txt").write_text("spaced")
    Path(".hidden").write_text("x")


def both(text: str) -> str:
    return with_files(text, text)


def asked(app: Running) -> list[str]:
    return [one.messages[-1].content for one in app.engine.of(Generate)]


def suggested(app: Running) -> list[str]:
    found = app.screen.query_one(Suggestions)
    return [row.split()[0] for row in found.text.replace("›", " ").split("\n")] if found.display else []


# --- files --------------------------------------------------------------------------------------------


def test_a_named_file_follows_as_a_block() -> None:
    assert both("What does @src/app.py do?") == (
        "What does @src/app.py do?\n\nsrc/app.py:\n```py\nprint(1)\n```"
    )
    # A file with fences of its own has a longer one around it; a name counts once, whatever stands behind it.
    assert both("See @notes.md, @notes.md.") == (
        "See @notes.md, @notes.md.\n\nnotes.md:\n````md\nfirst\n```\ncode\n```\nlast\n````"
    )
    assert both('@"src/a b.txt"').endswith("src/a b.txt:\n```txt\nspaced\n```")
    whole = both("What does @src/app.py do?")
    assert both(whole) == whole


@pytest.mark.parametrize(
    "text", ["@property and @dataclass", "me@example.org", "@ notes.md", "a@notes.md", "@"]
)
def test_other_words_stay_words(text: str) -> None:
    assert both(text) == text


def test_what_a_chip_holds_is_not_looked_into() -> None:
    assert with_files("log says @src/none.py", "[pasted 20 lines]") == "log says @src/none.py"


def test_files_that_cannot_be_sent_are_a_sentence() -> None:
    Path("large.txt").write_bytes(b"x" * ((1 << 20) + 1))
    Path("data.bin").write_bytes(b"a\0b")
    Path("latin.txt").write_bytes("é".encode("latin-1"))
    for name, why in {
        "src": "is a folder",
        "./none.py": "There is no file ./none.py",
        "none.py": "There is no file none.py",
        "large.txt": "at most 1 MiB",
        "data.bin": "is no text file",
        "latin.txt": "is no text file",
        "~no-such-user-here/x.py": "There is no file",
        "x/" + "y" * 5000: "There is no file",
        "\x1b[31m.py": "There is no file",
    }.items():
        with pytest.raises(UsageError, match=why.replace(".", r"\.")) as caught:
            both(f"look at @{name}")
        assert "\x1b" not in str(caught.value)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_a_pipe_is_not_waited_for() -> None:
    os.mkfifo("pipe")
    with pytest.raises(UsageError, match="no ordinary file"):
        both("@pipe")


async def test_a_file_is_sent_shown_folded_and_comes_back_as_its_name() -> None:
    Path("src/app.py").write_text("\n".join(f"print({number})" for number in range(100)))
    async with running(ScriptedEngine(["ok", "ok"])) as app:
        await app.ready()
        await app.send("Explain @src/none.py")
        await app.pilot.pause()
        assert "There is no file src/none.py" in app.activity
        assert app.prompt.text == "Explain @src/none.py"
        app.prompt.text = ""
        await app.send("Explain @src/app.py")
        await app.until(lambda: app.chat.ready and asked(app))
        assert asked(app)[0].startswith("Explain @src/app.py\n\nsrc/app.py:\n```py\nprint(0)\n")
        assert "more lines" in app.transcript.text
        await app.pilot.press("ctrl+t")
        assert app.prompt.text == "Explain @src/app.py"
        await app.pilot.press("enter")
        await app.until(lambda: len(asked(app)) == 2)
        assert asked(app)[1] == asked(app)[0]


# --- suggestions --------------------------------------------------------------------------------------


def texts(line: str, *, first: bool = True) -> list[str]:
    return [one.text for one in suggestions_for(line, first=first)]


def test_what_is_suggested() -> None:
    assert texts("/te") == ["/temp "]
    assert "/new" in texts("/")
    assert texts("/temp") == []
    assert texts("/te", first=False) == []
    assert texts("say /te") == []
    assert texts("see @") == ["@notes.md ", "@src/"]
    assert texts("@NO", first=False) == ["@notes.md "]
    assert texts("@src/") == ['@"src/a b.txt" ', "@src/app.py "]
    assert texts('@"src/a ') == ['@"src/a b.txt" ']
    assert texts("@.") == ["@.hidden "]
    assert texts("@none/") == texts("a@no") == texts("@no tes") == []


async def test_tab_completes_and_arrows_choose() -> None:
    async with running() as app:
        await app.ready()
        await app.pilot.press("at")
        assert suggested(app) == ["notes.md", "src/"]
        await app.pilot.press("down", "tab")
        assert app.prompt.text == "@src/"
        await app.until(lambda: suggested(app) == ["src/a", "src/app.py"])
        await app.pilot.press("a", "p", "tab")
        assert app.prompt.text == "@src/app.py "
        await app.pilot.pause()
        assert suggested(app) == []
        app.prompt.text = ""
        await app.pilot.press("slash", "t", "e")
        assert suggested(app) == ["/temp"]
        await app.pilot.press("escape")
        assert suggested(app) == []
        await app.pilot.press("m", "down", "enter")
        assert app.prompt.text == "/temp "


async def test_history_is_not_taken_for_the_beginning_of_a_word() -> None:
    async with running() as app:
        await app.ready()
        app.prompt.set_history(["older", "@no"])
        await app.pilot.press("up", "up")
        assert app.prompt.text == "older"


@pytest.mark.parametrize("size", [(40, 10), (80, 24)])
async def test_suggestions_leave_room_for_the_prompt(size: tuple[int, int]) -> None:
    async with running(size=size) as app:
        await app.ready()
        await app.pilot.press("slash")
        await app.pilot.pause()
        found = app.screen.query_one(Suggestions)
        assert found.region.height == (2 if size[1] < 20 else 6)
        assert found.region.bottom <= app.prompt.region.y
        assert app.prompt.region.height >= 3
        for _ in range(20):
            await app.pilot.press("down")
        assert "›" in found.text


# --- editor -------------------------------------------------------------------------------------------


def editor(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """An editor that does what `code` says to the file `name`."""
    script = Path("editor.py").absolute()
    script.write_text(f"import sys\nname = sys.argv[-1]\n{code}\n")
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", f"'{sys.executable}' '{script}' --wait")


def test_a_message_is_edited_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    editor(monkeypatch, "open('seen', 'w').write(name); open(name, 'a').write(' and more ü\\n')")
    assert edited("some é") == "some é and more ü"
    assert not Path(Path("seen").read_text()).exists()


@pytest.mark.skipif(os.name == "nt", reason="rights are others there")
def test_nobody_else_can_read_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    editor(monkeypatch, "import os; open('mode', 'w').write(str(os.stat(name).st_mode))")
    edited("secret")
    assert stat.S_IMODE(int(Path("mode").read_text())) == 0o600


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("sys.exit(3)", "ended with status 3"),
        ("open(name, 'wb').write(bytes([255]))", "no UTF-8 text"),
        ("import os; os.unlink(name)", "failed"),
    ],
)
def test_an_editor_that_fails_is_a_sentence(monkeypatch: pytest.MonkeyPatch, code: str, why: str) -> None:
    editor(monkeypatch, code)
    with pytest.raises(UsageError, match=why):
        edited("text")


@pytest.mark.parametrize(
    ("named", "why"), [("no-such-editor-anywhere", "failed"), ("'unclosed", "is no command")]
)
def test_an_editor_that_is_none_is_a_sentence(monkeypatch: pytest.MonkeyPatch, named: str, why: str) -> None:
    monkeypatch.setenv("VISUAL", named)
    with pytest.raises(UsageError, match=why):
        edited("text")


async def test_ctrl_g_opens_the_editor_and_the_app_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    editor(monkeypatch, "open(name, 'a').write(' edited')")
    async with running() as app:
        await app.ready()
        await app.write("a message")
        # The tests' terminal cannot be handed over.
        await app.pilot.press("ctrl+g")
        assert "cannot have this terminal" in app.activity
        handed: list[str] = []

        @contextlib.contextmanager
        def suspend() -> Iterator[None]:
            handed.append("away")
            yield
            handed.append("back")

        monkeypatch.setattr(app.app, "suspend", suspend)
        await app.pilot.press("ctrl+g")
        assert app.prompt.text == "a message edited"
        monkeypatch.setenv("EDITOR", "no-such-editor-anywhere")
        await app.pilot.press("ctrl+g")
        assert "failed" in app.activity
        assert app.prompt.text == "a message edited"
        assert handed == ["away", "back"] * 2


async def test_a_private_chat_leaves_no_file_to_an_editor() -> None:
    store = Store(private=True)
    async with running(store=store) as app:
        await app.ready()
        await app.pilot.press("ctrl+g")
        assert "leaves none on a disk" in app.activity
    store.close()
