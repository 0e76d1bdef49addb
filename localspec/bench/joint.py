"""Several sequences that take their steps together: one pass over the target for all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from localspec.control import Controller
from localspec.drafters import Drafter
from localspec.errors import PromptTooLongError, RollbackRefusedError, UsageError
from localspec.sampling import Sampler
from localspec.target import SequencesContext
from localspec.types import EMPTY_DRAFT, Budget, Draft, Outcome, StepStats, VerdictKind
from localspec.verify import Verifier


@dataclass(frozen=True, slots=True)
class Member:
    """One sequence: its prompt, and the parts of its step as a `Session` has them."""

    prompt: tuple[int, ...]
    drafter: Drafter
    controller: Controller
    verifier: Verifier
    sampler: Sampler


@dataclass(frozen=True, slots=True)
class JointStep:
    """One pass over several sequences.

    Attributes:
        stats: counters by number of the sequence. The time of the pass is split by rows and what belongs to
            no sequence evenly, so that the times of all add up to the step's wall time.
    """

    stats: Mapping[int, StepStats]

    @property
    def total_ns(self) -> int:
        """Wall time of the step."""
        return sum(stats.total_ns for stats in self.stats.values())


@dataclass(slots=True)
class _Part:
    """What a step does for one sequence."""

    position: int
    budget: int
    draft: Draft
    emitted: tuple[int, ...] = ()
    accepted: int = 0
    kind: VerdictKind = "bonus"
    draft_ns: int = 0
    verify_ns: int = 0
    sample_ns: int = 0


class ParallelSession:
    """Sequences over one cache that take their steps together.

    The invariant is a `Session`'s, for every sequence: between steps the cache holds all its tokens but the
    last one. A tree is cut to its best chain. Replies have a fixed number of tokens; tokens that end a
    generation do not end them.

    Args:
        context: the cache.
        clock: nanoseconds, monotonic.

    Attributes:
        tokens: token ids of every sequence, prompt included.
    """

    def __init__(self, context: SequencesContext, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self.context = context
        self.tokens: list[list[int]] = []
        self._members: tuple[Member, ...] = ()
        self._clock = clock

    def begin(self, members: Sequence[Member]) -> None:
        """Bring the cache to every prompt without its last token, decoding only what it does not hold yet.

        Raises:
            UsageError: more sequences than the context has, or an empty prompt.
            PromptTooLongError: the prompts together leave no room for a token of each.
            EngineError: a pass failed; the cache has been cleared.
        """
        context = self.context
        check_room(context, [member.prompt for member in members], 1)
        wanted = [member.prompt[:-1] for member in members]
        wanted += [()] * (context.sequences - len(members))
        with self._cleared_on_failure():
            self._reuse(wanted)
            for sequence, prompt in enumerate(wanted):
                for start in range(context.length(sequence), len(prompt), context.max_batch):
                    context.decode({sequence: prompt[start : start + context.max_batch]}, "none")
        self._members = tuple(members)
        self.tokens = [list(member.prompt) for member in members]
        for member, tokens in zip(members, self.tokens, strict=True):
            member.drafter.begin(tokens)

    def run(self, tokens_each: int) -> Iterator[JointStep]:
        """Extend every sequence by `tokens_each` tokens; one that has them leaves the batch.

        Raises:
            UsageError: the context has no room for that many.
            EngineError: a pass failed; the cache has been cleared.
        """
        check_room(self.context, self.tokens, tokens_each)
        goals = [len(tokens) + tokens_each for tokens in self.tokens]
        began = last = self._clock()
        index = 0
        while live := [number for number, goal in enumerate(goals) if len(self.tokens[number]) < goal]:
            with self._cleared_on_failure():
                parts = self._step({number: goals[number] - len(self.tokens[number]) for number in live})
            now = self._clock()
            accounted = sum(part.draft_ns + part.verify_ns + part.sample_ns for part in parts.values())
            # From the end of one step to the end of the next, so that no time between them is lost.
            rest = split(now - last - accounted, [1] * len(parts))
            stats = {
                number: self._stats(part, index, now - began, other_ns)
                for (number, part), other_ns in zip(parts.items(), rest, strict=True)
            }
            last = now
            index += 1
            for number, counted in stats.items():
                self._members[number].controller.update(counted)
            yield JointStep(stats)

    def _step(self, left: Mapping[int, int]) -> dict[int, _Part]:
        """Draft for each, decode all in one pass, verify, keep and commit for each.

        Args:
            left: for every sequence that takes part, the tokens that it still wants.
        """
        clock, context = self._clock, self.context
        mark = clock()
        parts: dict[int, _Part] = {}
        for number, budget in self._budgets(left).items():
            draft = self._propose(number, budget)
            now = clock()
            parts[number] = _Part(len(self.tokens[number]), budget.tokens, draft, draft_ns=now - mark)
            mark = now
        pieces = {number: [self.tokens[number][-1], *part.draft.tokens] for number, part in parts.items()}
        rows = context.decode(pieces, "all")
        now = clock()
        widths = [len(piece) for piece in pieces.values()]
        for part, share in zip(parts.values(), split(now - mark, widths), strict=True):
            part.verify_ns = share
        mark = now
        start = 0
        for (number, part), width in zip(parts.items(), widths, strict=True):
            member = self._members[number]
            verdict = member.verifier.verify(
                part.draft, rows[start : start + width], member.sampler, self.tokens[number]
            )
            part.emitted = (*(part.draft.tokens[node] for node in verdict.path), verdict.next_token)
            part.accepted, part.kind = len(verdict.path), verdict.kind
            start += width
            now = clock()
            part.sample_ns = now - mark
            mark = now
        for number, part in parts.items():
            self.tokens[number].extend(part.emitted)
            if context.length(number) != len(self.tokens[number]) - 1:
                context.keep(number, len(self.tokens[number]) - 1)
        mark = clock()
        for number, part in parts.items():
            self._members[number].drafter.commit(Outcome(part.emitted, part.accepted, len(part.draft)))
            now = clock()
            part.draft_ns += now - mark
            mark = now
        return parts

    def _budgets(self, left: Mapping[int, int]) -> dict[int, Budget]:
        """The controllers' budgets, cut to what may still be said and to the rows of one pass."""
        if not self.context.can_trim:
            return dict.fromkeys(left, Budget(0))
        asked = [self._members[number].controller.budget(self.tokens[number]) for number in left]
        # The target's own token needs room too.
        wishes = [
            max(0, min(budget.tokens, room - 1)) for budget, room in zip(asked, left.values(), strict=True)
        ]
        shares = share_out(wishes, widest(self.context) - len(left))
        return {
            number: Budget(share, budget.leaves)
            for number, share, budget in zip(left, shares, asked, strict=True)
        }

    def _propose(self, number: int, budget: Budget) -> Draft:
        if not budget.tokens:
            return EMPTY_DRAFT
        member = self._members[number]
        draft = member.controller.trim(member.drafter.propose(self.tokens[number], budget))
        return draft.best_chain().prefix(budget.tokens)

    def _stats(self, part: _Part, index: int, time_ns: int, other_ns: int) -> StepStats:
        return StepStats(
            index=index,
            time_ns=time_ns,
            position=part.position,
            budget=part.budget,
            drafted=len(part.draft),
            accepted=part.accepted,
            emitted=len(part.emitted),
            kind=part.kind,
            source=part.draft.source if len(part.draft) else "",
            match_length=part.draft.match_length,
            threads=self.context.threads,
            draft_ns=part.draft_ns,
            verify_ns=part.verify_ns,
            sample_ns=part.sample_ns,
            other_ns=other_ns,
        )

    def _reuse(self, wanted: Sequence[Sequence[int]]) -> None:
        """Trim every sequence of the cache to what it shares with `wanted`."""
        context = self.context
        known = [*self.tokens, *([] for _ in wanted[len(self.tokens) :])]
        try:
            for number, (mine, theirs) in enumerate(zip(known, wanted, strict=True)):
                context.keep(number, _shared(mine[: context.length(number)], theirs))
        except RollbackRefusedError:
            # A recurrent state cannot go back: start over.
            context.clear()

    @contextmanager
    def _cleared_on_failure(self) -> Iterator[None]:
        """Empty the cache when the block raises, since a failed pass leaves unknown content behind."""
        try:
            yield
        except BaseException:
            self.context.clear()
            self.tokens = []
            raise


