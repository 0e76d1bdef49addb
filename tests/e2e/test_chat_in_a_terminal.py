"""The whole product on the real model in a real pseudo-terminal, as a person would use it."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from localspec.stats.recorder import read_steps
from tests.e2e.terminal import Terminal

pytestmark = pytest.mark.model

F2, ESCAPE, ENTER, CTRL_Q, CTRL_N = "\x1bOQ", "\x1b", "\r", "\x11", "\x0e"
LONG = "Write a very long story about a lighthouse keeper, with many chapters."

Start = Callable[..., Terminal]


@pytest.fixture
def start(private_home: Path, smollm2_path: Path) -> Iterator[Start]:
    terminals: list[Terminal] = []

    def run(*options: str, columns: int = 110, rows: int = 36) -> Terminal:
        command = [sys.executable, "-m", "localspec", "chat", "--model", str(smollm2_path), "--threads", "1"]
        environment = {**os.environ, "LOCALSPEC_HOME": str(private_home)}
        terminals.append(Terminal([*command, *options], environment, columns, rows))
        return terminals[-1]

    yield run
    for terminal in terminals:
        terminal.close()


def messages(home: Path) -> list[tuple[str, str, str, dict[str, Any]]]:
    """Role, text, status and figures of every kept message."""
    database = sqlite3.connect(f"file:{home / 'data' / 'conversations.db'}?mode=ro", uri=True)
    try:
        if not database.execute("PRAGMA user_version").fetchone()[0]:
            return []
        rows = database.execute("SELECT role, content, status, stats FROM message ORDER BY id").fetchall()
    finally:
        database.close()
    return [
        (role, content, status, json.loads(stats) if stats else {}) for role, content, status, stats in rows
    ]


def wait_for_messages(
    home: Path, count: int, seconds: float = 180
) -> list[tuple[str, str, str, dict[str, Any]]]:
    """Messages, once there are `count` and the last one has ended."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        kept = messages(home) if (home / "data" / "conversations.db").exists() else []
        if len(kept) >= count and kept[-1][2] != "streaming":
            return kept
        time.sleep(0.1)
    raise AssertionError(f"expected {count} messages, found {messages(home)}")


def wait_for_steps(path: Path, condition: Callable[[list[Any]], bool], seconds: float = 120) -> list[Any]:
    """Recorded steps, once they satisfy `condition`."""
    deadline = time.monotonic() + seconds
    steps: list[Any] = []
    while time.monotonic() < deadline:
        steps = list(read_steps(path)) if path.exists() else []
        if condition(steps):
            return steps
        time.sleep(0.1)
    raise AssertionError(f"never satisfied; {len(steps)} steps, the last {steps[-1:]}")


def engine_of(terminal: Terminal) -> psutil.Process:
    return next(
        child
        for child in psutil.Process(terminal.process.pid).children(recursive=True)
        if "localspec.worker" in " ".join(child.cmdline())
    )


def test_a_day_of_a_chat(start: Start, private_home: Path, tmp_path: Path):
    recording = tmp_path / "steps.jsonl"
    terminal = start("--record", str(recording), "--max-tokens", "2000", "--temperature", "0")
    terminal.wait_for("localspec", "Message")

    # Two turns; the second prefills only what is new.
    terminal.send("Say hello in one short sentence." + ENTER)
    wait_for_messages(private_home, 2)
    terminal.wait_for("tok/s")
    terminal.send("Say it again." + ENTER)
    kept = wait_for_messages(private_home, 4)
    first, second = kept[1][3], kept[3][3]
    assert second["cached_tokens"] >= first["prompt_tokens"] + first["generated_tokens"] - 2
    assert second["prompt_tokens"] - second["cached_tokens"] < 25

    # f2 in the middle of a reply, both ways; greedy, this model tells a long story in a new chat only.
    terminal.send(CTRL_N)
    terminal.wait_for("Chat with")
    before = len(list(read_steps(recording)))
    terminal.send(LONG + ENTER)
    wait_for_steps(recording, lambda steps: len(steps) > before + 10)
    terminal.send(F2)
    terminal.wait_for("speculation off")
    off = wait_for_steps(recording, lambda steps: [step.budget for step in steps[-10:]] == [0] * 10)
    terminal.send(F2)
    terminal.wait_for("speculation on")
    steps = wait_for_steps(recording, lambda steps: len(steps) > len(off) and steps[-1].budget > 0)
    # One and the same reply: its steps count on.
    indices = [step.index for step in steps[before:]]
    assert indices == list(range(len(indices)))

    # The window shrinks and grows back while the reply goes on.
    terminal.resize(60, 20)
    terminal.wait_for("tok/s")
    assert all(len(line) <= 60 for line in terminal.text.splitlines())
    terminal.resize(110, 36)
    terminal.wait_for("SPEED", "CONTEXT")

    # esc stops, and what was said stays.
    terminal.send(ESCAPE)
    kept = wait_for_messages(private_home, 6)
    terminal.wait_for("stopped")
    assert kept[5][2] == "cancelled"
    assert len(kept[5][1]) > 40

    terminal.send(CTRL_Q)
    assert terminal.wait_until_ended() == 0
    assert b"\x1b[?1049l" in terminal.written.split(b"\x1b[?1049h")[-1]

    # Opened again, the conversation is there and goes on.
    again = start("--max-tokens", "40")
    again.wait_for("lighthouse keeper", "stopped")
    again.send("Thanks." + ENTER)
    assert len(wait_for_messages(private_home, 8)) == 8
    again.send(CTRL_Q)
    assert again.wait_until_ended() == 0


