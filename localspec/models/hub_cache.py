"""The hub library's own cache: what another program has fetched is used where it lies, not fetched again."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from localspec.models.entries import HubSource, ModelEntry

_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class CachedFile:
    """A whole file of the hub library's cache.

    Attributes:
        path: of the data itself, no link.
        size: in bytes.
        sha256: by which the cache names it, None where it does not (on Windows, mostly).
    """

    path: Path
    size: int
    sha256: str | None


def find(entry: ModelEntry, sources: Sequence[HubSource]) -> list[CachedFile]:
    """All files of a model, in order; empty unless each is there and is the one that the entry describes.

    HF_HUB_CACHE and HF_HOME say where the cache is. A link that leads out of it is not followed.
    """
    files = [_cached(source) for source in sources]
    found = [file for file in files if file is not None]
    if len(found) < len(files):
        return []
    if entry.size is not None and entry.size != sum(file.size for file in found):
        return []
    return [] if entry.sha256 and (found[0].sha256 or entry.sha256) != entry.sha256 else found


def link(files: Sequence[CachedFile], targets: Sequence[Path]) -> bool:
    """Make the files known under other names without copying them; False where the system cannot."""
    for file, target in zip(files, targets, strict=True):
        temporary = target.with_name(f"{target.name}.link")
        temporary.unlink(missing_ok=True)
        try:
            temporary.symlink_to(file.path)
        except OSError:
            # On Windows links need a privilege that most have not; a second name on the same disk does not.
            try:
                os.link(file.path, temporary)
            except OSError:
                return False
        temporary.replace(target)
    return True


def _cached(source: HubSource) -> CachedFile | None:
    from huggingface_hub import constants, try_to_load_from_cache

    with contextlib.suppress(OSError, ValueError):
        found = try_to_load_from_cache(source.repo, source.file, revision=source.revision)
        if isinstance(found, str):
            path = Path(found).resolve(strict=True)
            if path.is_relative_to(Path(constants.HF_HUB_CACHE).resolve()):
                named = path.parent.name == "blobs" and _SHA256.fullmatch(path.name)
                return CachedFile(path, path.stat().st_size, path.name if named else None)
    return None
