"""`localspec run` on the real model, whole: command, engine process, llama.cpp."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cli.conftest import Command, environment

pytestmark = pytest.mark.model


@pytest.fixture
def options(smollm2_path: Path) -> list[str]:
    # One thread: two that wait for each other take many times as long beside a busy neighbour.
    return ["--model", str(smollm2_path), "--threads", "1", "--seed", "5"]


def reply_of(done: subprocess.CompletedProcess[bytes]) -> dict[str, Any]:
    assert (done.returncode, done.stderr) == (0, b"")
    reply: dict[str, Any] = json.loads(done.stdout)
    return reply


def test_text_and_json_tell_the_same(localspec: Command, options: list[str]) -> None:
    asked = ["run", "Name three rivers.", *options, "--max-tokens", "24"]
    plain = localspec(*asked)
    assert (plain.returncode, plain.stderr) == (0, b"")
    reply = reply_of(localspec(*asked, "--json"))
    assert plain.stdout.decode().rstrip("\n") == reply["text"].rstrip("\n")
    assert (reply["finish_reason"], len(reply["token_ids"]), reply["seed"]) == ("length", 24, 5)
    timings = reply["timings"]
    assert timings["generated_tokens"] == 24
    assert timings["cached_tokens"] == 0
    assert timings["tokens_per_second"] > 0


def test_drafts_are_made_and_counted(localspec: Command, options: list[str]) -> None:
    prompt = "red green blue red green blue red green blue red green blue red green"
    asked = ["run", prompt, "--raw", *options, "--temperature", "0", "--max-tokens", "24", "--json"]
    drafted = reply_of(localspec(*asked, "--draft", "ngram", "--draft-length", "3", "--policy", "fixed"))[
        "speculation"
    ]
    assert 0 < drafted["accepted_tokens"] <= drafted["draft_tokens"]
    assert len(drafted["accepted_at"]) <= 3
    assert drafted["acceptance_length"] > 1.5
    plain = reply_of(localspec(*asked, "--draft", "none"))["speculation"]
    assert (plain["draft_tokens"], plain["acceptance_rate"], plain["acceptance_length"]) == (0, None, 1.0)


def test_a_stop_string_is_cut_off(localspec: Command, options: list[str]) -> None:
    asked = ["run", "1 2 3 4 5", "--raw", *options, "--temperature", "0", "--max-tokens", "40"]
    whole = reply_of(localspec(*asked, "--json"))["text"]
    end = whole[10:13]
    stopped = reply_of(localspec(*asked, "--json", "--stop", end))
    assert stopped["finish_reason"] == "stop"
    assert stopped["text"] == whole[: whole.index(end)]


def test_a_prompt_longer_than_the_context_exits_2(localspec: Command, options: list[str]) -> None:
    done = localspec("run", "-", *options, "--context", "256", stdin=b"word " * 2000)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.count(b"\n") == 1
    assert b"256" in done.stderr


def test_a_wrong_cache_type_exits_2(localspec: Command, options: list[str]) -> None:
    done = localspec("run", "Hi", *options, "--kv-type", "q99")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"q99" in done.stderr


def started(options: list[str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "localspec", "run", "Tell a long story.", *options, "--ignore-eos"]
    # Unbuffered, or reading a little would hide more from `communicate`.
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "bufsize": 0}
    child = subprocess.Popen(command, env=environment(), **pipes)
    assert child.stdout is not None
    assert child.stdout.read(20)
    return child


def test_ctrl_c_ends_the_reply_and_the_engine(options: list[str]) -> None:
    child = started(options)
    engine = psutil.Process(child.pid).children()
    child.send_signal(signal.SIGINT)
    rest, errors = child.communicate(timeout=60)
    assert (child.returncode, errors) == (130, b"")
    assert rest.endswith(b"\n")
    assert engine
    assert not any(process.is_running() for process in engine)


def test_a_killed_engine_is_one_sentence(options: list[str]) -> None:
    child = started(options)
    for process in psutil.Process(child.pid).children():
        os.kill(process.pid, signal.SIGKILL)
    _, errors = child.communicate(timeout=60)
    assert child.returncode == 1
    assert errors.count(b"\n") == 1
    assert b"SIGKILL" in errors
    assert b"run the command again" in errors
