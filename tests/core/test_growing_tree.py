"""Draft trees grow by their likeliest nodes, depth by depth, and hold the likeliest of all."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.control import FixedLength
from localspec.drafters.growing_tree import grown_tree
from localspec.testing import ScriptedModel
from localspec.trees import depths_of, leaves_of
from localspec.types import Budget, Draft, Rows
from localspec.verify import GreedyDrawing

DRAWING = GreedyDrawing()


class Reader:
    """A drafter that follows nodes; it knows the way to every row of its newest pass."""

    def __init__(self, model: ScriptedModel, text: Sequence[int]) -> None:
        self._model = model
        self._text = tuple(text)
        self.levels: list[list[tuple[int, ...]]] = []

    def row(self, path: Sequence[int] = ()) -> Rows:
        return self._model.row([*self._text, *path])

    def following(self, nodes: Sequence[int], parents: Sequence[int]) -> list[Rows]:
        above: list[tuple[int, ...]] = self.levels[-1] if self.levels else []
        if not self.levels:
            assert set(parents) == {-1}
        paths = [
            (*(above[parent] if self.levels else ()), node)
            for node, parent in zip(nodes, parents, strict=True)
        ]
        self.levels.append(paths)
        return [self.row(path) for path in paths]


def grown(reader: Reader, budget: Budget, *, most: int = 1000) -> Draft:
    return grown_tree(
        (4, 5),
        budget,
        source="tree",
        drawing=DRAWING,
        first=DRAWING.draw(reader.row(), (4, 5), (), budget.leaves),
        following=reader.following,
        most=most,
    )


def exhaustive(reader: Reader, depth: int, width: int) -> dict[tuple[int, ...], float]:
    """All nodes to a depth, and how likely each is."""
    found: dict[tuple[int, ...], float] = {}
    level: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(depth):
        below: dict[tuple[int, ...], float] = {}
        for path, survival in level.items():
            drawn = DRAWING.draw(reader.row(path), (4, 5), path, width)
            for token, chance in zip(drawn.tokens, drawn.chances, strict=True):
                below[(*path, token)] = survival * chance
        found |= below
        level = below
    return found


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    spread=st.sampled_from([0.5, 1.5, 3.0]),
    tokens=st.integers(1, 12),
    leaves=st.integers(2, 5),
)
def test_a_tree_keeps_to_its_budget(seed: int, spread: float, tokens: int, leaves: int) -> None:
    reader = Reader(ScriptedModel(12, order=3, spread=spread, seed=seed), (4, 5))
    draft = grown(reader, Budget(tokens, leaves))
    assert 0 < len(draft) <= tokens
    assert len(leaves_of(draft)) <= leaves
    assert list(draft.confidence) == sorted(draft.confidence, reverse=True)
    assert all(parent < node for node, parent in enumerate(draft.parents))
    # No two siblings say the same, and every chance is that of the way.
    paths = [tuple(draft.tokens[one] for one in draft.path_to(node)) for node in range(len(draft))]
    assert len(set(paths)) == len(paths)
    for path, confidence in zip(paths, draft.confidence, strict=True):
        chances = [np.exp(reader.row(path[:place])) for place in range(len(path))]
        whole = np.prod([row[path[place]] / row.sum() for place, row in enumerate(chances)])
        assert np.isclose(confidence, whole, rtol=1e-4)
    # A pass for every depth but the last at most, over no more nodes than there are branches.
    assert all(len(level) <= leaves for level in reader.levels)
    assert len(reader.levels) < tokens or tokens == 1
    assert [len(level[0]) for level in reader.levels] == list(range(1, len(reader.levels) + 1))
    inner = {paths[parent] for parent in draft.parents if parent >= 0}
    assert inner <= set(itertools.chain.from_iterable(reader.levels))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), spread=st.sampled_from([0.5, 1.5, 3.0]), tokens=st.integers(1, 5))
def test_where_branches_do_not_matter_it_holds_the_likeliest_of_all_nodes(
    seed: int, spread: float, tokens: int
) -> None:
    width = 5
    reader = Reader(ScriptedModel(10, order=3, spread=spread, seed=seed), (4, 5))
    draft = grown(reader, Budget(tokens, width))
    best = sorted(exhaustive(reader, tokens, width).values(), reverse=True)[:tokens]
    assert np.allclose(draft.confidence, best)


def test_its_advice_is_asked_before_every_depth_about_the_likeliest_branch() -> None:
    class UpTo(FixedLength):
        def __init__(self) -> None:
            super().__init__(12, leaves=3)
            self.asked: list[Draft] = []

        def more(self, draft: Draft) -> bool:
            self.asked.append(draft)
            return len(draft) < 2

    reader, advice = Reader(ScriptedModel(12, order=3), (4, 5)), UpTo()
    draft = grown(reader, Budget(12, 3, advice=advice))
    assert [len(asked) for asked in advice.asked] == [1, 2]
    assert all(asked.is_chain and asked.source == "tree" for asked in advice.asked)
    assert len(reader.levels) == 1
    assert max(depths_of(draft)) == 2
    place = draft.child_with(-1, advice.asked[1].tokens[0])
    assert draft.confidence[place] == advice.asked[1].confidence[0]


def test_it_stops_where_there_is_no_room_for_more_nodes() -> None:
    reader = Reader(ScriptedModel(12, order=3, spread=0.5), (4, 5))
    grown(reader, Budget(30, 4), most=9)
    assert 0 < sum(map(len, reader.levels)) <= 9
    none = Reader(ScriptedModel(12, order=3, spread=0.5), (4, 5))
    assert max(depths_of(grown(none, Budget(30, 4), most=0))) == 1
    assert none.levels == []


def test_what_cannot_be_said_is_not_drafted() -> None:
    class Narrow(Reader):
        def row(self, path: Sequence[int] = ()) -> Rows:
            row = super().row(path).copy()
            row[2:] = -np.inf
            return row

    draft = grown(Narrow(ScriptedModel(12, order=3), (4, 5)), Budget(20, 6))
    assert set(draft.tokens) <= {0, 1}
    assert min(draft.confidence) > 0
