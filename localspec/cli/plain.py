"""`localspec chat --plain`: lines in, text out, with no control of the screen; for screen readers and pipes.

Replies go to standard output, all else to standard error. The prompt "> " is there in a terminal only.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeVar

import typer

from localspec.chat.rows import Wishes
from localspec.chat.store import Store
from localspec.cli import common
from localspec.cli.dialogue import Dialogue
from localspec.cli.run import UNANSWERED, summary
from localspec.cli.stream import Engine, ReplyStream
from localspec.cli.thoughts import SaidThoughts
from localspec.client import EngineClient
from localspec.drafters import check_spec
from localspec.errors import EngineDiedError, EngineError, LocalspecError, UsageError
from localspec.messages import (
    Command,
    Event,
    Generate,
    Load,
    Loaded,
    SetDrafter,
    SetSpeculation,
    SpeculationChanged,
    Step,
)
from localspec.model_files import draft_label, file_of, resolve_drafts, with_files
from localspec.models.progress import PullProgress
from localspec.paths import engine_log
from localspec.recording import ChatRecorder, RecordingLink
from localspec.settings import fresh_seed
from localspec.stats.metrics import Tally
from localspec.stats.replies import Parts, partial_stats, reply_stats
from localspec.types import SamplingParams
from localspec.verify import is_exact

HELP = """\
Write a message and press Enter. Ctrl+C stops a reply, Ctrl+D ends the chat.
/new           begin another conversation
/spec on|off   switch speculation on or off; without a word: say how it is
/draft WHO     another drafter: auto, suffix, ngram, none, or a draft model
/quit          end the chat
//TEXT         send a message that begins with /"""

INTERRUPTED = 130

Kind = TypeVar("Kind", bound=Event)


def tell(text: str) -> None:
    """A sentence for the user, apart from the replies."""
    typer.echo(text, err=True)


def is_command(line: str) -> bool:
    """Whether a line is no message; one that begins with two slashes is."""
    return line.lstrip().startswith("/") and not line.lstrip().startswith("//")


class Tenths:
    """Progress of downloads, a line for each tenth."""

    def __init__(self) -> None:
        self._shown = (0, 0)

    def show(self, progress: PullProgress) -> None:
        """Say how far it is, where that is known and new."""
        total = progress.total_bytes
        if not total:
            return
        now = total, progress.done_bytes * 10 // total
        if now != self._shown and now[1]:
            tell(f"{progress.stage} {now[1] * 10} %")
        self._shown = now


class Lines:
    """Messages from standard input, one a line."""

    def __init__(self) -> None:
        self.typed = sys.stdin.isatty()
        if self.typed and sys.stdout.isatty():
            # Lines can be edited then, and earlier ones come back with the up key.
            with contextlib.suppress(ImportError):
                import readline

                # That would be control of the screen.
                readline.parse_and_bind("set enable-bracketed-paste off")

    def next(self) -> str | None:
        """The next line without its end; None at the end of the input.

        Raises:
            UsageError: it is no text.
        """
        if not self.typed:
            data = sys.stdin.buffer.readline()
            if not data:
                return None
            try:
                line = data.decode()
            except UnicodeDecodeError as error:
                raise UsageError("Standard input is not valid UTF-8; convert it first.") from error
            if "\0" in line:
                raise UsageError("Standard input is binary; give it UTF-8 text, one message a line.")
            return line.rstrip("\r\n")
        while True:
            try:
                return common.check_text(input("> " if sys.stdout.isatty() else ""), "The message")
            except EOFError:
                tell("")
                return None
            except KeyboardInterrupt:
                tell("\nCtrl+D or /quit ends the chat.")


class PlainStream(ReplyStream):
    """Follows the engine without touching the screen.

    Args:
        engine: a started engine.
        on_text: told of text as it becomes certain.

    Attributes:
        tally: the reply's steps.
    """

    def __init__(self, engine: Engine, on_text: Callable[[str], None]) -> None:
        super().__init__(engine, sys.stdout, status=False, thoughts=SaidThoughts())
        self._engine, self._on_text = engine, on_text
        self.tally = Tally()

    def wait_for(
        self, command: Command, kind: type[Kind], until: Callable[[Kind], bool] | None = None
    ) -> Kind:
        """Send a command and wait for what answers it; raises what the engine reports."""
        self._send(command)
        while True:
            for event in self._engine.events(timeout=1.0):
                if isinstance(event, kind) and (until is None or until(event)):
                    return event
                self._handle(event, "")

    def _handle(self, event: Event, name: str) -> None:
        super()._handle(event, name)
        if isinstance(event, Step):
            self.tally.add(event.stats)
            self._on_text(event.text)


