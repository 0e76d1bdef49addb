"""The memory as the rest of the program uses it: an index to search, and the file that it is kept in."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from localspec.errors import StorageError
from localspec.memory.files import log_path
from localspec.memory.index import SEPARATOR, TokenIndex
from localspec.memory.log import SLACK, Batch, TokenLog, newest
from localspec.memory.records import Record
from localspec.types import MEMORY_CAPACITY

PATIENCE_S = 0.1
"""How long a reply waits for a memory that is still being read; without it, it begins with an empty one."""


@dataclass(frozen=True, slots=True)
class Document:
    """Where a remembered reply lies in the index: tokens `start` to `end` (exclusive)."""

    conversation: str
    time: float
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class MemoryStatus:
    """What a memory holds: counts, bytes of its file, and Unix times in seconds (None where it is empty)."""

    documents: int
    tokens: int
    bytes: int
    conversations: int
    oldest: float | None
    newest: float | None


class Memory:
    """Earlier replies of one tokenizer, searchable, and kept in a file where there is one.

    A drafter searches `index`, which another one takes the place of now and then: it is to be looked up anew
    in every `Drafter.begin`. Without a file it is a memory of this process alone. For one thread.

    Args:
        index: what is remembered already; None starts empty.
        log: the file; it is read by `load`.
        capacity: tokens to hold; the oldest documents are dropped.

    Attributes:
        index: the searchable tokens, empty until they have been read.
        problem: a sentence about a file that cannot be used, else None; the memory goes on without it.
    """

    def __init__(
        self, index: TokenIndex | None = None, log: TokenLog | None = None, capacity: int = MEMORY_CAPACITY
    ) -> None:
        self.index = TokenIndex() if index is None else index
        self.problem: str | None = None
        self._told = False
        self._log = log
        self._capacity = capacity
        self._documents = list(_documents_in(self.index))
        self._loaded = log is None
        self._loader: threading.Thread | None = None
        self._read: tuple[TokenIndex, list[Document]] | None = None

    @classmethod
    def of_file(cls, folder: Path, fingerprint: str, capacity: int = MEMORY_CAPACITY) -> Memory:
        """The memory of one tokenizer in `folder`, not read yet; nothing is made before a reply is added."""
        log = TokenLog(log_path(folder, fingerprint), fingerprint, capacity)
        return cls(log=log, capacity=capacity)

    @classmethod
    def open(cls, folder: Path, fingerprint: str, capacity: int = MEMORY_CAPACITY) -> Memory:
        """The memory of one tokenizer in `folder`, read.

        Raises:
            StorageError: its file cannot be used.
        """
        memory = cls.of_file(folder, fingerprint, capacity)
        memory.load(background=False)
        if memory.problem is not None:
            raise StorageError(memory.problem)
        return memory

    # --- loading

    def load(self, *, background: bool = True) -> None:
        """Read the file if that was not done yet; in the background, replies begin with what has arrived."""
        if self._loaded or self._loader is not None:
            return
        if background:
            self._loader = threading.Thread(target=self._load, name="memory", daemon=True)
            self._loader.start()
        else:
            self._load()
            self._adopt()

    def _load(self) -> None:
        assert self._log is not None  # noqa: S101 - without a file it is loaded from the start
        try:
            self._log.sweep()
            self._read = self._indexed(self._log.reread().records)
        except StorageError as error:
            self._trouble(error)

    def _adopt(self) -> None:
        """Put what was read in place."""
        if self._read is not None:
            self.index, self._documents = self._read
            self._read = None
        elif self.problem is not None:
            self._log = None
        self._loader, self._loaded = None, True
        self._tell_damage()

    def _settled(self, patience: float | None) -> bool:
        """Whether reading is over; waits for `patience` seconds at most, None without end."""
        if self._loader is not None:
            self._loader.join(patience)
            if not self._loader.is_alive():
                self._adopt()
        return self._loaded

    # --- replies

    def begin(self, conversation: str, present: Sequence[int], *, trial: bool = False) -> None:
        """Prepare for a reply: take in what others wrote, and hide what the present text holds already.

        Replies of this conversation that stand in the present text are not counted a second time; those that
        do not (one that was regenerated, or follows an edited question) are.

        Args:
            conversation: the one that is being continued, "" for none.
            present: its tokens, the prompt's end included.
            trial: the reply is compared with another one: all replies of this conversation are hidden, since
                one may answer the same prompt, and reading is waited for, so that all trials have the same.
        """
        if not self._settled(None if trial else PATIENCE_S):
            return
        self.refresh()
        if trial:
            own = [one for one in self._documents if conversation and one.conversation == conversation]
            self.index.hidden = tuple((one.start, one.end) for one in own)
        else:
            self.index.hidden = self._standing_in(conversation, present)

    def add(self, tokens: Sequence[int], conversation: str) -> None:
        """Remember a reply; one that cannot be written is remembered until the end of the process.

        Args:
            tokens: ids of the reply, without the token that ended it.
            conversation: what to forget it by.
        """
        if not tokens:
            return
        record = Record(np.asarray(tokens, np.int32), conversation, time.time())
        loaded = self._settled(None)
        if loaded:
            self.refresh()
        batch = Batch([record], reset=False)
        if self._log is not None:
            try:
                batch = self._log.append([record])
            except StorageError as error:
                self._trouble(error)
        if loaded:
            self._take(batch)

    def refresh(self) -> None:
        """Take in what other processes have written or forgotten; cheap where there is nothing new."""
        if not self._settled(None) or self._log is None:
            return
        try:
            batch = self._log.refresh()
        except StorageError as error:
            self._trouble(error)
            self._log = None
            return
        self._take(batch)
        self._tell_damage()

    def take_problem(self) -> str | None:
        """`problem`, the first time that it is asked for."""
        if self._told or self.problem is None:
            return None
        self._told = True
        return self.problem

    # --- housekeeping

    def forget(self, conversation: str) -> int:
        """Take out every document of `conversation`, from the file too; returns how many there were.

        Raises:
            StorageError: they could not be taken out of the file.
        """
        self._settled(None)
        gone = self._log.forget(conversation) if self._log is not None else 0
        if self._loaded:
            self.refresh()
            kept = [one for one in self._documents if one.conversation != conversation]
            gone = max(gone, len(self._documents) - len(kept))
            if len(kept) < len(self._documents):
                self._rebuild(self._records(kept))
        return gone

    def forget_all(self) -> None:
        """Take out everything and delete the file; raises `StorageError` where that fails."""
        self._settled(None)
        if self._log is not None:
            self._log.remove()
            self.refresh()
        self._rebuild([])

    def compact(self) -> None:
        """Write the file anew, within its capacity; raises `StorageError` where that fails."""
        self._settled(None)
        if self._log is not None:
            self._log.compact()
            self.refresh()

    @property
    def status(self) -> MemoryStatus:
        """What it holds now; reads the file if that was not done yet."""
        self.load(background=False)
        self.refresh()
        documents = self._documents
        times = [document.time for document in documents]
        return MemoryStatus(
            documents=len(documents),
            tokens=sum(document.end - document.start for document in documents),
            bytes=self._log.size if self._log is not None else 0,
            conversations=len({document.conversation for document in documents}),
            oldest=min(times, default=None),
            newest=max(times, default=None),
        )

    # --- inner steps

    def _take(self, batch: Batch) -> None:
        if batch.reset:
            self._rebuild(batch.records)
            return
        for record in batch.records:
            start, end = self.index.append(record.tokens)
            self._documents.append(Document(record.conversation, record.time, start, end))
        if len(self.index) - len(self._documents) > self._capacity * SLACK:
            self._rebuild(self._records(self._documents))

    def _rebuild(self, records: list[Record]) -> None:
        self.index, self._documents = self._indexed(records)

    def _indexed(self, records: list[Record]) -> tuple[TokenIndex, list[Document]]:
        """An index of the newest of `records`, and where they lie in it."""
        kept = newest(records, self._capacity)
        tokens = np.full(sum(len(record.tokens) + 1 for record in kept), SEPARATOR, np.int32)
        documents: list[Document] = []
        start = 1
        for record in kept:
            end = start + len(record.tokens)
            tokens[start:end] = record.tokens
            documents.append(Document(record.conversation, record.time, start, end))
            start = end + 1
        return TokenIndex(tokens), documents

    def _records(self, documents: Iterable[Document]) -> list[Record]:
        tokens = self.index.tokens
        return [Record(tokens[one.start : one.end], one.conversation, one.time) for one in documents]

    def _standing_in(self, conversation: str, present: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """Places of this conversation's documents whose tokens stand in `present`, one after the other."""
        own = [one for one in self._documents if conversation and one.conversation == conversation]
        if not own:
            return ()
        text, tokens = np.asarray(present, np.int32).tobytes(), self.index.tokens
        found: list[tuple[int, int]] = []
        taken: list[tuple[int, int]] = []
        at = 0
        for document in own:
            said = tokens[document.start : document.end].tobytes()
            # Replies stand in the order in which they were made, so the search goes on behind the last one. A
            # short one of a branch that was left may have been found too late: then it starts over.
            place = _find(text, said, at, taken)
            place = _find(text, said, 0, taken) if place < 0 and at else place
            if place >= 0:
                at = place + len(said)
                taken.append((place, at))
                found.append((document.start, document.end))
        return tuple(found)

    def _trouble(self, error: StorageError) -> None:
        self.problem = self.problem or str(error)

    def _tell_damage(self) -> None:
        if self._log is not None and self._log.skipped and self.problem is None:
            self.problem = (
                f"A part of the memory {self._log.path} is damaged and was left out; "
                "`localspec memory compact` clears it."
            )


def _find(text: bytes, said: bytes, start: int, taken: Sequence[tuple[int, int]]) -> int:
    """Byte offset of `said` in `text`, on a token's boundary and outside of `taken`; -1 where it is not."""
    place = text.find(said, start)
    while place >= 0 and (
        place % 4 or any(place < end and begin < place + len(said) for begin, end in taken)
    ):
        place = text.find(said, place + 1)
    return place


def _documents_in(index: TokenIndex) -> Iterable[Document]:
    """Documents of an index that was filled by others, without a conversation."""
    tokens: NDArray[np.int32] = index.tokens
    separators = [*np.flatnonzero(tokens == SEPARATOR).tolist(), len(tokens)]
    for separator, end in itertools.pairwise(separators):
        yield Document("", 0.0, separator + 1, end)
