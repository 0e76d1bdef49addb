"""A chat on file, to be played again: what the engine was asked and said, when, and what was looked at.

JSON lines. The first one is a header (`localspec_recording` is 2), every other one has `at`, the seconds
since the chat began, and one of `command`, `event` (both as `localspec.messages` has them; fields that are as
they are by default are left out) and `screen`. What users wrote stands in the messages of `generate`
commands. Of paths only the file's name is kept, so that a recording says nothing of the machine that it was
made on and plays on any other.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Annotated, Any, Literal

from pydantic import Field, FiniteFloat, TypeAdapter

from localspec import __version__
from localspec.client import EngineLink
from localspec.errors import EngineDiedError, LocalspecError, NotFoundError, UsageError
from localspec.messages import (
    Command,
    EngineExited,
    Event,
    Finished,
    Generate,
    Hello,
    Load,
    Loaded,
    Note,
    Spell,
    Step,
)
from localspec.stats.recorder import CHAT_FORMAT, FORMAT, JsonLines

ScreenName = Literal["chat", "compare", "tokens"]

_COMMAND: TypeAdapter[Command] = TypeAdapter(Annotated[Command, Field(discriminator="type")])
_EVENT: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="type")])
_LARGEST = 256 << 20
_LONGEST_DRAFT = 65_536

POLL_S = 0.01
"""Seconds between two looks at an engine that is waited for."""


@dataclass(frozen=True, slots=True)
class Item:
    """One line of a recording: a command, an event, or the screen that was looked at from then on.

    Attributes:
        at: seconds since the chat began.
        command, event, screen: one of them; the others are None.
    """

    at: Annotated[FiniteFloat, Field(ge=0)]
    command: Annotated[Command, Field(discriminator="type")] | None = None
    event: Annotated[Event, Field(discriminator="type")] | None = None
    screen: ScreenName | None = None


_ITEM: TypeAdapter[Item] = TypeAdapter(Item)


@dataclass(frozen=True, slots=True)
class Session:
    """A recorded chat.

    Attributes:
        name: the file's name.
        recorded: the day, as YYYY-MM-DD; "" where the file does not say.
        load: what the engine was told to load first.
        items: all there is, in order; `at` never goes back.
    """

    name: str
    recorded: str
    load: Load
    items: tuple[Item, ...]

    @property
    def seconds(self) -> float:
        """How long it takes at its own speed."""
        return self.items[-1].at

    @property
    def first(self) -> Generate | None:
        """The first request for a reply; None where there is none."""
        return next((item.command for item in self.items if isinstance(item.command, Generate)), None)


# --- writing ----------------------------------------------------------------------------------------


class ChatRecorder:
    """Writes what goes to an engine and what comes back.

    Args:
        path: the file; one that is there is overwritten.
        header: what else its first line says.
        clock: seconds.

    Raises:
        StorageError: the file cannot be created or written; the methods raise it too.
    """

    def __init__(
        self,
        path: Path,
        header: Mapping[str, Any] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        day = datetime.now(UTC).date().isoformat()
        about = {"version": __version__, "recorded": day, **(header or {})}
        self._lines = JsonLines(path, CHAT_FORMAT, about)
        self._clock, self._began = clock, clock()
        self._names: dict[str, str] = {}
        self._home = os.path.expanduser("~")  # noqa: PTH111 - a user without a folder is no error
        self._screen: ScreenName = "chat"

    def sent(self, commands: Sequence[Command]) -> None:
        """Append commands."""
        at = self._at()
        for command in commands:
            value = _COMMAND.dump_python(command, mode="json", exclude_defaults=True)
            self._learn_places(value)
            self._add(at, "command", {"type": command.type, **value})

    def arrived(self, events: Sequence[Event]) -> None:
        """Append events that came together: steps at the engine's own times, as far as they tell."""
        now = self._at()
        # The newest step of each reply was made about now, those before it by so much earlier.
        newest = {event.id: event.stats.time_ns for event in events if isinstance(event, Step)}
        for event in events:
            at = now
            if isinstance(event, Step):
                at = max(now - (newest[event.id] - event.stats.time_ns) / 1e9, 0.0)
            value = _EVENT.dump_python(event, mode="json", exclude_defaults=True)
            if isinstance(event, Hello):
                value["pid"] = 0
            self._add(at, "event", {"type": event.type, **value})

    def looked_at(self, screen: ScreenName) -> None:
        """Append that another screen is looked at."""
        if screen != self._screen:
            self._screen = screen
            self._lines.add({"at": self._at(), "screen": screen})

    def close(self) -> None:
        """Flush and close the file."""
        self._lines.close()

    def _at(self) -> float:
        return round(self._clock() - self._began, 4)

    def _add(self, at: float, kind: str, value: dict[str, Any]) -> None:
        if value["type"] not in ("generate", "weigh", "score", "step", "finished", "scored"):
            value = self._without_places(value)
        elif value.get("trial"):
            value["trial"] = self._without_places(value["trial"])
        self._lines.add({"at": round(at, 4), kind: value})

    def _learn_places(self, value: Mapping[str, Any]) -> None:
        """Take note of the paths in a command: they come back in events, in the middle of sentences too."""
        options = value.get("options", {})
        draft = (value.get("trial") or value).get("draft") or options.get("draft", {})
        # Where it remembers and what its template says is of no use elsewhere.
        options.pop("memory", None)
        options.pop("chat_template", None)
        for path in (
            value.get("path", ""),
            *draft.get("files", {}).values(),
            *draft.get("companions", {}).values(),
        ):
            if path != _file_name(path):
                self._names[path] = _file_name(path)

    def _without_places(self, value: Any) -> Any:
        """The same with names of files in place of their paths, and ~ for the user's own folder."""
        if isinstance(value, str):
            for path, name in self._names.items():
                value = value.replace(path, name)
            return value.replace(self._home, "~") if len(self._home) > 1 else value
        if isinstance(value, list):
            return [self._without_places(one) for one in value]
        if isinstance(value, dict):
            return {self._without_places(key): self._without_places(one) for key, one in value.items()}
        return value