def share_out(wishes: Sequence[int], amount: int) -> list[int]:
    """Split `amount` fairly: small wishes are met in full, and what they leave is shared by the others."""
    given = [0] * len(wishes)
    waiting = len(wishes)
    for place in sorted(range(len(wishes)), key=wishes.__getitem__):
        given[place] = min(wishes[place], amount // waiting)
        amount -= given[place]
        waiting -= 1
    return given


def split(amount: int, weights: Sequence[int]) -> list[int]:
    """Split `amount` by `weights` into integers whose sum is exactly `amount`."""
    whole, running, given = sum(weights), 0, 0
    shares = []
    for weight in weights:
        running += weight
        upto = amount * running // whole
        shares.append(upto - given)
        given = upto
    return shares


def check_room(context: SequencesContext, sequences: Sequence[Sequence[int]], tokens_each: int) -> None:
    """Raise a sentence where `sequences` cannot all be extended by `tokens_each` tokens.

    Raises:
        UsageError: too many sequences, none, one without tokens, or too many tokens to say.
        PromptTooLongError: there is no room even for one token more of each.
    """
    count, most = len(sequences), min(context.sequences, widest(context))
    if not 1 <= count <= most:
        raise UsageError(f"{count} sequences cannot share a batch here; this context takes 1 to {most}.")
    if not all(sequences):
        raise UsageError("A prompt has no tokens; every sequence of a batch needs some text.")
    if tokens_each < 1:
        raise UsageError(f"A sequence must be extended by 1 token or more, not {tokens_each}.")
    held = sum(map(len, sequences))
    if held + count > context.capacity:
        raise PromptTooLongError(
            f"{count} prompts in one batch have {held} tokens and the context holds {context.capacity}; "
            "raise --context or choose a smaller --parallel."
        )
    if held + count * tokens_each > context.capacity:
        raise UsageError(
            f"{count} sequences in one batch need {held + count * tokens_each} tokens of context and it "
            f"holds {context.capacity}; raise --context or choose a smaller --parallel."
        )


def widest(context: SequencesContext) -> int:
    """Tokens of one pass at most where rows of all of them are wanted."""
    return min(context.max_batch, context.max_rows)


def _shared(mine: Sequence[int], theirs: Sequence[int]) -> int:
    """Length of the common beginning."""
    for place, (one, two) in enumerate(zip(mine, theirs, strict=False)):
        if one != two:
            return place
    return min(len(mine), len(theirs))
