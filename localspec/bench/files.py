"""Model files of a bench: names, paths, and quantizations of the first one made on the way."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from localspec.bench.records import Settings
from localspec.errors import StorageError
from localspec.paths import cache_dir, ensure
from localspec.runtime.loading import LoadedModel, load
from localspec.runtime.quantize import requantize
from localspec.types import DraftOptions, EngineOptions


def requantized(path: Path, file_type: str, threads: int) -> Path:
    """A copy of `path` in another quantization, made once and kept in the cache folder.

    Raises:
        UsageError: no such file type.
        StorageError: no room for the copy.
    """
    target = ensure(cache_dir() / "requantized") / f"{path.stem}.{file_type}.gguf"
    if not is_copy_of(target, path):
        requantize(path, target, file_type, threads=threads)
        note_source(target, path)
    return target


def is_copy_of(target: Path, path: Path) -> bool:
    """Whether `target` was made of this very file, and not of another one of its name."""
    try:
        return target.is_file() and _note(target).read_bytes() == _mark(path)
    except OSError:
        return False


def note_source(target: Path, path: Path) -> None:
    """Write beside a copy what it was made of.

    Raises:
        StorageError: the note cannot be written.
    """
    try:
        _note(target).write_bytes(_mark(path))
    except OSError as error:
        raise StorageError(f"Cannot write {_note(target)}: {error.strerror or error}.") from error


def forget_source(target: Path) -> None:
    """Remove the note of a copy that goes."""
    with contextlib.suppress(OSError):
        _note(target).unlink(missing_ok=True)


def _note(target: Path) -> Path:
    return target.with_name(f"{target.name}.source")


def _mark(path: Path) -> bytes:
    status = path.stat()
    text = f"{path.resolve()}\n{status.st_size}\n{status.st_mtime_ns}\n"
    return text.encode("utf-8", "surrogateescape")


def load_file(
    path: Path, settings: Settings, drafts: Mapping[str, str] | None = None
) -> tuple[LoadedModel, float]:
    """A loaded model as the bench needs it, and the seconds that loading took.

    Args:
        path: the file.
        settings: how.
        drafts: files of the drafters that it is measured with, by name: where one is the model's own file,
            its prediction layers are loaded too.
    """
    own = {name: file for name, file in (drafts or {}).items() if Path(file).resolve() == path.resolve()}
    began = time.perf_counter()
    loaded = load(path, replace(engine_options(settings), draft=DraftOptions("none", files=own)))
    return loaded, time.perf_counter() - began


def engine_options(settings: Settings) -> EngineOptions:
    """How the bench loads models."""
    return EngineOptions(
        context=settings.context,
        threads=settings.threads,
        gpu_layers=settings.gpu_layers,
        flash_attention=settings.flash_attention,
        kv_type=settings.kv_type,
    )