class RecordingLink:
    """An `EngineLink` that records what goes through it; the chat goes on where that fails.

    After each reply it has the engine spell the reply's tokens, so that they can be looked at in a replay.

    Args:
        link: the engine.
        recorder: the recording.
    """

    def __init__(self, link: EngineLink, recorder: ChatRecorder) -> None:
        self._link = link
        self._recorder: ChatRecorder | None = recorder
        self._notes: list[Event] = []
        self._path = ""
        self._unspelled: set[int] = set()
        self._spelled: set[int] = set()

    @property
    def alive(self) -> bool:
        """Whether the engine can take commands."""
        return self._link.alive

    def start(self) -> None:
        """Start the engine."""
        self._link.start()

    def send(self, *commands: Command) -> None:
        """Send commands; raises `EngineDiedError`."""
        self._link.send(*commands)
        self._record(lambda recorder: recorder.sent(commands))

    def drain(self) -> list[Event]:
        """Every event that has arrived, and once a note where the recording cannot be written."""
        events = self._link.drain()
        if events and self._recorder is not None:
            self._record(lambda recorder: recorder.arrived(events))
            self._have_spelled(events)
        notes, self._notes = self._notes, []
        return [*events, *notes]

    def events(self, timeout: float | None = None) -> Iterator[Event]:
        """Events as they come, up to and with `EngineExited`, or until `timeout` seconds of silence."""
        silent_since = time.monotonic()
        while timeout is None or time.monotonic() - silent_since < timeout:
            for event in self.drain():
                yield event
                silent_since = time.monotonic()
                if isinstance(event, EngineExited):
                    return
            time.sleep(POLL_S)

    def looked_at(self, screen: ScreenName) -> None:
        """Take note that another screen is looked at."""
        self._record(lambda recorder: recorder.looked_at(screen))

    def kill(self) -> None:
        """End the engine at once."""
        self._link.kill()

    def close(self) -> None:
        """End the engine, and the recording."""
        self._link.close()
        # What the engine said in the end: nobody else will ask for it.
        self.drain()
        self._record(lambda recorder: recorder.close())
        self._recorder = None

    def _have_spelled(self, events: Sequence[Event]) -> None:
        for event in events:
            match event:
                case Loaded(info=info) if info.path != self._path:
                    self._path = info.path
                    self._unspelled, self._spelled = set(), set()
                case Step(tokens=tokens, refused=refused):
                    self._unspelled |= {token.id for token in tokens} | set(refused)
                case Finished() if self._unspelled - self._spelled:
                    wanted = tuple(sorted(self._unspelled - self._spelled))
                    self._spelled |= self._unspelled
                    self._unspelled = set()
                    with contextlib.suppress(EngineDiedError):
                        self.send(Spell(self._path, wanted))

    def _record(self, write: Callable[[ChatRecorder], None]) -> None:
        recorder = self._recorder
        if recorder is None:
            return
        try:
            write(recorder)
        except LocalspecError as error:
            self._recorder = None
            with contextlib.suppress(LocalspecError):
                recorder.close()
            self._notes.append(Note(f"{error} The chat goes on without it."))


