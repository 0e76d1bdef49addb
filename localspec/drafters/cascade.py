"""Several drafters in one: at every step the draft that promises most for its time.

The order of llama-server's (first draft that is not empty) where nothing is known of costs; with a cost
controller, a drafter that pays for every token is asked only where it promises more than what the cheaper
ones before it have found. SuffixDecoding (arXiv 2411.04975, section 4) combines two drafters in this way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from localspec.drafters.base import Drafter, Needs, feature_drafter
from localspec.types import EMPTY_DRAFT, Advice, Budget, Draft, Outcome

Follow = Callable[[Sequence[int], Budget], Draft]


class CascadeDrafter:
    """Asks its members in order, and extends what a later one drafts by what an earlier one has found on.

    All members take in what was said, whoever drafted it.

    Args:
        members: cheap ones first. One that has a method `follow(drafted, budget)`, the draft that continues
            the text and then `drafted`, extends the chains of the others.
    """

    def __init__(self, members: Sequence[Drafter]) -> None:
        self._members = tuple(members)
        self.name = "+".join(member.name for member in members)
        self.needs = max((member.needs for member in members), key=list(Needs).index)
        readers = (feature_drafter(member) for member in members)
        self._readers = tuple(reader for reader in readers if reader is not None)
        self.remembers = any(member.remembers for member in members)
        follows = {member.name: getattr(member, "follow", None) for member in members}
        self._follows: dict[str, Follow] = {name: one for name, one in follows.items() if one is not None}

    def begin(self, tokens: Sequence[int]) -> None:
        """See `Drafter.begin`."""
        for member in self._members:
            member.begin(tokens)

    def observe(self, start: int, tokens: Sequence[int]) -> None:
        """See `FeatureDrafter.observe`."""
        for reader in self._readers:
            reader.observe(start, tokens)

    def holds(self, tokens: Sequence[int], advice: Advice | None = None) -> int:
        """See `FeatureDrafter.holds`."""
        return min((reader.holds(tokens, advice) for reader in self._readers), default=len(tokens))

    def propose(self, tokens: Sequence[int], budget: Budget) -> Draft:
        """See `Drafter.propose`."""
        best = EMPTY_DRAFT
        for member in self._members:
            if len(best) and not self._promises_more(member, best, budget):
                continue
            draft = self._extended(member.propose(tokens, budget), budget)
            if draft.probs:
                # Drawn tokens are not weighed against others: how sure the later ones are depends on the
                # earlier ones, so what is left after a choice no longer follows `probs`.
                if len(best) and budget.advice is not None and budget.advice.looking:
                    # It was made to be looked at, which was settled before anything was drawn.
                    continue
                return draft
            if not len(best) or (len(draft) and self._rate(draft, budget) > self._rate(best, budget)):
                best = draft
        return best

    def commit(self, outcome: Outcome) -> None:
        """See `Drafter.commit`."""
        for member in self._members:
            member.commit(outcome)

    def close(self) -> None:
        """See `Drafter.close`."""
        for member in self._members:
            member.close()

    def _promises_more(self, member: Drafter, best: Draft, budget: Budget) -> bool:
        if budget.advice is None:
            return False
        return budget.advice.prospect(member.name) > budget.advice.rate(best)

    def _rate(self, draft: Draft, budget: Budget) -> float:
        return budget.advice.rate(draft) if budget.advice else 0.0

    def _extended(self, draft: Draft, budget: Budget) -> Draft:
        """A chain with what a match of its end goes on with; tokens that were drawn are left as they are."""
        room = budget.tokens - len(draft)
        if not len(draft) or room <= 0 or draft.probs or not draft.is_chain or not draft.confidence:
            return draft
        for source, follow in self._follows.items():
            if draft.source.startswith(source):
                # Its own end is where it had no more to say.
                continue
            more = follow(draft.tokens, replace(budget, tokens=room, leaves=1))
            if len(more) and more.confidence:
                survival = draft.confidence[-1]
                tail = tuple(survival * one for one in more.confidence)
                return Draft.chain(
                    draft.tokens + more.tokens,
                    source=draft.source,
                    confidence=draft.confidence + tail,
                    match_length=draft.match_length,
                )
        return draft
