"""`localspec run` against a scripted engine: what goes where, and which exit code."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from localspec.cli.stream import ReplyStream
from localspec.messages import Note
from localspec.stats.recorder import read_steps
from tests.cli.conftest import Command, environment, scripted_command
from tests.cli.terminal import run_in_terminal


def test_the_reply_alone_is_on_standard_output(scripted: Command, tiny_gguf: Path) -> None:
    done = scripted("reply", "run", "Hi", "--model", str(tiny_gguf))
    assert done.returncode == 0
    assert done.stdout.decode() == "Hallo, Wörld \x1b[31m日本\n"
    assert done.stderr.decode() == "note: 2 old turns were dropped.\n"


def test_a_terminal_gets_no_escape_sequence_of_the_model(tiny_gguf: Path) -> None:
    command = scripted_command("reply", "run", "Hi", "--model", str(tiny_gguf))
    code, seen = run_in_terminal(command, environment())
    assert code == 0
    assert "Wörld ␛[31m日本" in seen
    assert "loading tiny 50%" in seen
    assert "20.0 tok/s  2 tokens  acceptance 50%  tau 2.00" in seen


def test_json_is_the_one_object_of_the_contract(scripted: Command, tiny_gguf: Path) -> None:
    done = scripted(
        "reply", "run", "Hi", "--model", str(tiny_gguf), "--json", "--seed", "9", "--draft", "none"
    )
    reply = json.loads(done.stdout)
    assert list(reply) == [
        *(
            "text",
            "token_ids",
            "finish_reason",
            "model",
            "draft",
            "policy",
            "reason",
            "verify",
            "exact",
            "seed",
            "sampling",
            "timings",
            "speculation",
        ),
    ]
    assert reply["text"] == "Hallo, Wörld \x1b[31m日本"
    assert (reply["token_ids"], reply["finish_reason"], reply["model"]) == ([7, 8], "stop", "tiny")
    assert (reply["draft"], reply["seed"], reply["sampling"]["seed"]) == ("none", 9, 9)
    assert (reply["verify"], reply["exact"]) == ("coupled", True)
    assert reply["reason"] == "off: acceptance 22 %, break-even 38 %"
    assert list(reply["timings"]) == [
        *("load_s", "prompt_tokens", "cached_tokens", "prompt_s", "time_to_first_token_s"),
        *("generated_tokens", "generation_s", "tokens_per_second"),
    ]
    assert list(reply["speculation"]) == [
        *("steps", "skipped_steps", "draft_tokens", "accepted_tokens", "acceptance_rate"),
        *("acceptance_length", "accepted_at", "draft_s", "verify_s", "sample_s", "other_s"),
    ]
    assert done.stdout.count(b"\n") == 1


def test_a_lossy_rule_is_labelled_wherever_a_reply_is_summed_up(scripted: Command, tiny_gguf: Path) -> None:
    args = ("run", "Hi", "--model", str(tiny_gguf), "--verify", "typical")
    reply = json.loads(scripted("reply", *args, "--json").stdout)
    assert (reply["verify"], reply["exact"]) == ("typical", False)
    code, seen = run_in_terminal(scripted_command("reply", *args), environment())
    assert code == 0
    assert "tau 2.00  lossy (typical)" in seen
    code, seen = run_in_terminal(scripted_command("reply", *args[:-1], "rejection"), environment())
    assert "lossy" not in seen


def said(done: subprocess.CompletedProcess[bytes]) -> dict[str, Any]:
    """What the engine was told."""
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_every_option_reaches_the_engine(scripted: Command, tiny_gguf: Path, tmp_path: Path) -> None:
    template = tmp_path / "template.jinja"
    template.write_text("{{ messages }}", encoding="utf-8")
    options = [
        "--draft",
        "ngram",
        "--draft-length",
        "5",
        "--draft-leaves",
        "3",
        "--policy",
        "fixed",
        "--verify",
        "block",
        "--temperature",
        "0.5",
        "--top-k",
        "7",
        "--top-p",
        "0.5",
    ]
    options += ["--min-p", "0.25", "--seed", "3", "--max-tokens", "11", "--context", "512", "--threads", "1"]
    options += ["--gpu-layers", "0", "--repeat-penalty", "1.5", "--presence-penalty", "0.5", "--stop", "END"]
    options += [
        "--frequency-penalty",
        "0.25",
        "--stop",
        "\n\n",
        "--system",
        "Be brief.",
        "--no-flash-attention",
        "--no-think",
    ]
    options += ["--kv-type", "q8_0", "--chat-template", str(template), "--ignore-eos"]
    told = said(scripted("echo", "run", "Hi", "--model", str(tiny_gguf), *options))
    load, generate = told["load"], told["generate"]
    assert load["path"] == str(tiny_gguf)
    engine = load["options"]
    assert (engine["draft"]["spec"], engine["draft"]["length"], engine["draft"]["leaves"]) == ("ngram", 5, 3)
    assert engine["draft"]["policy"] == "fixed"
    assert engine["verify"] == "block"
    assert (engine["context"], engine["threads"], engine["gpu_layers"]) == (512, 1, 0)
    assert (engine["flash_attention"], engine["kv_type"]) == (False, "q8_0")
    assert engine["chat_template"] == "{{ messages }}"
    assert generate["sampling"] == {
        "temperature": 0.5,
        "top_k": 7,
        "top_p": 0.5,
        "min_p": 0.25,
        "repeat_penalty": 1.5,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.25,
        "penalty_last_n": 64,
        "seed": 3,
    }
    assert (generate["max_tokens"], generate["stop"], generate["ignore_eos"]) == (11, ["END", "\n\n"], True)
    assert [turn["content"] for turn in generate["messages"]] == ["Be brief.", "Hi"]
    assert generate["prompt"] is None
    assert generate["think"] is False


def test_a_raw_prompt_has_no_turns(scripted: Command, tiny_gguf: Path) -> None:
    generate = said(scripted("echo", "run", "-", "--raw", "--model", str(tiny_gguf), stdin=b"1, 2,\n"))[
        "generate"
    ]
    assert (generate["prompt"], generate["messages"]) == ("1, 2,\n", [])


def test_standard_input_is_the_prompt(scripted: Command, tiny_gguf: Path) -> None:
    told = said(scripted("echo", "run", "-", "--model", str(tiny_gguf), stdin="Grüße\n".encode()))
    assert told["generate"]["messages"][-1]["content"] == "Grüße"


def test_seeds_differ_unless_given(scripted: Command, tiny_gguf: Path) -> None:
    told = [said(scripted("echo", "run", "Hi", "--model", str(tiny_gguf))) for _ in range(2)]
    # Two of 2^31 seeds are equal with a probability under 1e-9.
    assert told[0]["generate"]["sampling"]["seed"] != told[1]["generate"]["sampling"]["seed"]


@pytest.mark.parametrize(
    ("args", "stdin", "sentence"),
    [
        (["-"], b"caf\xe9", "Standard input is not valid UTF-8 (byte 4)"),
        (["-"], b"\x7fELF\0\0", "Standard input is binary"),
        (["-"], b"", "Standard input is empty"),
        (["-"], b" \n\n", "Standard input is empty"),
        ([""], b"", "The prompt is empty"),
        (["Hi", "--stop", ""], b"", "--stop needs some text"),
        (["Hi", "--raw", "--system", "x"], b"", "--system has no place beside --raw"),
        (["Hi", "--draft", "magic"], b"", "magic"),
        (["Hi", "--policy", "luck"], b"", "There is no policy 'luck'"),
        (["Hi", "--policy", "fixed:0"], b"", "A fixed draft length is 1 or more, not '0'"),
        (["Hi", "--temperature", "nan"], b"", "temperature"),
        (["Hi", "--temperature", "-1"], b"", "--temperature"),
        (["Hi", "--top-p", "1.5"], b"", "--top-p"),
        (["Hi", "--max-tokens", "0"], b"", "--max-tokens"),
        (["Hi", "--draft-length", "0"], b"", "--draft-length"),
        (["Hi", "--draft-leaves", "0"], b"", "--draft-leaves"),
        (["Hi", "--draft-leaves", "17"], b"", "--draft-leaves"),
        (["Hi", "--top-p", "0"], b"", "--top-p"),
        (["Hi", "--verify", "luck"], b"", "There is no verification rule 'luck'; use one of: coupled, "),
        (["Hi", "--verify", "adasd"], b"", "the drafter 'auto' has no distribution"),
        (["Hi", "--verify", "adasd", "--draft", "none"], b"", "'none' has no distribution"),
        (["Hi", "--seed", "-1"], b"", "--seed"),
    ],
)
def test_what_cannot_be_used_exits_2(
    scripted: Command, tiny_gguf: Path, args: list[str], stdin: bytes, sentence: str
) -> None:
    done = scripted("reply", "run", *args, "--model", str(tiny_gguf), stdin=stdin)
    assert (done.returncode, done.stdout) == (2, b"")
    assert one_sentence(done).startswith("localspec: ")
    assert sentence in one_sentence(done)


@pytest.mark.parametrize("args", [[], ["Hi", "--top-k", "x"], ["Hi", "--nonsense"], ["Hi", "there"]])
def test_usage_errors_exit_2(scripted: Command, args: list[str]) -> None:
    done = scripted("reply", "run", *args)
    assert done.returncode == 2
    assert b"Usage: " in done.stderr
    assert b"Traceback" not in done.stderr


def test_bytes_that_are_no_text_in_an_argument(tiny_gguf: Path) -> None:
    command = [os.fsencode(part) for part in scripted_command("reply", "run", "--model", str(tiny_gguf))]
    # Without UTF-8 mode's checks this is what a shell hands over for a Latin-1 file name.
    done = subprocess.run([*command, b"caf\xe9"], capture_output=True, env=environment(), check=False)
    assert done.returncode == 2
    assert one_sentence(done) == "localspec: The prompt is not valid UTF-8; convert it first."


def test_an_unknown_model_exits_3(scripted: Command) -> None:
    done = scripted("reply", "run", "Hi", "--model", "smolm2")
    assert done.returncode == 3
    assert "smollm2" in one_sentence(done)


def test_a_missing_file_exits_3(scripted: Command, tmp_path: Path) -> None:
    done = scripted("reply", "run", "Hi", "--model", str(tmp_path / "none.gguf"))
    assert done.returncode == 3
    assert "none.gguf" in one_sentence(done)


def test_a_missing_template_exits_3(scripted: Command, tiny_gguf: Path, tmp_path: Path) -> None:
    options = ["--chat-template", str(tmp_path / "none.jinja")]
    done = scripted("reply", "run", "Hi", "--model", str(tiny_gguf), *options)
    assert done.returncode == 3
    assert "none.jinja" in one_sentence(done)


def test_a_file_that_is_no_model_exits_1(scripted: Command, tmp_path: Path) -> None:
    path = tmp_path / "text.gguf"
    path.write_text("not a model")
    done = scripted("reply", "run", "Hi", "--model", str(path))
    assert done.returncode == 1
    assert "not a GGUF model" in one_sentence(done)


@pytest.mark.parametrize(
    ("scenario", "code", "sentence"),
    [
        ("load-fails", 5, "It needs 9 GB; lower --context."),
        ("fails", 1, "The model returned NaN."),
        ("dies", 1, "SIGKILL"),
    ],
)
def test_what_the_engine_reports_decides_the_exit_code(
    scripted: Command, tiny_gguf: Path, scenario: str, code: int, sentence: str
) -> None:
    done = scripted(scenario, "run", "Hi", "--model", str(tiny_gguf))
    assert done.returncode == code
    assert sentence in one_sentence(done)
    assert done.stdout in (b"", b"Half a\n")


def test_debug_shows_where_an_error_came_from(scripted: Command, tiny_gguf: Path) -> None:
    done = scripted("load-fails", "run", "Hi", "--model", str(tiny_gguf), "--debug")
    assert done.returncode == 5
    assert b"Traceback" in done.stderr
    assert b"trace\n" in done.stderr


def test_steps_are_recorded(scripted: Command, tiny_gguf: Path, tmp_path: Path) -> None:
    record = tmp_path / "steps.jsonl"
    scripted("reply", "run", "Hi", "--model", str(tiny_gguf), "--record", str(record))
    steps = list(read_steps(record))
    assert [(step.drafted, step.accepted, step.verify_ns) for step in steps] == [(2, 1, 20)] * 3


def test_a_recording_that_cannot_be_written_is_found_out_first(
    scripted: Command, tiny_gguf: Path, tmp_path: Path
) -> None:
    record = tmp_path / "none" / "steps.jsonl"
    done = scripted("reply", "run", "Hi", "--model", str(tiny_gguf), "--record", str(record))
    assert (done.returncode, done.stdout) == (1, b"")
    assert "steps.jsonl" in one_sentence(done)


def start(scenario: str, *args: str) -> subprocess.Popen[bytes]:
    command = scripted_command(scenario, "run", "Hi", *args)
    # Unbuffered, or reading a little would hide more from `communicate`.
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "bufsize": 0}
    return subprocess.Popen(command, env=environment(), **pipes)


def test_ctrl_c_keeps_the_text_and_exits_130(tiny_gguf: Path) -> None:
    child = start("endless", "--model", str(tiny_gguf))
    assert child.stdout is not None
    assert child.stdout.read(7) == b"on and "
    child.send_signal(signal.SIGINT)
    rest, errors = child.communicate(timeout=60)
    assert child.returncode == 130
    text = b"on and " + rest
    assert text == b"on and " * text.count(b"on and ") + b"\n"
    assert errors == b""


def test_ctrl_c_with_json_prints_what_there_is(tiny_gguf: Path, tmp_path: Path) -> None:
    record = tmp_path / "steps.jsonl"
    child = start("endless", "--model", str(tiny_gguf), "--json", "--record", str(record))
    wait_until(lambda: record.exists() and record.read_bytes().count(b"\n") > 1)
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=60)
    assert child.returncode == 130
    assert json.loads(out)["finish_reason"] == "cancelled"


def test_a_second_ctrl_c_does_not_wait_for_the_engine(tiny_gguf: Path) -> None:
    child = start("deaf", "--model", str(tiny_gguf))
    assert child.stdout is not None
    child.stdout.read(7)
    child.send_signal(signal.SIGINT)
    time.sleep(0.2)
    assert child.poll() is None
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=60)
    assert child.returncode == 130


def test_ctrl_c_while_loading_exits_130(tiny_gguf: Path, tmp_path: Path) -> None:
    record = tmp_path / "steps.jsonl"
    child = start("load-hangs", "--model", str(tiny_gguf), "--record", str(record))
    wait_until(record.exists)
    time.sleep(0.2)
    child.send_signal(signal.SIGINT)
    out, errors = child.communicate(timeout=60)
    assert (child.returncode, out, errors) == (130, b"", b"")


def test_sigterm_ends_engine_and_command(tiny_gguf: Path) -> None:
    child = start("deaf", "--model", str(tiny_gguf))
    assert child.stdout is not None
    child.stdout.read(7)
    child.terminate()
    child.communicate(timeout=60)
    assert child.returncode == 143


def test_a_closed_pipe_is_no_drama(tiny_gguf: Path) -> None:
    child = start("flood", "--model", str(tiny_gguf))
    assert child.stdout is not None
    child.stdout.read(5)
    child.stdout.close()
    assert child.stderr is not None
    assert child.stderr.read() == b""
    assert child.wait(timeout=60) == 1
    child.stderr.close()


def one_sentence(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = [line for line in done.stderr.decode().splitlines() if not line.startswith("note: ")]
    assert len(lines) == 1, lines
    return lines[0]


def wait_until(true: Any, seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_note_within_a_reply_begins_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for out, before in ((Terminal(), "\n"), (io.StringIO(), "")):
        stream = ReplyStream(None, out)
        stream._write("Hello")
        stream._handle(Note("No drafts."), "model")
        assert capsys.readouterr().err == f"{before}note: No drafts.\n"