# --- reading ----------------------------------------------------------------------------------------


def read_session(path: Path) -> Session:
    """A recorded chat; a torn last line is dropped.

    Raises:
        NotFoundError: there is no such file.
        UsageError: it cannot be read, is no recording of a chat or of another version, has a broken line
            before its last, or ends before a model was loaded.
    """
    lines = _lines(path)
    header = _header(path, next(lines, (1, ""))[1])
    items: list[Item] = []
    broken: tuple[int, Exception] | None = None
    for number, line in lines:
        if broken is not None:
            raise UsageError(
                f"{path}, line {broken[0]}: not a line of a recording of this version of localspec; it is "
                "damaged, or was made by another version."
            ) from broken[1]
        try:
            item = _ITEM.validate_json(line)
            _check_counters(item.event)
        except ValueError as error:
            broken = number, error
            continue
        at = max(item.at, items[-1].at if items else 0.0)
        items.append(replace(item, at=at, command=_placeless(item.command)))
    load = next((item.command for item in items if isinstance(item.command, Load)), None)
    if load is None:
        raise UsageError(f"There is nothing to play in {path}: that chat ended before it had a model.")
    day = header.get("recorded")
    return Session(path.name, day if isinstance(day, str) else "", load, tuple(items))


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        if path.stat().st_size > _LARGEST:
            raise UsageError(f"{path} is larger than 256 MiB; that is no recording of a chat.")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise NotFoundError(f"There is no file {path}; check the path.") from error
    except OSError as error:
        raise UsageError(f"Cannot read the recording {path} ({error.strerror}).") from error
    except UnicodeDecodeError as error:
        raise _foreign(path) from error
    # Not splitlines: JSON's strings may hold other characters that it takes for line ends.
    return ((number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip())


def _header(path: Path, line: str) -> dict[str, Any]:
    try:
        header = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _foreign(path) from error
    number = header.get("localspec_recording") if isinstance(header, dict) else None
    if number is None:
        raise _foreign(path)
    if number == FORMAT:
        raise UsageError(
            f"{path} has the counters of steps alone, and no chat; record one with `localspec chat --record`."
        )
    if number != CHAT_FORMAT:
        raise UsageError(f"{path} was recorded by another version of localspec; play it with that one.")
    found: dict[str, Any] = header
    return found


def _foreign(path: Path) -> UsageError:
    return UsageError(
        f"{path} is not a recording of a chat; make one with `localspec chat --record {path.stem}.jsonl`."
    )


def _check_counters(event: Event | None) -> None:
    """Raise `ValueError` for counters that no engine can have meant: figures are folds over them."""
    if isinstance(event, Step):
        stats = event.stats
        counts = [value for value in asdict(stats).values() if isinstance(value, int)]
        if not (0 <= stats.accepted <= stats.drafted <= _LONGEST_DRAFT and min(counts) >= 0):
            raise ValueError(f"impossible counters: {stats}")
        if max(counts) >= 2**63 or stats.depth > stats.drafted:
            raise ValueError(f"impossible counters: {stats}")


def _placeless(command: Command | None) -> Command | None:
    """A command whose model is named by file alone: nothing on this machine is meant by it."""
    return replace(command, path=_file_name(command.path)) if isinstance(command, Load) else command


def _file_name(path: str) -> str:
    """The last part of a path of any system."""
    return PureWindowsPath(path).name if "\\" in path else PurePosixPath(path).name
