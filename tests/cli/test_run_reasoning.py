"""`localspec run` on a model that reasons: the answer is on standard output, the reasoning is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Command, environment, scripted_command
from tests.cli.terminal import run_in_terminal


@pytest.mark.parametrize("scenario", ["thinks", "opened"])
def test_a_pipe_gets_the_answer_alone(scripted: Command, tiny_gguf: Path, scenario: str) -> None:
    done = scripted(scenario, "run", "Hi", "--model", str(tiny_gguf))
    assert (done.returncode, done.stdout, done.stderr) == (0, b"The answer.\n", b"")


def test_json_and_raw_keep_all_of_it(scripted: Command, tiny_gguf: Path) -> None:
    whole = "<think>\nFirst idea.\n\nSecond \x1b[31midea.\n</think>\n\nThe answer."
    done = scripted("thinks", "run", "Hi", "--json", "--model", str(tiny_gguf))
    assert json.loads(done.stdout)["text"] == whole
    done = scripted("thinks", "run", "Hi", "--raw", "--model", str(tiny_gguf))
    assert done.stdout.decode() == f"{whole}\n"


@pytest.mark.parametrize("colour", [True, False])
def test_a_terminal_shows_the_reasoning_dimmed(tiny_gguf: Path, colour: bool) -> None:
    command = scripted_command("thinks", "run", "Hi", "--model", str(tiny_gguf))
    extra = {"TERM": "xterm-256color"} | ({} if colour else {"NO_COLOR": "1"})
    bare = {name: value for name, value in environment().items() if name != "NO_COLOR"}
    code, seen = run_in_terminal(command, bare | extra)
    assert code == 0
    begin, end = ("\x1b[2m", "\x1b[22m") if colour else ("", "")
    pieces = ("First", " idea.\r\n\r\nSecond ␛[31midea.")
    reasoning = "".join(f"{begin}{piece}{end}" for piece in pieces)
    assert f"{reasoning}\r\n\r\nThe answer.\r\n" in seen
    assert "think>" not in seen


def test_reasoning_in_a_terminal_leaves_a_file_the_answer_alone(tiny_gguf: Path, tmp_path: Path) -> None:
    command = scripted_command("opened", "run", "Hi", "--model", str(tiny_gguf))
    file = tmp_path / "answer"
    line = ["/bin/sh", "-c", '"$@" > "$OUT"', "sh", *command]
    code, seen = run_in_terminal(line, environment() | {"OUT": str(file)})
    assert (code, file.read_text()) == (0, "The answer.\n")
    assert "First idea." in seen


@pytest.mark.parametrize("scenario", ["thinks without end", "opened without end"])
def test_a_reply_that_is_reasoning_alone_says_what_to_do(
    scripted: Command, tiny_gguf: Path, scenario: str
) -> None:
    done = scripted(scenario, "run", "Hi", "--model", str(tiny_gguf))
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr.decode() == (
        "note: The reply ended within its reasoning; --max-tokens lets it be longer, "
        "--no-think leaves reasoning out.\n"
    )
