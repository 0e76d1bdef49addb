"""What can be chosen to draft, and what a choice stands for. Reads files; for a thread."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path

from localspec import model_choice
from localspec.drafters import METHODS, members_of, models_of
from localspec.errors import IncompatibleError, LocalspecError
from localspec.model_files import draft_label, resolve_drafts, with_files
from localspec.models import registry, store
from localspec.models.compat import MOST_EXTRA, check_draft_file, check_target_file
from localspec.models.disk import readable_size
from localspec.models.entries import HEADS
from localspec.models.gguf import GGUFHeader, read_header
from localspec.models.heads import check_head, head_note, head_of
from localspec.models.registry import Resolved
from localspec.types import DraftOptions
from tui.model_rows import same_file

FAMILIAR = {
    "none": ("Off", "no drafts: plain decoding"),
    "auto": ("Automatic", "what pays best without a further model"),
    "suffix": ("Suffix", "goes on as this chat and earlier replies went on"),
    "ngram": ("N-gram", "goes on as the text went on after the same few words"),
}
"""Methods that everybody can choose; others stay with the command line."""


_READS = "reads the model's hidden states"


@dataclass(frozen=True, slots=True)
class Choice:
    """A row of a list.

    Attributes:
        id: what is chosen.
        title: its name.
        facts: a line about it.
        refusal: why it cannot be chosen, and what would do; "" where it can.
        current: whether it is what there is now.
    """

    id: str
    title: str
    facts: str
    refusal: str = ""
    current: bool = False


def draft_choices(target: Path, current: str) -> list[Choice]:
    """Methods, then heads and models that are here, alone and behind the suffix drafter; unusable ones last.

    Args:
        target: file of the model that is drafted for.
        current: the drafter of now, a value of `--draft`.

    Raises:
        LocalspecError: the target's file or a registry cannot be read.
    """
    header = read_header(target)
    found = [Choice(spec, title, facts) for spec, (title, facts) in FAMILIAR.items()]
    if current in METHODS and current not in FAMILIAR:
        found.append(Choice(current, current, "chosen on the command line"))
    refused: list[tuple[str, str]] = []
    for name, path in {**_heads(target), **_installed(current, target)}.items():
        if path is None:
            refused.append((name, "it is not fetched yet"))
            continue
        try:
            facts = _fit(name, read_header(path), header)
        except LocalspecError as error:
            refused.append((name, _why(error, path)))
            continue
        title = _title(name)
        found.append(Choice(name, title, facts))
        found.append(Choice(f"suffix+{name}", f"Suffix + {title}", "the model where no match pays more"))
    known = {choice.id for choice in found}
    if current not in known and len(members_of(current)) > 1:
        found.append(Choice(current, draft_label(current), "chosen on the command line"))
    instead = _instead(found, target)
    found += [Choice(name, _title(name), "", f"{why}; {instead}") for name, why in refused]
    return [replace(choice, current=choice.id == current) for choice in found]


def chosen_draft(spec: str, options: DraftOptions, target: Path | None) -> DraftOptions:
    """`options` with the drafter `spec` for the model whose file is `target`, None where that is not known.

    Raises:
        LocalspecError: its files are gone, or the model has no such head.
    """
    model = None if target is None else model_choice.known_file(target)
    return with_files(replace(options, spec=spec), resolve_drafts(spec, model))


def chosen_model(name: str) -> Resolved:
    """What a choice or a name stands for; raises `LocalspecError` where it is gone, or is no model."""
    found = model_choice.resolve(name)
    if found.path is not None:
        check_target_file(read_header(found.path))
    return found


def _heads(target: Path) -> dict[str, Path | None]:
    """Heads that were made for a model, by what `--draft` calls them, and their files where they are here."""
    return {
        head.member: head.resolved.path for head in model_choice.heads_of(model_choice.known_file(target))
    }


def _installed(current: str, target: Path) -> dict[str, Path | None]:
    """Models whose files are here, by name; those that draft now are among them."""
    entries = registry.entries().values()
    files = {entry.name: store.fetched(entry) for entry in entries if not entry.head}
    for name in models_of(current):
        if name not in files:
            with contextlib.suppress(LocalspecError):
                files[name] = resolve_drafts(name, model_choice.known_file(target))[name].path
    return {name: path for name, path in files.items() if path is not None}


def _title(name: str) -> str:
    """What a head or a draft model is called in the list."""
    kind, _, rest = name.partition(":")
    if kind not in HEADS:
        return draft_label(name)
    return f"{HEADS[kind]} · {draft_label(rest)}" if rest else HEADS[kind]


def _fit(name: str, draft: GGUFHeader, target: GGUFHeader) -> str:
    """How a head or a model, which `--draft` calls `name`, can draft for another model, with its size.

    Raises:
        IncompatibleError: it cannot.
    """
    head = head_of(name, draft)
    if head is not None:
        check_head(head, target)
        made = "layers of the model itself" if head.in_model else readable_size(draft.file_bytes)
        return f"{made} · {head_note(head, draft, target) or _READS}"
    check_draft_file(draft, target=target)
    size = readable_size(draft.file_bytes)
    if not draft.fingerprint or not target.fingerprint:
        raise IncompatibleError(f"{draft.path.name} has no vocabulary of its own.")
    if draft.fingerprint == target.fingerprint:
        return f"{size} · same vocabulary"
    alike = (draft.tokenizer, draft.pre_tokenizer) == (target.tokenizer, target.pre_tokenizer)
    if alike and abs(draft.vocabulary - target.vocabulary) <= MOST_EXTRA:
        return f"{size} · much the same vocabulary"
    return f"{size} · another vocabulary: drafts go through text, which is slower"


def _why(error: LocalspecError, path: Path) -> str:
    """The reason of an error, without the file's name; what comes after it is for the command line."""
    reason = str(error).partition(";")[0].rstrip(".")
    before, colon, after = reason.partition(": ")
    if colon and before.startswith(path.name):
        return after
    return reason.removeprefix(f"{path.name} ")


def _instead(usable: list[Choice], target: Path) -> str:
    """What would do where a model would not."""
    models = [choice for choice in usable if choice.id not in METHODS and not choice.id.startswith("suffix+")]
    same = [choice for choice in models if choice.facts.endswith("same vocabulary")]
    if same or models:
        return f"{(same or models)[0].title} would do"
    family, size = "", target.stat().st_size if target.is_file() else 0
    entries = registry.entries().values()
    for entry in entries:
        path = store.fetched(entry)
        if path is not None and same_file(path, target):
            family = entry.family
    smaller = [one for one in entries if family and one.family == family and one.size and one.size < size / 2]
    if smaller:
        return f"{min(smaller, key=lambda one: one.size or 0).name} would do, once it is fetched"
    return "a copy of few bits would do: `localspec models quantize`"
