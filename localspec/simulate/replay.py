"""One recorded reply through a drafter and a controller, with the target's time taken from a cost curve."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from localspec.control import Controller
from localspec.cost import CostCurve
from localspec.drafters.base import Drafter
from localspec.trees import cut_below, depths_of, leaves_of, with_leaves
from localspec.types import EMPTY_DRAFT, Budget, Draft, Outcome, StepStats


@dataclass(frozen=True, slots=True)
class Simulated:
    """A reply that was drafted for without a model.

    Attributes:
        steps: what each step would have counted; `verify_ns` is the curve's, `draft_ns` was really spent.
        begin_ns: time that the drafter took to take in the prompt.
        plain_ns: time of plain decoding by the curve.
        propose_ns: time of each call of `propose`.
    """

    steps: tuple[StepStats, ...]
    begin_ns: int
    plain_ns: int
    propose_ns: tuple[int, ...]

    @property
    def speedup(self) -> float:
        """Predicted: plain decoding's time over the target's and the drafter's; 0 for an empty reply."""
        spent = sum(step.total_ns for step in self.steps)
        return self.plain_ns / spent if spent else 0.0


def replay(
    prompt: Sequence[int],
    reply: Sequence[int],
    drafter: Drafter,
    controller: Controller,
    cost: CostCurve,
    *,
    max_rows: int = 256,
    ends: Collection[int] = (),
    clock: Callable[[], int] = time.perf_counter_ns,
) -> Simulated:
    """Run the step of `localspec.session` over a reply that is known.

    Args:
        prompt: token ids, at least one.
        reply: the recorded reply; a draft is accepted as far as it goes along with it.
        drafter: proposes; `begin` is called here, `close` is not.
        controller: chooses how much, and learns from the steps as it would in a chat.
        cost: T(n) in seconds.
        max_rows: tokens of a pass at most.
        ends: tokens that end a reply; what a draft holds beyond one is not verified.
        clock: monotonic nanoseconds, for the drafter's own time.
    """
    began = clock()
    tokens = list(prompt)
    drafter.begin(tokens)
    begin_ns = clock() - began
    steps: list[StepStats] = []
    proposals: list[int] = []
    done, elapsed = 0, 0
    while done < len(reply):
        before = clock()
        wanted = controller.budget(tokens)
        room = max(0, min(wanted.tokens, max_rows - 1, len(reply) - done - 1))
        budget = Budget(room, wanted.leaves, advice=controller)
        draft = EMPTY_DRAFT
        if budget.tokens:
            asked = clock()
            proposed = drafter.propose(tokens, budget)
            proposals.append(clock() - asked)
            draft = with_leaves(controller.trim(proposed), budget.leaves).prefix(budget.tokens)
            draft = cut_below(draft, ends)
        path = accepted_path(draft, reply, done)
        emitted = tuple(reply[done : done + len(path) + 1])
        position = len(tokens)
        tokens.extend(emitted)
        done += len(emitted)
        drafter.commit(Outcome(emitted, len(path), len(draft)))
        draft_ns = clock() - before
        verify_ns = round(cost(len(draft) + 1) * 1e9)
        elapsed += draft_ns + verify_ns
        chain = draft.is_chain
        refused = (path[-1] if path else -1) in draft.parents
        stats = StepStats(
            index=len(steps),
            time_ns=elapsed,
            position=position,
            budget=budget.tokens,
            drafted=len(draft),
            accepted=len(path),
            emitted=len(emitted),
            kind="correction" if refused else "bonus",
            source=draft.source if len(draft) else "",
            match_length=draft.match_length,
            threads=0,
            draft_ns=draft_ns,
            verify_ns=verify_ns,
            sample_ns=0,
            other_ns=0,
            leaves=1 if chain else len(leaves_of(draft)),
            depth=0 if chain else max(depths_of(draft)),
        )
        steps.append(stats)
        controller.update(stats)
    return Simulated(tuple(steps), begin_ns, round(len(reply) * cost(1) * 1e9), tuple(proposals))


def accepted_path(draft: Draft, reply: Sequence[int], done: int) -> tuple[int, ...]:
    """Nodes of `draft` that say what `reply` says from index `done` on."""
    path: list[int] = []
    node = -1
    while done + len(path) < len(reply):
        node = draft.child_with(node, reply[done + len(path)])
        if node < 0:
            break
        path.append(node)
    return tuple(path)
