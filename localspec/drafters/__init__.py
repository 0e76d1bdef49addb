"""Drafting methods: one file each, and one line in the registry below."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from localspec.drafters.base import Drafter, Needs
from localspec.drafters.cascade import CascadeDrafter
from localspec.drafters.ngram import NgramDrafter, check_lengths
from localspec.drafters.ngram_pick import check_pick
from localspec.drafters.none import NoDrafter
from localspec.drafters.suffix import SuffixDrafter
from localspec.drafters.suffix_arctic import ArcticDrafter
from localspec.errors import UsageError
from localspec.trees import MAX_LEAVES
from localspec.types import DraftOptions

if TYPE_CHECKING:
    from localspec.memory.memory import Memory

__all__ = [
    "DEFAULT_LENGTH",
    "LONGEST",
    "METHODS",
    "Drafter",
    "Needs",
    "check_spec",
    "has_probs",
    "make_drafter",
    "members_of",
    "models_in",
    "models_of",
    "remembers",
]

METHODS: dict[str, Callable[[DraftOptions, Memory | None], Drafter]] = {
    # Every maker takes the options and the memory of earlier replies, whether it uses them or not.
    "none": lambda options, memory: NoDrafter(),  # noqa: ARG005
    "ngram": lambda options, memory: NgramDrafter(  # noqa: ARG005
        options.ngram_min, options.ngram_max, options.ngram_pick, options.ngram_min_hits
    ),
    "suffix": lambda options, memory: SuffixDrafter(memory),  # noqa: ARG005
    # What pays best on most texts without a further model; its drafts carry the name of their own source.
    "auto": lambda options, memory: SuffixDrafter(memory),  # noqa: ARG005
    "suffix:arctic": lambda options, memory: ArcticDrafter(memory),  # noqa: ARG005
}

DEFAULT_LENGTH = 8
"""Draft tokens a step of a fixed length where the user gives no `--draft-length`."""

_TAKES_COMPANIONS = "auto"
"""Whoever names a drafter gets that one; left to itself, localspec takes what is installed."""

LONGEST = 48
"""Draft tokens a step at most where a policy chooses and the user gives no `--draft-length`."""


def members_of(spec: str) -> tuple[str, ...]:
    """The drafters that a value of `--draft` names, joined by "+", which may be a part of a path too."""
    members: list[str] = []
    for part in spec.split("+"):
        if members and "/" in members[-1] and not members[-1].endswith(".gguf"):
            members[-1] += f"+{part}"
        else:
            members.append(part)
    return tuple(members)


def models_of(spec: str) -> tuple[str, ...]:
    """Those members of `spec` that are no method: draft models."""
    return tuple(member for member in members_of(spec) if member not in METHODS)


def models_in(options: DraftOptions) -> tuple[str, ...]:
    """All draft models of `options`: those that it asks for, and those that may join them."""
    joining = options.companions if options.spec == _TAKES_COMPANIONS else ()
    return (*models_of(options.spec), *joining)


def check_spec(options: DraftOptions) -> None:
    """Raise `UsageError` for a value of `--draft` or of its settings that cannot be used."""
    members = members_of(options.spec)
    for member in members:
        if member not in METHODS and member not in options.files:
            known = ", ".join(METHODS)
            raise UsageError(
                f"There is no drafting method '{member}'; use one of: {known}, or a model for drafts."
            )
    if len(members) > 1 and ("none" in members or len(set(members)) < len(members)):
        raise UsageError(
            f"The drafters of '{options.spec}' cannot be combined; name different ones, and none alone."
        )
    if options.length is not None and options.length < 1:
        raise UsageError("The draft length must be 1 or more; use --draft none to decode without drafts.")
    if not 1 <= options.leaves <= MAX_LEAVES:
        raise UsageError(f"A draft can have 1 to {MAX_LEAVES} branches, not {options.leaves}.")
    check_lengths(options.ngram_min, options.ngram_max)
    check_pick(options.ngram_pick, options.ngram_min_hits)


def remembers(spec: str) -> bool:
    """Whether a drafter of `spec` keeps what was said in earlier replies."""
    methods = (METHODS[member] for member in members_of(spec) if member in METHODS)
    return any(method(DraftOptions(), None).remembers for method in methods)


def has_probs(options: DraftOptions) -> bool:
    """Whether every draft of `options` comes with the distributions that its tokens are drawn from."""
    return not any(member in METHODS for member in members_of(options.spec))


def make_drafter(
    options: DraftOptions,
    memory: Memory | None = None,
    model: Callable[[str], Drafter] | None = None,
    companion: Callable[[str], Drafter | None] | None = None,
) -> Drafter:
    """The drafter that `options` names; raises `UsageError` for an unknown one.

    Args:
        options: which one, and its settings.
        memory: earlier replies, for methods that draft from them.
        model: makes the drafter of a member that is a draft model; None where there can be none.
        companion: the same for one that may join, or None if it cannot.
    """
    check_spec(options)
    made: list[Drafter] = []
    for member in members_of(options.spec):
        if member in METHODS:
            made.append(METHODS[member](options, memory))
        elif model is not None:
            made.append(model(member))
        else:
            raise UsageError(f"Draft models such as '{member}' cannot be used here; use another --draft.")
    if companion is not None and options.spec == _TAKES_COMPANIONS:
        made += [joined for name in options.companions if (joined := companion(name)) is not None]
    return made[0] if len(made) == 1 else CascadeDrafter(made)
