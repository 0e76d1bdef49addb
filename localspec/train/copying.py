"""Heads of attention that copy from the start: what followed a token before is likely to follow it again.

Much of a reply repeats its prompt, and a layer that has to discover copying (an induction head, Olsson et
al., arXiv 2209.11895) needs far more text than a laptop writes in an hour. Its circuit is known, so it is
put into a head before training, as two more groups of attention heads beside those of the target's layer:

- the lowest tapped layer still tells which token stands at a position, and, less well, which stood before
  it: a part of that goes into the state;
- a key is the token of its state, a query the token said last: they match where it stood before;
- in the second group a key is two tokens, that of its state and the one before, and a query the last two;
- a value is the token after that, and the output raises its logit.

Codes of tokens are principal components of their embeddings, matched in those dimensions that the rotary
embedding hardly turns within a text. Training goes on from there, and may change all of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from localspec.train.lessons import Lessons
from localspec.train.network import Head
from localspec.train.sizes import LONGEST

_Matrix = NDArray[np.float64]

_STEADY = 0.7
"""Radians by which a dimension may be turned over the longest text."""
_SHARPNESS, _SPREAD = 20.0, 0.3
"""Score of a match in the softmax, and by how much it differs between the heads of the group."""
_GAIN = 20.0
"""By how much a copied token's logit leads, all attention being on it."""
_MIXED = 0.5
"""Size of the token's code in a state, the rest of it being 1."""
_SAMPLE = 8_000
"""Positions that codes are fitted on."""


@dataclass(frozen=True, slots=True)
class _Codes:
    """Codes of tokens, as linear maps of normed embeddings.

    Attributes:
        mean: of the embeddings.
        wide: all components that a head has room for, shape [head's width, width].
        scale: of each of them, which makes them equally large.
    """

    mean: _Matrix
    wide: _Matrix
    scale: _Matrix

    def of(self, embeddings: _Matrix, count: int) -> _Matrix:
        """The first `count` components, each of variance one; shape [tokens, count]."""
        return (embeddings - self.mean) @ self.wide[:count].T * self.scale[:count]


@dataclass(frozen=True, slots=True)
class _Match:
    """What a group of heads matches, as linear maps of normed inputs, each of shape [dimensions, width].

    Attributes:
        token: of a query, from the embedding of the token said last.
        state: of a query, from the state before that token.
        key: from the state.
    """

    token: _Matrix
    state: _Matrix
    key: _Matrix


