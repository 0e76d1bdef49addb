"""A user's own copies of models in other quantizations: where they lie, and what they are called."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from localspec import paths
from localspec.errors import NotFoundError, StorageError, UsageError
from localspec.models import own
from localspec.models.disk import readable_size
from localspec.models.gguf import GGUFHeader, read_header
from localspec.models.registry import Resolved
from localspec.runtime.copying import bytes_needed, copy_as
from localspec.runtime.cores import physical_cores
from localspec.runtime.quantize import FILE_TYPES


def check_type(name: str) -> str:
    """The file type that `name` means in any case of letters; raises `UsageError` where there is none."""
    if name.upper() not in FILE_TYPES:
        raise UsageError(
            f"There is no file type '{name}'; use one of: {', '.join(FILE_TYPES)} (from large to small)."
        )
    return name.upper()


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy that is to be made.

    Attributes:
        source: the model.
        header: of its file.
        file_type: a key of `FILE_TYPES`.
        name: what the copy will be known as.
        path: its file.
        size: bytes that it will take, about.
    """

    source: Resolved
    header: GGUFHeader
    file_type: str
    name: str
    path: Path
    size: int

    def make(self, threads: int | None, on_progress: Callable[[float], None]) -> None:
        """Make the file and add it to the user's registry.

        Raises:
            ModelFileError, StorageError, EngineError: see `copy_as`.
            UsageError: the registry cannot take it; the file is there then.
        """
        from filelock import FileLock, Timeout

        folder = paths.ensure(paths.cache_dir() / "models")
        try:
            with FileLock(folder / f".{self.name}.lock", timeout=0):
                copy_as(
                    self.header.path.absolute(),
                    self.path,
                    self.file_type,
                    threads=threads or physical_cores(),
                    on_progress=on_progress,
                )
                self._register()
        except Timeout as error:
            raise UsageError(f"{self.name} is being made by another localspec; wait for it.") from error

    def _register(self) -> None:
        if own.entry_of(self.name) is not None:
            # It was known before, and its file had gone.
            return
        entry = self.source.entry
        own.add_entry(
            self.name,
            {
                "source": str(self.path),
                "size": self.path.stat().st_size,
                "description": f"{self.source.name} as {self.file_type}, made on this machine.",
                "license": entry.license if entry else "",
                "family": entry.family if entry else "",
                "parameters": entry.parameters if entry else "",
                "quantization": self.file_type,
                "context": entry.context if entry else None,
                "sampling": entry.sampling.given() if entry else {},
            },
            "Made by `localspec models quantize`.",
        )


def plan_copy(source: Resolved, file_type: str, output: Path | None = None) -> Copy:
    """Check everything that can be checked before a copy of `source` is made.

    Args:
        source: a model whose file is here.
        file_type: see `check_type`.
        output: the file to make; None makes one in localspec's data folder.

    Raises:
        UsageError: an unknown type, or a file or a name that is taken.
        NotFoundError: a folder that is not there.
        ModelFileError: the source is no model.
        StorageError: no room, or no permission.
    """
    kind = check_type(file_type)
    assert source.path is not None  # noqa: S101 - the caller fetched it
    header = read_header(source.path)
    if header.file_type == kind:
        raise UsageError(f"{source.name} is {kind} already; choose another type.")
    name = f"{_plain(source.name)}-{kind}"
    path = _checked(output) if output is not None else (_own_folder() / f"{name}.gguf").absolute()
    known = own.entry_of(name)
    if known is not None and not own.is_file_of(known, path):
        raise UsageError(
            f"There is another model named {name} ({known.source_text}); use that one, or take it out of "
            f"{known.origin} first."
        )
    if path.exists():
        raise UsageError(f"{path} exists already; remove it first, or give another --output.")
    size = bytes_needed(header, kind)
    free = shutil.disk_usage(path.parent).free
    if free < size:
        raise StorageError(
            f"The copy needs about {readable_size(size)} in {path.parent}, and {readable_size(free)} are "
            "free; free some, or give an --output on a larger disk."
        )
    return Copy(source, header, kind, name, path, size)


def _own_folder() -> Path:
    """Not in the cache: a copy is not to be fetched again, and the registry counts on it."""
    return paths.ensure(paths.data_dir() / "models")


def _checked(output: Path) -> Path:
    path = output.expanduser().absolute()
    if path.is_dir():
        raise UsageError(f"{path} is a folder; give --output the name of a file in it.")
    if not path.parent.is_dir():
        raise NotFoundError(f"There is no folder {path.parent}; make it, or give another --output.")
    paths.ensure(path.parent)
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise UsageError("The path of --output is not valid UTF-8; give another.") from error
    return path


def _plain(name: str) -> str:
    """A name that the registry takes; files may be called anything."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).lstrip("._-")
    return plain or "model"
