"""One token sequence over one context, and the step that extends it.

The invariant between steps: the target's cache holds exactly `len(tokens) - 1` tokens, and the last token
is the root of the next draft. Prefill is therefore `prompt[:-1]`, and the first token of a reply is no
special case.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

from localspec.control import Controller
from localspec.drafters.base import Drafter, feature_drafter
from localspec.errors import PromptTooLongError, RollbackRefusedError, UsageError
from localspec.logprobs import token_logprobs
from localspec.messages import EmittedToken, TokenLogprobs
from localspec.reply import Emission, Prefilled, Reply, StopRules, never
from localspec.sampling import Sampler
from localspec.target import TargetContext, Vocabulary
from localspec.text import ReplyText
from localspec.trees import cut_below, depths_of, leaves_of, refused_branch, with_leaves
from localspec.types import (
    EMPTY_DRAFT,
    Budget,
    Draft,
    Outcome,
    Rows,
    StepStats,
    Verdict,
    VerdictKind,
)
from localspec.verify import CoupledVerifier, RuleDrawing, Verifier

__all__ = ["Emission", "Prefilled", "Reply", "Session", "StopRules"]

_FIRST_CHUNK = 128
_CHUNK_SECONDS = 0.25
"""Prefill is cut into pieces of about this time, so that cancelling and progress stay quick on slow
machines."""


class Session:
    """Tokens, their cache, and the parts of a step.

    `drafter`, `controller` and `verifier` may be replaced between steps; `use_drafter` tells a new drafter
    what has been said.
    """

    def __init__(
        self,
        context: TargetContext,
        vocabulary: Vocabulary,
        *,
        drafter: Drafter,
        controller: Controller,
        verifier: Verifier | None = None,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self.tokens: list[int] = []
        self.context = context
        self.vocabulary = vocabulary
        self.drafter = drafter
        self.controller = controller
        self.verifier: Verifier = verifier or CoupledVerifier()
        self._clock = clock

    # --- prompt ------------------------------------------------------------------------------------

    def prefill(
        self,
        prompt: Sequence[int],
        *,
        progress: Callable[[int], None] | None = None,
        cancelled: Callable[[], bool] = never,
    ) -> Prefilled:
        """Bring the cache to `prompt[:-1]`, decoding only what it does not hold yet.

        Args:
            prompt: token ids, at least one.
            progress: called with the number of prompt tokens in the cache.
            cancelled: asked before every chunk; prefill then ends early, and the tokens decoded stay cached.

        Raises:
            UsageError: the prompt is empty.
            PromptTooLongError: the prompt leaves no room for a single token.
            EngineError: a pass failed; the cache has been cleared.
        """
        if not prompt:
            raise UsageError("The prompt has no tokens; give some text, or another --chat-template.")
        if len(prompt) >= self.context.capacity:
            raise PromptTooLongError(
                f"The prompt has {len(prompt)} tokens and the context holds {self.context.capacity}; "
                "shorten it or raise --context."
            )
        started = self._clock()
        wanted = list(prompt[:-1])
        cached = self._reuse(wanted)
        self.tokens = wanted[:cached]
        if progress:
            progress(cached)
        chunk = min(_FIRST_CHUNK, self.context.max_batch)
        with _ClearedOnFailure(self):
            while len(self.tokens) < len(wanted) and not cancelled():
                piece = wanted[len(self.tokens) : len(self.tokens) + chunk]
                began = self._clock()
                self.context.decode(piece, "none")
                self._observe(piece)
                self.tokens += piece
                seconds = (self._clock() - began) * 1e-9
                fitting = max(1, int(len(piece) * _CHUNK_SECONDS / max(seconds, 1e-6)))
                # Powers of two, so that passes stay comparable for whoever watches their times.
                chunk = min(max(32, 1 << (fitting.bit_length() - 1)), self.context.max_batch)
                if progress:
                    progress(len(self.tokens))
        if len(self.tokens) == len(wanted):
            self.tokens.append(prompt[-1])
            self.drafter.begin(self.tokens)
        return Prefilled(len(prompt), cached, (self._clock() - started) * 1e-9)

    def _observe(self, piece: Sequence[int]) -> None:
        """Let a drafter that reads hidden states take those of a pass over a piece of the prompt."""
        reader = feature_drafter(self.drafter)
        if reader is not None:
            reader.observe(len(self.tokens), piece)

    def _reuse(self, wanted: Sequence[int]) -> int:
        """Trim the cache to the longest prefix that it shares with `wanted`; returns its length.

        What the drafter has no hidden states of is read again.
        """
        held = self.context.length
        shared = 0
        for mine, theirs in zip(self.tokens[:held], wanted, strict=False):
            if mine != theirs:
                break
            shared += 1
        reader = feature_drafter(self.drafter)
        if reader is not None:
            shared = min(shared, reader.holds(wanted, self.controller))
        if shared == held:
            return shared
        try:
            self.context.keep(shared)
        except RollbackRefusedError:
            # A recurrent state or a sliding window that has moved on cannot go back: start over.
            self.context.clear()
            return 0
        return shared

    def use_drafter(self, drafter: Drafter) -> None:
        """Replace the drafter and tell it the sequence so far."""
        self.drafter.close()
        self.drafter = drafter
        if self.tokens:
            drafter.begin(self.tokens)
            return
        reader = feature_drafter(drafter)
        if reader is not None:
            # A prompt may be about to be read.
            reader.holds((), self.controller)

    # --- reply -------------------------------------------------------------------------------------

    def reply(
        self, sampler: Sampler, rules: StopRules, into: Reply | None = None, *, logprobs: int | None = None
    ) -> Generator[Emission, None, None]:
        """Extend the session step by step until a rule of `rules` ends the reply.

        Args:
            sampler: filters and noise.
            rules: when to end.
            into: collects text, tokens and the reason of the end.
            logprobs: hand out log-probabilities of the emitted tokens, and of so many others in their place.

        Raises:
            EngineError: a pass failed; what was emitted before stays, the cache has been cleared.
        """
        reply = into if into is not None else Reply(ReplyText(rules.stop))
        sampler.reply_start = len(self.tokens) - len(reply.token_ids)
        last = self._clock()
        if reply.began_ns is None:
            reply.began_ns = last
        while reply.finish_reason is None:
            if rules.cancelled():
                reply.finish_reason = "cancelled"
                return
            if len(self.tokens) >= self.context.capacity:
                reply.finish_reason = "context"
                return
            with _ClearedOnFailure(self):
                step = self._step(sampler, rules, reply, logprobs)
            now = self._clock()
            stats = StepStats(
                index=reply.steps,
                time_ns=now - reply.began_ns,
                position=step.position,
                budget=step.budget,
                drafted=len(step.draft),
                accepted=step.accepted,
                emitted=len(step.emitted),
                kind=step.verdict_kind if len(step.emitted) > step.accepted else "accepted",
                source=step.draft.source if len(step.draft) else "",
                match_length=step.draft.match_length,
                threads=step.threads,
                draft_ns=step.draft_ns,
                verify_ns=step.verify_ns,
                sample_ns=step.sample_ns,
                # From the end of one step to the end of the next, so that no time between them is lost.
                other_ns=now - last - step.draft_ns - step.verify_ns - step.sample_ns,
                leaves=1 if step.chain else len(leaves_of(step.draft)),
                depth=0 if step.chain else max(depths_of(step.draft)),
            )
            last = now
            reply.steps += 1
            self.controller.update(stats)
            tokens = tuple(
                EmittedToken(token, "accepted" if place < step.accepted else step.verdict_kind, scores)
                for place, (token, scores) in enumerate(zip(step.emitted, step.logprobs, strict=True))
            )
            # What was held back for a stop string or half a character is certain once the reply is over.
            text = reply.text.finish() if reply.finish_reason else reply.text.take()
            yield Emission(tokens, text, stats, step.refused, step.confidence)

    def _step(self, sampler: Sampler, rules: StopRules, reply: Reply, logprobs: int | None) -> _Step:
        """Draft, decode, verify, keep, commit."""
        clock, context, tokens = self._clock, self.context, self.tokens
        position = len(tokens)
        begin = clock()
        budget = self._budget(rules, reply)
        draft = self._propose(budget, rules, sampler) if budget.tokens else EMPTY_DRAFT
        chain = draft.is_chain
        drafted_at = clock()
        if chain:
            rows = context.decode([tokens[-1], *draft.tokens], "all")
        else:
            rows = context.decode_tree(tokens[-1], draft)
        decoded_at = clock()
        verdict = self.verifier.verify(draft, rows, sampler, tokens)
        sampled_at = clock()
        emitted = self._stopped(draft, verdict, rules, reply)
        tokens.extend(emitted)
        scores = self._scores(rows, verdict, emitted, logprobs)
        path = verdict.path[: len(emitted) - 1]
        if not chain:
            context.keep_path(path)
        elif context.length != len(tokens) - 1:
            context.keep(len(tokens) - 1)
        accepted = min(len(verdict.path), len(emitted))
        # What followed the last token of a reply was not refused.
        whole = verdict.kind == "correction" and len(emitted) > accepted
        refused = refused_branch(draft, verdict.path) if whole else ()
        kept_at = clock()
        kept = (0, *(node + 1 for node in path))
        self.drafter.commit(Outcome(tuple(emitted), accepted, len(draft), kept))
        done_at = clock()
        return _Step(
            position=position,
            budget=budget.tokens,
            draft=draft,
            chain=chain,
            emitted=emitted,
            accepted=accepted,
            verdict_kind=verdict.kind,
            logprobs=scores,
            refused=tuple(draft.tokens[node] for node in refused),
            confidence=_confidence(draft, (*verdict.path[:accepted], *refused)),
            threads=context.threads,
            draft_ns=drafted_at - begin + done_at - kept_at,
            verify_ns=decoded_at - drafted_at,
            sample_ns=sampled_at - decoded_at,
        )

    def _budget(self, rules: StopRules, reply: Reply) -> Budget:
        """The controller's budget, cut to what may still be said: the target's own token needs room too."""
        if not self.context.can_trim:
            return Budget(0)
        budget = self.controller.budget(self.tokens)
        if not budget.tokens:
            return budget
        room = min(self.context.capacity - len(self.tokens), self.context.max_rows) - 1
        if rules.max_tokens is not None:
            room = min(room, rules.max_tokens - len(reply.token_ids) - 1)
        return Budget(max(0, min(budget.tokens, room)), min(budget.leaves, self.context.max_leaves))

    def _propose(self, budget: Budget, rules: StopRules, sampler: Sampler) -> Draft:
        """A draft within `budget`, without what would follow an end-of-generation token."""
        drawing = RuleDrawing(sampler, self.verifier)
        asked = Budget(budget.tokens, budget.leaves, drawing=drawing, advice=self.controller)
        draft = self.controller.trim(self.drafter.propose(self.tokens, asked))
        if not len(draft):
            return EMPTY_DRAFT
        if not draft.is_chain:
            draft = with_leaves(draft, budget.leaves)
        draft = draft.prefix(budget.tokens)
        return draft if rules.ignore_eos else cut_below(draft, self.vocabulary.eog_tokens)

    def _stopped(self, draft: Draft, verdict: Verdict, rules: StopRules, reply: Reply) -> list[int]:
        """The verdict's tokens up to the first one at which the reply ends, as plain decoding would."""
        emitted: list[int] = []
        for token in (*(draft.tokens[node] for node in verdict.path), verdict.next_token):
            emitted.append(token)
            reply.token_ids.append(token)
            ends = token in self.vocabulary.eog_tokens and not rules.ignore_eos
            if ends or reply.text.push(self.vocabulary.token_bytes(token)):
                reply.finish_reason = "stop"
            elif rules.max_tokens is not None and len(reply.token_ids) >= rules.max_tokens:
                reply.finish_reason = "length"
            if reply.finish_reason:
                break
        return emitted

    def _scores(
        self, rows: Rows, verdict: Verdict, emitted: Sequence[int], count: int | None
    ) -> Sequence[TokenLogprobs | None]:
        """Log-probabilities of the emitted tokens, each from the row of the node before it."""
        if count is None:
            return [None] * len(emitted)
        before = (0, *(node + 1 for node in verdict.path))
        return [
            token_logprobs(rows[index], token, count, self.vocabulary.token_text)
            for index, token in zip(before, emitted, strict=False)
        ]


@dataclass(frozen=True, slots=True)
class _Step:
    position: int
    budget: int
    draft: Draft
    chain: bool
    emitted: list[int]
    accepted: int
    verdict_kind: VerdictKind
    logprobs: Sequence[TokenLogprobs | None]
    refused: tuple[int, ...]
    confidence: tuple[float, ...]
    threads: int
    draft_ns: int
    verify_ns: int
    sample_ns: int


def _confidence(draft: Draft, nodes: Sequence[int]) -> tuple[float, ...]:
    """The draft's confidence in `nodes`, to three places: it is looked at, not computed with."""
    known = draft.confidence
    return tuple(round(float(known[node]), 3) for node in nodes) if known else ()


class _ClearedOnFailure:
    """Empties the cache when the block raises, since a failed pass leaves unknown content behind."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        if kind is not None:
            self._session.context.clear()
            self._session.tokens = []
