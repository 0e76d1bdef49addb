"""A model made of arithmetic, and drafters of known quality: for anyone who adds a drafter or a verifier.

`ScriptedModel` is deterministic and batch-invariant, so "speculative equals plain" can be asserted token for
token; a real model's kernels change their rounding with the batch width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from localspec.drafters.base import Needs
from localspec.errors import EngineError, RollbackRefusedError
from localspec.sampling import Sampler
from localspec.target import Outputs
from localspec.trees import Trie, leaves_of
from localspec.types import EMPTY_DRAFT, Budget, Draft, Outcome, Rows, Verdict


class ScriptedModel:
    """A target whose logits are a fixed function of the last `order` tokens; also its own vocabulary.

    Token 0 ends a reply. Tokens 1, 2 and 3 are the three bytes of one character, so that text splits inside
    UTF-8; the others are a letter each.

    Args:
        vocabulary: number of tokens, at least 8.
        order: tokens that a row depends on.
        spread: standard deviation of the logits; larger is more predictable.
        seed: which of the possible models this is.
        capacity: context size in tokens.
        max_batch: tokens of one decode at most.
        can_trim: whether the cache can be rolled back.
        max_leaves: branches of a draft tree in one pass at most; 1 without roll back.
        eog_logit: the end token's logit, far below the others by default.
    """

    def __init__(
        self,
        vocabulary: int = 32,
        *,
        order: int = 2,
        spread: float = 2.0,
        seed: int = 0,
        capacity: int = 4096,
        max_batch: int = 64,
        can_trim: bool = True,
        max_leaves: int = 16,
        eog_logit: float = -4.0,
    ) -> None:
        self._size = vocabulary
        self._order = order
        self._spread = spread
        self._seed = seed
        self._eog_logit = eog_logit
        self._rows: dict[tuple[int, ...], NDArray[np.float32]] = {}
        self._cache: list[int] = []
        self._tree = EMPTY_DRAFT
        self.capacity = capacity
        self.max_batch = self.max_rows = max_batch
        self.can_trim = can_trim
        self.max_leaves = max_leaves if can_trim else 1
        self.threads = 1
        self.passes: list[int] = []

    # --- vocabulary

    @property
    def eog_tokens(self) -> frozenset[int]:
        """Token 0."""
        return frozenset({0})

    def token_bytes(self, token: int) -> bytes:
        """One byte a token."""
        if token == 0:
            return b""
        if token <= 3:
            return "€".encode()[token - 1 : token]
        return bytes([ord("a") + (token - 4) % 26])

    def token_text(self, token: int) -> str:
        """The token by itself; "<end>" for token 0."""
        return self.token_bytes(token).decode("utf-8", "replace") if token else "<end>"

    def tokenize(self, text: str, *, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """Letters to tokens; anything else is left out."""
        del add_special, parse_special
        return [4 + ord(char) - ord("a") for char in text if "a" <= char <= "z"]

    # --- context

    @property
    def can_trim_far(self) -> bool:
        """Any tail can be dropped, if one can at all."""
        return self.can_trim

    @property
    def length(self) -> int:
        """Tokens in the cache."""
        return len(self._cache) + len(self._tree)

    @property
    def cached(self) -> tuple[int, ...]:
        """The tokens in the cache."""
        return tuple(self._cache)

    def decode(self, tokens: Sequence[int], outputs: Outputs) -> Rows:
        """Append `tokens`; rows of all of them or none. Raises `EngineError` when they do not fit."""
        self._check(len(tokens))
        self.passes.append(len(tokens))
        rows = []
        for token in tokens:
            self._cache.append(token)
            if outputs == "all":
                rows.append(self.row(self._cache))
        return np.stack(rows) if rows else np.zeros((0, self._size), dtype=np.float32)

    def decode_tree(self, root: int, draft: Draft) -> Rows:
        """Append a tree; raises `EngineError` when it does not fit or has too many branches."""
        self._check(1 + len(draft))
        if len(leaves_of(draft)) > self.max_leaves:
            raise EngineError("The scripted model was given a tree with too many branches.")
        self.passes.append(1 + len(draft))
        self._cache.append(root)
        self._tree = draft
        stem = self._cache[-self._order :]
        paths = [(), *map(draft.path_to, range(len(draft)))]
        return np.stack([self.row([*stem, *(draft.tokens[node] for node in path)]) for path in paths])

    def keep_path(self, path: Sequence[int]) -> None:
        """Keep one path; raises `RollbackRefusedError` for what is none."""
        tree, self._tree = self._tree, EMPTY_DRAFT
        if path and tree.path_to(path[-1]) != tuple(path):
            raise RollbackRefusedError("The scripted model was asked to keep what is no path of its tree.")
        self._cache += [tree.tokens[node] for node in path]

    def keep(self, length: int) -> None:
        """Drop the tail; raises `RollbackRefusedError` where trimming is off."""
        if not self.can_trim:
            raise RollbackRefusedError("The scripted model cannot trim.")
        del self._cache[length:]

    def clear(self) -> None:
        """Empty the cache."""
        self._cache.clear()
        self._tree = EMPTY_DRAFT

    def _check(self, count: int) -> None:
        if len(self._tree):
            raise EngineError("The scripted model still holds a whole tree; keep one path of it first.")
        if count > self.max_batch or len(self._cache) + count > self.capacity:
            raise EngineError("The scripted model was given more tokens than fit.")

    def row(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Logits after `tokens`, shape [vocabulary]."""
        key = tuple(tokens[-self._order :])
        row = self._rows.get(key)
        if row is None:
            generator = np.random.default_rng([self._seed, *key])
            row = generator.normal(0.0, self._spread, self._size).astype(np.float32)
            row[0] = self._eog_logit
            self._rows[key] = row
        return row