def test_a_killed_engine_costs_one_line(start: Start, private_home: Path):
    terminal = start("--max-tokens", "300")
    terminal.wait_for("localspec", "Message")
    terminal.send(LONG + ENTER)
    terminal.wait_for("tok/s", "Writing")
    time.sleep(0.3)
    engine_of(terminal).send_signal(signal.SIGKILL)
    terminal.wait_for("SIGKILL")
    kept = wait_for_messages(private_home, 2)
    assert kept[1][2] == "failed"
    assert len(kept[1][1]) > 10
    terminal.send("Are you there?" + ENTER)
    kept = wait_for_messages(private_home, 4)
    assert kept[3][2] == "complete"
    assert kept[3][1]
    terminal.send(CTRL_Q)
    assert terminal.wait_until_ended() == 0


def test_an_engine_that_hangs_is_ended_by_a_second_stop(start: Start, private_home: Path):
    terminal = start("--max-tokens", "300")
    terminal.wait_for("localspec", "Message")
    terminal.send(LONG + ENTER)
    terminal.wait_for("tok/s", "Writing")
    engine_of(terminal).send_signal(signal.SIGSTOP)
    terminal.send(ESCAPE)
    terminal.wait_for("Stopping")
    time.sleep(3.2)
    terminal.send(ESCAPE)
    terminal.wait_for("SIGKILL")
    assert wait_for_messages(private_home, 2)[1][2] == "failed"
    terminal.send(CTRL_Q)
    assert terminal.wait_until_ended() == 0


def test_a_killed_app_has_kept_the_reply_and_its_engine_ends(start: Start, private_home: Path):
    terminal = start()
    terminal.wait_for("localspec", "Message")
    terminal.send(LONG + ENTER)
    terminal.wait_for("Writing")
    time.sleep(2.0)
    engine = engine_of(terminal)
    terminal.process.kill()
    engine.wait(timeout=60)
    kept = messages(private_home)
    assert kept[1][2] == "streaming"
    assert len(kept[1][1]) > 10
    again = start()
    again.wait_for("lighthouse keeper", "stopped")
    again.send(CTRL_Q)
    assert again.wait_until_ended() == 0


def test_two_apps_at_once(start: Start, private_home: Path):
    one, two = (start("--new", "--max-tokens", "60") for _ in range(2))
    for terminal, text in ((one, "Say one."), (two, "Say two.")):
        terminal.wait_for("localspec", "Message")
        terminal.send(text + ENTER)
    kept = wait_for_messages(private_home, 4)
    deadline = time.monotonic() + 60
    while [row[2] for row in kept].count("complete") < 4 and time.monotonic() < deadline:
        time.sleep(0.1)
        kept = messages(private_home)
    assert [row[2] for row in kept] == ["complete"] * 4
    for terminal in (one, two):
        terminal.send(CTRL_Q)
        assert terminal.wait_until_ended() == 0


def test_a_window_too_small_says_so_and_recovers(start: Start):
    terminal = start(columns=24, rows=6)
    terminal.wait_for("too small")
    terminal.resize(100, 30)
    terminal.wait_for("Message")
    terminal.send(CTRL_Q)
    assert terminal.wait_until_ended() == 0


def test_a_private_chat_leaves_nothing_behind(start: Start, private_home: Path):
    terminal = start("--private", "--max-tokens", "30")
    terminal.wait_for("private", "Message")
    terminal.send("Say heliotrope." + ENTER)
    terminal.wait_for("tok/s", "heliotrope")
    terminal.send(CTRL_Q)
    assert terminal.wait_until_ended() == 0
    assert not (private_home / "data").exists()
    for path in private_home.rglob("*"):
        assert path.is_dir() or b"heliotrope" not in path.read_bytes().lower(), path
