"""A draft that grows token by token, as long as it pays, by a drafter that has logits of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from localspec.types import Budget, Draft, Drawing, Drawn, Rows


def grown(
    tokens: Sequence[int],
    budget: Budget,
    *,
    source: str,
    greedy: Drawing,
    row: Rows,
    following: Callable[[int], Rows],
) -> Draft:
    """Draw token after token until the budget is used up, or its advice says that one more does not pay.

    With more than one branch, the second candidate of every place becomes a sibling of the first where it is
    likelier than what the draft would gain at its end. Second candidates cost the drafter nothing.

    Args:
        tokens: the session's.
        budget: at least one token; its advice has agreed to the first one already.
        source: the drafter's name.
        greedy: draws where the budget has no drawing.
        row: the drafter's logits after `tokens`, shape [vocabulary of the target].
        following: runs the drafter on the draft's newest token and returns its next row.
    """
    advice, drawing = budget.advice, budget.drawing or greedy
    drawn: list[Drawn] = []
    chain: list[int] = []
    survival = 1.0
    confidence: list[float] = []
    while True:
        found = drawing.draw(row, tokens, chain, 1 if budget.leaves == 1 else 2)
        if not found.tokens:
            break
        drawn.append(found)
        chain.append(found.tokens[0])
        survival *= found.chances[0]
        confidence.append(survival)
        if len(chain) >= budget.tokens:
            break
        if advice is not None and not advice.more(
            Draft.chain(chain, source=source, confidence=tuple(confidence))
        ):
            break
        row = following(chain[-1])
    if budget.leaves > 1:
        return _branched(drawn, budget, source)
    return Draft(
        tokens=tuple(chain),
        parents=tuple(range(-1, len(chain) - 1)),
        confidence=tuple(confidence),
        probs=tuple(found.probs for found in drawn if found.probs is not None),
        source=source,
    )


def _branched(drawn: Sequence[Drawn], budget: Budget, source: str) -> Draft:
    """The chain of first candidates with the likeliest second ones beside them, most likely nodes first."""
    survival = 1.0
    # Survival, depth, candidate's rank: an elder comes before its sibling, a parent before its child.
    nodes: list[tuple[float, int, int]] = []
    for depth, found in enumerate(drawn):
        nodes += [(-survival * chance, depth, rank) for rank, chance in enumerate(found.chances)]
        survival *= found.chances[0]
    nodes.sort()
    place: dict[int, int] = {-1: -1}
    kept: list[tuple[float, int, int]] = []
    leaves = 0
    for node in nodes:
        _, depth, rank = node
        if len(kept) == budget.tokens:
            break
        if depth - 1 not in place or (rank and depth not in place):
            continue
        opens = rank > 0 or depth == 0
        if opens and leaves == budget.leaves:
            continue
        leaves += opens
        if rank == 0:
            place[depth] = len(kept)
        kept.append(node)
    probs = [drawn[depth].probs for _, depth, _ in kept]
    return Draft(
        tokens=tuple(drawn[depth].tokens[rank] for _, depth, rank in kept),
        parents=tuple(place[depth - 1] for _, depth, _ in kept),
        confidence=tuple(-chance for chance, _, _ in kept),
        probs=tuple(one for one in probs if one is not None),
        source=source,
        replacement=False,
    )
