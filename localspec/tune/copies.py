"""Other quantizations of a model file: whether they can be made, how large they are, where they lie."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from localspec.bench.files import forget_source, is_copy_of, note_source
from localspec.errors import LocalspecError, ModelFileError
from localspec.models.disk import readable_size
from localspec.models.gguf import read_header
from localspec.paths import cache_dir, ensure
from localspec.runtime.copying import bytes_needed, copy_as

_TYPES = ("Q4_0", "Q4_K_M", "Q8_0", "BF16")
"""In the order in which they are tried: small ones are made quickly."""
_COARSE = {
    *("Q2_K", "Q2_K_S", "Q3_K_S", "Q3_K_M", "Q3_K_L", "Q4_0", "Q4_1", "Q4_K_S", "Q4_K_M", "MXFP4", "NVFP4"),
    *("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M", "IQ3_XXS", "IQ3_XS", "IQ3_S", "IQ3_M"),
    *("IQ4_NL", "IQ4_XS", "TQ1_0", "TQ2_0", "Q1_0", "Q2_0"),
}
"""Files of about four bits a weight or fewer."""
_EXACT = {"F32", "F16", "BF16"}
_SPARE = 2**30
"""Bytes of the disk that stay free."""


@dataclass(frozen=True, slots=True)
class Copy:
    """Another quantization.

    Attributes:
        file_type: such as "Q8_0".
        bytes: its size, estimated before it is made.
        problem: why it is not tried; None where it can be.
    """

    file_type: str
    bytes: int
    problem: str | None = None


class Copies(Protocol):
    """Makes copies of one file."""

    @property
    def file_type(self) -> str:
        """Of the file itself."""

    @property
    def loss(self) -> str:
        """What a copy of this file can be at best, in a sentence; empty where there is nothing to say."""

    def planned(self) -> list[Copy]:
        """All that could be tried."""

    def make(self, copy: Copy, on_progress: Callable[[float], None]) -> Path:
        """The copy's file, made where it is not there.

        What `on_progress` raises ends the making, and leaves nothing behind; so does `LocalspecError`.
        """

    def discard(self, path: Path) -> bool:
        """Remove a copy that was made by this; one that was there before stays. Whether it was removed."""


class ModelCopies:
    """Copies in the cache folder, shared with the bench.

    Args:
        path: the model file.
        threads: to make them with.

    Raises:
        NotFoundError, ModelFileError: it cannot be read.
    """

    def __init__(self, path: Path, threads: int) -> None:
        self._path = path
        self._threads = threads
        self._header = read_header(path)
        self._made: set[Path] = set()

    @property
    def file_type(self) -> str:
        """Of the file itself."""
        return self._header.file_type

    @property
    def loss(self) -> str:
        """See `Copies`."""
        kind = self.file_type
        if kind in _EXACT:
            return ""
        bits = "a 4-bit file" if kind in _COARSE else f"a {kind} file"
        return (
            f"Copies are made from {bits}: whatever their size, they cannot be better than it, only as good. "
            "Fidelity is measured against it."
        )

    def planned(self) -> list[Copy]:
        """See `Copies`."""
        return [self._plan(kind) for kind in _TYPES if kind != self.file_type]

    def make(self, copy: Copy, on_progress: Callable[[float], None]) -> Path:
        """See `Copies`.

        Raises:
            StorageError: no room, or a folder that cannot be written.
            ModelFileError: llama.cpp cannot make it, or what is there is of another model.
            EngineError: the process that makes it was ended.
        """
        target = self._target(copy.file_type)
        if target.exists() and not is_copy_of(target, self._path):
            # Of an earlier file, or of another one, of this name.
            target.unlink()
        if not target.exists():
            ensure(target.parent)
            copy_as(
                self._path.absolute(),
                target,
                copy.file_type,
                threads=self._threads,
                on_progress=on_progress,
            )
            note_source(target, self._path)
            self._made.add(target)
        self._check(target)
        return target

    def discard(self, path: Path) -> bool:
        """See `Copies`."""
        if path not in self._made:
            return False
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        forget_source(path)
        self._made.discard(path)
        return True

    def _plan(self, kind: str) -> Copy:
        header = self._header
        size = bytes_needed(header, kind)
        if self._target(kind).exists():
            return Copy(kind, self._target(kind).stat().st_size)
        if header.split_count > 1:
            return Copy(kind, size, "the model is in several files, and copies are made of single ones")
        try:
            free = shutil.disk_usage(ensure(self._target(kind).parent)).free
        except (OSError, LocalspecError) as error:
            return Copy(kind, size, f"there is no place for it: {error}")
        if free < size + _SPARE:
            short = f"{readable_size(size)} needed, {readable_size(max(free - _SPARE, 0))} to spare"
            return Copy(kind, size, f"no room on the disk for a copy ({short})")
        return Copy(kind, size)

    def _target(self, kind: str) -> Path:
        return cache_dir() / "requantized" / f"{self._path.stem}.{kind}.gguf"

    def _check(self, path: Path) -> None:
        """Raise `ModelFileError` where another model's copy has the name."""
        other = read_header(path)
        if other.fingerprint != self._header.fingerprint or other.block_count != self._header.block_count:
            raise ModelFileError(f"{path} is a copy of another model of this name; remove it.")