class ScriptedSequences:
    """Scripted models side by side, one a sequence: what each says depends on its own cache alone.

    Args:
        models: a cache of its own for every sequence.
        capacity: tokens of all sequences together; None gives every model its own.
        max_rows: tokens of one decode at most.
    """

    def __init__(
        self, models: Sequence[ScriptedModel], *, capacity: int | None = None, max_rows: int = 128
    ) -> None:
        self.models = tuple(models)
        self.sequences = len(self.models)
        self.capacity = sum(model.capacity for model in models) if capacity is None else capacity
        self.max_batch = self.max_rows = max_rows
        self.can_trim = all(model.can_trim for model in models)
        self.threads = 1
        self.passes: list[dict[int, int]] = []

    def length(self, sequence: int) -> int:
        """Tokens of `sequence` in its cache."""
        return self.models[sequence].length

    def decode(self, pieces: Mapping[int, Sequence[int]], outputs: Outputs) -> Rows:
        """Append every piece to its sequence. Raises `EngineError` when they do not fit together."""
        widths = {sequence: len(piece) for sequence, piece in pieces.items()}
        held = sum(model.length for model in self.models)
        if sum(widths.values()) > self.max_rows or held + sum(widths.values()) > self.capacity:
            raise EngineError("The scripted sequences were given more tokens than fit.")
        self.passes.append(widths)
        return np.concatenate(
            [self.models[number].decode(piece, outputs) for number, piece in pieces.items()]
        )

    def keep(self, sequence: int, length: int) -> None:
        """Drop the tail of one sequence; raises `RollbackRefusedError` where trimming is off."""
        if length < self.length(sequence):
            self.models[sequence].keep(length)

    def clear(self) -> None:
        """Empty every cache."""
        for model in self.models:
            model.clear()


class TranscriptVerifier:
    """Forces every outcome to a recorded text, at the real cost of decoding and sampling.

    Small models loop in one run and not in the other after a single near-tie, so free-running speeds cannot
    be
    compared. On a transcript every drafter is judged on the same text. Its figures say nothing of identity.

    Args:
        sequence: the whole session's tokens, prompt included.
    """

    name = "transcript"
    exact = False

    def __init__(self, sequence: Sequence[int]) -> None:
        self._sequence = list(sequence)

    def verify(self, draft: Draft, rows: Rows, sampler: Sampler, history: Sequence[int]) -> Verdict:
        """Follow the transcript through the draft, drawing from every row on the way as usual."""
        position, node = len(history), -1
        path: list[int] = []
        while True:
            sampler.sample(rows[node + 1], position, history)
            token = self._sequence[position]
            child = draft.child_with(node, token)
            if child < 0 or position + 1 >= len(self._sequence):
                break
            path.append(child)
            node, position = child, position + 1
        refused = any(parent == node for parent in draft.parents[node + 1 :])
        return Verdict(tuple(path), token, "correction" if refused else "bonus")


