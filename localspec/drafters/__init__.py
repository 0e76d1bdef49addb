"""Drafting methods: one file each, and one line in the registry below."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from localspec.drafters.base import Drafter, Needs
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

WITH_PROBS: frozenset[str] = frozenset()
"""Methods that draw their tokens from distributions and hand these out as `Draft.probs`."""

DEFAULT_LENGTH = 8
"""Draft tokens a step of a fixed length where the user gives no `--draft-length`."""

LONGEST = 48
"""Draft tokens a step at most where a policy chooses and the user gives no `--draft-length`."""


def check_spec(options: DraftOptions) -> None:
    """Raise `UsageError` for a value of `--draft` or of its settings that cannot be used."""
    if options.spec not in METHODS:
        known = ", ".join(METHODS)
        raise UsageError(f"There is no drafting method '{options.spec}'; use one of: {known}.")
    if options.length is not None and options.length < 1:
        raise UsageError("The draft length must be 1 or more; use --draft none to decode without drafts.")
    if not 1 <= options.leaves <= MAX_LEAVES:
        raise UsageError(f"A draft can have 1 to {MAX_LEAVES} branches, not {options.leaves}.")
    check_lengths(options.ngram_min, options.ngram_max)
    check_pick(options.ngram_pick, options.ngram_min_hits)


def has_probs(options: DraftOptions) -> bool:
    """Whether the drafter that `options` names hands out the distributions its tokens are drawn from."""
    return options.spec in WITH_PROBS


def make_drafter(options: DraftOptions, memory: Memory | None = None) -> Drafter:
    """The drafter that `options` names; raises `UsageError` for an unknown one.

    Args:
        options: which one, and its settings.
        memory: earlier replies, for methods that draft from them.
    """
    check_spec(options)
    return METHODS[options.spec](options, memory)
