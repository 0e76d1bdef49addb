"""A draft model of which only its acceptance and its time are known, and replies simulated with it."""

from __future__ import annotations

import random
from collections.abc import Sequence

from localspec.control import Controller, CostController, LiveCost
from localspec.cost_presets import CURVES, TOKEN_MS
from localspec.simulate.replay import Simulated, replay
from localspec.testing import OracleDrafter
from localspec.types import EMPTY_DRAFT, Budget, Draft

LONGEST = 16
TOKENS = 1200


class Clock:
    """Time that passes only where something takes it."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns


class Paying(OracleDrafter):
    """Right with a certain chance, token by token, each of which takes time; its confidence is noisy."""

    name = "paying"

    def __init__(
        self, text: Sequence[int], chance: float, seconds: float, clock: Clock, seed: int = 1
    ) -> None:
        super().__init__(text)
        self._chance, self._clock, self._ns = chance, clock, round(seconds * 1e9)
        self._dice = random.Random(seed)
        self.passes = 0

    def propose(self, tokens: Sequence[int], budget: Budget) -> Draft:
        drafted: list[int] = []
        confidence: list[float] = []
        survival, wrong = 1.0, False
        advice = budget.advice
        while len(drafted) < budget.tokens:
            so_far = Draft.chain(drafted, source=self.name, confidence=tuple(confidence))
            if advice is not None and not advice.more(so_far):
                break
            self._clock.ns += self._ns
            self.passes += 1
            place = len(tokens) + len(drafted)
            truth = self._sequence[place] if place < len(self._sequence) else 0
            wrong = wrong or self._dice.random() >= self._chance
            drafted.append(60_000 if wrong else truth)
            survival *= min(max(self._chance + self._dice.gauss(0, 0.1), 0.05), 0.99)
            confidence.append(survival)
        if not drafted:
            return EMPTY_DRAFT
        return Draft.chain(drafted, source=self.name, confidence=tuple(confidence))


def run(
    controller: Controller, chance: float, ratio: float, curve: str, *, text: Sequence[int] | None = None
) -> Simulated:
    """A reply of text that never repeats; a token of the draft costs `ratio` passes over one token."""
    cost = CURVES[curve].scaled(TOKEN_MS[curve] * 1e-3)
    clock = Clock()
    said = list(text if text is not None else range(10, 10 + TOKENS))
    drafter = Paying(said, chance, ratio * cost(1), clock)
    return replay(said[:10], said[10:], drafter, controller, cost, clock=clock)


def controlled(curve: str) -> CostController:
    return CostController(
        LiveCost(CURVES[curve].scaled(TOKEN_MS[curve] * 1e-3), TOKEN_MS[curve] * 1e-3), longest=LONGEST
    )