class OracleDrafter:
    """Knows the sequence and proposes its true continuation: every draft token is accepted."""

    name = "oracle"
    needs = Needs.TOKENS
    remembers = False

    def __init__(self, sequence: Sequence[int]) -> None:
        self._sequence = list(sequence)

    def begin(self, tokens: Sequence[int]) -> None:
        """Nothing to prepare."""

    def propose(self, tokens: Sequence[int], budget: Budget) -> Draft:
        """The true continuation."""
        start = len(tokens)
        return Draft.chain(self._sequence[start : start + budget.tokens], source=self.name)

    def commit(self, outcome: Outcome) -> None:
        """Nothing to learn."""

    def close(self) -> None:
        """Nothing to free."""


class AdversarialDrafter(OracleDrafter):
    """Knows the sequence and is always wrong, from the first draft token on or from position `right` on."""

    name = "adversarial"

    def __init__(self, sequence: Sequence[int], vocabulary: int, right: int = 0) -> None:
        super().__init__(sequence)
        self._vocabulary = vocabulary
        self._right = right

    def propose(self, tokens: Sequence[int], budget: Budget) -> Draft:
        """The true continuation for `right` tokens, then wrong ones."""
        truth = super().propose(tokens, budget).tokens
        wrong = tuple((token + 1) % self._vocabulary for token in truth[self._right :])
        return Draft.chain(truth[: self._right] + wrong, source=self.name)


class DecoyDrafter(OracleDrafter):
    """Knows the sequence and hides its true continuation among wrong branches, in trees of random shape.

    Args:
        sequence: the whole session's tokens.
        vocabulary: number of tokens.
        right: how much of the true continuation a tree may hold; 0 makes every branch wrong from the start.
        seed: which trees.
    """

    name = "decoy"

    def __init__(
        self, sequence: Sequence[int], vocabulary: int, right: int | None = None, *, seed: int = 0
    ) -> None:
        super().__init__(sequence)
        self._vocabulary = vocabulary
        self._right = right
        self._random = np.random.default_rng(seed)

    def propose(self, tokens: Sequence[int], budget: Budget) -> Draft:
        """A tree of up to `budget.leaves` branches; the right one comes at any place among its siblings."""
        depth = max(1, budget.tokens // budget.leaves)
        future = super().propose(tokens, budget).tokens[:depth]
        truth = future[: self._right]
        branches = [truth]
        for _ in range(budget.leaves - 1):
            shared = int(self._random.integers(0, min(len(truth), depth - 1) + 1))
            wrong = self._random.integers(0, self._vocabulary, depth - shared)
            if shared < len(future) and wrong[0] == future[shared]:
                wrong[0] = (wrong[0] + 1) % self._vocabulary
            branches.append((*truth[:shared], *map(int, wrong)))
        trie = Trie()
        for place in self._random.permutation(len(branches)):
            trie.add(branches[place])
        draft = Draft(tuple(trie.tokens), tuple(trie.parents), source=self.name)
        return draft.prefix(budget.tokens)


class RandomDrafter:
    """Proposes random tokens, in random amounts, sometimes none; with `branches`, random trees."""

    name = "random"
    needs = Needs.TOKENS
    remembers = False

    def __init__(self, vocabulary: int, seed: int = 0, *, branches: bool = False) -> None:
        self._vocabulary = vocabulary
        self._branches = branches
        self._random = np.random.default_rng(seed)

    def begin(self, tokens: Sequence[int]) -> None:
        """Nothing to prepare."""

    def propose(self, tokens: Sequence[int], budget: Budget) -> Draft:
        """Random tokens."""
        del tokens
        size = int(self._random.integers(0, budget.tokens + 1))
        if size == 0:
            return EMPTY_DRAFT
        drawn = [int(token) for token in self._random.integers(0, self._vocabulary, size)]
        if not self._branches:
            return Draft.chain(drawn, source=self.name)
        parents = tuple(int(self._random.integers(-1, node)) for node in range(size))
        return Draft(tokens=tuple(drawn), parents=parents, source=self.name)

    def commit(self, outcome: Outcome) -> None:
        """Nothing to learn."""

    def close(self) -> None:
        """Nothing to free."""
