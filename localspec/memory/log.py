"""The memory's file: it only grows at its end, until a compaction puts a new one in its place.

Several processes may have it open. Writers take turns with a lock that is held only while writing; readers
need none, since a record counts once it is whole. A writer that was killed leaves a torn tail, which the next
one cuts off.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import StorageError
from localspec.memory.records import (
    HEADER_SIZE,
    Record,
    check_header,
    encode_all,
    encode_header,
    scan,
)
from localspec.types import MEMORY_CAPACITY

SLACK = 1.1
"""A memory is cut back to its capacity when it holds this many times as much, not at every reply."""
LOCK_SECONDS = 3.0
_FULL = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}


@dataclass(frozen=True, slots=True)
class Batch:
    """What a look into the file brought: new records, or, after a `reset`, all that it now holds."""

    records: list[Record]
    reset: bool


class TokenLog:
    """The file of one tokenizer's memory, from the point of view of one process.

    It remembers how far it has read, so that each look brings only what is new. Nothing is opened or made
    before it is needed: reading a memory that does not exist finds it empty. Every method raises
    `StorageError` for a file that cannot be used. Not for several threads at once.

    Args:
        path: the file; its lock and what a compaction writes lie beside it.
        fingerprint: which tokenizer the ids belong to, 32 characters at most.
        capacity: tokens to keep; the oldest documents are dropped.

    Attributes:
        skipped: damaged bytes that were stepped over since the file was last read from its beginning.
        size: bytes of the file when it was last looked at.
    """

    def __init__(self, path: Path, fingerprint: str, capacity: int = MEMORY_CAPACITY) -> None:
        self.path = path
        self.fingerprint = fingerprint
        self.capacity = capacity
        self.skipped = 0
        self.size = 0
        # Behind a link: a new file has to take the place of the old one, not of the link to it.
        self._file = Path(os.path.realpath(path))
        self._new_path = self._file.with_name(self._file.name + ".new")
        self._lock_path = self._file.with_name(self._file.name + ".lock")
        self._generation: bytes | None = None
        self._position = HEADER_SIZE
        self._tokens = 0
        self._seen: tuple[int, int, int, int] | None = None

    # --- reading

    def refresh(self) -> Batch:
        """Read what was written since the last call; cheap where there is nothing new."""
        with self._explained("read"):
            try:
                if self._generation is not None and self._seen == _identity(self._file.stat()):
                    return Batch([], reset=False)
                with io.FileIO(self._file, "rb", opener=_private) as file:
                    return self._read(file)
            except FileNotFoundError:
                return self._restart(b"")

    def reread(self) -> Batch:
        """Read the file from its beginning, whatever was read before."""
        self._generation = None
        return self.refresh()

    def _read(self, file: io.FileIO) -> Batch:
        status = os.fstat(file.fileno())
        file.seek(0)
        generation = check_header(_read_exactly(file, HEADER_SIZE), self.fingerprint, self.path)
        batch = Batch([], reset=False)
        if generation != self._generation or status.st_size < self._position:
            batch = self._restart(generation)
        if generation:
            file.seek(self._position)
            found = scan(_read_exactly(file, status.st_size - self._position))
            batch.records.extend(found.records)
            self._position += found.end
            self._tokens += sum(len(record.tokens) for record in found.records)
            self.skipped += found.skipped
        self._seen, self.size = _identity(status), status.st_size
        return batch

    def _restart(self, generation: bytes) -> Batch:
        """Forget what was read of another generation."""
        changed = generation != self._generation
        self._generation, self._position = generation, HEADER_SIZE
        self._tokens = self.skipped = self.size = 0
        self._seen = None
        return Batch([], reset=changed or bool(generation))

    # --- writing

    def append(self, records: Sequence[Record]) -> Batch:
        """Write `records` at the end; drops the oldest ones where the file has grown past its capacity.

        Returns:
            What others have written since the last look, and `records` themselves.
        """
        with self._writing(), self._explained("write to"):
            with self._opened() as file:
                batch = self._read(file)
                self._cut(file)
                data = encode_all(records)
                if not self._generation:
                    header, self._generation = encode_header(self.fingerprint)
                    self._write(file, header + data, 0)
                else:
                    self._write(file, data, self._position)
                self._position += len(data)
                self._tokens += sum(len(record.tokens) for record in records)
                status = os.fstat(file.fileno())
                self._seen, self.size = _identity(status), status.st_size
            batch.records.extend(records)
            if self._tokens > self.capacity * SLACK:
                everything = self.reread().records
                return self._replace(newest(everything, self.capacity))
            return batch

    def forget(self, conversation: str) -> int:
        """Take out every document of `conversation`; returns how many there were.

        The file is written anew, so that nothing of them is left in it, in what was damaged or torn neither.
        """
        return self._rewrite(lambda record: record.conversation != conversation)

    def compact(self) -> int:
        """Write the file anew without damaged bytes and within its capacity; returns documents dropped."""
        return self._rewrite(lambda record: True, always=True)  # noqa: ARG005 - a filter that lets all pass

    def remove(self) -> None:
        """Delete the file, whatever is in it."""
        with self._writing(), self._explained("delete"):
            self._file.unlink(missing_ok=True)
            self.path.unlink(missing_ok=True)

    def sweep(self) -> None:
        """Delete what a compaction that was killed has left behind; a file that cannot be is left alone."""
        if self._new_path.exists():
            # The lock makes sure that no other process is just writing it.
            with contextlib.suppress(StorageError), self._writing():
                pass

    def _rewrite(self, keep: Callable[[Record], bool], *, always: bool = False) -> int:
        with self._writing(), self._explained("write to"):
            records = self.reread().records
            kept = newest([record for record in records if keep(record)], self.capacity)
            torn = bool(self._generation) and self._position < self.size
            if self._generation and (always or len(kept) < len(records) or self.skipped or torn):
                self._replace(kept)
            # The next look brings everything: what was read here has reached nobody.
            self._generation = None
            return len(records) - len(kept)

    def _replace(self, records: list[Record]) -> Batch:
        """Put a file with `records` in the place of the present one, in one step."""
        header, generation = encode_header(self.fingerprint)
        data = header + encode_all(records)
        try:
            with io.FileIO(self._new_path, "wb", opener=_private) as file:
                _write_all(file, data)
                os.fsync(file.fileno())
            self._new_path.replace(self._file)
        except OSError:
            with contextlib.suppress(OSError):
                self._new_path.unlink()
            raise
        _sync_folder(self._file.parent)
        self._restart(generation)
        self._position = HEADER_SIZE + len(data) - len(header)
        self._tokens = sum(len(record.tokens) for record in records)
        self._seen, self.size = _identity(self._file.stat()), len(data)
        return Batch(list(records), reset=True)

    def _opened(self) -> io.FileIO:
        return io.FileIO(self._file, "ab+", opener=_private)

    def _cut(self, file: io.FileIO) -> None:
        """Cut off what a killed writer has left: the lock is ours, so nobody is still writing it."""
        end = self._position if self._generation else 0
        if os.fstat(file.fileno()).st_size > end:
            file.truncate(end)

    def _write(self, file: io.FileIO, data: bytes, end: int) -> None:
        try:
            _write_all(file, data)
        except OSError:
            # Half a record would be cut off by the next writer anyway.
            with contextlib.suppress(OSError):
                file.truncate(end)
            if end == 0:
                self._generation = b""
            raise

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Hold the lock; the folder is made where it is missing, and leftovers are deleted."""
        # Not for readers: they have no use for it, and it takes a moment to import.
        from filelock import FileLock, Timeout

        with self._explained("write to"):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self._lock_path, timeout=LOCK_SECONDS, mode=0o600)
            try:
                lock.acquire()
            except Timeout:
                raise StorageError(
                    f"The memory {self.path} is locked by another program; close that one and try again."
                ) from None
        try:
            with self._explained("write to"):
                self._new_path.unlink(missing_ok=True)
            yield
        finally:
            lock.release()

    @contextlib.contextmanager
    def _explained(self, verb: str) -> Iterator[None]:
        """Turn the system's errors into `StorageError`."""
        try:
            yield
        except OSError as error:
            if error.errno in _FULL:
                raise StorageError(
                    f"There is no space left for the memory {self.path}; free some."
                ) from error
            raise StorageError(
                f"Cannot {verb} the memory {self.path} ({error.strerror or error}); make it a file that can "
                "be read and written, or use --no-memory."
            ) from error


def newest(records: list[Record], capacity: int) -> list[Record]:
    """The newest of `records`, as many as fit into `capacity` tokens, in their order."""
    total = 0
    for index in range(len(records) - 1, -1, -1):
        total += len(records[index].tokens)
        if total > capacity:
            return records[index + 1 :]
    return records


def _identity(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _private(path: str, flags: int) -> int:
    # A pipe in the file's place would be waited for without end; so it is an error.
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o600)
    mode = os.fstat(descriptor).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "Not a regular file", path)
    return descriptor


def _read_exactly(file: io.FileIO, size: int) -> bytes:
    """`size` bytes, fewer where the file ends."""
    pieces: list[bytes] = []
    while size > 0 and (piece := file.read(size)):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _write_all(file: io.FileIO, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def _sync_folder(folder: Path) -> None:
    """Put the new name on the disk, where the system lets folders be synced."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
