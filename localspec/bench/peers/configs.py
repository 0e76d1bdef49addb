"""Every way that llama-server can draft, with settings that do it justice."""

from __future__ import annotations

import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from localspec.errors import LocalspecError, PeerError, UsageError
from localspec.models.gguf import GGUFHeader, read_header

PLAIN = "plain"

_NEEDS = {
    "draft-simple": "a smaller model with the same vocabulary",
    "draft-eagle3": "an EAGLE-3 head for this model",
    "draft-mtp": "a model with multi-token-prediction heads, or a file of them",
    "draft-dflash": "a DFlash head for this model",
    "draft-dspark": "a DSpark head for this model",
}
_HEAD_ARCHITECTURES = ("eagle3", "dflash", "gemma4-assistant")


@dataclass(frozen=True, slots=True)
class PeerConfig:
    """One configuration of llama-server.

    Attributes:
        name: what rows show, such as "ngram-mod 4/2-16".
        spec_type: value of llama-server's `--spec-type`.
        settings: (name below `CommonParams.speculative`, value) pairs.
    """

    name: str
    spec_type: str
    settings: tuple[tuple[str, int | float], ...] = ()

    @property
    def speculates(self) -> bool:
        """Whether it drafts at all."""
        return self.spec_type != "none"

    @property
    def needs(self) -> str | None:
        """What file it needs beside the model; None for those that draft from the text alone."""
        return _NEEDS.get(self.spec_type)


def _map(kind: str, key: int, draft: int) -> PeerConfig:
    field = kind.replace("-", "_")
    settings = ((f"{field}.size_n", key), (f"{field}.size_m", draft), (f"{field}.min_hits", 1))
    return PeerConfig(f"{kind} {key}/{draft}", kind, settings)


def _mod(match: int, shortest: int, longest: int) -> PeerConfig:
    settings = (("ngram_mod.n_match", match), ("ngram_mod.n_min", shortest), ("ngram_mod.n_max", longest))
    return PeerConfig(f"ngram-mod {match}/{shortest}-{longest}", "ngram-mod", settings)


def _model(kind: str, longest: int, least: float = 0.0) -> PeerConfig:
    name = f"{kind} {longest}/{least:g}" if least else f"{kind} {longest}"
    return PeerConfig(name, kind, (("draft.n_max", longest), ("draft.n_min", 0), ("draft.p_min", least)))


# llama-server's defaults come first: n-grams of 12 and drafts of 48, mod 24/48-64, 3 tokens of a draft
# model. They suit long literal repeats, so each n-gram type has a second row for short ones, and a draft
# model one with longer drafts that end where its own confidence does, once llama.cpp's default. The lengths
# of the heads are from llama.cpp's documentation; a block drafter takes no more than its trained block.
_ALL = (
    PeerConfig(PLAIN, "none"),
    _map("ngram-simple", 12, 48),
    _map("ngram-simple", 3, 8),
    _map("ngram-map-k", 12, 48),
    _map("ngram-map-k", 3, 8),
    _map("ngram-map-k4v", 12, 48),
    _map("ngram-map-k4v", 3, 8),
    _mod(24, 48, 64),
    _mod(4, 2, 16),
    PeerConfig("ngram-cache", "ngram-cache"),
    _model("draft-simple", 3),
    _model("draft-simple", 16, 0.75),
    _model("draft-eagle3", 3),
    _model("draft-mtp", 3),
    _model("draft-dflash", 15),
    _model("draft-dspark", 7),
)

SPEC_CONFIGS: Mapping[str, PeerConfig] = MappingProxyType({config.name: config for config in _ALL})
"""Configurations by name: plain decoding, and every draft type of llama-server."""


def peer_configs(include: Sequence[str] | None = None) -> tuple[PeerConfig, ...]:
    """The configurations to run, plain decoding first: what the others are compared with.

    Args:
        include: names of configurations or of whole types ("ngram-mod", "eagle3"); "all" or None takes all.

    Raises:
        UsageError: an unknown name.
    """
    if include is None:
        return _ALL
    chosen = {PLAIN}
    for name in include:
        found = [
            c.name for c in _ALL if name in ("all", c.name, c.spec_type, c.spec_type.removeprefix("draft-"))
        ]
        if not found:
            types = dict.fromkeys(config.spec_type for config in _ALL if config.speculates)
            raise UsageError(f"llama-server has no configuration '{name}'; use all, {', '.join(types)}.")
        chosen.update(found)
    return tuple(config for config in _ALL if config.name in chosen)


def draft_file(config: PeerConfig, model: Path, draft: Path | None) -> Path | None:
    """The file that llama-server has to load as its draft, checked before native code sees it.

    Given a wrong file, llama-server aborts, or decodes plainly and says so in its log alone.

    Args:
        config: what is to run.
        model: the target's file.
        draft: the draft model or head that the user gave.

    Returns:
        None where the configuration needs no second file.

    Raises:
        PeerError: a file that cannot be read; one that is missing or is not what the configuration needs.
    """
    target = _header(model)
    if config.needs is None:
        return None
    if config.spec_type == "draft-mtp":
        # A draft model of another kind may have been given for the other rows.
        if draft is not None and _has_mtp(_header(draft)):
            return draft
        if _has_mtp(target):
            return None
        raise PeerError(f"draft-mtp needs {config.needs}, and {model.name} has none.")
    if draft is None:
        raise PeerError(f"{config.spec_type} needs {config.needs}; none was given.")
    header = _header(draft)
    if not _fits(config.spec_type, header):
        raise PeerError(
            f"{config.spec_type} needs {config.needs}; {draft.name} is of architecture "
            f"'{header.architecture}'."
        )
    return draft


def chosen_draft(config: PeerConfig, files: Sequence[Path]) -> Path | None:
    """Of several draft models and heads the first one that suits `config`, else the first: see `draft_file`.

    Raises:
        PeerError: a file that cannot be read.
    """
    if config.needs is None:
        return None
    for file in files:
        header = _header(file)
        # A file with prediction heads may be nothing else.
        if _fits(config.spec_type, header) and not (config.spec_type == "draft-simple" and _has_mtp(header)):
            return file
    return files[0] if files else None


def _fits(spec_type: str, header: GGUFHeader) -> bool:
    if spec_type == "draft-simple":
        return header.architecture not in _HEAD_ARCHITECTURES
    if spec_type == "draft-mtp":
        return _has_mtp(header)
    if spec_type == "draft-eagle3":
        return header.architecture == "eagle3"
    return header.architecture == "dflash" and _has_markov_head(header) == (spec_type == "draft-dspark")


def _header(path: Path) -> GGUFHeader:
    try:
        return read_header(path)
    except LocalspecError as error:
        raise PeerError(str(error)) from error


def _has_mtp(header: GGUFHeader) -> bool:
    heads = header.metadata.get(f"{header.architecture}.nextn_predict_layers", 0)
    return header.architecture == "gemma4-assistant" or (isinstance(heads, int) and heads > 0)


def _has_markov_head(header: GGUFHeader) -> bool:
    """Both block drafters call themselves "dflash"; a tensor, named before the first one's data, tells."""
    with header.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return data.find(b"markov_w1.weight", 0, header.file_bytes - header.tensor_bytes) >= 0
