"""`localspec chat --plain`: lines in, text out, in pipes and in terminals, without control of the screen."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from localspec.chat.rows import Wishes
from localspec.chat.store import Store
from localspec.chat.thinking import opening_in
from localspec.messages import Generate
from localspec.recording import read_session
from tests.cli.conftest import Command, environment, scripted_command
from tests.cli.terminal import run_in_terminal

REPLY = "Hallo, Wörld \x1b[31m日本\n".encode()


@pytest.fixture(autouse=True)
def home(private_home: Path) -> Path:
    return private_home


class Talk:
    """A plain chat in a pseudo-terminal."""

    def __init__(self, scenario: str, *args: str, **extra: str) -> None:
        self.leader, follower = pty.openpty()
        command = scripted_command(scenario, "chat", "--plain", *args)
        self.child = subprocess.Popen(
            command,
            stdin=follower,
            stdout=follower,
            stderr=follower,
            env={**environment(), "TERM": "dumb", **extra},
            start_new_session=True,
        )
        os.close(follower)
        os.set_blocking(self.leader, False)
        self.written = ""

    def type(self, text: str) -> None:
        os.write(self.leader, text.encode())

    def wait_for(self, text: str, times: int = 1, seconds: float = 90) -> None:
        deadline = time.monotonic() + seconds
        while self.written.count(text) < times:
            assert time.monotonic() < deadline, f"waited for {text!r}:\n{self.written}"
            self.read()
            time.sleep(0.01)

    def read(self) -> None:
        # Nothing is there yet, or the other end is closed.
        with contextlib.suppress(OSError):
            self.written += os.read(self.leader, 65536).decode()

    def ended(self) -> int:
        code = self.child.wait(timeout=60)
        self.read()
        return code


@pytest.fixture
def talk() -> Iterator[type[Talk]]:
    made: list[Talk] = []

    class Kept(Talk):
        def __init__(self, scenario: str, *args: str, **extra: str) -> None:
            super().__init__(scenario, *args, **extra)
            made.append(self)

    yield Kept
    for one in made:
        if one.child.poll() is None:
            one.child.kill()
            one.child.wait()
        os.close(one.leader)


def test_a_pipe_is_one_message_a_line(scripted: Command, tiny_gguf: Path) -> None:
    said = b"one\n\ntwo\r\n//three\n"
    done = scripted("reply", "chat", "--plain", "--model", str(tiny_gguf), stdin=said)
    assert done.returncode == 0
    assert done.stdout == 3 * REPLY
    assert done.stderr.decode().count("tok/s") == 3
    assert "> " not in done.stderr.decode()
    store = Store()
    (row,) = store.conversations()
    messages = [(one.role, one.content, one.status) for one in store.messages(row.id)]
    store.close()
    assert [content for role, content, _ in messages if role == "user"] == ["one", "two", "/three"]
    assert messages[1] == ("assistant", REPLY.decode()[:-1], "complete")


def test_commands(scripted: Command, tiny_gguf: Path) -> None:
    said = b"one\n/new\n/spec off\n/spec on\n/spec\n/draft suffix\n/draft\n/help\ntwo\n/quit\nthree\n"
    done = scripted("reply", "chat", "--plain", "--model", str(tiny_gguf), stdin=said)
    assert (done.returncode, done.stdout) == (0, 2 * REPLY)
    told = done.stderr.decode()
    for sentence in (
        "This is a new conversation.",
        "speculation: switched off.",
        "speculation: switched on.",
        "Drafter suffix; speculation: measuring.",
        "The drafter is suffix.",
        "/spec on|off",
    ):
        assert sentence in told
    store = Store()
    assert [row.title for row in store.conversations()] == ["two", "one"]
    store.close()


@pytest.mark.parametrize(
    ("stdin", "sentence"),
    [
        (b"/what\none\n", "no command '/what'"),
        (b"one\n/draft magic\n", "magic"),
        (b"/spec of\none\n", "/spec of"),
    ],
)
def test_a_mistyped_command_in_a_pipe_loses_no_message(
    scripted: Command, tiny_gguf: Path, stdin: bytes, sentence: str
) -> None:
    done = scripted("reply", "chat", "--plain", "--model", str(tiny_gguf), stdin=stdin)
    # That something was wrong is not lost either.
    assert (done.returncode, done.stdout) == (2, REPLY)
    assert sentence in done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()


@pytest.mark.parametrize(
    ("stdin", "sentence"),
    [(b"\xff\xfe\n", "not valid UTF-8"), (b"/what\na\0b\n", "binary")],
)
def test_what_is_no_text_ends_a_pipe(scripted: Command, tiny_gguf: Path, stdin: bytes, sentence: str) -> None:
    done = scripted("reply", "chat", "--plain", "--model", str(tiny_gguf), stdin=stdin)
    assert (done.returncode, done.stdout) == (2, b"")
    assert sentence in done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()


def test_the_next_chat_goes_on_with_the_last_one(scripted: Command, tiny_gguf: Path) -> None:
    scripted("reply", "chat", "--plain", "--model", str(tiny_gguf), stdin=b"one\n")
    done = scripted("reply", "chat", "--plain", "--model", str(tiny_gguf), stdin=b"two\n")
    assert "Going on with “one” (2 messages)" in done.stderr.decode()
    done = scripted("reply", "chat", "--plain", "--new", "--model", str(tiny_gguf), stdin=b"three\n")
    assert "Going on" not in done.stderr.decode()
    store = Store()
    assert [(row.title, row.message_count) for row in store.conversations()] == [("three", 2), ("one", 4)]
    store.close()
    done = scripted(
        "reply", "chat", "--plain", "--conversation", "9", "--model", str(tiny_gguf), stdin=b"four\n"
    )
    assert done.returncode == 3
    assert "no conversation 9" in done.stderr.decode()


def asked(file: Path) -> list[Generate]:
    """What the engine of a recorded chat was asked."""
    commands = (item.command for item in read_session(file).items)
    return [command for command in commands if isinstance(command, Generate)]


def test_what_a_conversation_has_of_its_own_counts_when_it_goes_on(
    scripted: Command, tiny_gguf: Path, tmp_path: Path
) -> None:
    store = Store()
    own = Wishes(temperature=0.25, seed=7, think=False)
    row = store.create(model="tiny", title="mine", system_prompt="Be brief.", settings=own.kept)
    store.add_message(row.id, "user", "before")
    store.add_message(row.id, "assistant", "long ago")
    store.close()
    file = tmp_path / "chat.jsonl"
    options = ["--record", str(file), "--model", str(tiny_gguf), "--temperature", "0.75", "--top-k", "9"]
    done = scripted("reply", "chat", "--plain", *options, stdin=b"one\n/new\ntwo\n")
    assert done.returncode == 0
    mine, new = asked(file)
    assert [one.content for one in mine.messages] == ["Be brief.", "before", "long ago", "one"]
    assert (mine.sampling.temperature, mine.sampling.seed, mine.think) == (0.25, 7, False)
    assert (new.sampling.temperature, new.think, len(new.messages)) == (0.75, None, 1)
    assert new.sampling.seed != 7
    assert mine.sampling.top_k == new.sampling.top_k == 9


def test_reasoning_is_no_part_of_what_is_read(scripted: Command, tiny_gguf: Path) -> None:
    done = scripted("thinks", "chat", "--plain", "--model", str(tiny_gguf), stdin=b"one\n")
    assert (done.returncode, done.stdout) == (0, b"The answer.\n")
    told = done.stderr.decode()
    assert told.count("Thinking…") == 1
    assert "idea" not in told


def test_reasoning_that_was_cut_off_is_no_answer_later(
    scripted: Command, tiny_gguf: Path, tmp_path: Path
) -> None:
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    options = ["--model", str(tiny_gguf), "--record"]
    done = scripted("opened without end", "chat", "--plain", *options, str(first), stdin=b"one\ntwo\n")
    assert (done.returncode, done.stdout) == (0, b"")
    assert "ended within its reasoning" in done.stderr.decode()
    said = [one.content for one in asked(first)[-1].messages]
    assert said == ["one", "<think>First idea.</think>", "two"]
    # It is known in the next chat, too.
    scripted("opened", "chat", "--plain", *options, str(second), stdin=b"three\n")
    said = [one.content for one in asked(second)[-1].messages]
    assert said == ["one", "<think>First idea.</think>", "two", "<think>First idea.</think>", "three"]
    store = Store()
    (row,) = store.conversations()
    messages = store.messages(row.id)
    store.close()
    assert messages[1].content == "First idea."
    assert opening_in(messages[-1].stats) == "<think>"


def test_a_private_chat_leaves_nothing(scripted: Command, tiny_gguf: Path, home: Path) -> None:
    done = scripted("reply", "chat", "--plain", "--private", "--model", str(tiny_gguf), stdin=b"one\n")
    assert (done.returncode, done.stdout) == (0, REPLY)
    assert not (home / "data" / "conversations.db").exists()


def test_a_private_chat_is_not_recorded(scripted: Command, tiny_gguf: Path, tmp_path: Path) -> None:
    file = tmp_path / "chat.jsonl"
    options = ["--private", "--record", str(file), "--model", str(tiny_gguf)]
    done = scripted("reply", "chat", "--plain", *options, stdin=b"one\n")
    assert done.returncode == 2
    assert "not recorded" in done.stderr.decode()
    assert not file.exists()


def test_a_plain_chat_can_be_recorded(scripted: Command, tiny_gguf: Path, tmp_path: Path) -> None:
    file = tmp_path / "chat.jsonl"
    options = ["--record", str(file), "--model", str(tiny_gguf)]
    done = scripted("reply", "chat", "--plain", *options, stdin=b"one\ntwo\n")
    assert done.stdout == 2 * REPLY
    session = read_session(file)
    kinds = [item.command.type for item in session.items if item.command]
    # Tokens are spelled after a reply, of the last one if there is still time.
    assert [kind for kind in kinds if kind != "spell"] == ["load", "generate", "generate"]
    assert str(tmp_path) not in file.read_text()


@pytest.mark.parametrize("scenario", ["fails", "dies"])
def test_a_failed_reply_ends_a_pipe(scripted: Command, tiny_gguf: Path, scenario: str) -> None:
    done = scripted(scenario, "chat", "--plain", "--model", str(tiny_gguf), stdin=b"one\ntwo\n")
    assert (done.returncode, done.stdout) == (1, b"Half a\n")
    store = Store()
    (row,) = store.conversations()
    assert [one.status for one in store.messages(row.id)] == ["complete", "failed"]
    store.close()


def test_a_model_that_cannot_be_loaded(scripted: Command, tiny_gguf: Path) -> None:
    done = scripted("load-fails", "chat", "--plain", "--model", str(tiny_gguf), stdin=b"one\n")
    assert (done.returncode, done.stdout) == (5, b"")
    assert "It needs 9 GB" in done.stderr.decode()


@pytest.mark.parametrize("terminal", ["dumb", "xterm-256color"])
def test_a_talk_in_a_terminal_does_not_control_the_screen(
    talk: type[Talk], tiny_gguf: Path, terminal: str
) -> None:
    chat = talk("reply", "--model", str(tiny_gguf), TERM=terminal, NO_COLOR="1")
    chat.wait_for("/help lists the commands")
    chat.wait_for("> ")
    chat.type("one\n")
    chat.wait_for("tok/s")
    assert "Hallo, Wörld ␛[31m日本" in chat.written
    chat.type("/nonsense\n")
    chat.wait_for("no command '/nonsense'")
    chat.type("\x04")
    assert chat.ended() == 0
    assert "\x1b" not in chat.written


def test_ctrl_c_stops_a_reply_and_the_chat_goes_on(talk: type[Talk], tiny_gguf: Path) -> None:
    chat = talk("endless", "--model", str(tiny_gguf))
    chat.wait_for("> ")
    for number, message in enumerate(("one\n", "two\n"), 1):
        chat.type(message)
        chat.wait_for(f"> {message[:-1]}\r\non and on")
        chat.child.send_signal(signal.SIGINT)
        chat.wait_for("[stopped", number)
        chat.wait_for("> ", number + 1)
    chat.child.send_signal(signal.SIGINT)
    chat.wait_for("Ctrl+D or /quit ends the chat.")
    chat.type("/quit\n")
    assert chat.ended() == 0


def test_a_signal_within_a_reply_loses_nothing_of_it(talk: type[Talk], tiny_gguf: Path) -> None:
    chat = talk("endless", "--model", str(tiny_gguf))
    chat.wait_for("> ")
    chat.type("one\n")
    chat.wait_for("on and on and on")
    chat.child.send_signal(signal.SIGTERM)
    assert chat.ended() != 0
    store = Store()
    (row,) = store.conversations()
    answer = store.messages(row.id)[-1]
    store.close()
    assert answer.status == "cancelled"
    assert answer.content.startswith("on and on and on")


def test_an_engine_that_died_starts_again(talk: type[Talk], tiny_gguf: Path) -> None:
    chat = talk("dies", "--model", str(tiny_gguf))
    chat.wait_for("> ")
    chat.type("one\n")
    chat.wait_for("the next message starts it again")
    chat.type("two\n")
    chat.wait_for("Half a", 2)
    chat.type("/quit\n")
    assert chat.ended() == 0


def test_the_app_points_to_it_on_a_dumb_terminal() -> None:
    command = [sys.executable, "-m", "localspec", "chat"]
    code, seen = run_in_terminal(command, {**environment(), "TERM": "dumb"})
    assert code == 2
    assert "localspec chat --plain" in seen


@pytest.mark.model
def test_a_chat_with_the_model(localspec: Command, smollm2_path: Path) -> None:
    options = ["--model", str(smollm2_path), "--threads", "1", "--temperature", "0", "--max-tokens", "12"]
    done = localspec("chat", "--plain", *options, stdin=b"Say hello.\n/spec off\nSay it again.\n")
    assert done.returncode == 0
    assert len(done.stdout.decode().strip().splitlines()) >= 2
    assert done.stderr.decode().count("tok/s") == 2
