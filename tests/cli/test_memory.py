"""`localspec memory` without a model: what is there, and how it goes."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localspec.chat.store import Store
from localspec.memory.files import log_path
from localspec.memory.log import TokenLog
from localspec.memory.records import Record
from localspec.paths import data_dir, memory_dir
from tests.cli.conftest import Command, environment
from tests.e2e.terminal import Terminal

ONE, TWO = "1" * 32, "2" * 32
SECRET = list(range(5000, 5040))


def remember(fingerprint: str, conversation: str, tokens: Sequence[int] = SECRET) -> TokenLog:
    log = TokenLog(log_path(memory_dir(), fingerprint), fingerprint)
    log.append([Record(np.asarray(tokens, np.int32), conversation, 1.7e9)])
    return log


def said(done: Any) -> Any:
    assert (done.returncode, done.stderr) == (0, b"")
    return json.loads(done.stdout)


def failed(done: Any, code: int) -> str:
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (code, b"", 1), done.stderr
    return str(done.stderr.decode())


def test_an_empty_memory_is_not_made_by_looking(localspec: Command, private_home: Path) -> None:
    assert localspec("memory", "status").stdout == b"Nothing is remembered yet.\n"
    assert said(localspec("memory", "status", "--json"))["memories"] == []
    assert localspec("memory", "path").stdout.decode().strip() == str(private_home / "data" / "memory")
    assert localspec("memory", "compact").stdout == b""
    assert said(localspec("memory", "forget", "--all", "--json")) == {"forgotten": 0}
    assert not data_dir().exists()


def test_conversations_are_shown_and_forgotten_by_number_or_name(localspec: Command) -> None:
    store = Store()
    rows = [store.create(model="m", title=title) for title in ("Kept", "Secret \x1b[31m")]
    store.close()
    for fingerprint in (ONE, TWO):
        remember(fingerprint, rows[0].memory_name, [1, 2, 3])
        remember(fingerprint, rows[1].memory_name)
    log = remember(TWO, "run-abc", [9] * 5)
    shown = localspec("memory", "status").stdout.decode()
    assert "Kept" in shown
    assert "Secret" in shown
    assert "\x1b" not in shown
    assert "run-abc" in shown
    first, second = said(localspec("memory", "status", "--json"))["memories"]
    assert (first["documents"], first["tokens"]) == (2, 43)
    assert second["bytes"] == log.path.stat().st_size
    assert {one["id"] for one in second["conversations"]} == {"1", "2", "run-abc"}
    assert {one["title"] for one in first["conversations"]} == {"Kept", "Secret \x1b[31m"}

    forgotten = localspec("memory", "forget", "--conversation", str(rows[1].id))
    assert forgotten.stdout == b"Forgot 2 documents.\n"
    everything = b"".join(path.read_bytes() for path in memory_dir().iterdir())
    assert np.asarray(SECRET[:3], "<i4").tobytes() not in everything
    assert rows[1].memory_name.encode() not in everything
    # It is still in the app's list, so this is no mistake; a name that nobody knows is one.
    assert localspec("memory", "forget", "--conversation", "2").stdout == b"Forgot 0 documents.\n"
    assert said(localspec("memory", "forget", "--conversation", "run-abc", "--json")) == {"forgotten": 1}
    for unknown in ("3", "run-abc", "9" * 30, "²"):
        assert "memory status" in failed(localspec("memory", "forget", "--conversation", unknown), 3)

    assert localspec("memory", "forget", "--all").stdout == b"Forgot 2 documents.\n"
    assert not list(memory_dir().glob("*.tokens"))


def test_one_must_say_what_to_forget(localspec: Command) -> None:
    for options in ((), ("--all", "--conversation", "1")):
        assert "--conversation ID or --all" in failed(localspec("memory", "forget", *options), 2)


def test_one_broken_memory_does_not_keep_the_others(localspec: Command) -> None:
    remember(ONE, "run-a")
    broken = log_path(memory_dir(), "0" * 32)
    broken.write_bytes(b"hello")
    status = said(localspec("memory", "status", "--json"))["memories"]
    assert "not a memory file" in status[0]["problem"]
    assert status[1]["problem"] is None
    assert b"problem: " in localspec("memory", "status").stdout
    compacted = localspec("memory", "compact")
    assert (compacted.returncode, str(broken) in compacted.stderr.decode()) == (1, True)
    assert b"0 documents dropped" in compacted.stdout
    assert str(broken) in failed(localspec("memory", "forget", "--conversation", "run-a"), 1)
    assert TokenLog(log_path(memory_dir(), ONE), ONE).refresh().records == []
    assert localspec("memory", "forget", "--all").returncode == 0
    assert not list(memory_dir().glob("*.tokens"))


def test_compact_keeps_to_the_capacity(localspec: Command) -> None:
    log = remember(ONE, "run-a", [1] * 60)
    remember(ONE, "run-b", [2] * 60)
    told = localspec("memory", "compact", LOCALSPEC_MEMORY__CAPACITY="100").stdout.decode()
    assert str(log.path) in told
    assert "1 document dropped" in told
    assert [one.conversation for one in log.refresh().records] == ["run-b"]


def test_on_a_terminal_forgetting_everything_is_asked_for() -> None:
    log = remember(ONE, "run-a")
    command = [sys.executable, "-m", "localspec", "memory", "forget", "--all"]
    for answer, options in (("n", ()), ("y", ()), ("", ("--yes",))):
        terminal = Terminal([*command, *options], environment())
        try:
            if answer:
                terminal.wait_for("Forget every reply")
                terminal.send(f"{answer}\r")
            assert terminal.wait_until_ended() == (1 if answer == "n" else 0)
        finally:
            terminal.close()
        assert log.path.exists() is (answer == "n")
        if answer == "y":
            remember(ONE, "run-a")


@pytest.mark.parametrize(
    ("content", "words", "code"),
    [(b"a\0b", "binary", 2), (b"\xff\xfe", "UTF-8", 2), (b" \n", "empty", 2), (None, "There is no file", 3)],
)
def test_what_cannot_be_imported(
    localspec: Command, tmp_path: Path, tiny_gguf: Path, content: bytes | None, words: str, code: int
) -> None:
    file = tmp_path / "notes.txt"
    if content is not None:
        file.write_bytes(content)
    done = localspec("memory", "import", str(file), "--model", str(tiny_gguf))
    assert words in failed(done, code)
    assert not memory_dir().exists()


def test_a_model_without_a_vocabulary_cannot_import(
    localspec: Command, tmp_path: Path, tiny_gguf: Path
) -> None:
    (tmp_path / "notes.txt").write_text("Hi")
    done = localspec("memory", "import", str(tmp_path / "notes.txt"), "--model", str(tiny_gguf))
    assert "vocabulary" in failed(done, 2)


def test_run_and_its_options(scripted: Command, tiny_gguf: Path, private_home: Path) -> None:
    asked = ("run", "Hi", "--model", str(tiny_gguf))
    told = [said(scripted("echo", *asked, *more)) for more in ((), (), ("--no-memory",))]
    names = [one["generate"]["conversation"] for one in told]
    assert all(name.startswith("run-") for name in names)
    assert len(set(names)) == 3
    folders = [one["load"]["options"]["memory"] for one in told]
    assert folders == [str(private_home / "data" / "memory")] * 2 + [None]
