"""`localspec config`: settings seen, written and edited from the shell."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from localspec.cli import app
from localspec.settings import config_file, load_settings
from tests.cli.conftest import environment
from tests.e2e.terminal import Terminal

Config = Callable[..., Result]

TEXT = """\
# mine
model = "smollm2"  # small

[engine]
threads = 2 # of four
"""


@pytest.fixture
def config() -> Config:
    """Run `localspec config ARGS` in this process."""
    return lambda *args, **more: CliRunner().invoke(app, ["config", *args], **more)


@pytest.fixture
def file(private_home: Path) -> Path:
    path = config_file()
    path.parent.mkdir(parents=True)
    path.write_text(TEXT)
    return path


def failed(done: Result, code: int) -> str:
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (code, "", 1), done.output
    return str(done.stderr)


def editor(tmp_path: Path, code: str) -> str:
    """A command that changes the file that it is called with, as an editor does."""
    script = tmp_path / "my editor.py"
    script.write_text(f"import sys\nfrom pathlib import Path\nfile = Path(sys.argv[1])\n{code}\n")
    return f"'{sys.executable}' '{script}'"


def test_path_and_show_make_nothing(config: Config, private_home: Path) -> None:
    assert config("path").stdout.strip() == str(private_home / "config" / "config.toml")
    assert config("show").exit_code == 0
    assert config("unset", "engine.threads").exit_code == 0
    assert not (private_home / "config").exists()


def test_show_says_where_a_value_comes_from(
    config: Config, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_DRAFT", "ngram")
    monkeypatch.setenv("LOCALSPEC_ENGINE__THREADS", "1")
    told = json.loads(config("show", "--json").stdout)
    assert told["model"] == {"value": "smollm2", "from": "config.toml"}
    assert told["draft.spec"] == {"value": "ngram", "from": "LOCALSPEC_DRAFT"}
    assert told["engine.threads"] == {"value": 1, "from": "LOCALSPEC_ENGINE__THREADS"}
    assert told["engine.batch"] == {"value": 512, "from": "default"}
    assert told["ui.panel"]["value"] is True
    lines = config("show").stdout.splitlines()
    assert len(lines) == len(told) + 1
    assert next(line for line in lines if line.startswith("engine.threads")).split()[1:3] == [
        "1",
        "LOCALSPEC_ENGINE__THREADS",
    ]


def test_get_prints_the_value_alone(config: Config, file: Path) -> None:
    assert config("get", "model").stdout == "smollm2\n"
    assert config("get", "engine.threads").stdout == "2\n"
    assert config("get", "ui.panel").stdout == "true\n"
    assert config("get", "draft").stdout == "auto\n"
    assert config("get", "sampling.seed").stdout == "\n"
    assert config("get", "sampling.seed", "--json").stdout == "null\n"
    assert "did you mean engine.threads" in failed(config("get", "engine.thread"), 2)
    assert "known here" in failed(config("get", "nonsense"), 2)


def test_set_changes_one_line(config: Config, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = config("set", "engine.threads", "1")
    assert (done.exit_code, done.stdout) == (0, "")
    assert file.read_text() == TEXT.replace("threads = 2", "threads = 1")
    config("set", "sampling.temperature", "0.5")
    config("set", "draft", "ngram")
    config("set", "ui.panel", "no")
    monkeypatch.setenv("LOCALSPEC_VERIFY", "coupled")
    assert "LOCALSPEC_VERIFY is set" in config("set", "verify", "rejection").stderr
    monkeypatch.delenv("LOCALSPEC_VERIFY")
    settings = load_settings()
    assert settings.sampling.temperature == 0.5
    assert (settings.draft.spec, settings.ui.panel, settings.verify) == ("ngram", False, "rejection")
    config("unset", "engine.threads")
    assert load_settings().engine.threads is None
    assert "# mine" in file.read_text()


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("engine.threads", "many", "integer"),
        ("engine.threads", "0", "greater than or equal to 1"),
        ("draft.ngram_pick", "newest", "'recent', 'frequent' or 'first'"),
        ("draft.ngram_min", "9", "greater than ngram_max"),
        ("draft", "telepathy", "ngram"),
        ("draft.policy", "guess", "cost"),
        ("verify", "never", "coupled"),
        ("engine.kv_type", "f33", "f16"),
        ("ui.panel", "maybe", "boolean"),
        ("ui.theme", "mauve", "localspec-light"),
        ("engine", "2", "one of its keys"),
        ("engine.thread", "2", "did you mean engine.threads"),
        ("sampling.temperature", "nan", "finite"),
        ("model.x", "2", "no setting"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_with_those_that_can(
    config: Config, file: Path, key: str, value: str, words: str
) -> None:
    assert words in failed(config("set", key, value), 2)
    assert file.read_text() == TEXT


def test_an_unknown_model_is_refused(config: Config, file: Path) -> None:
    assert "models list" in failed(config("set", "model", "nosuch"), 3)
    assert file.read_text() == TEXT


@pytest.mark.parametrize("text", ["model = [broken\n", "[ui]\nnonsense = 1\n"])
def test_a_file_that_is_broken_already_stays_as_it_is(config: Config, file: Path, text: str) -> None:
    file.write_text(text)
    failed(config("set", "engine.threads", "1"), 2)
    failed(config("show"), 2)
    assert file.read_text() == text


def test_edit_checks_what_was_saved(
    config: Config, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDITOR", "false")
    monkeypatch.setenv("VISUAL", editor(tmp_path, "file.write_text('verify = \"never\"')"))
    # What was saved stays: it is the user's work.
    assert "no verification rule" in failed(config("edit"), 2)
    assert file.read_text() == 'verify = "never"'
    monkeypatch.setenv("VISUAL", editor(tmp_path, "file.write_text('verify = \"rejection\"')"))
    assert "in order" in config("edit").stderr
    monkeypatch.delenv("VISUAL")
    assert "status 1" in failed(config("edit"), 1)
    monkeypatch.setenv("EDITOR", "no-such-editor")
    assert "set VISUAL or EDITOR" in failed(config("edit"), 2)
    monkeypatch.setenv("EDITOR", "'open quote")
    assert "no command" in failed(config("edit"), 2)


def test_edit_begins_with_every_setting_as_a_comment(
    config: Config, private_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "VISUAL", editor(tmp_path, "file.write_text(file.read_text().replace('# threads =', 'threads = 2'))")
    )
    assert config("edit").exit_code == 0
    assert load_settings().engine.threads == 2
    text = config_file().read_text()
    for line in ('# model = "smollm2"', "[sampling]", "# temperature = "):
        assert line in text


def test_in_a_terminal_a_mistake_can_be_mended_at_once(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mending = "text = file.read_text()\nfile.write_text('ui = 3' if 'mine' in text else '')"
    monkeypatch.setenv("VISUAL", editor(tmp_path, mending))
    terminal = Terminal([sys.executable, "-m", "localspec", "config", "edit"], environment())
    try:
        terminal.wait_for("Edit it again?")
        terminal.send("\r")
        assert terminal.wait_until_ended() == 0
    finally:
        terminal.close()
    assert file.read_text() == ""
