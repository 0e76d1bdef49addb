"""A first-order target and drafter with known distributions, long replies through a verifier, chi-square.

A reply of a first-order model is a Markov chain, so the counts of (token before, token) given the token
before are multinomial in the limit and their chi-square has its usual distribution (Billingsley 1961). The
same holds for disjoint strings of three tokens given the token before them, which see what marginals do not:
a rule that is right at every position alone but ties positions together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from localspec.sampling import Sampler, gumbel_noise
from localspec.types import Draft, SamplingParams
from localspec.verify import Verifier

BUFFER = 1024


class RememberingSampler(Sampler):
    """Filters a row only the first time it sees it; the draw is the real one."""

    def __init__(self, params: SamplingParams) -> None:
        super().__init__(params)
        self._kept: dict[bytes, tuple] = {}
        self._distributions: dict[tuple, tuple] = {}

    def _filtered(self, row):
        key = row.tobytes()
        if key not in self._kept:
            self._kept[key] = super()._filtered(row)
        return self._kept[key]

    def distribution(self, row, history=()):
        key = (row.tobytes(), *self.window(history))
        if key not in self._distributions:
            self._distributions[key] = super().distribution(row, history)
        return self._distributions[key]


@dataclass
class Pair:
    """Logits of target and drafter by the token before, and the final distributions they lead to."""

    params: SamplingParams
    target: np.ndarray
    draft: np.ndarray

    @classmethod
    def random(cls, params: SamplingParams, size: int = 5, *, spread: float = 1.0, seed: int = 3) -> Pair:
        """Models that agree in part: a third to a half of the mass differs."""
        generator = np.random.default_rng(seed)
        target = generator.normal(0, spread, (size, size))
        other = generator.normal(0, spread, (size, size))
        return cls(params, target.astype(np.float32), (0.4 * target + 0.9 * other).astype(np.float32))

    @classmethod
    def fixed(cls, params: SamplingParams, p: Sequence[float], q: Sequence[float]) -> Pair:
        """Models without context."""
        size = len(p)
        target = np.tile(np.log(p), (size, 1)).astype(np.float32)
        return cls(params, target, np.tile(np.log(q), (size, 1)).astype(np.float32))

    def __post_init__(self) -> None:
        sampler = Sampler(self.params)
        self.size = len(self.target)
        self.target_probs = np.zeros((self.size, self.size))
        self.draft_probs = np.zeros((self.size, self.size), dtype=np.float32)
        for before in range(self.size):
            ids, probs = sampler.distribution(self.target[before], [before])
            self.target_probs[before, ids] = probs
            ids, probs = sampler.distribution(self.draft[before])
            self.draft_probs[before, ids] = probs

    def total_variation(self, before: int = 0) -> float:
        return float(np.abs(self.target_probs[before] - self.draft_probs[before]).sum() / 2)


class Trees:
    """Draws drafts of one shape from the drafter's distributions, thousands at a time.

    `shape` is the number of children by depth; (1, 1, 1) is a chain. `how` is *independent*, *distinct*
    (without replacement, by the Gumbel trick) or *fixed* (the likeliest tokens, no distribution).
    """

    def __init__(self, pair: Pair, shape: Sequence[int], how: str = "independent", seed: int = 0) -> None:
        self.pair = pair
        self.shape = tuple(shape)
        self.how = how
        self._random = np.random.default_rng([seed, 99])
        self._buffers: dict[tuple[int, int], list] = {}
        self._rows = list(pair.draft_probs)

    def _children(self, before: int, width: int) -> Sequence[int]:
        buffer = self._buffers.get((before, width))
        if not buffer:
            probs = self.pair.draft_probs[before].astype(np.float64)
            if self.how == "independent":
                drawn = self._random.choice(len(probs), (BUFFER, width), p=probs / probs.sum())
            else:
                with np.errstate(divide="ignore"):
                    scores = np.log(probs) + (
                        self._random.gumbel(size=(BUFFER, len(probs))) if self.how == "distinct" else 0.0
                    )
                drawn = np.argsort(-scores, axis=-1, kind="stable").reshape(-1, len(probs))[:, :width]
                possible = int((probs > 0).sum())
                drawn = np.tile(drawn[:, :possible], (BUFFER // len(drawn), 1))
            buffer = self._buffers[before, width] = drawn.tolist()
        return buffer.pop()

    def __call__(self, before: int, root: int) -> Draft:
        tokens: list[int] = []
        parents: list[int] = []
        probs: list[np.ndarray] = []
        front = [(-1, before)]
        for width in self.shape:
            grown = []
            for node, token in front:
                for child in self._children(token, width):
                    grown.append((len(tokens), child))
                    tokens.append(child)
                    parents.append(node)
                    probs.append(self._rows[token])
            front = grown
        return Draft(
            tokens=tuple(tokens),
            parents=tuple(parents),
            probs=() if self.how == "fixed" else tuple(probs),
            replacement=self.how != "distinct",
            source="trees",
        )


@dataclass
class Reply:
    """Tokens after the first, and how many of each draft were accepted."""

    tokens: list[int]
    accepted: list[int]

    def mean_accepted(self) -> tuple[float, float]:
        """Mean and five standard errors of it: outside with probability 6e-7."""
        values = np.asarray(self.accepted)
        return float(values.mean()), float(5 * values.std() / np.sqrt(len(values)))


def generate(
    verifier: Verifier,
    pair: Pair,
    drafts: Callable[[int, int], Draft],
    count: int,
    *,
    seed: int = 1,
    sampler: type[RememberingSampler] = RememberingSampler,
) -> Reply:
    """One long reply of at least `count` tokens; `drafts(token before, root)` proposes."""
    filters = sampler(replace(pair.params, seed=seed))
    history, accepted = [0], []
    while len(history) <= count:
        before = history[-1]
        draft = drafts(before, len(history))
        rows = pair.target[[before, *draft.tokens]]
        verdict = verifier.verify(draft, rows, filters, history)
        history.extend(draft.tokens[node] for node in verdict.path)
        history.append(verdict.next_token)
        accepted.append(len(verdict.path))
    return Reply(history[: count + 1], accepted)


def drawn_with_gumbel_noise(pair: Pair, length: int, seed_at: Callable[[int], int]) -> Callable:
    """Chains drawn by the Gumbel-max rule with noise of `seed_at(root)`, as a model drafter draws them."""
    logits = []
    for probs in pair.draft_probs:
        ids = np.flatnonzero(probs)
        logits.append((ids, np.log(probs[ids].astype(np.float64))))

    def draw(before: int, root: int) -> Draft:
        seed, tokens, probs = seed_at(root), [], []
        for place in range(length):
            ids, values = logits[before]
            probs.append(pair.draft_probs[before])
            before = int(ids[(values + gumbel_noise(seed, root + place, ids)).argmax()])
            tokens.append(before)
        return Draft(tokens=tuple(tokens), parents=tuple(range(-1, length - 1)), probs=tuple(probs))

    return draw


def chi_square(observed: np.ndarray, expected_share: np.ndarray) -> float:
    """p-value of multinomial counts by row; cells with fewer than 5 expected are pooled within the row.

    Args:
        observed: counts, shape [conditions, cells].
        expected_share: probabilities, same shape; each row adds up to 1.
    """
    assert not observed[expected_share == 0].any(), "a token that the filters forbid was emitted"
    statistic, freedom = 0.0, 0
    for counts, shares in zip(observed, expected_share, strict=True):
        expected = shares * counts.sum()
        large = expected >= 5
        cells = [*zip(counts[large], expected[large], strict=True)]
        if expected[~large].sum() >= 5:
            cells.append((counts[~large].sum(), expected[~large].sum()))
        if len(cells) < 2:
            continue
        statistic += sum((count - wanted) ** 2 / wanted for count, wanted in cells)
        # A row whose small cells were left out is not a complete multinomial: it keeps all its freedom.
        complete = abs(sum(wanted for _, wanted in cells) - counts.sum()) < 1e-6
        freedom += len(cells) - complete
    return float(stats.chi2.sf(statistic, freedom)) if freedom else 1.0


def p_values(pair: Pair, tokens: Sequence[int]) -> tuple[float, float]:
    """p-values of the tokens given the one before, and of disjoint strings of three given the one before."""
    size = pair.size
    array = np.asarray(tokens)
    pairs = np.bincount(array[:-1] * size + array[1:], minlength=size**2).reshape(size, size)
    last = len(array) - (len(array) - 1) % 3
    before, first, second, third = (array[offset : last + offset - 3 : 3] for offset in range(4))
    index = ((before * size + first) * size + second) * size + third
    strings = np.bincount(index, minlength=size**4).reshape(size, size**3)
    steps = pair.target_probs
    shares = np.einsum("ab,bc,cd->abcd", steps, steps, steps).reshape(size, size**3)
    return chi_square(pairs, steps), chi_square(strings, shares)
