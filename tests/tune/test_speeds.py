"""Ratios of paired rounds, how far they may be off, and who leaves a contest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from localspec.tune.budget import Deadline, TimeBudget
from localspec.tune.contest import FINALISTS, LEAST_ROUNDS, contest
from localspec.tune.records import Trial
from localspec.tune.rivals import LEAST, LONG, reply_length
from localspec.tune.speeds import Times
from localspec.tune.verdict import beats, unsafe_winner, wins

S = 1_000_000_000


def filled(ratio: float, rounds: int, noise: float = 0.0, cells: int = 3, seed: int = 1) -> Times:
    random = np.random.default_rng(seed)
    times = Times()
    for cell in range(cells):
        for number in range(rounds):
            state = 1.0 + number
            times.add(f"c{cell}", number, "old", 100, state * float(np.exp(random.normal(0, noise))))
            times.add(f"c{cell}", number, "new", 100, state / ratio * float(np.exp(random.normal(0, noise))))
    return times


def test_a_speed_is_that_of_common_rounds_whatever_the_state_of_the_machine() -> None:
    times = filled(1.5, 4)
    times.add("c0", 9, "new", 100, 1e-9)
    speed = times.speed("new", "old")
    assert speed is not None
    assert speed.ratio == pytest.approx(1.5)
    assert (speed.rounds, speed.cells) == (4, 3)
    # Nothing on a shared machine is known exactly.
    assert speed.within == 0.01
    assert times.speed("new", "nobody") is None
    alone = times.speed("new", "old", ["c1"])
    assert alone is not None
    assert alone.cells == 1


def test_one_round_says_nothing_of_how_far_it_may_be_off() -> None:
    speed = filled(1.5, 1).speed("new", "old")
    assert speed is not None
    assert speed.within is None


@pytest.mark.parametrize("rounds", [2, 3, 6])
def test_the_true_ratio_lies_within_19_times_of_20(rounds: int) -> None:
    inside = 0
    for seed in range(300):
        speed = filled(1.2, rounds, noise=0.05, seed=seed).speed("new", "old", evenly=True)
        assert speed is not None
        assert speed.within is not None
        inside += abs(np.log(speed.ratio / 1.2)) <= np.log1p(speed.within)
    assert inside / 300 > 0.91


def test_times_that_cannot_be_are_passed_over() -> None:
    times = Times()
    for seconds in (0.0, -1.0, float("nan"), float("inf")):
        times.add("c", 0, "old", 10, seconds)
    times.add("c", 0, "new", 0, 1.0)
    assert times.last("old") is None
    assert times.last("new") is None
    assert times.typical("old", "c") is None


class Race:
    """Rivals of known speed over a clock."""

    def __init__(self, speeds: dict[str, float], seconds: float = 1.0) -> None:
        self.now = 0
        self.speeds = speeds
        self.seconds = seconds
        self.visits: list[list[str]] = []

    def clock(self) -> int:
        return self.now

    def visit(self, names: Sequence[str], number: int) -> bool:
        assert number == len(self.visits)
        self.visits.append(list(names))
        self.now += round(len(names) * self.seconds * S)
        return True

    def run(self, seconds: float, within: float | None = 0.1) -> int:
        return contest(
            [name for name in self.speeds if name != "present"],
            ["present"],
            self.visit,
            self.speeds.get,
            lambda name: within,
            TimeBudget(self.clock, seconds),
        )


SPEEDS = {"present": 1.0, **{name: 0.5 + place / 10 for place, name in enumerate("abcdefgh")}}


def test_the_slower_half_leaves_after_every_round() -> None:
    race = Race(SPEEDS)
    race.run(1000)
    assert [len(names) - 1 for names in race.visits[:4]] == [8, 4, 2, FINALISTS]
    assert race.visits[2] == ["present", "h", "g"]
    assert len(race.visits) == 8


def test_it_ends_when_nothing_more_is_to_be_learnt() -> None:
    race = Race(SPEEDS)
    assert race.run(1000, within=0.01) == LEAST_ROUNDS


def test_no_round_begins_that_would_not_end_in_time() -> None:
    race = Race(SPEEDS)
    race.run(15)
    # Nine seconds, then five, and the third of three would need 17.
    assert len(race.visits) == 2
    assert race.now <= 15 * S
    late = Race(SPEEDS)
    late.now = 5 * S
    assert contest(["a"], [], late.visit, SPEEDS.get, lambda name: None, Deadline(late.clock, S)) == 0


def test_a_share_is_of_what_is_left() -> None:
    race = Race({})
    whole = TimeBudget(race.clock, 100)
    race.now = 20 * S
    half = whole.share(0.5)
    assert half.left_s == 40
    race.now = 60 * S
    assert half.passed()
    assert whole.left_s == 40
    assert whole.done == 0.6


def trial(speed: float, within: float | None = 0.01, rounds: int = 5, **more: object) -> Trial:
    return Trial(stage="draft", name=f"x{speed}", speed=speed, within=within, rounds=rounds, **more)


@pytest.mark.parametrize(
    ("one", "holds"),
    [
        (trial(1.021), True),
        (trial(1.02), False),
        (trial(1.5, within=0.5), False),
        (trial(1.51, within=0.5), True),
        (trial(2.0, within=None), False),
        (trial(2.0, rounds=2), False),
        (Trial(stage="draft", name="untried"), False),
    ],
)
def test_a_winner_beats_the_present_settings_by_more_than_the_noise(one: Trial, holds: bool) -> None:
    assert beats(one) is holds


def test_a_winner_slows_nothing_down_and_who_does_is_named() -> None:
    fast = trial(2.0, kinds={"copy": 3.0, "story": 0.9}, kinds_within={"story": 0.01})
    safe = trial(1.5, kinds={"copy": 1.5, "story": 0.98})
    maybe = trial(1.6, kinds={"copy": 1.5, "story": 0.97}, kinds_within={"story": 0.02})
    assert wins([fast, safe]) is safe
    assert wins([fast, safe, maybe]) is maybe
    assert maybe.doubtful == {"story": 0.97}
    assert unsafe_winner([fast, safe], safe) is fast
    assert unsafe_winner([safe], safe) is None
    assert wins([trial(3.0, present=True)]) is None


def test_replies_are_long_before_prompts_are_many() -> None:
    assert reply_length(1000, 0.005, 10, prompts=25, kinds=6) == (LONG, 25)
    assert reply_length(43, 0.005, 10, prompts=25, kinds=6) == (LONG, 6)
    length, asked = reply_length(20, 0.005, 10, prompts=25, kinds=6)
    assert asked == 6
    assert LEAST < length < LONG
    assert reply_length(1, 0.5, 10, prompts=25, kinds=6) == (LEAST, 1)
    assert reply_length(10, 0.0, 0, prompts=3, kinds=3) == (LONG, 3)
