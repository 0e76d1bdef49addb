"""The files that an engine needs: a model's and its draft models', found by name, fetched where missing."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from localspec.drafters import METHODS, members_of, models_of
from localspec.errors import IncompatibleError, LocalspecError, NotFoundError, UsageError
from localspec.model_choice import companions_of, resolve_draft, resolve_head
from localspec.models import registry, store
from localspec.models.gguf import read_header
from localspec.models.heads import kind_named
from localspec.models.progress import OnProgress
from localspec.models.registry import Resolved
from localspec.models.sources import pull
from localspec.types import DraftOptions, EngineOptions


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """What an engine can be started with.

    Attributes:
        path: the target's file.
        options: how to load it; `draft.files` names the file of every draft model of `draft.spec`, and
            `draft.companions` those of installed ones that suit the target.
        notes: what users should know, such as a draft model that could not be fetched; a sentence each.
    """

    path: Path
    options: EngineOptions
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class WantedFiles:
    """A target and its draft models, of which some may have yet to be fetched.

    Attributes:
        model: the target.
        options: how it is to be loaded; see `with_files`.
        drafts: what each draft model of `options.draft.spec` stands for.
        notes: what users should know of it beforehand, such as which size of a family was chosen.
    """

    model: Resolved
    options: EngineOptions
    drafts: Mapping[str, Resolved] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the models that have to be fetched."""
        # A model's own prediction layers come with it.
        drafts = (one for one in self.drafts.values() if one.entry is None or one.entry != self.model.entry)
        return tuple(one.name for one in (self.model, *drafts) if one.path is None)

    def find(self, on_progress: OnProgress | None = None) -> ModelFiles:
        """All files, fetched where they are missing.

        A draft model that cannot be fetched is an error only where `options.needs_draft` says so; else it is
        left out, and a note tells why.

        Raises:
            DownloadError, ModelFileError, NotFoundError, StorageError: a file could not be fetched.
            UsageError: a path is not valid UTF-8, which llama.cpp needs.
        """
        path = file_of(self.model, on_progress)
        joining = {name: str(file) for name, file in companions_of(self.model, path).items()}
        options = replace(self.options, draft=replace(self.options.draft, companions=joining))
        notes = list(self.notes)
        for name, resolved in self.drafts.items():
            try:
                file_of(resolved, on_progress)
            except LocalspecError as error:
                if options.needs_draft:
                    raise
                draft = without(options.draft, name)
                notes.append(_goes_on(str(error), draft))
                options = replace(options, draft=draft)
        return ModelFiles(path, options, tuple(notes))


def file_of(resolved: Resolved, on_progress: OnProgress | None = None) -> Path:
    """A model's file, fetched where it is missing; raises like `WantedFiles.find`."""
    if resolved.path is not None or resolved.entry is None:
        path = Path(resolved.path or resolved.name)
    else:
        path = pull(resolved.entry, on_progress)
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"The path of the model's file is not valid UTF-8 ({path!a}); rename it first."
        ) from error
    return path


def resolve_drafts(spec: str, target: Resolved | None = None) -> dict[str, Resolved]:
    """What each draft model or head of a value of `--draft` stands for; headers of those present are read.

    Args:
        spec: the value.
        target: the model that they draft for, for members that name a kind of head alone; None where it is
            not known yet, and such members stand for no file.

    Raises:
        UsageError: a member that is neither a method nor a model; the nearest names are offered.
        NotFoundError: the path of a file that is not there.
        ModelFileError: a file that is no model.
    """
    found = {name: _resolved(name, target) for name in models_of(spec)}
    for resolved in found.values():
        if resolved.path is not None:
            # Before the engine starts: native code reports a broken file badly.
            read_header(resolved.path)
    return found


def usable_drafts(
    options: DraftOptions, target: Resolved, *, needed: bool
) -> tuple[DraftOptions, dict[str, Resolved], tuple[str, ...]]:
    """Options with the files of all members, what these stand for, and notes on what was left out.

    Args:
        options: the drafter and its settings.
        target: the model.
        needed: whether a head that the model does not have is an error; else it is left out. One that was set
            for all models need not suit this one.

    Raises:
        IncompatibleError: the model has no such head, and it is needed.
        UsageError, NotFoundError, ModelFileError: see `resolve_drafts`.
    """
    notes: list[str] = []
    for member in models_of(options.spec):
        try:
            resolve_drafts(member, target)
        except IncompatibleError as error:
            if needed:
                raise
            options = without(options, member)
            notes.append(_goes_on(str(error), options))
    drafts = resolve_drafts(options.spec, target)
    return with_files(options, drafts), drafts, tuple(notes)


def _goes_on(reason: str, options: DraftOptions) -> str:
    rest = "without drafts" if options.spec == "none" else f"with --draft {options.spec}"
    return f"{reason} The chat goes on {rest}."


def with_files(options: DraftOptions, drafts: Mapping[str, Resolved]) -> DraftOptions:
    """Options that name the file of every draft model: where it is, or will be once it is fetched."""
    files = {name: str(_place(resolved)) for name, resolved in drafts.items()}
    return replace(options, files=files)


def without(options: DraftOptions, name: str) -> DraftOptions:
    """Options that do without the member `name` of their drafters."""
    rest = [member for member in members_of(options.spec) if member != name]
    files = {member: path for member, path in options.files.items() if member != name}
    return replace(options, spec="+".join(rest) or "none", files=files)


def _place(resolved: Resolved) -> Path:
    if resolved.path is not None:
        return resolved.path.absolute()
    return store.final_path(resolved.entry) if resolved.entry is not None else Path(resolved.name)


def _resolved(name: str, target: Resolved | None) -> Resolved:
    kind = kind_named(name)
    if kind is not None:
        return resolve_head(kind, name.partition(":")[2], target)
    try:
        return resolve_draft(name)
    except NotFoundError as error:
        known = registry.catalogue()
        names = [*known.families, *known.models]
        base = name.rpartition(":")[0]
        if name.lower().endswith(".gguf") or "/" in name or known.family(base) or known.files_of(base):
            raise
        near = difflib.get_close_matches(name.lower(), [*METHODS, *names], n=1, cutoff=0.6)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise UsageError(
            f"There is no drafting method '{name}' and no model of that name{hint}; use one of: "
            f"{', '.join(METHODS)}, or a model, see `localspec models list`."
        ) from error


def draft_label(spec: str) -> str:
    """A value of `--draft` for people: files by their names, without folders and endings."""
    return "+".join(map(_label, members_of(spec)))


def short_draft_label(spec: str, longest: int = 20) -> str:
    """The same where there is little room: heads by their kind, models that take too much are "model"."""
    label = draft_label(spec)
    if len(label) <= longest:
        return label
    return "+".join(
        member if member in METHODS else kind_named(member) or "model" for member in members_of(spec)
    )


def _label(member: str) -> str:
    if not member.lower().endswith(".gguf"):
        return member
    kind = kind_named(member)
    return f"{kind}:{Path(member).stem}" if kind else Path(member).stem
