"""What is wired wrongly is seen: fewer or other drafts come true, and the text stays what it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.target import HeadContext, Outputs, Tap
from tests.heads import alphabet, writers
from tests.heads.cases import ALL, PROMPTS, Case
from tests.heads.making import Made
from tests.heads.rigs import Told, opened

COUNT = 80
PROMPT = PROMPTS[0]
CASES = {case.name: case for case in ALL}
States = NDArray[np.float32]


class Passing:
    """A tap and a head that hand everything on, to be changed in one respect."""

    def __init__(self, inner: Tap | HeadContext) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)


class ZeroTap(Passing):
    """Tells nothing of the target."""

    def rows(self, rows: Sequence[int] | slice) -> States:
        return np.zeros_like(self.inner.rows(rows))


class LateTap(Passing):
    """Tells of the row before: off by one."""

    def rows(self, rows: Sequence[int] | slice) -> States:
        states = self.inner.rows(rows)
        before = getattr(self, "last", np.zeros_like(states[:1]))
        self.last = states[-1:].copy()
        return np.vstack([before, states[:-1]])


class UnmovedTap(Passing):
    """After a step tells of the last row of the pass, although only the accepted ones are kept."""

    def rows(self, rows: Sequence[int] | slice) -> States:
        states = self.inner.rows(rows)
        states[-1] = self.inner.rows(slice(None))[-1]
        return states


class SwappedTap(Passing):
    """Hands out the layers in another order."""

    def rows(self, rows: Sequence[int] | slice) -> States:
        width = writers.Shape().width
        states = self.inner.rows(rows)
        return states.reshape(len(states), -1, width)[:, ::-1].reshape(states.shape)


class Uninjected(Passing):
    """A head that is told nothing, though it is said to hold it."""

    def __init__(self, inner: HeadContext) -> None:
        super().__init__(inner)
        self.length = 0

    def decode(
        self, start: int, tokens: Sequence[int] | None, states: States | None, outputs: Outputs
    ) -> None:
        rows = len(tokens) if tokens is not None else len(states)
        self.length += rows
        if tokens is not None and outputs == "all":
            self.inner.clear()
            self.inner.decode(start, tokens, states, outputs)

    def keep(self, end: int) -> None:
        self.length = end

    def clear(self) -> None:
        self.length = 0
        self.inner.clear()


class OtherMask(Passing):
    """Takes a letter for the mask token."""

    def decode(
        self, start: int, tokens: Sequence[int] | None, states: States | None, outputs: Outputs
    ) -> None:
        changed = None if tokens is None else [ord("a") if t == writers.MASK else t for t in tokens]
        self.inner.decode(start, changed, states, outputs)


def reply(case: Case, made: Made, **wraps: Callable[[object], object]) -> Told:
    with opened(case, made, **wraps) as rig:
        return rig.reply(PROMPT, COUNT)


def drafts_by_place(told: Told) -> dict[int, tuple[int, ...]]:
    return dict(zip(told.places, told.drafts, strict=True))


@pytest.mark.parametrize("name", ["eagle3", "mtp", "mtp-three", "mtp-sidecar", "mtp-hybrid", "dflash"])
@pytest.mark.parametrize("tap", [ZeroTap, LateTap], ids=["zero", "late"])
def test_other_states_are_never_right(made: Made, name: str, tap: Callable[[object], object]) -> None:
    # A head that is wrong here and there would be right by being wrong twice.
    told = reply(CASES[name].with_head(wrong=()), made, tap=tap)
    assert told.accepted == 0 < told.drafted
    assert told.tokens == alphabet.text_after(PROMPT[-1], COUNT)


@pytest.mark.parametrize("name", ["eagle3", "mtp", "mtp-three"])
def test_a_state_of_what_was_refused_is_seldom_right(made: Made, name: str) -> None:
    told, right = reply(CASES[name], made, tap=UnmovedTap), reply(CASES[name], made)
    assert told.accepted / told.drafted < right.accepted / right.drafted / 2
    assert told.tokens == right.tokens


def test_a_block_without_the_targets_states_is_never_right(made: Made) -> None:
    told = reply(CASES["dflash"], made, head=Uninjected)
    assert told.accepted == 0 < told.drafted
    assert told.tokens == alphabet.text_after(PROMPT[-1], COUNT)


def test_another_token_in_the_masks_place_is_seldom_right(made: Made) -> None:
    told, right = reply(CASES["dflash"], made, head=OtherMask), reply(CASES["dflash"], made)
    assert told.accepted < right.accepted / 10
    assert told.tokens == right.tokens


@pytest.mark.parametrize(
    ("name", "wraps"),
    [
        ("random-eagle3", {"tap": SwappedTap}),
        ("random-eagle3", {"head": Uninjected}),
        ("random-mtp-untrained", {"head": Uninjected}),
        ("random-dflash", {"tap": SwappedTap}),
        ("random-dflash", {"head": Uninjected}),
        ("random-dspark", {"tap": SwappedTap}),
        ("random-dspark", {"head": Uninjected}),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value.values())).__name__,
)
def test_random_heads_show_what_letters_do_not(
    made: Made, name: str, wraps: dict[str, Callable[[object], object]]
) -> None:
    """The order of the layers, and a cache that was not filled."""
    told, right = reply(CASES[name], made, **wraps), reply(CASES[name], made)
    assert told.tokens == right.tokens
    ours, theirs = drafts_by_place(told), drafts_by_place(right)
    shared = ours.keys() & theirs.keys()
    assert sum(ours[place] != theirs[place] for place in shared) > len(shared) / 2 > 10


def test_looking_ahead_within_a_block_changes_its_drafts(made: Made) -> None:
    """Whether a block may look ahead is read from the file."""
    told, right = reply(CASES["random-dflash-causal"], made), reply(CASES["random-dflash"], made)
    ours, theirs = drafts_by_place(told), drafts_by_place(right)
    assert sum(ours[place] != theirs[place] for place in ours.keys() & theirs.keys()) > 3
