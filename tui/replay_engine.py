"""A recorded engine in the place of a real one: it says what it said then. No widgets here."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from localspec.errors import EngineDiedError
from localspec.messages import (
    Cancel,
    Command,
    EngineExited,
    Event,
    Failed,
    Finished,
    Generate,
    Hello,
    Load,
    Note,
    PrefillProgress,
    Score,
    Scored,
    SetDrafter,
    SetSpeculation,
    Spell,
    Spelled,
    Spelling,
    Step,
    Weigh,
    Weighed,
)
from localspec.recording import Session

REFUSAL = "This is a recording: it plays on by itself, and there is no model here that could do more."

Played = Load | Generate | Cancel | SetSpeculation | SetDrafter
"""Commands that take effect at their time; all others are questions, whose answers are looked up."""


class RecordedEngine:
    """An `EngineLink` that the player of a recording speaks through.

    The app sends what it was told to do by the player, and some of it by itself. Both are matched with what
    was sent then, so that the events that followed find their way; anything else is refused in a sentence.

    Args:
        session: the recorded chat.
    """

    def __init__(self, session: Session) -> None:
        self._alive = False
        self._said: deque[Event] = deque()
        self._asked: list[Command] = []
        self._ids: dict[int, int] = {}
        commands = [item.command for item in session.items if item.command is not None]
        self._coming: deque[Command] = deque(one for one in commands if isinstance(one, Played))
        self._spellings: dict[int, Spelling] = {}
        self._scores: dict[tuple[int, ...], list[Scored]] = {}
        self._weighed: dict[tuple[tuple[int, ...], tuple[int, int]], Weighed] = {}
        self._collect(session)

    # --- the link

    @property
    def alive(self) -> bool:
        """Whether commands are taken."""
        return self._alive

    def start(self) -> None:
        """Take commands."""
        self._alive = True

    def send(self, *commands: Command) -> None:
        """Take commands; raises `EngineDiedError` where the recorded engine was gone too."""
        if not self._alive:
            raise EngineDiedError("The recorded engine is not running.")
        for command in commands:
            if not self._answer(command):
                expected = next((one for one in self._coming if one.type == command.type), None)
                if expected is not None and _alike(command, expected):
                    self._asked.append(command)
                else:
                    self._refuse(command)

    def drain(self) -> list[Event]:
        """What was said since the last call."""
        events = list(self._said)
        self._said.clear()
        return events

    def kill(self) -> None:
        """There is nothing to end by force."""
        self.close()

    def close(self) -> None:
        """Take no more commands."""
        self._alive = False

    # --- the player

    def met(self, command: Command) -> bool:
        """Whether the app has sent the recorded `command`, whose events then are its answer."""
        found = next((one for one in self._asked if _alike(one, command)), None)
        if found is None:
            return False
        self._asked.remove(found)
        if isinstance(found, Generate) and isinstance(command, Generate):
            self._ids[command.id] = found.id
        return True

    def passed(self, command: Command) -> None:
        """The recording is past `command`, whether or not the app has sent it."""
        while self._coming and self._coming.popleft() is not command:
            continue

    def say(self, event: Event) -> None:
        """Say what was said then; what answers nothing that the app has asked is left out."""
        match event:
            case Step() | PrefillProgress() | Finished() | Failed(id=int()):
                number = self._ids.get(event.id) if event.id is not None else None
                if number is not None:
                    self._said.append(replace(event, id=number))
            case Hello() | Scored() | Spelled() | Weighed():
                pass
            case EngineExited():
                self._alive = False
                if not event.expected:
                    self._said.append(event)
            case _:
                self._said.append(event)

    # --- inner steps

    def _collect(self, session: Session) -> None:
        """The answers to questions, by what was asked."""
        scores: dict[int, Score] = {}
        weighings: dict[int, Weigh] = {}
        for item in session.items:
            match item.command, item.event:
                case Score() as command, None:
                    scores[command.id] = command
                case Weigh() as command, None:
                    weighings[command.id] = command
                case None, Spelled(tokens=tokens, spellings=spellings):
                    self._spellings.update(zip(tokens, spellings, strict=False))
                case None, Scored() as event if event.id in scores:
                    self._scores.setdefault(scores[event.id].tokens, []).append(event)
                case None, Weighed() as event if event.id in weighings:
                    asked = weighings[event.id]
                    self._weighed[asked.said, asked.tokens] = event

    def _answer(self, command: Command) -> bool:
        """Answer a question; False where the command is none, or the answer was not recorded."""
        match command:
            case Spell(path=path, tokens=tokens):
                known = tuple(token for token in tokens if token in self._spellings)
                self._said.append(Spelled(path, known, tuple(self._spellings[token] for token in known)))
                return True
            case Score(id=number, tokens=tokens) if self._whole(tokens):
                self._said += [replace(part, id=number) for part in self._scores[tokens]]
                return True
            case Weigh(id=number, said=said, tokens=pair) if (said, pair) in self._weighed:
                self._said.append(replace(self._weighed[said, pair], id=number))
                return True
            case _:
                return False

    def _whole(self, tokens: tuple[int, ...]) -> bool:
        parts = self._scores.get(tokens)
        return bool(parts) and sum(len(part.scores) for part in parts or ()) == len(tokens)

    def _refuse(self, command: Command) -> None:
        match command:
            case Generate() | Score() | Weigh():
                self._said.append(Failed(command.id, "UsageError", REFUSAL, command=command.type))
            case Load() | SetDrafter():
                self._said.append(Failed(None, "UsageError", REFUSAL, command=command.type))
            case SetSpeculation():
                self._said.append(Note(REFUSAL))
            case _:
                pass


def _alike(one: Command, other: Command) -> bool:
    """Whether two commands ask for the same, whatever their numbers are."""
    match one, other:
        case Generate(), Generate():
            trials = [command.trial.draft.spec if command.trial else None for command in (one, other)]
            texts = [command.messages[-1].content if command.messages else "" for command in (one, other)]
            return trials[0] == trials[1] and texts[0] == texts[1]
        case Load(), Load():
            return one.path == other.path
        case SetSpeculation(), SetSpeculation():
            return one.enabled == other.enabled
        case SetDrafter(), SetDrafter():
            return one.draft.spec == other.draft.spec
        case _:
            return one.type == other.type
