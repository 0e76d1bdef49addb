"""`localspec replay`: files that are no recordings, and one that plays in a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localspec import messages
from localspec.errors import StorageError, UsageError
from localspec.recording import ChatRecorder, RecordingLink, read_session
from localspec.stats.recorder import Recorder, read_steps
from localspec.types import ChatMessage, DraftOptions, EngineOptions, Trial
from tests.cli.conftest import Command, environment
from tests.cli.scripted_worker import STATS
from tests.e2e.terminal import Terminal
from tests.tui.scripted import INFO, MEMORY, ScriptedEngine


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A short chat."""
    path = tmp_path / "chat.jsonl"
    link = RecordingLink(ScriptedEngine(["Four words of text."]), ChatRecorder(path, {"model": "scripted"}))
    link.start()
    link.send(messages.Load(str(tmp_path / "model.gguf"), "scripted"))
    link.drain()
    link.send(messages.Generate(1, (ChatMessage("user", "Say something."),)))
    link.drain()
    link.close()
    return path


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for one in opened:
        one.close()


def test_a_recording_plays_in_a_terminal(
    recording: Path, private_home: Path, terminals: list[Terminal]
) -> None:
    command = [sys.executable, "-m", "localspec", "replay", str(recording), "--fast"]
    terminals.append(Terminal(command, {**environment(), "LOCALSPEC_HOME": str(private_home)}))
    terminal = terminals[0]
    terminal.wait_for("RECORDING", "ended", "Four words of text.", "Say something.")
    terminal.send("q")
    assert terminal.wait_until_ended() == 0
    # Nothing of it is kept, and no engine was started.
    assert not (private_home / "data").exists()
    assert not (private_home / "logs").exists()


def changed(path: Path, number: int, **values: Any) -> None:
    """Change what a line of a recording says."""
    lines = path.read_text().splitlines()
    lines[number] = json.dumps({**json.loads(lines[number]), **values})
    path.write_text("\n".join(lines) + "\n")


def test_a_torn_last_line_is_dropped(recording: Path) -> None:
    whole = read_session(recording).items
    recording.write_text(recording.read_text()[:-20])
    assert read_session(recording).items == whole[:-1]


def test_files_that_are_no_recordings(localspec: Command, recording: Path, tmp_path: Path) -> None:
    def refused(path: Path, code: int, sentence: str) -> None:
        done = localspec("replay", str(path))
        assert (done.returncode, done.stdout) == (code, b"")
        assert sentence in done.stderr.decode()
        assert done.stderr.decode().count("\n") == 1

    refused(tmp_path / "missing.jsonl", 3, "There is no file")
    refused(tmp_path, 2, "Cannot read")
    other = tmp_path / "other.txt"
    for content in (b"", b"some text\n", b"\xff\xfe", b"[1]\n", b"[" * 100_000):
        other.write_bytes(content)
        refused(other, 2, "is not a recording of a chat")
    with Recorder(other) as recorder:
        recorder.write(STATS)
    refused(other, 2, "counters of steps alone")
    # Without a terminal a good one is refused too, but for another reason.
    refused(recording, 2, "needs a terminal")


@pytest.mark.parametrize(
    ("number", "values", "sentence"),
    [
        (0, {"localspec_recording": 99}, "another version"),
        (2, {"at": -1}, "line 3"),
        (2, {"at": float("nan")}, "line 3"),
        (2, {"command": {"type": "fly"}}, "line 3"),
        (2, {"command": {"type": "spell", "path": "x", "tokens": []}}, "nothing to play"),
    ],
)
def test_damaged_recordings(
    localspec: Command, recording: Path, number: int, values: dict[str, Any], sentence: str
) -> None:
    # The engine's greeting is heard late: its line is not the second one.
    assert '"load"' in recording.read_text().splitlines()[1]
    changed(recording, 1 if number else 0, **values)
    done = localspec("replay", str(recording))
    assert done.returncode == 2
    assert sentence.replace("line 3", "line 2") in done.stderr.decode()


