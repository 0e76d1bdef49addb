"""GGUF files in a folder, however the program that put them there arranges them.

    FOLDER/.../FILE.gguf                               LM Studio (OWNER/REPO/FILE), llama.cpp, anybody's own
    FOLDER/models--OWNER--REPO/snapshots/REV/FILE.gguf the hub's cache; a link into blobs/
    FOLDER/manifests/HOST/.../NAME/TAG                 Ollama: JSON that names a file of blobs/

Links are followed, but no folder is looked into twice. What cannot be read is noted and left out.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localspec.models.places import LM_STUDIO, Place, small_text

_SKIPPED = frozenset({".git", ".partial", ".locks", "node_modules", "__pycache__"})
_HUB_REPO = re.compile(r"models--(.+?)--(.+)")
_DIGEST = re.compile(r"sha256[:-]([0-9a-f]{64})")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_OLLAMA_KINDS = ("model", "projector", "adapter")
_LARGEST_MANIFEST = 2**20
_GENERIC = re.compile(r"(?:ggml-)?(?:model|weights|gguf)(?:[-_.](.+))?", re.IGNORECASE)
_PART = re.compile(r"-\d{5}-of-\d{5}$")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that may be a model.

    Attributes:
        path: the file, or a link to it.
        program: whose folder it was found in; "" for the user's own.
        title: what that program calls it: "OWNER/REPO", "NAME:TAG"; "" where it has no name but the file's.
        name: the most telling of its names.
        sha256: of its bytes, where its name tells; "" where not.
    """

    path: Path
    program: str
    title: str
    name: str
    sha256: str = ""


@dataclass
class Walk:
    """One look through several folders.

    Attributes:
        notes: what was left out and why, a sentence each.
    """

    notes: list[str] = field(default_factory=list)
    _seen: set[tuple[int, int]] = field(default_factory=set)

    def candidates(self, place: Place) -> Iterator[Candidate]:
        """Every file of a folder that may be a model."""
        pending = [place.folder]
        while pending:
            folder = pending.pop()
            entries = self._entries(folder)
            folders = {entry.name for entry in entries if _is_folder(entry)}
            if {"manifests", "blobs"} <= folders:
                yield from self._ollama(place, folder)
                folders -= {"manifests", "blobs"}
            elif _HUB_REPO.fullmatch(folder.name) and "snapshots" in folders:
                yield from self._hub(place, folder)
                folders.clear()
            pending += [folder / name for name in sorted(folders - _SKIPPED, reverse=True)]
            prefixes = _downloaded_prefixes(entries)
            for entry in entries:
                if entry.name not in folders and _is_gguf(entry.name) and not _is_folder(entry):
                    yield _plain(place, folder / entry.name, prefixes)

    def _entries(self, folder: Path) -> list[os.DirEntry[str]]:
        """What is in a folder, by name; nothing for one that was seen, or that cannot be read."""
        try:
            status = folder.stat()
            if (status.st_dev, status.st_ino) in self._seen:
                return []
            self._seen.add((status.st_dev, status.st_ino))
            with os.scandir(folder) as entries:
                return sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            self.notes.append(f"{folder} was left out: it cannot be read ({error.strerror or error}).")
            return []

    def _hub(self, place: Place, repo: Path) -> Iterator[Candidate]:
        """The files of a repository in the hub's cache, each at its newest revision."""
        match = _HUB_REPO.fullmatch(repo.name)
        title = f"{match[1]}/{match[2]}" if match else repo.name
        taken: set[Path] = set()
        for snapshot in self._revisions(repo):
            pending = [snapshot]
            while pending:
                folder = pending.pop()
                for entry in self._entries(folder):
                    path = folder / entry.name
                    if _is_folder(entry):
                        if not entry.is_symlink():
                            pending.append(path)
                        continue
                    within = path.relative_to(snapshot)
                    if not _is_gguf(entry.name) or within in taken:
                        continue
                    taken.add(within)
                    sha256 = self._blob(path, repo.parent)
                    if sha256 is not None:
                        yield Candidate(path, place.program, title, path.stem, sha256)

    def _revisions(self, repo: Path) -> list[Path]:
        """Its snapshots, that of the main branch first, then from new to old."""
        main = small_text(repo / "refs" / "main")
        found = []
        for entry in self._entries(repo / "snapshots"):
            if _is_folder(entry) and not entry.is_symlink():
                try:
                    age = entry.stat().st_mtime
                except OSError:
                    age = 0.0
                found.append((entry.name == main, age, repo / "snapshots" / entry.name))
        return [path for *_, path in sorted(found, reverse=True)]

    def _blob(self, path: Path, cache: Path) -> str | None:
        """The hash in the name of what a link leads to, "" if none; None for one that leaves the cache."""
        try:
            target = path.resolve()
            inside = target.is_relative_to(cache.resolve())
        except (OSError, RuntimeError):
            return ""
        if not inside:
            self.notes.append(f"{path} was left out: it is a link that leads out of the cache.")
            return None
        return target.name if _SHA256.fullmatch(target.name) else ""

    def _ollama(self, place: Place, folder: Path) -> Iterator[Candidate]:
        """The models that Ollama's manifests name."""
        pending = [folder / "manifests"]
        while pending:
            current = pending.pop()
            for entry in self._entries(current):
                path = current / entry.name
                if _is_folder(entry):
                    pending.append(path)
                elif len(path.relative_to(folder / "manifests").parts) > 2:
                    yield from self._manifest(place, folder, path)

    def _manifest(self, place: Place, folder: Path, manifest: Path) -> Iterator[Candidate]:
        try:
            layers = _layers(manifest)
        except (OSError, ValueError, TypeError, RecursionError):
            self.notes.append(f"{manifest} was left out: it is not a manifest of Ollama's.")
            return
        name, tag = manifest.parent.name, manifest.name
        for kind, sha256 in layers:
            # The name on the disk has had both forms.
            paths = [folder / "blobs" / f"sha256{mark}{sha256}" for mark in "-:"]
            path = next((one for one in paths if os.path.lexists(one)), paths[0])
            suffix = "" if kind == "model" else f"-{kind}"
            plain = re.sub(r"-gguf$", "", name, flags=re.IGNORECASE)
            yield Candidate(path, place.program, f"{name}:{tag}", f"{plain}-{tag}{suffix}", sha256)


