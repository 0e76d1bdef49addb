"""How many greedy replies stay what plain decoding says: six copies and six chains, as users run them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from localspec.bench.grouping import Order
from localspec.bench.pooling import clean
from localspec.bench.records import Divergence, Measurement, Results

TASKS = ("copy", "chain")
PROMPTS = 6


@dataclass(frozen=True, slots=True)
class Identity:
    """One configuration of one file.

    Attributes:
        same, compared: replies equal token for token, of how many.
        by_task: the same in words, "copy 6/6, chain 5/6".
        divergences: (task and prompt, where the reply left the plain one).
    """

    file: str
    draft: str
    length: int | None
    memory: str
    same: int
    compared: int
    by_task: str
    divergences: tuple[tuple[str, Divergence], ...]


def identities(results: Results) -> tuple[Identity, ...]:
    """For each file and exact configuration, up to six greedy replies of each of the two tasks."""
    order = Order(results)
    groups: dict[tuple[object, ...], dict[tuple[str, str], Measurement]] = {}
    for m in results.measurements:
        c = m.configuration
        wanted = m.mode == "free" and m.task in TASKS and m.parallel == 1 and m.identical is not None
        if wanted and c.temperature == 0 and c.verify == "coupled":
            key = (*order.file(m.file), *order.draft(c.draft), -1 if c.length is None else c.length, c.memory)
            groups.setdefault(key, {})[m.task, m.prompt] = m
    return tuple(_identity(list(group.values())) for _, group in sorted(groups.items(), key=lambda i: i[0]))


def _identity(found: Sequence[Measurement]) -> Identity:
    used: list[Measurement] = []
    said = []
    for task in TASKS:
        of_task = sorted((m for m in found if m.task == task), key=lambda m: m.prompt)[:PROMPTS]
        used += of_task
        if of_task:
            said.append(f"{task} {sum(bool(m.identical) for m in of_task)}/{len(of_task)}")
    first = found[0]
    return Identity(
        file=first.file,
        draft=first.configuration.draft,
        length=first.configuration.length,
        memory=first.configuration.memory,
        same=sum(bool(m.identical) for m in used),
        compared=len(used),
        by_task=", ".join(said),
        divergences=tuple((f"{m.task} {clean(m.prompt)}", m.divergence) for m in used if m.divergence),
    )
