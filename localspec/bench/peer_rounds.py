"""Peers in the grid: other programs answer the same prompts in the same rounds as our plain decoding."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from localspec.bench.blocks import BlockRunner
from localspec.bench.driver import Driver, Reply
from localspec.bench.grid import Block
from localspec.bench.peers import (
    UNKNOWN,
    OpenAIPeer,
    Peer,
    PeerConfig,
    PeerReply,
    chosen_draft,
    peer_configs,
    start_llama_server,
)
from localspec.bench.records import PeerMeasurement, Results, Settings, Timing
from localspec.bench.runs import Run, alternate, timing
from localspec.bench.tasks import Prompt, Task
from localspec.errors import LocalspecError, PeerError
from localspec.runtime.devices import used_gpus

PLAIN = "plain"
SERVER = "llama-server"
_OURS = "localspec"
_WARM_UP = "Hello"
_HEADROOM = 1.3
"""Memory of a server against the size of its file."""
_BUFFERS = 512 * 2**20
"""Bytes of cache and buffers of a server, roughly."""
_MOST_SERVERS = 16


@dataclass(frozen=True, slots=True)
class Cell:
    """A peer on a prompt."""

    config: str
    task: Task
    prompt: Prompt
    temperature: float


@dataclass
class Guest:
    """A peer that takes part: running, or the reason why it is not.

    Attributes:
        name: of the program; known for certain once it has answered.
        config: what the grid calls it: its settings, or its address.
    """

    name: str
    config: str
    start: Callable[[], Peer]
    peer: Peer | None = None
    why_not: str | None = None
    replies: list[PeerReply] = field(default_factory=list)

    def ready(self) -> bool:
        """Start it where it does not run; a peer that has died is given another chance a prompt."""
        if self.peer is None:
            try:
                self.peer = self.start()
                self.name = self.peer.name
                self.peer.complete(_WARM_UP, 4, 0.0, 1)
            except PeerError as error:
                self.drop(str(error))
        return self.peer is not None

    def drop(self, why: str) -> None:
        """Let go of it and keep the reason."""
        self.why_not = why
        if self.peer is not None:
            self.peer.close()
            self.peer = None


def configurations(settings: Settings) -> tuple[PeerConfig, ...]:
    """llama-server's configurations that were asked for; plain is always among them."""
    if not settings.peers:
        return ()
    return peer_configs(None if "all" in settings.peers else settings.peers)


def missing(settings: Settings, tasks: Sequence[Task], file: str, results: Results) -> list[Cell]:
    """What has not been measured yet on `file`."""
    there = {(m.config, m.task, m.prompt, m.temperature) for m in results.peers if m.file == file}
    names = [config.name for config in configurations(settings)] + list(settings.peer_urls)
    return [
        Cell(name, task, prompt, temperature)
        for name in names
        for task in tasks
        for temperature in settings.temperatures or (task.temperature,)
        for prompt in task.prompts[: settings.prompts_per_task]
        if (name, task.name, prompt.name, temperature) not in there
    ]


def weight(settings: Settings, cells: Sequence[Cell]) -> float:
    """Tokens that the peers' rounds will decode, our own among them: what progress counts."""
    prompts = {(cell.task.name, cell.prompt.name, cell.temperature) for cell in cells}
    return float((len(cells) + len(prompts)) * (settings.runs + 1) * settings.tokens)


