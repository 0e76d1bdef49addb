"""Deleting conversations with what drafts remember of them, bringing both back, and taking in others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from localspec.chat.rows import REMEMBERED, ConversationRow, Tree
from localspec.chat.store import Store
from localspec.errors import StorageError

if TYPE_CHECKING:
    from localspec.memory.log import TokenLog
    from localspec.memory.records import Record


@dataclass(frozen=True, slots=True)
class Remembered:
    """What was taken out of the memory.

    Attributes:
        records: by the file that they were in.
        problem: why something of it may still be there; "" where all of it is gone.
    """

    records: Sequence[tuple[TokenLog, list[Record]]] = field(default=())
    problem: str = ""

    @property
    def documents(self) -> int:
        """How many texts were forgotten."""
        return sum(len(records) for _, records in self.records)


def delete(store: Store, conversation_id: int) -> Tree | None:
    """Delete a conversation from the store; `forget` is the other half.

    Returns:
        The whole of it, for `Store.restore`; None where it is not there.

    Raises:
        StorageError: it is still there.
    """
    tree = store.tree(conversation_id)
    if tree is not None:
        store.delete(conversation_id)
    return tree


def forget(name: str, capacity: int) -> Remembered:
    """Forget all replies of a conversation; takes a moment for each file of the memory.

    Args:
        name: its `memory_name`; nothing is remembered under "".
        capacity: tokens that the memory holds, as in the settings.
    """
    from localspec.memory.files import logs
    from localspec.paths import memory_dir

    taken: list[tuple[TokenLog, list[Record]]] = []
    problem = ""
    try:
        files = logs(memory_dir(), capacity) if name else []
    except StorageError as error:
        return Remembered(problem=str(error))
    for log in files:
        # One file that cannot be used must not keep the others from being cleared.
        try:
            records = [record for record in log.reread().records if record.conversation == name]
            if records or log.skipped:
                log.forget(name)
                taken.append((log, records))
        except StorageError as error:
            problem = problem or str(error)
    return Remembered(taken, problem)


def remember_again(remembered: Remembered) -> str:
    """Put back what was forgotten; returns why that failed, "" where it did not."""
    try:
        for log, records in remembered.records:
            log.append(records)
    except StorageError as error:
        return str(error)
    return ""


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of conversations from files; `kept` were there already, word for word."""

    added: tuple[ConversationRow, ...] = ()
    kept: tuple[ConversationRow, ...] = ()


def take_in(store: Store, trees: Iterable[Tree]) -> Imported:
    """Add conversations beside those that are there, of which none is changed: all of them or none.

    One that is there already is left out; one that was there in another state becomes one of its own.

    Raises:
        StorageError: nothing was added.
    """
    from localspec.chat.imports import contents_mark

    added: dict[str, Tree] = {}
    kept: list[ConversationRow] = []
    for tree in trees:
        said = contents_mark(tree)
        for uid in (tree.row.uid or said, f"{tree.row.uid or 'copy'}-{said}"):
            if uid in added:
                known, row = contents_mark(added[uid]), None
            else:
                row = store.remembered_as(f"{REMEMBERED}{uid}")
                there = store.tree(row.id) if row is not None else None
                known = contents_mark(there) if there is not None else ""
            if not known:
                added[uid] = replace(tree, row=replace(tree.row, uid=uid))
            elif known == said and row is not None:
                kept.append(row)
            elif known != said:
                # Its name is taken by something else.
                continue
            break
    return Imported(tuple(store.add_trees(added.values())), tuple(kept))
