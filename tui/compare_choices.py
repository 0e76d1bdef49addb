"""What the sides of a comparison can be made of. Reads files; for a thread, not for the event loop."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from localspec.chat.comparisons import Comparisons, PastComparison, Way
from localspec.drafters import has_probs
from localspec.errors import NotFoundError, UsageError
from localspec.model_files import draft_label
from localspec.models.disk import readable_size
from localspec.types import DraftOptions
from localspec.verify import VERIFIERS, check_verify, is_exact, make_verifier, shares_noise
from tui import choices, figures
from tui.choices import Choice
from tui.compare_runs import Contender, OtherModel
from tui.compare_words import contender_name
from tui.conversation import title_of
from tui.keymap import KEYS
from tui.model_rows import read_shelf

TITLES = {
    "model": "which model?",
    "draft": "who drafts?",
    "length": "how much is drafted?",
    "verify": "which drafts count?",
}

LENGTHS = (1, 2, 4, 8, 16, 32)
"""Fixed draft lengths that are offered."""

AUTOMATIC = "auto"

OWN = "chat"
"""The choice of the chat's own model."""


def parts(contender: Contender) -> list[Choice]:
    """What a side is made of, as a list to choose from."""
    draft = contender.draft
    drafter = choices.FAMILIAR.get(draft.spec, (draft_label(draft.spec), ""))[0]
    length = str(draft.length) if _is_fixed(draft) else "automatic"
    model = contender.model.name if contender.model else "the chat's"
    return [
        Choice("model", f"Model: {model}", "another one is loaded for its turns, and the chat's again after"),
        Choice("draft", f"Drafter: {drafter}", "who guesses the next tokens"),
        Choice("length", f"Draft length: {length}", "tokens a guess has"),
        Choice("verify", f"Rule: {contender.verify}", "how guesses are judged"),
    ]


def part_choices(part: str, contender: Contender, target: Path) -> list[Choice]:
    """What a part can be.

    Args:
        part: a key of `TITLES`.
        contender: the side as it is.
        target: file of the chat's model.

    Raises:
        LocalspecError: the file or a registry cannot be read.
    """
    match part:
        case "model":
            return _models(contender, target)
        case "draft":
            file = contender.model.path if contender.model else target
            return choices.draft_choices(file, contender.draft.spec)
        case "length":
            return _lengths(contender.draft)
        case _:
            return [_rule(name, contender) for name in VERIFIERS]


def with_part(contender: Contender, part: str, chosen: str, target: Path | None) -> Contender:
    """`contender` with another part; raises `LocalspecError` where its files are gone.

    `target` is the file of the chat's model.
    """
    draft = contender.draft
    match part:
        case "model":
            found = _model_of(chosen) if chosen != OWN else None
            # What drafts for one model may not do so for another.
            plain = draft if not draft.files else replace(draft, spec="auto", files={})
            changed = replace(contender, model=found, draft=plain)
        case "draft":
            file = contender.model.path if contender.model else target
            changed = replace(contender, draft=choices.chosen_draft(chosen, draft, file))
        case "length" if chosen == AUTOMATIC:
            changed = replace(contender, draft=replace(draft, length=None, policy="cost"))
        case "length":
            changed = replace(contender, draft=replace(draft, length=int(chosen), policy="fixed"))
        case _:
            changed = replace(contender, verify=chosen)
    return changed if not _refusal(changed.verify, changed) else replace(changed, verify="coupled")


def past_choices(past: Comparisons) -> list[Choice]:
    """Earlier comparisons, newest first; raises `StorageError`."""
    found = [_past(one) for one in past.newest()]
    return found or [Choice("", "There are none yet.", "", "each one that comes to its end is kept")]


def contenders_of(past: PastComparison, target: Path | None) -> tuple[Contender, Contender]:
    """The two sides of an earlier comparison; raises `LocalspecError` where a draft model is gone.

    `target` is the file of the chat's model.
    """
    one, other = (_contender(way, target) for way in past.ways)
    return one, other


def _lengths(draft: DraftOptions) -> list[Choice]:
    fixed = _is_fixed(draft)
    automatic = Choice(
        AUTOMATIC, "Automatic", "as many as pay, decided step by step from measured times", "", not fixed
    )
    return [
        automatic,
        *(
            Choice(str(length), f"{length}", "every time", "", fixed and draft.length == length)
            for length in LENGTHS
        ),
    ]


def _rule(name: str, contender: Contender) -> Choice:
    if not is_exact(name):
        facts = "lossy: may say what the model would not"
    elif shares_noise(make_verifier(name)):
        facts = "exact: the text of a seed, whatever is drafted"
    else:
        facts = "exact: the model's distribution; the text may differ"
    return Choice(name, name, facts, _refusal(name, contender), name == contender.verify)


def _refusal(rule: str, contender: Contender) -> str:
    draft = contender.draft
    if draft.spec == "none":
        return ""
    try:
        check_verify(rule, drafter=draft.spec, has_probs=has_probs(draft))
    except UsageError as error:
        return str(error).partition(";")[0]
    return ""


def _past(one: PastComparison) -> Choice:
    sides = ", ".join(f"{_name(way)} {figures.rate(way.tokens_per_second)}" for way in reversed(one.ways))
    text = "same text" if one.identical else f"parted {one.parted}"
    if one.ways[0].model != one.ways[1].model:
        text = "two models"
    when = time.strftime("%d %b %H:%M", time.localtime(one.time))
    facts = f"{figures.times(one.ratio)} · {sides} tok/s · {text} · {when} · {one.model}"
    return Choice(one.id, title_of(one.prompt), facts)


def _name(way: Way) -> str:
    return " · ".join(part for part in (way.model, contender_name(_shape(way))) if part)


def _models(contender: Contender, own: Path) -> list[Choice]:
    """The chat's model, and others that are here; what has to be fetched first is for the models screen."""
    now = contender.model
    found = [Choice(OWN, "The chat's model", own.stem, "", now is None)]
    for row in read_shelf(own, None).installed:
        if row.path is None or row.current:
            continue
        facts = readable_size(row.size) if row.size else ""
        found.append(Choice(row.id, row.name, facts, "", now is not None and now.path == row.path))
    return found


def _model_of(name: str) -> OtherModel:
    """An installed model; raises `LocalspecError` where there is none of this name."""
    found = choices.chosen_model(name)
    if found.path is None:
        models = f"the models screen ({KEYS['chat.model']} in the chat)"
        raise NotFoundError(f"{name} is not here any more; fetch it on {models}.")
    return OtherModel(found.name, found.path)


def _shape(way: Way) -> Contender:
    """The way without the files of its draft models."""
    return Contender(DraftOptions(way.draft, way.length, policy=way.policy), way.verify)


def _contender(way: Way, target: Path | None) -> Contender:
    shape = _shape(way)
    if way.model:
        shape = replace(shape, model=_model_of(way.model))
    file = shape.model.path if shape.model else target
    return replace(shape, draft=choices.chosen_draft(way.draft, shape.draft, file))


def _is_fixed(draft: DraftOptions) -> bool:
    return draft.policy.partition(":")[0] == "fixed"