def teach_copying(head: Head, lessons: Lessons, embeddings: NDArray[np.float32]) -> None:
    """Add groups of attention heads that copy; nothing where every dimension turns too fast.

    Args:
        head: as it begins; its shape and weights change.
        lessons: texts to fit on.
        embeddings: of all tokens, shape [vocabulary, width].
    """
    shape = head.shape
    first = _first_steady_pair(shape.head_width, shape.rope_base)
    matched = shape.head_width - 2 * first
    if matched < 4:
        return
    states, tokens = lessons.sample(_SAMPLE)
    # Of the tokens that are drafted alone: large vocabularies do not fit into memory twice.
    drafted = _normed(embeddings[head.chosen].astype(np.float64))
    counts = lessons.frequencies(len(embeddings))[head.chosen]
    codes = _codes(drafted, counts, min(shape.head_width, shape.width))
    here, before = (_normed(embeddings[some].astype(np.float64)) for some in tokens.T)
    half = min(matched // 2, head.shape.width - len(codes.wide))
    with torch.no_grad():
        known = [codes.of(here, len(codes.wide)), codes.of(before, half)]
        mixed = _mix_in(head, states, np.concatenate(known, 1))
        normed = _normed(mixed) * head.state_norm.weight.numpy()
        outputs = _outputs(head, codes, drafted, float(np.sqrt((mixed**2).mean())))
        said = codes.wide * codes.scale[:, None]
        one, last = (
            _fitted(normed, codes.of(here, matched), 1e-3),
            _fitted(normed, codes.of(before, half), 1e-3),
        )
        nothing = np.zeros_like(one)
        single = _Match(said[:matched], nothing, one)
        pair = _Match(
            np.concatenate([said[:half], nothing[:half]]),
            np.concatenate([nothing[:half], one[:half]]),
            np.concatenate([one[:half], last]),
        )
        groups = (single, pair) if half > 1 else (single,)
        for match in groups:
            _extend(head, codes, match, outputs / len(groups), first)


def _first_steady_pair(head_width: int, base: float) -> int:
    """The first pair of dimensions that the rotary embedding turns by less than `_STEADY` over a text."""
    return math.ceil(head_width / 2 * math.log(LONGEST / _STEADY) / math.log(base))


def _codes(normed: _Matrix, counts: NDArray[np.int64], count: int) -> _Codes:
    # By the root of how often they occur: neither the few frequent ones alone nor all the rest.
    weight = np.sqrt(counts) / np.sqrt(counts).sum()
    mean = weight @ normed
    apart = (normed - mean) * np.sqrt(weight)[:, None]
    values, vectors = np.linalg.eigh(apart.T @ apart)
    values, vectors = values[::-1][:count], vectors[:, ::-1][:, :count]
    return _Codes(mean, vectors.T, 1.0 / np.sqrt(np.maximum(values, 1e-9)))


def _mix_in(head: Head, states: _Matrix, codes: _Matrix) -> _Matrix:
    """Have `fc` put a token's code into its state; returns the states then."""
    width = head.shape.width
    weight = head.fc.weight.numpy().astype(np.float64)
    size = np.sqrt(((states @ weight.T) ** 2).mean())
    directions, _ = np.linalg.qr(np.random.default_rng(1).standard_normal((width, codes.shape[1])))
    read = _fitted(states[:, :width], codes, 1e-2)
    weight[:, :width] += _MIXED * size * math.sqrt(width / codes.shape[1]) * directions @ read
    head.fc.weight.copy_(torch.from_numpy(weight.astype(np.float32)))
    mixed: _Matrix = states @ weight.T
    return mixed


def _outputs(head: Head, codes: _Codes, drafted: _Matrix, size: float) -> _Matrix:
    """From a value to a state that says its token, shape [width, codes]; `size` is that of states."""
    output = head.output.weight.detach().float().numpy().astype(np.float64)
    norm = head.norm.weight.numpy().astype(np.float64)
    values, apart = drafted @ codes.wide.T, output - output.mean(0)
    back = _fitted(values, apart, 1e-3)
    gain = ((values @ back.T) * apart).sum(1).mean() / size
    scaled: _Matrix = _GAIN / gain * back / norm[:, None]
    return scaled


def _extend(head: Head, codes: _Codes, match: _Match, outputs: _Matrix, first: int) -> None:
    shape, width = head.shape, head.shape.width
    group, one, matched = shape.heads // shape.kv_heads, shape.head_width, len(match.key)
    query = np.zeros((group, one, 2 * width))
    used = slice(2 * first, 2 * first + matched)
    sharp = _SHARPNESS * np.linspace(1 - _SPREAD, 1 + _SPREAD, group) * math.sqrt(one) / matched
    query[:, used] = sharp[:, None, None] * np.concatenate([match.token, match.state], 1)
    key, value, back = np.zeros((one, 2 * width)), np.zeros((one, 2 * width)), np.zeros((group, width, one))
    key[used, width:] = match.key
    value[: len(codes.wide), :width] = codes.wide
    back[:, :, : len(codes.wide)] = outputs / group
    _append(head.q, query.reshape(-1, 2 * width), 0)
    _append(head.k, key, 0)
    _append(head.v, value, 0)
    _append(head.o, np.concatenate(list(back), 1), 1)
    head.shape = replace(shape, heads=shape.heads + group, kv_heads=shape.kv_heads + 1)


def _append(layer: nn.Linear, rows: _Matrix, axis: int) -> None:
    added = torch.from_numpy(np.ascontiguousarray(rows, np.float32))
    layer.weight = nn.Parameter(torch.cat([layer.weight, added], axis))


def _fitted(given: _Matrix, wanted: _Matrix, strength: float) -> _Matrix:
    """The linear map from `given` to `wanted` by ridge regression, shape [values wanted, values given]."""
    inner = given.T @ given
    inner += strength * np.trace(inner) / len(inner) * np.eye(len(inner))
    return np.asarray(np.linalg.solve(inner, given.T @ wanted).T, np.float64)


def _normed(x: _Matrix) -> _Matrix:
    size: _Matrix = np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)
    return x / size
