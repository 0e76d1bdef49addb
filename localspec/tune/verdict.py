"""Who wins: more than the noise, and never much slower than plain decoding."""

from __future__ import annotations

from collections.abc import Iterable

from localspec.tune.contest import LEAST_ROUNDS
from localspec.tune.records import Trial

WORTH = 0.02
"""A smaller gain is not worth another line in a config file."""


def beats(trial: Trial, speed: float = 1.0) -> bool:
    """Whether it is faster than `speed` by more than the noise and by more than is worth talking about."""
    if trial.speed is None or trial.within is None or trial.rounds < LEAST_ROUNDS:
        return False
    return trial.speed > speed * (1 + max(trial.within, WORTH))


def wins(trials: Iterable[Trial]) -> Trial | None:
    """The fastest that beats the present settings and is safe on every kind of prompt; None: keep these."""
    found = [trial for trial in trials if not trial.present and beats(trial) and not trial.slower]
    return max(found, key=lambda trial: trial.speed or 0.0, default=None)


def unsafe_winner(trials: Iterable[Trial], chosen: Trial | None) -> Trial | None:
    """One that is faster overall than what was chosen, and is left out for a kind that it slows down."""
    least = chosen.speed if chosen is not None and chosen.speed is not None else 1.0
    found = [trial for trial in trials if not trial.present and beats(trial, least) and trial.slower]
    return max(found, key=lambda trial: trial.speed or 0.0, default=None)
