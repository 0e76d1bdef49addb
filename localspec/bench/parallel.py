"""Concurrency: several sequences decoded in one batch, each with drafts of its own.

A pass over many tokens is slower than one over few, and n sequences already bring n tokens. So the more
sequences share a pass, the less room is left for drafts to be verified at little cost: this measures how
much of the gain remains.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from localspec.bench.joint import JointStep, Member, ParallelSession, check_room
from localspec.bench.records import Counts, Timing
from localspec.bench.runs import counts_of, undisturbed
from localspec.control import FixedLength, Off
from localspec.drafters import DEFAULT_LENGTH, make_drafter
from localspec.errors import UsageError
from localspec.sampling import Sampler
from localspec.stats.metrics import NS, Tally
from localspec.target import SequencesContext
from localspec.testing import TranscriptVerifier
from localspec.types import DraftOptions, SamplingParams

PLAIN = DraftOptions(spec="none")
GREEDY = SamplingParams(temperature=0)


@dataclass(frozen=True, slots=True)
class ForcedText:
    """What one sequence says: token ids of a prompt and of the recorded reply that is forced upon it."""

    prompt: tuple[int, ...]
    reply: tuple[int, ...]


MemberFactory = Callable[[ForcedText], Member]
"""Makes the parts of a sequence anew, so that every run starts cold."""


def forced_member(text: ForcedText, draft: DraftOptions = PLAIN, sampling: SamplingParams = GREEDY) -> Member:
    """A sequence whose reply is forced, with drafts of a fixed length, or none."""
    plain = draft.spec == PLAIN.spec
    return Member(
        prompt=text.prompt,
        drafter=make_drafter(draft),
        controller=Off() if plain else FixedLength(draft.length or DEFAULT_LENGTH),
        verifier=TranscriptVerifier((*text.prompt, *text.reply)),
        sampler=Sampler(sampling),
    )


@dataclass(frozen=True, slots=True)
class ParallelResult:
    """Plain and speculative decoding of the same tokens with as many sequences in the batch.

    Attributes:
        baseline: plain decoding.
        timing: with drafts.
        counts: counters of the last run with drafts, over all sequences; a step counts once a sequence.
        lengths: draft tokens of each of these steps.
    """

    baseline: Timing
    timing: Timing
    counts: Counts
    lengths: tuple[int, ...]


def measure_parallel(
    context: SequencesContext,
    texts: Sequence[ForcedText],
    sequences: int,
    candidates: Sequence[MemberFactory],
    *,
    tokens: int,
    runs: int,
    plain: MemberFactory = forced_member,
    progress: Callable[[int, int], None] = lambda done, rounds: None,  # noqa: ARG005 - nobody listens
    clock: Callable[[], int] = time.perf_counter_ns,
) -> list[ParallelResult]:
    """Decode `sequences` texts in one batch, plain and with each candidate's drafts in turn.

    Time counts only while all sequences are in the batch. With drafts some get to their end sooner: the first
    one ends the run, and plain decoding is charged its share of time for the very tokens that were emitted up
    to there. So both figures of a result are of the same tokens at the same concurrency.

    Args:
        context: with at least `sequences` sequences; prompts are kept in it from run to run.
        texts: one a sequence; fewer are used in turn, more are left out.
        sequences: how many share the batch.
        candidates: what is compared with plain decoding, such as `partial(forced_member, draft=options)`.
        tokens: reply tokens a sequence at most; the shortest reply sets the limit.
        runs: rounds, at least 1, after one that is not counted.
        plain: the baseline.
        progress: called after every round with the number of rounds done and of all, the uncounted included.
        clock: nanoseconds, monotonic.

    Returns:
        One result a candidate, in their order.

    Raises:
        UsageError: no texts, an empty reply, or no room for the sequences (`check_room`).
        EngineError: a pass failed.
    """
    if not texts or not all(text.reply for text in texts):
        raise UsageError("Sequences in one batch need recorded replies that are not empty.")
    chosen = [texts[number % len(texts)] for number in range(sequences)]
    tokens_each = min([tokens, *(len(text.reply) for text in chosen)])
    check_room(context, [text.prompt for text in chosen], tokens_each)
    session = ParallelSession(context, clock)
    contestants = [plain, *candidates]
    taken: list[list[list[JointStep]]] = [[] for _ in contestants]
    for number in range(runs + 1):
        for place in range(len(contestants)):
            # Who goes first changes from round to round.
            turn = (number + place) % len(contestants)
            steps = _run(session, [contestants[turn](text) for text in chosen], tokens_each)
            if number > 0:
                taken[turn].append(steps)
        progress(number + 1, runs + 1)
    return [_result(taken[0], speculative, sequences) for speculative in taken[1:]]


def _result(
    plain: Sequence[Sequence[JointStep]], speculative: Sequence[Sequence[JointStep]], sequences: int
) -> ParallelResult:
    """Both timings over the tokens that every speculative run emitted while all sequences took part."""
    span = [min(_emitted(run, number) for run in speculative) for number in range(sequences)]
    last = [stats for step in speculative[-1] for stats in step.stats.values()]
    return ParallelResult(
        baseline=_timing(plain, span),
        timing=_timing(speculative, span),
        counts=counts_of(Tally(last)),
        lengths=tuple(stats.drafted for stats in last),
    )


def _run(session: ParallelSession, members: Sequence[Member], tokens_each: int) -> list[JointStep]:
    """The steps that all sequences take together."""
    steps: list[JointStep] = []
    try:
        session.begin(members)
        for step in session.run(tokens_each):
            if len(step.stats) < len(members):
                break
            steps.append(step)
    finally:
        for one in members:
            one.drafter.close()
    return steps


def _timing(runs: Sequence[Sequence[JointStep]], span: Sequence[int]) -> Timing:
    """The time of the first `span[i]` tokens of each sequence i.

    Estimated as `localspec.bench.runs.timing` does it.
    """
    parts = [_time_of(run, span) for run in runs]
    totals = [sum(part) * NS for part in parts]
    aligned = all(_shape(run) == _shape(runs[0]) for run in runs)
    typical = undisturbed if aligned else statistics.median
    first = typical([run[0].total_ns for run in runs]) * NS
    return Timing(
        tokens=sum(span),
        seconds=undisturbed(parts) * NS if aligned else statistics.median(totals),
        runs=tuple(totals),
        first_token_s=first,
    )


def _time_of(run: Sequence[JointStep], span: Sequence[int]) -> list[float]:
    """Nanoseconds of each step that went into tokens inside `span`."""
    left = list(span)
    parts = []
    for step in run:
        part = 0.0
        for number, stats in step.stats.items():
            counted = min(stats.emitted, left[number])
            left[number] -= counted
            part += stats.total_ns * counted / stats.emitted
        parts.append(part)
    return parts


def _emitted(run: Sequence[JointStep], number: int) -> int:
    return sum(step.stats[number].emitted for step in run)


def _shape(run: Sequence[JointStep]) -> list[list[tuple[int, int]]]:
    """What each step was asked: runs of one shape did the same work."""
    return [[(stats.position, stats.drafted) for stats in step.stats.values()] for step in run]
