"""What speculation costs before the first token: fresh engine processes, the drafters in turn."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from localspec.bench.records import Startup
from localspec.client import EngineClient
from localspec.errors import EngineDiedError, EngineError, LocalspecError
from localspec.messages import (
    EngineExited,
    Failed,
    Finished,
    Generate,
    Load,
    Loaded,
    MemoryChanged,
    MemoryUse,
)
from localspec.paths import engine_log
from localspec.types import ChatMessage, EngineOptions, SamplingParams

PROMPT = "Name three things that float on water, and say in one sentence why they do."
_REPLY_TOKENS = 16
_SILENCE_S = 300.0
"""An engine that says nothing for so long has hung: it reports while it loads and while it reads a prompt."""

_Answer = TypeVar("_Answer", Loaded, Finished)


@dataclass(frozen=True, slots=True)
class _Start:
    """One engine process, from its start to the end of one reply."""

    load_s: float
    first_token_s: float | None
    context_tokens: int
    memory: MemoryUse


def measure_startup(
    path: Path,
    options: EngineOptions,
    prompt: str = PROMPT,
    runs: int = 3,
    *,
    name: str | None = None,
    connect: Callable[[], EngineClient] | None = None,
) -> Startup:
    """`compare_startup` of a single drafter."""
    return compare_startup(
        path, name or path.stem, {options.draft.spec: options}, runs, prompt=prompt, connect=connect
    )[0]


def compare_startup(
    path: Path,
    name: str,
    options_by_draft: Mapping[str, EngineOptions],
    runs: int,
    *,
    prompt: str = PROMPT,
    connect: Callable[[], EngineClient] | None = None,
) -> tuple[Startup, ...]:
    """Start an engine, load the file and ask once, `runs` times with each drafter in turn.

    One start before these brings the file into the system's memory and does not count, so times are those of
    a file that was used lately. An engine that fails ends the turns of its drafter, whose row says why.

    Args:
        path: the model file.
        name: how the file is called in the results.
        options_by_draft: how to load it, by the drafter's name in the results.
        runs: starts that count, at least 1.
        prompt: what is asked.
        connect: makes an engine that is not started yet; None makes a real one.

    Returns:
        One row a drafter, in the order of `options_by_draft`.

    Raises:
        StorageError: the folder of logs cannot be used.
    """
    make = connect or _engines(engine_log())
    starts: dict[str, list[_Start]] = {draft: [] for draft in options_by_draft}
    notes: dict[str, str] = {}
    # The first turn is the one that does not count, and only one drafter takes it.
    turns = [list(options_by_draft)[:1], *([list(options_by_draft)] * max(runs, 1))]
    for number, drafts in enumerate(turns):
        for draft in drafts:
            if draft in notes:
                continue
            try:
                start = _start_once(make(), path, name, options_by_draft[draft], prompt)
            except (LocalspecError, OSError) as error:
                notes[draft] = f"start {max(number, 1)} of {max(runs, 1)} failed: {error}"
                continue
            if number > 0:
                starts[draft].append(start)
    return tuple(
        _row(name, draft, options, starts[draft], notes.get(draft))
        for draft, options in options_by_draft.items()
    )


def _engines(log_path: Path) -> Callable[[], EngineClient]:
    return lambda: EngineClient(log_path=log_path)


def _row(name: str, draft: str, options: EngineOptions, starts: list[_Start], note: str | None) -> Startup:
    if not starts:
        return Startup(file=name, draft=draft, length=options.draft.length, note=note)
    first = [start.first_token_s for start in starts if start.first_token_s is not None]
    last = starts[-1]
    devices = last.memory.devices
    return Startup(
        file=name,
        draft=draft,
        length=options.draft.length,
        load_s=statistics.median(start.load_s for start in starts),
        first_token_s=statistics.median(first) if first else None,
        context_tokens=last.context_tokens,
        resident_bytes=round(statistics.median(start.memory.engine_rss for start in starts)),
        device_bytes=sum(device.used for device in devices) if devices else None,
        note=note,
    )


def _start_once(client: EngineClient, path: Path, name: str, options: EngineOptions, prompt: str) -> _Start:
    """One process; it has ended when this returns or raises."""
    request = Generate(
        id=1,
        messages=(ChatMessage("user", prompt),),
        sampling=SamplingParams(temperature=0),
        max_tokens=_REPLY_TOKENS,
    )
    answered = False
    began = time.perf_counter()
    try:
        client.start()
        loaded, _ = _ask(client, Load(str(path), name, options), Loaded)
        load_s = time.perf_counter() - began
        finished, memory = _ask(client, request, Finished)
        answered = True
    finally:
        # An engine that has answered ends by itself at once; another is not worth waiting for.
        client.close(timeout=3.0 if answered else 0.0)
    return _Start(
        load_s=load_s,
        first_token_s=finished.reply.timings.time_to_first_token_s,
        context_tokens=loaded.info.context,
        memory=memory or loaded.memory,
    )


def _ask(
    client: EngineClient, command: Load | Generate, answer: type[_Answer]
) -> tuple[_Answer, MemoryUse | None]:
    """The event that answers `command`, and the memory told last before it; raises where it failed."""
    with contextlib.suppress(EngineDiedError):
        # Why the engine is gone is told by its last event.
        client.send(command)
    memory = None
    for event in client.events(timeout=_SILENCE_S):
        if isinstance(event, answer):
            return event, memory
        if isinstance(event, MemoryChanged):
            memory = event.memory
        elif isinstance(event, Failed):
            raise EngineError(event.message)
        elif isinstance(event, EngineExited):
            # What follows the reason speaks of a chat that goes on.
            raise EngineDiedError(event.message.rstrip(".").partition("; the next message")[0] + ".")
    raise EngineError(f"The engine said nothing for {_SILENCE_S:.0f} seconds.")