class PlainChat:
    """One chat, from its first line to its last.

    Args:
        plan: model, drafter and sampling.
        link: the engine, not started yet.
        dialogue: the conversation.
        lines: the user's messages.
    """

    def __init__(
        self, plan: common.Plan, link: EngineClient | RecordingLink, dialogue: Dialogue, lines: Lines
    ) -> None:
        self._plan, self._link, self._dialogue, self._lines = plan, link, dialogue, lines
        missing = plan.files.missing
        if missing:
            tell(f"Fetching {' and '.join(missing)}.")
        files = plan.files.find(Tenths().show)
        for note in files.notes:
            tell(f"note: {note}")
        self._load = Load(path=str(files.path), name=plan.model.name, options=files.options)
        self._draft = files.options.draft
        self._reason = ""
        self._requests = 0
        self._status = 0

    def run(self) -> int:
        """Chat until the input ends; returns the exit status, in a pipe that of the first refused command.

        Raises:
            LocalspecError: there is no model; or, where nobody types, a reply failed.
        """
        self._begin()
        if self._lines.typed:
            tell(f"{self._load.name} is ready; /help lists the commands, Ctrl+D ends the chat.")
        while True:
            line: str | None = None
            try:
                line = self._lines.next()
                if line is None or not self._take(line):
                    return self._status
            except LocalspecError as error:
                if not (self._lines.typed or self._skips(line, error)):
                    raise
                tell(f"localspec: {error}")

    def _skips(self, line: str | None, error: LocalspecError) -> bool:
        """Whether a pipe goes on after an error: what follows a refused command is not touched by it."""
        if line is None or not is_command(line) or isinstance(error, EngineError):
            return False
        self._status = self._status or error.exit_code
        return True

    def _take(self, line: str) -> bool:
        """Do what a line says; False where it ends the chat."""
        word, _, rest = line.strip().partition(" ")
        if not word:
            return True
        if not is_command(line):
            self._ask(line.replace("//", "/", 1) if word.startswith("//") else line)
            return True
        match word, rest.strip():
            case "/quit", "":
                return False
            case "/help", "":
                tell(HELP)
            case "/new", "":
                self._dialogue.new()
                tell("This is a new conversation.")
            case "/spec", ("on" | "off") as wanted:
                self._switch(wanted == "on")
            case "/spec", "":
                tell(f"Speculation: {self._reason}.")
            case "/draft", "":
                tell(f"The drafter is {draft_label(self._draft.spec)}.")
            case "/draft", spec:
                self._use_drafter(spec)
            case _:
                raise UsageError(f"There is no command {line.strip()!r}; /help lists them, // begins a text.")
        return True

    def _begin(self) -> None:
        """Start the engine, and load the model."""
        self._link.start()
        load = replace(self._load, options=replace(self._load.options, draft=self._draft))
        loaded = PlainStream(self._link, self._dialogue.grow).wait_for(load, Loaded)
        self._reason = loaded.info.speculation_reason

    def _ready(self) -> PlainStream:
        """A stream of an engine that has a model; one that died is started again."""
        if not self._link.alive:
            self._link.drain()
            self._begin()
        return PlainStream(self._link, self._dialogue.grow)

    def _ask(self, text: str) -> None:
        stream = self._ready()
        self._dialogue.ask(text)
        self._dialogue.opening = lambda: stream.opening
        self._requests += 1
        plan, wishes = self._plan, self._dialogue.wishes
        request = Generate(
            id=self._requests,
            messages=self._dialogue.messages,
            sampling=self._sampling(wishes),
            max_tokens=plan.max_tokens,
            conversation=self._dialogue.memory_name,
            think=plan.settings.chat.think if wishes.think is None else wishes.think,
        )
        parts = Parts(
            model=self._load.name,
            draft=self._draft.spec,
            verify=plan.engine.verify,
            exact=is_exact(plan.engine.verify),
        )
        try:
            reply = stream.answer(None, request)
        except (LocalspecError, KeyboardInterrupt) as error:
            refused = isinstance(error, UsageError)
            stats = partial_stats(stream.tally, **parts)
            self._dialogue.end(None, stats, opening=stream.opening, refused=refused)
            if isinstance(error, EngineDiedError):
                reason = str(error).partition("; the reply")[0]
                raise EngineDiedError(f"{reason}; the next message starts it again.") from error
            raise
        except (SystemExit, OSError):
            # A signal, or nobody who reads any more.
            self._dialogue.cut()
            raise
        self._reason = stream.reason or self._reason
        self._dialogue.end(reply, reply_stats(reply, **parts), opening=stream.opening)
        stopped = "stopped  " if reply.finish_reason == "cancelled" else ""
        if stream.unanswered and not stopped:
            tell(f"note: {UNANSWERED}")
        tell(f"[{stopped}{summary(reply, plan.engine.verify)}]")
        if stopped and not self._lines.typed:
            raise KeyboardInterrupt

    def _sampling(self, wishes: Wishes) -> SamplingParams:
        """How the next reply is sampled: what the conversation has of its own beats all else."""
        sampling = self._plan.sampling
        if wishes.seed is not None:
            sampling = replace(sampling, seed=wishes.seed)
        elif self._plan.settings.sampling.seed is None:
            sampling = replace(sampling, seed=fresh_seed())
        return sampling if wishes.temperature is None else replace(sampling, temperature=wishes.temperature)

    def _switch(self, wanted: bool) -> None:
        changed = self._ready().wait_for(
            SetSpeculation(wanted), SpeculationChanged, lambda event: wanted or not event.enabled
        )
        self._wish(wanted)
        self._note(changed)

    def _use_drafter(self, spec: str) -> None:
        drafts = resolve_drafts(spec, self._plan.model)
        draft = with_files(replace(self._draft, spec=spec), drafts)
        check_spec(draft)
        for one in drafts.values():
            if one.path is None:
                tell(f"Fetching {one.name}.")
                file_of(one, Tenths().show)
        changed = self._ready().wait_for(
            SetDrafter(draft), SpeculationChanged, lambda event: event.draft == spec
        )
        self._draft = draft
        self._wish(True)
        self._note(changed)

    def _wish(self, speculation: bool) -> None:
        """Have an engine that is started again begin so."""
        self._load = replace(self._load, options=replace(self._load.options, speculation=speculation))

    def _note(self, changed: SpeculationChanged) -> None:
        self._reason = changed.reason
        tell(f"Drafter {draft_label(changed.draft)}; speculation: {changed.reason}.")