@pytest.mark.parametrize("options", [["--speed", "0"], ["--speed", "1000"], ["--speed", "2", "--fast"]])
def test_speeds_that_cannot_be(localspec: Command, recording: Path, options: list[str]) -> None:
    done = localspec("replay", str(recording), *options)
    assert done.returncode == 2
    assert b"--speed" in done.stderr


def test_nothing_of_the_machine_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "somebody"
    monkeypatch.setenv("HOME", str(home))
    models = home / "models"
    small = f"{models}/small.gguf"
    draft = DraftOptions(f"suffix+{small}", files={small: small})
    load = messages.Load(f"{models}/big.gguf", "big", EngineOptions(draft=draft, memory=f"{home}/memory"))
    path = tmp_path / "chat.jsonl"
    recorder = ChatRecorder(path)
    other = f"{tmp_path}/elsewhere/other.gguf"
    trial = Trial(DraftOptions(other, files={other: other}))
    recorder.sent([load, messages.Generate(1, prompt="x", trial=trial)])
    recorder.arrived(
        [
            messages.Hello(4711, "0"),
            messages.Loaded(INFO, 0.1, MEMORY),
            messages.Note(f"{small} is odd, and so is {home}/elsewhere."),
        ]
    )
    recorder.close()
    text = path.read_text()
    assert str(tmp_path) not in text
    assert "4711" not in text
    assert "small.gguf is odd, and so is ~/elsewhere." in text
    session = read_session(path)
    assert (session.load.path, session.load.options.draft.spec) == ("big.gguf", "suffix+small.gguf")


def test_steps_have_the_times_of_the_engine(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / "chat.jsonl"
    recorder = ChatRecorder(path, clock=clock)
    recorder.sent([messages.Load("m.gguf", "m")])
    clock.now = 2.0
    # Three steps reach the app together, and were made a quarter of a second apart.
    steps = [replace(STATS, time_ns=number * 250_000_000) for number in (1, 2, 3)]
    recorder.arrived([messages.Step(1, "", (), stats) for stats in steps])
    recorder.close()
    assert [item.at for item in read_session(path).items] == [0.0, 1.5, 1.75, 2.0]


def test_a_full_disk_is_a_note_and_the_chat_goes_on(recording: Path, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="Cannot write the recording"):
        ChatRecorder(tmp_path / "missing" / "chat.jsonl")
    if not Path("/dev/full").exists():
        return
    recorder = ChatRecorder(tmp_path / "again.jsonl")
    recorder._lines._file.close()
    recorder._lines._file = Path("/dev/full").open("w", encoding="utf-8")  # noqa: SIM115 - closed by the link
    link = RecordingLink(ScriptedEngine(["Text."]), recorder)
    link.start()
    link.send(messages.Load("m.gguf", "m"))
    events = link.drain()
    assert any(isinstance(event, messages.Loaded) for event in events)
    (note,) = [event for event in events if isinstance(event, messages.Note)]
    assert "goes on without it" in note.text
    assert not any(isinstance(event, messages.Note) for event in link.drain())


@pytest.mark.parametrize(("counter", "value"), [("drafted", 2**70), ("accepted", 5), ("verify_ns", -1)])
def test_impossible_counters_are_damage(recording: Path, counter: str, value: int) -> None:
    lines = recording.read_text().splitlines()
    number = next(index for index, line in enumerate(lines) if '"step"' in line)
    event = json.loads(lines[number])["event"]
    event["stats"][counter] = value
    changed(recording, number, event=event)
    with pytest.raises(UsageError, match=f"line {number + 1}: not a line of a recording"):
        read_session(recording)


def test_steps_of_a_chat_are_read_as_those_of_a_run(recording: Path) -> None:
    assert sum(stats.emitted for stats in read_steps(recording)) == 5
