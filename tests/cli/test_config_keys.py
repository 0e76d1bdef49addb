"""`localspec config` and the keys of the app."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from localspec.cli import app
from localspec.settings import config_file


def config(*args: str) -> Result:
    return CliRunner().invoke(app, ["config", *args])


def test_a_key_is_written_shown_and_taken_out() -> None:
    done = config("set", "keymap.chat.speculation", "F12, alt+x")
    assert done.exit_code == 0, done.output
    assert config_file().read_text() == '[keymap]\n"chat.speculation" = "F12, alt+x"\n'
    assert config("get", "keymap.chat.speculation").stdout == "F12, alt+x\n"
    assert config("get", "keymap.chat.stop").stdout == "\n"
    told = json.loads(config("show", "--json").stdout)
    assert told["keymap.chat.speculation"] == {"value": "F12, alt+x", "from": "config.toml"}
    listed = json.loads(config("keys", "--json").stdout)
    assert listed["chat.speculation"]["keys"] == "f12, alt+x"
    assert listed["chat.stop"]["keys"] == "esc"
    assert "chat.speculation f12, alt+x Switch" in " ".join(config("keys").stdout.split())
    assert config("unset", "keymap.chat.speculation").exit_code == 0
    assert "speculation" not in config_file().read_text()


@pytest.mark.parametrize(
    ("args", "wrong"),
    [
        (("set", "keymap.chat.speculation", "f3"), "the key of chat.compare"),
        (("set", "keymap.chat.speculate", "f12"), "did you mean chat.speculation?"),
        (("get", "keymap.chat.speculate"), "did you mean chat.speculation?"),
        (("set", "keymap", "f3"), "a group of settings"),
        (("get", "keymap"), "a group of settings"),
        (("get", "keymap."), "keymap."),
    ],
)
def test_what_cannot_be(args: tuple[str, ...], wrong: str) -> None:
    done = config(*args)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.output
    assert wrong in done.stderr
    assert not config_file().exists()


def test_a_key_that_another_action_has_taken_over_is_not_given_back() -> None:
    assert config("set", "keymap.chat.speculation", "f12").exit_code == 0
    assert config("set", "keymap.chat.drafter", "f2").exit_code == 0
    before = config_file().read_text()
    done = config("unset", "keymap.chat.speculation")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.output
    assert config_file().read_text() == before
    assert config("unset", "keymap.chat.drafter").exit_code == 0
    assert config("unset", "keymap.chat.speculation").exit_code == 0


def test_the_editor_checks_keys_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "editor.py"
    script.write_text(
        "import sys\nfrom pathlib import Path\nfile = Path(sys.argv[1])\ntext = file.read_text()\n"
        "file.write_text(text + '\"chat.new\" = \"f2\"\\n' if '[keymap]' in text else '')\n"
    )
    monkeypatch.setenv("VISUAL", f"'{sys.executable}' '{script}'")
    done = config("edit")
    assert done.exit_code == 2
    assert "the key of chat.speculation" in done.stderr
    assert '# "chat.speculation" = "f12"' in config_file().read_text()


def test_a_file_that_says_it_without_quotes_can_be_changed() -> None:
    file = config_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text('[keymap]  # own\nchat.new = "f12"\n')
    assert config("set", "keymap.chat.open", "alt+o").exit_code == 0
    assert "# own" in file.read_text()
    assert json.loads(config("keys", "--json").stdout)["chat.open"]["keys"] == "alt+o"
    assert config("set", "keymap.chat.new", "alt+n").exit_code == 0
    assert json.loads(config("keys", "--json").stdout)["chat.new"]["keys"] == "alt+n"