def run_plain(
    plan: common.Plan, *, opened: int | Literal["last", "new"], private: bool, record: Path | None
) -> int:
    """Chat in lines until the input ends.

    Args:
        plan: model, drafter and sampling.
        opened: the conversation to go on with: an id, the last one, or a new one.
        private: keep nothing of what is said.
        record: file that the chat is recorded in, see `localspec.recording`.

    Returns:
        The exit status: 0, or 130 after Ctrl+C.

    Raises:
        LocalspecError: there is no model, or nothing can be kept; where nobody types, also a failed reply.
    """
    with contextlib.ExitStack() as stack:
        store = Store(private=private)
        stack.callback(store.close)
        if store.notice:
            tell(f"note: {store.notice}")
        dialogue = Dialogue(store, plan.model.name, plan.system, lambda text: tell(f"localspec: {text}"))
        going_on = dialogue.open(opened)
        client = EngineClient(log_path=engine_log())
        link: EngineClient | RecordingLink = client
        if record is not None:
            about = {"model": plan.model.name, "draft": draft_label(plan.engine.draft.spec)}
            link = RecordingLink(client, ChatRecorder(record, {**about, "verify": plan.engine.verify}))
        stack.callback(link.close)
        if going_on:
            tell(going_on)
        try:
            return PlainChat(plan, link, dialogue, Lines()).run()
        except KeyboardInterrupt:
            client.kill()
            return INTERRUPTED