class PeerRounds:
    """Measures peers on one model file.

    Args:
        path: the model file, which llama-server gets too.
        runner: prepares prompts, for our own plain decoding.
        driver: our own plain decoding.
        settings: the grid.
        drafts: draft models and heads; where its configuration needs one, llama-server gets the first that
            suits it.
        tell: called with what is being done.
        after_run: called after each run with the tokens that it decoded.
        add: takes measurements as they come.
        note: takes a sentence about a program that takes part.
    """

    def __init__(
        self,
        path: Path,
        runner: BlockRunner,
        driver: Driver,
        settings: Settings,
        *,
        drafts: Sequence[Path],
        tell: Callable[[str], None],
        after_run: Callable[[float], None],
        add: Callable[[Sequence[PeerMeasurement]], None],
        note: Callable[[str], None],
    ) -> None:
        self._path = path
        self._runner = runner
        self._driver = driver
        self._settings = settings
        self._drafts = tuple(drafts)
        self._tell = tell
        self._after_run = after_run
        self._add = add
        self._note = note

    def measure(self, cells: Sequence[Cell]) -> None:
        """Every cell, with as many peers running side by side as memory allows."""
        wanted = {cell.config for cell in cells}
        servers = [config for config in configurations(self._settings) if config.name in wanted]
        plain = next((c for c in configurations(self._settings) if c.name == PLAIN), None)
        room = max(1, _servers_that_fit(self._path) - 1)
        for start in range(0, len(servers), room):
            group = [self._server(config) for config in servers[start : start + room]]
            if plain is not None and all(guest.config != PLAIN for guest in group):
                # The yardstick of the others, in the same rounds.
                group.insert(0, self._server(plain))
            self._group(group, cells)
        for url in self._settings.peer_urls:
            if url in wanted:
                self._group([Guest(UNKNOWN, url, lambda url=url: OpenAIPeer(url))], cells)  # type: ignore[misc]

    def _server(self, config: PeerConfig) -> Guest:
        settings = self._settings

        def start() -> Peer:
            return start_llama_server(
                self._path,
                config,
                threads=settings.threads,
                context=settings.context,
                gpu_layers=settings.gpu_layers,
                draft_path=chosen_draft(config, self._drafts),
                kv_type=settings.kv_type,
                flash_attention=settings.flash_attention,
            )

        return Guest(SERVER, config.name, start)

    def _group(self, group: Sequence[Guest], cells: Sequence[Cell]) -> None:
        """All prompts for peers that run side by side."""
        prompts = {(cell.task.name, cell.prompt.name, cell.temperature): cell for cell in cells}
        try:
            for cell in prompts.values():
                asked = {c.config for c in cells if replace(c, config=cell.config) == cell}
                playing = [guest for guest in group if guest.config in asked or guest.config == PLAIN]
                if any(guest.config in asked for guest in playing):
                    self._tell(f"{self._path.stem}: {cell.task.name}, {cell.prompt.name}, peers")
                    found = self._prompt(cell, playing)
                    self._add([m for m in found if m.config in asked])
        finally:
            for guest in group:
                guest.drop("The bench is over.")

    def _prompt(self, cell: Cell, guests: Sequence[Guest]) -> list[PeerMeasurement]:
        """Rounds on one prompt."""
        settings, task = self._settings, cell.task
        temperature = cell.temperature
        for guest in guests:
            guest.replies.clear()
            guest.why_not = None
        running = [guest for guest in guests if guest.ready()]
        rows = {guest.config: self._row(cell, guest, temperature) for guest in guests}
        try:
            block = Block(self._path.stem, task, cell.prompt, "free", temperature, ())
            reply = self._runner.prepare(block).reply
        except LocalspecError as error:
            return [row.model_copy(update={"note": str(error)}) for row in rows.values()]
        for about in dict.fromkeys(f"{g.name}: {g.peer.about}." for g in running if g.peer and g.peer.about):
            self._note(about)
        cold = {guest.config: self._ask(guest, reply) for guest in running}
        contestants: dict[str, Callable[[], Run]] = {_OURS: lambda: self._driver.plain(reply)}
        contestants |= {guest.config: self._contestant(guest, reply) for guest in running}
        runs = alternate(contestants, settings.runs, lambda: self._after_run(float(settings.tokens)))
        ours = timing(runs[_OURS])
        plain = next((guest for guest in running if guest.config == PLAIN and guest.replies), None)
        found = []
        for guest in guests:
            row = rows[guest.config]
            first = cold.get(guest.config)
            if first is not None and guest.config != PLAIN:
                found.append(row.model_copy(update=self._figures([first], plain, ours) | {"memory": "cold"}))
            if guest.why_not is not None:
                found.append(row.model_copy(update={"note": guest.why_not}))
            else:
                found.append(row.model_copy(update=self._figures(guest.replies, plain, ours)))
        return found

    def _row(self, cell: Cell, guest: Guest, temperature: float) -> PeerMeasurement:
        return PeerMeasurement(
            file=self._path.stem,
            task=cell.task.name,
            prompt=cell.prompt.name,
            name=guest.name,
            config=guest.config,
            temperature=temperature,
        )

    def _ask(self, guest: Guest, reply: Reply) -> PeerReply | None:
        """One completion; None where the peer failed, which then is out until the next prompt."""
        if guest.peer is None:
            return None
        try:
            return guest.peer.complete(
                reply.prompt, reply.tokens, reply.temperature, reply.seed, stops=reply.stops
            )
        except PeerError as error:
            guest.drop(str(error))
            return None

    def _contestant(self, guest: Guest, reply: Reply) -> Callable[[], Run]:
        def run() -> Run:
            answer = self._ask(guest, reply)
            if answer is None:
                return Run((), 0.0)
            guest.replies.append(answer)
            return Run(answer.token_ids, answer.seconds)

        return run

    @staticmethod
    def _figures(replies: Sequence[PeerReply], plain: Guest | None, ours: Timing) -> dict[str, Any]:
        last = replies[-1]
        note = None
        if not all(r.timed_tokens > 0 for r in replies) or not all(
            math.isfinite(r.seconds) and r.seconds > 0 for r in replies
        ):
            return {"note": "The peer gave no tokens, or no time that can be used."}
        if last.counted_by == "client":
            note = "Timed from outside, the way of the tokens to us included."
        return {
            "baseline": _timing(plain.replies) if plain is not None else None,
            "ours": ours,
            "timing": _timing(replies),
            "drafted": last.drafted,
            "accepted": last.accepted,
            "identical": last.text == plain.replies[-1].text if plain is not None else None,
            "note": note,
        }


def _timing(replies: Sequence[PeerReply]) -> Timing:
    """A peer's time, scaled to the tokens of its last reply where replies differ in length."""
    tokens = replies[-1].timed_tokens
    per_token = statistics.median(reply.seconds / reply.timed_tokens for reply in replies)
    return Timing(tokens=tokens, seconds=per_token * tokens, runs=tuple(reply.seconds for reply in replies))


def _servers_that_fit(path: Path) -> int:
    """How many servers with this file may run at once."""
    free = sum(device.free_bytes for device in used_gpus()) or psutil.virtual_memory().available
    return min(_MOST_SERVERS, int(free / (path.stat().st_size * _HEADROOM + _BUFFERS)))
