"""The command as a whole: help, versions, places, and `localspec chat` where it cannot start."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from localspec import __version__
from tests.cli.conftest import Command, environment
from tests.cli.terminal import run_in_terminal

CHAT = [sys.executable, "-m", "localspec", "chat"]
ALTERNATE_SCREEN = "\x1b[?1049h"


def test_version(localspec: Command) -> None:
    done = localspec("--version")
    assert (done.returncode, done.stdout.decode().strip()) == (0, f"localspec {__version__}")


@pytest.mark.parametrize("args", [(), ("-h",), ("--help",)])
def test_help_lists_the_verbs(localspec: Command, args: tuple[str, ...]) -> None:
    done = localspec(*args)
    assert done.returncode == (0 if args else 2)
    text = (done.stdout + done.stderr).decode()
    for verb in ("chat", "run", "models", "doctor"):
        assert f"\n  {verb} " in text


def test_an_unknown_verb_exits_2(localspec: Command) -> None:
    done = localspec("chatt")
    assert done.returncode == 2
    assert b"No such command 'chatt'" in done.stderr


@pytest.mark.parametrize("verb", ["run", "chat"])
def test_both_verbs_take_the_shared_options(localspec: Command, verb: str) -> None:
    text = localspec(verb, "--help").stdout.decode()
    shared = (
        "--model --draft --draft-length --temperature --top-k --top-p --min-p --seed --max-tokens --context"
    )
    more = "--draft-leaves --policy --verify --threads --gpu-layers --debug"
    more += " --ngram-min --ngram-max --ngram-pick --ngram-min-hits"
    more += " --repeat-penalty --presence-penalty --frequency-penalty --system"
    last = "--flash-attention --no-flash-attention --kv-type --chat-template --record"
    for option in f"{shared} {more} {last}".split():
        assert option in text
    assert "typical and adasd are lossy" in " ".join(text.replace("│", " ").split())


def test_a_home_that_cannot_be_written_is_one_sentence(localspec: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    home = tmp_path / "file" / "home"
    done = localspec("run", "Hi", LOCALSPEC_HOME=str(home))
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.decode().count("localspec: ") == 1
    assert str(home) in done.stderr.decode()


def test_chat_without_a_terminal_points_to_run(localspec: Command) -> None:
    done = localspec("chat")
    assert done.returncode == 2
    sentence = "localspec chat needs a terminal; use `localspec chat --plain` or `localspec run` in pipes."
    assert done.stderr.decode() == f"localspec: {sentence}\n"


def test_chat_with_its_screen_redirected_is_refused(tmp_path: Path) -> None:
    errors = tmp_path / "errors"
    code, seen = run_in_terminal(["sh", "-c", f'"$@" 2>{errors}', "sh", *CHAT], environment())
    assert (code, seen) == (2, "")
    assert "needs a terminal" in errors.read_text()


def test_chat_on_a_dumb_terminal_is_refused() -> None:
    code, seen = run_in_terminal(CHAT, {**environment(), "TERM": "dumb"})
    assert code == 2
    assert "dumb terminal" in seen
    assert "\x1b" not in seen


@pytest.mark.parametrize(
    ("args", "code", "sentence"),
    [
        (["--model", "smolm2"], 3, "smollm2"),
        (["--model", "none.gguf"], 3, "none.gguf"),
        (["--draft", "magic"], 2, "magic"),
        (["--new", "--conversation", "1"], 2, "exclude each other"),
    ],
)
def test_chat_says_what_is_wrong_before_it_takes_the_screen(
    args: list[str], code: int, sentence: str
) -> None:
    done, seen = run_in_terminal([*CHAT, *args], {**environment(), "TERM": "xterm-256color"})
    assert done == code
    assert sentence in seen
    assert ALTERNATE_SCREEN not in seen
    assert "Traceback" not in seen
