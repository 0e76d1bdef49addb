"""Replies that grow side by side: a few tokens of one contestant, then as many of the next, over one cache.

The speed of a shared machine changes from one second to the next. Whole replies that follow one another meet
different speeds; slices of some hundredths of a second hardly do. It takes a text that all contestants have
in common, such as a recorded reply: then the cache of one is a longer or shorter part of any other's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace

from localspec.bench.runs import Run, mixed_turn
from localspec.errors import LocalspecError
from localspec.reply import Reply, StopRules
from localspec.sampling import Sampler
from localspec.session import Session
from localspec.target import TargetContext
from localspec.text import ReplyText
from localspec.types import StepStats

SLICE = 8
"""Tokens of a turn. Replies of 128 tokens that ran side by side on a shared host parted by 1 % with 8 or 16
tokens, by 3 and 6 % with 32 and 64, and by 6 to 8 % one after the other."""


class Speaker:
    """One contestant's reply, made in one go or slice by slice.

    Args:
        session: its text, drafter, controller and verifier; the prompt has been read.
        sampler: filters and noise.
        rules: when the reply ends.
        reads: whether the drafter reads the target's hidden states.
        clock: nanoseconds, monotonic.
    """

    def __init__(
        self,
        session: Session,
        sampler: Sampler,
        rules: StopRules,
        *,
        reads: bool = False,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self.reads = reads
        self._session = session
        self._sampler = sampler
        self._rules = rules
        self._clock = clock
        self._reply = Reply(ReplyText(rules.stop))
        self._prompt = len(session.tokens)
        self._steps: list[StepStats] = []
        self._overhead = 0
        self._tail = 0
        self._left: int | None = None

    @property
    def said(self) -> int:
        """Tokens of the reply so far."""
        return len(self._session.tokens) - self._prompt

    @property
    def finished(self) -> bool:
        """Whether the reply has ended."""
        return self._reply.finish_reason is not None

    def speak(self, until: int | None = None) -> None:
        """Go on until the reply has `until` tokens, or to its end.

        Raises:
            EngineError: a pass failed; the cache is empty.
        """
        clock = self._clock
        if self._left is not None and self._reply.began_ns is not None:
            # The time of others is none of this reply's.
            self._reply.began_ns += clock() - self._left
        with closing(self._session.reply(self._sampler, self._rules, self._reply)) as emissions:
            for emission in emissions:
                began = clock()
                stats = emission.stats
                self._steps.append(replace(stats, other_ns=stats.other_ns + self._tail))
                self._tail = 0
                self._overhead += clock() - began
                if until is not None and self.said >= until:
                    # What the session does after a step counts to the next one, as in one go.
                    self._tail = began - (self._reply.began_ns or 0) - stats.time_ns
                    break
        if until is not None:
            self._left = clock()

    def come_back(self, context: TargetContext, width: int) -> None:
        """Bring the cache back to this reply, after others have used it for theirs; it takes no counted time.

        The last pass is as wide as this reply's own last one: llama.cpp is slower where the width changes.

        Args:
            context: holds the beginning of this text, and perhaps more than that.
            width: tokens of a pass over what is missing, at most.

        Raises:
            EngineError: a pass failed.
        """
        tokens = self._session.tokens
        held = len(tokens) - 1
        last = min(1 + (self._steps[-1].drafted if self._steps else 0), held)
        context.keep(min(context.length, held - last))
        for start in range(context.length, held - last, width):
            context.decode(tokens[start : min(start + width, held - last)], "none")
        if last:
            context.decode(tokens[held - last : held], "all")

    def run(self, begin_s: float = 0.0, energy_j: float | None = None) -> Run:
        """What came of it; the arguments are those of `Run`."""
        return Run(
            token_ids=tuple(self._session.tokens[self._prompt :]),
            seconds=sum(step.total_ns for step in self._steps) * 1e-9,
            steps=tuple(self._steps),
            begin_s=begin_s,
            overhead_s=self._overhead * 1e-9,
            energy_j=energy_j,
            reads=self.reads,
        )


def take_turns(
    speakers: Mapping[str, Speaker],
    context: TargetContext,
    width: int,
    *,
    number: int = 0,
    hush: Callable[[bool], None] = lambda quiet: None,  # noqa: ARG005 - nobody listens
) -> dict[str, LocalspecError]:
    """Let all replies grow to their ends, a slice of each in turn.

    Args:
        speakers: replies of one and the same text, which all have the same prompt behind them.
        context: the cache of all of them.
        width: tokens of a pass over what a reply misses in the cache, at most.
        number: of the round: orders differ from slice to slice and round to round, see `mixed_turn`.
        hush: called before a reply comes back after another one: with False if its drafter reads hidden
            states, else with True, since nobody else should pay for keeping them.

    Returns:
        The replies that failed, and why; the others have ended.
    """
    failed: dict[str, LocalspecError] = {}
    going = dict(speakers)
    newest: Speaker | None = None
    end = 0
    while going:
        end += SLICE
        order = [name for name in mixed_turn(list(speakers), number) if name in going]
        if going[order[0]] is newest:
            # Slices have the same length for all: nobody has two in a row.
            order.append(order.pop(0))
        for name in order:
            speaker = going[name]
            if speaker.said >= end:
                continue
            try:
                if newest is not speaker:
                    newest = speaker
                    # After a switch llama.cpp takes longer for a pass: for the one that is not counted.
                    hush(not speaker.reads)
                    speaker.come_back(context, width)
                speaker.speak(end)
            except LocalspecError as error:
                # Some of its text may be in the cache, some not: the next one begins with an empty one.
                context.clear()
                failed[name] = error
            if name in failed or speaker.finished:
                del going[name]
        number += 1
    return failed
