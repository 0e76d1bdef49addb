"""How far the rounding of wider passes moves a model's logits: measured on the model, on the audited replies.

llama.cpp chooses other kernels for other widths of a pass and splits attention by the length of the cache, so
a token's logits depend a little on what is decoded beside it, and so do the keys and values that later tokens
read. A plain reply is decoded again in passes of many widths in turn, as a speculative run would, and every
row is compared with plain decoding's row for the same place. No rule and no draft are in play, and but
for trees no cache is rolled back: a fault of these cannot pass for rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from localspec.audit.records import Noise, WidthNoise
from localspec.audit.witness import Candidates, gap_shift
from localspec.bench.driver import Driver, TreePass
from localspec.types import Draft

MIN_ROWS = 64
"""Rows to compare for every width at least, where a divergence is to be judged by them."""

MAX_ROUNDS = 8
"""How often each reply is decoded again at most to get them."""


@dataclass(frozen=True, slots=True)
class Plain:
    """A plain reply with the candidates of each of its rows."""

    prompt: tuple[int, ...]
    said: tuple[int, ...]
    candidates: tuple[Candidates, ...]


def _silent() -> None:
    pass


@dataclass(frozen=True, slots=True)
class _Pass:
    """One pass over a piece of a reply.

    Attributes:
        content: what is decoded.
        width: tokens of the pass.
        rows: the rows that belong to consecutive places of the reply.
    """

    content: Sequence[int] | TreePass
    width: int
    rows: tuple[int, ...]


class NoiseMeter:
    """Decodes plain replies again and keeps, for every width, how far contenders' logits moved.

    Args:
        driver: the model.
        widths: tokens of a pass to measure.
        branches: whether passes are trees. The tokens of a kept branch lie in other places of the cache than
            those of a chain, so that attention adds them up in another order. This needs the cache to keep
            one branch; if it kept a wrong one, `Noise.is_rounding` would tell.
        after_reply: called after every reply that was decoded again, for progress.
    """

    def __init__(
        self,
        driver: Driver,
        widths: Iterable[int],
        *,
        branches: bool = False,
        after_reply: Callable[[], None] = _silent,
    ) -> None:
        self._driver = driver
        self._widths = tuple(sorted(set(widths)))
        self._branches = branches
        self._after_reply = after_reply
        self._gaps: dict[int, list[float]] = {width: [] for width in self._widths}
        self._largest: dict[int, float] = dict.fromkeys(self._widths, 0.0)

    def measure(self, replies: Sequence[Plain], *, thorough: bool) -> Noise:
        """The noise over `replies`.

        Args:
            replies: what plain decoding said.
            thorough: go on until there are `MIN_ROWS` rows of every width (`MAX_ROUNDS` at most); else every
                reply is decoded again once.

        Raises:
            EngineError: a pass failed.
        """
        repeat = self._repeat(replies[0]) if replies else None
        for _ in range(MAX_ROUNDS if thorough else 1):
            for reply in replies:
                self._again(reply)
                self._after_reply()
            if all(len(gaps) >= MIN_ROWS for gaps in self._gaps.values()):
                break
        margins = [row.logits[0] - row.logits[1] for reply in replies for row in reply.candidates]
        return Noise(
            widths=tuple(self._of(width) for width in self._widths if self._gaps[width]),
            typical_margin=float(np.median(margins)) if margins else 0.0,
            repeat_shift=repeat,
        )

    def _of(self, width: int) -> WidthNoise:
        gaps, largest = self._gaps[width], self._largest[width]
        return WidthNoise(
            width=width,
            rows=len(gaps),
            median_gap_shift=float(np.median(gaps)),
            largest_gap_shift=max(gaps),
            largest_shift=largest,
            bound=2 * largest,
        )

    def _again(self, reply: Plain) -> None:
        """One reply in passes of all widths in turn; each time the width with the fewest rows so far."""
        made: list[_Pass] = []

        def pieces() -> Iterator[Sequence[int] | TreePass]:
            for one in self._passes(reply):
                made.append(one)
                yield one.content

        place = 0
        for rows in self._driver.passes(reply.prompt, pieces()):
            width, own = made[-1].width, rows[list(made[-1].rows)]
            for row, plain in zip(own, reply.candidates[place:], strict=False):
                shifts = plain.shifts(row)
                self._gaps[width].append(gap_shift(shifts))
                self._largest[width] = max(self._largest[width], float(np.abs(shifts).max()))
            place += len(own)

    def _passes(self, reply: Plain) -> Iterator[_Pass]:
        """The passes that decode a reply; the last one is filled up, as a draft that is refused would."""
        text = [reply.prompt[-1], *reply.said[:-1]]
        room = self._driver.context.capacity - len(reply.prompt) + 1
        place = 0
        while place < len(text):
            fitting = [width for width in self._widths if place + width <= room]
            if not fitting:
                return
            width = min(fitting, key=lambda width: (len(self._gaps[width]), width))
            piece = text[place : place + width]
            piece += piece[-1:] * (width - len(piece))
            one = _tree(piece) if self._branches and width > 2 else _Pass(piece, width, tuple(range(width)))
            yield one
            place += len(one.rows)

    def _repeat(self, reply: Plain) -> float:
        """The largest shift of a contender's logit when `reply` is decoded token by token once more."""
        text = [reply.prompt[-1], *reply.said[:-1]]
        passes = self._driver.passes(reply.prompt, ([token] for token in text))
        return max(
            float(np.abs(plain.shifts(rows[0])).max())
            for rows, plain in zip(passes, reply.candidates, strict=True)
        )


def _tree(piece: Sequence[int]) -> _Pass:
    """A pass as wide as `piece` that decodes its first half, on the younger of two branches."""
    width, true = len(piece), len(piece) // 2
    wrong = width - 1 - true
    tokens = (*[piece[-1]] * wrong, *piece[1 : 1 + true])
    parents = (*range(-1, wrong - 1), -1, *range(wrong, wrong + true - 1))
    path = tuple(range(wrong, wrong + true))
    draft = Draft(tokens=tokens, parents=parents)
    return _Pass(TreePass(piece[0], draft, path), width, (0, *(node + 1 for node in path)))
