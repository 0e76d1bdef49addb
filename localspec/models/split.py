"""Models that lie in several files, `NAME-00001-of-00003.gguf` and so on: the first one stands for all."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.errors import ModelFileError, NotFoundError

if TYPE_CHECKING:
    from localspec.models.gguf import GGUFHeader

MOST_PARTS = 1000
"""More parts than any published model has."""

_PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf", re.DOTALL)


def part_names(name: str) -> tuple[str, ...]:
    """Names of all the files that belong to a model, in order, by the name (or path) of its first file.

    A name that is no part of a split model stands for itself alone.

    Raises:
        ValueError: the name of a later part, or of a part that cannot be; says so.
    """
    match = _PART.fullmatch(name)
    if match is None:
        return (name,)
    stem, number, count = match[1], int(match[2]), int(match[3])
    if not 1 <= number <= count <= MOST_PARTS:
        raise ValueError(f'"{name}" cannot be a part of a split model')
    names = tuple(f"{stem}-{index:05d}-of-{count:05d}.gguf" for index in range(1, count + 1))
    if number != 1:
        raise ValueError(f'"{name}" is part {number} of a split model; name the first one, {names[0]}')
    return names


def part_paths(path: Path) -> tuple[Path, ...]:
    """The same for a file: where its parts lie, whether they are there or not.

    Raises:
        ValueError: like `part_names`.
    """
    return tuple(path.with_name(name) for name in part_names(path.name))


def size_on_disk(path: Path) -> int:
    """Bytes of a model's file, all its parts together; raises `OSError` where one is missing."""
    try:
        return sum(part.stat().st_size for part in part_paths(path))
    except ValueError:
        return path.stat().st_size


def whole_header(header: GGUFHeader, read: Callable[[Path], GGUFHeader]) -> GGUFHeader:
    """The header of a split model's first file, completed by the tensors of the others.

    Args:
        header: of the first file.
        read: reads and checks the header of one file.

    Raises:
        ModelFileError: a part is missing or damaged, or the names do not tell where the parts are.
    """
    path = header.path
    try:
        files = part_paths(path)
    except ValueError:
        files = ()
    if len(files) != header.split_count:
        raise ModelFileError(
            f"{path} is the first of {header.split_count} files of a model, and its name does not tell the "
            f"others'; give it back its name, which ends in -00001-of-{header.split_count:05d}.gguf."
        )
    sizes, types = dict(header.tensor_sizes), dict(header.tensor_types)
    file_bytes, parameters = header.file_bytes, header.parameters
    for number, file in enumerate(files[1:], start=2):
        try:
            part = read(file)
        except NotFoundError as error:
            raise ModelFileError(
                f"{file.name} is missing beside {path}, which is split into {len(files)} files; fetch the "
                "model again, or put the file there."
            ) from error
        if (part.metadata.get("split.no"), part.split_count) != (number - 1, len(files)):
            raise ModelFileError(
                f"{file} is not part {number} of {len(files)} of a model, as its name says; fetch the model "
                "again."
            )
        sizes |= part.tensor_sizes
        types |= part.tensor_types
        file_bytes += part.file_bytes
        parameters += part.parameters
    return replace(
        header,
        file_bytes=file_bytes,
        tensor_sizes=sizes,
        tensor_types=types,
        tensor_count=len(sizes),
        tensor_bytes=sum(sizes.values()),
        parameters=parameters,
    )
