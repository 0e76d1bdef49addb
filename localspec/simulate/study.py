"""Many recorded replies through many drafters: what `localspec simulate` does."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

from localspec.control import Controller, LiveCost, Off, make_controller
from localspec.cost import CostCurve
from localspec.drafters import DEFAULT_LENGTH, LONGEST, METHODS, Drafter, Needs, check_spec, make_drafter
from localspec.errors import LocalspecError, UsageError
from localspec.model_choice import resolve_draft
from localspec.simulate.inputs import Recording
from localspec.simulate.replay import Simulated, replay
from localspec.types import DraftOptions

if TYPE_CHECKING:
    from localspec.memory.memory import Memory

NO_DRAFTS = "none"
FIXED = "fixed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One drafter on all replies.

    Attributes:
        options: the drafter and its settings.
        remembered: whether it was given a memory of the replies before each one.
        replies: what became of each recording, in their order.
    """

    options: DraftOptions
    remembered: bool
    replies: tuple[Simulated, ...]


def configurations(
    specs: Sequence[str],
    lengths: Sequence[int],
    leaves: Sequence[int],
    ngrams: Sequence[tuple[int, int, str, int]],
    policies: Sequence[str] = (),
) -> list[DraftOptions]:
    """Every combination that differs: lengths mean nothing without drafts, n-gram settings only to n-grams.

    Args:
        specs: values of `--draft`.
        lengths: draft tokens a step at most, each of them fixed.
        leaves: branches at most.
        ngrams: shortest and longest match, pick and min hits of n-gram drafts.
        policies: values of `--policy`, each beside the lengths.

    Raises:
        UsageError: one that cannot be used, or needs a model.
    """
    found: dict[DraftOptions, None] = {}
    chosen = [*((length, FIXED) for length in lengths), *((None, policy) for policy in policies)]
    for spec, (length, policy), most, ngram in product(specs, chosen, leaves, ngrams):
        options = DraftOptions(spec)
        if spec != NO_DRAFTS:
            options = DraftOptions(spec, length, leaves=most, policy=policy)
        if spec == "ngram":
            shortest, longest, pick, min_hits = ngram
            options = replace(
                options, ngram_min=shortest, ngram_max=longest, ngram_pick=pick, ngram_min_hits=min_hits
            )
        _check(options)
        found.setdefault(options)
    return list(found)


def simulate(
    recordings: Sequence[Recording],
    options: DraftOptions,
    cost: CostCurve,
    *,
    memory: bool = True,
    ends: Collection[int] = (),
) -> Outcome:
    """Replay every recording, in order, through one drafter.

    Args:
        recordings: what was said.
        options: the drafter, see `configurations`.
        cost: T(n) in seconds.
        memory: whether a drafter that remembers is given the replies that came before.
        ends: tokens that end a reply.
    """
    drafter, store = _made(options, memory=memory)
    controller = _controller(options, cost)
    replies = []
    try:
        for recording in recordings:
            if store is not None:
                store.begin(recording.conversation, recording.prompt)
            controller.begin()
            replies.append(replay(recording.prompt, recording.reply, drafter, controller, cost, ends=ends))
            if store is not None:
                store.add(recording.reply, recording.conversation)
        return Outcome(options, store is not None, tuple(replies))
    finally:
        drafter.close()


def _controller(options: DraftOptions, cost: CostCurve) -> Controller:
    """One for all replies, as in a chat: what it learns in one serves the next."""
    if options.spec == NO_DRAFTS:
        return Off()
    longest = options.length or (DEFAULT_LENGTH if options.policy == FIXED else LONGEST)
    return make_controller(options.policy, LiveCost(cost, cost(1)), longest=longest, leaves=options.leaves)


def _made(options: DraftOptions, *, memory: bool) -> tuple[Drafter, Memory | None]:
    """A drafter, with a memory of its own where it remembers."""
    drafter = make_drafter(options)
    if not (memory and drafter.remembers):
        return drafter, None
    from localspec.memory.memory import Memory

    drafter.close()
    remembered = Memory()
    return make_drafter(options, remembered), remembered


def _check(options: DraftOptions) -> None:
    """Raise `UsageError` for what cannot be used without a model."""
    try:
        check_spec(options)
    except UsageError as error:
        if options.spec in METHODS or not _is_model(options.spec):
            raise
        raise UsageError(_needs_model(options.spec)) from error
    drafter = make_drafter(options)
    needs = drafter.needs
    drafter.close()
    if needs is not Needs.TOKENS:
        raise UsageError(_needs_model(options.spec))


def _is_model(spec: str) -> bool:
    if spec.endswith(".gguf"):
        return True
    try:
        resolve_draft(spec)
    except (LocalspecError, OSError):
        # Such as a name too long for a file.
        return False
    return True


def _needs_model(spec: str) -> str:
    return (
        f"--draft {spec} needs a model, and a simulation has none; choose among {', '.join(_model_free())}."
    )


def _model_free() -> Iterator[str]:
    return (spec for spec in METHODS if spec != NO_DRAFTS)
