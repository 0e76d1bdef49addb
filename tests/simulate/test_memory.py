"""Drafters that remember are given the replies before, in order, each after it was replayed."""

from __future__ import annotations

import pytest

from localspec.cost import CostCurve
from localspec.drafters import METHODS
from localspec.drafters.none import NoDrafter
from localspec.simulate.inputs import Recording
from localspec.simulate.study import simulate
from localspec.types import DraftOptions

CURVE = CostCurve({1: 1.0, 9: 1.4})
SAID = [
    Recording("one", (1, 2), (3, 4, 5), "a"),
    Recording("two", (1, 2), (3, 4), "b"),
    # The first conversation goes on: what it said stands in the prompt.
    Recording("three", (1, 2, 3, 4, 5, 6), (7,), "a"),
]


class Recalling(NoDrafter):
    """Notes what it could remember at the start of each reply."""

    name = "recalling"
    remembers = True
    seen: list[tuple[int, int]] = []

    def __init__(self, memory):
        self.memory = memory

    def begin(self, tokens):
        index = self.memory.index if self.memory else ()
        self.seen.append((len(index), len(index.hidden) if self.memory else 0))


@pytest.fixture
def seen(monkeypatch):
    monkeypatch.setattr(Recalling, "seen", [])
    monkeypatch.setitem(METHODS, "recalling", lambda options, memory: Recalling(memory))
    return Recalling.seen


def test_each_reply_is_remembered_once_it_was_replayed(seen):
    found = simulate(SAID, DraftOptions("recalling", 4, policy="fixed"), CURVE)
    assert found.remembered
    tokens, hidden = zip(*seen, strict=True)
    assert tokens[0] == 0
    # Separators are counted too, so only growth is asked for.
    assert tokens[0] < tokens[1] < tokens[2]
    assert hidden == (0, 0, 1)


def test_without_memory_nothing_is_remembered(seen):
    found = simulate(SAID, DraftOptions("recalling", 4, policy="fixed"), CURVE, memory=False)
    assert not found.remembered
    assert seen == [(0, 0)] * 3