def _layers(manifest: Path) -> list[tuple[str, str]]:
    """Kind and hash of each layer with weights; raises `ValueError`, `TypeError` for what is no manifest."""
    data: Any = json.loads(small_text(manifest, _LARGEST_MANIFEST))
    layers = data.get("layers") if isinstance(data, dict) else None
    if not isinstance(layers, list):
        raise TypeError("no layers")
    found = []
    for layer in layers:
        kind = str(layer.get("mediaType", "")).rpartition("image.")[2] if isinstance(layer, dict) else ""
        digest = _DIGEST.fullmatch(str(layer.get("digest", ""))) if kind in _OLLAMA_KINDS else None
        if digest:
            found.append((kind, digest[1]))
    return found


def _plain(place: Place, path: Path, prefixes: tuple[str, ...]) -> Candidate:
    parts = path.relative_to(place.folder).parts
    title = "/".join(parts[:2]) if place.program == LM_STUDIO and len(parts) > 2 else ""
    name = path.stem
    for prefix in prefixes:
        if name.startswith(prefix) and len(name) > len(prefix):
            title, name = prefix.rstrip("_").replace("_", "/", 1), name[len(prefix) :]
            break
    generic = _GENERIC.fullmatch(_PART.sub("", name))
    if generic:
        # "model.gguf" says less than the folder that it lies in.
        name = f"{path.parent.name}-{generic[1]}" if generic[1] else path.parent.name
    return Candidate(path, place.program, title, name)


def _downloaded_prefixes(entries: list[os.DirEntry[str]]) -> tuple[str, ...]:
    """What llama.cpp puts before the names of files that it fetched: their repositories, by its manifests."""
    found = []
    for entry in entries:
        parts = entry.name.removesuffix(".json").split("=")
        if len(parts) == 4 and parts[0] == "manifest":
            found.append(f"{parts[1]}_{parts[2]}_")
    return tuple(sorted(set(found), key=len, reverse=True))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        # A link in a circle, or into a folder that may not be searched.
        return False


def _is_gguf(name: str) -> bool:
    return name.lower().endswith(".gguf")
