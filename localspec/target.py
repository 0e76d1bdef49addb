"""The target as the session sees it: a vocabulary, and a context that decodes and rolls back.

`localspec.runtime` implements this with llama.cpp, `localspec.testing` with a scripted function.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from localspec.types import Draft, Rows

Outputs = Literal["all", "none"]


class Vocabulary(Protocol):
    """Tokens and their text."""

    @property
    def eog_tokens(self) -> frozenset[int]:
        """Tokens that end a reply (end of text, end of turn)."""

    def token_bytes(self, token: int) -> bytes:
        """The token's text as bytes; empty for control tokens."""

    def token_text(self, token: int) -> str:
        """The token by itself as text, control tokens spelled out; half a character becomes U+FFFD."""

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Token ids of `text`."""


class Constraint(Protocol):
    """What a reply may say, such as the texts of a grammar."""

    def allowed(self, said: Sequence[int], ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which tokens of `ids` may follow the reply's tokens `said`, each of which was allowed in its turn.

        Any beginning may be asked about at any time: what it says depends on `said` alone. An end token is
        allowed exactly where the reply may end.

        Raises:
            EngineError: `said` holds a token that was not allowed.
        """


class TargetContext(Protocol):
    """One token sequence in the target's KV cache."""

    @property
    def capacity(self) -> int:
        """Tokens that the cache can hold."""

    @property
    def max_batch(self) -> int:
        """Tokens of one decode at most."""

    @property
    def max_rows(self) -> int:
        """Tokens of one decode at most where rows of all of them are wanted."""

    @property
    def can_trim(self) -> bool:
        """Whether the tail of the cache can be dropped; without that there is no speculation."""

    @property
    def can_trim_far(self) -> bool:
        """Whether any tail can be dropped, at any time.

        Otherwise the first token of the newest pass has to stay, and one roll back follows a pass at most.
        """

    @property
    def max_leaves(self) -> int:
        """Branches of a draft tree that one pass can verify at most; 1: chains only."""

    @property
    def length(self) -> int:
        """Tokens in the cache."""

    @property
    def threads(self) -> int:
        """CPU threads that the last decode used."""

    def decode(self, tokens: Sequence[int], outputs: Outputs) -> Rows:
        """Append `tokens` to the cache in one pass.

        Returns:
            Logits of every token ("all", shape [len(tokens), vocabulary]) or no rows ("none"); a view that
            the next decode overwrites.

        Raises:
            EngineError: the pass failed; the cache's content is unknown until `clear`.
        """

    def decode_tree(self, root: int, draft: Draft) -> Rows:
        """Append `root` and every node of the tree `draft` in one pass; `keep_path` or `clear` comes next.

        Returns:
            Logits of shape [len(draft) + 1, vocabulary]: row 0 of the root, row i + 1 of node i, which has
            seen the tokens on its path and no other node; a view that the next decode overwrites.

        Raises:
            EngineError: more branches or nodes than a pass takes, or the pass failed; in the latter case the
                cache's content is unknown until `clear`.
        """

    def keep_path(self, path: Sequence[int]) -> None:
        """After `decode_tree`: keep its root and then the nodes of `path`, and drop the others.

        Args:
            path: node indices downwards from a child of the root; may be empty.

        Raises:
            RollbackRefusedError: the cache would not drop them; its content is unknown until `clear`.
        """

    def keep(self, length: int) -> None:
        """Drop everything after the first `length` tokens; raises `RollbackRefusedError` if it cannot."""

    def clear(self) -> None:
        """Empty the cache."""


class SequencesContext(Protocol):
    """Several token sequences, numbered from 0, that share the target's KV cache and its passes."""

    @property
    def sequences(self) -> int:
        """Sequences at most."""

    @property
    def capacity(self) -> int:
        """Tokens that the cache can hold, of all sequences together."""

    @property
    def max_batch(self) -> int:
        """Tokens of one decode at most, of all sequences together."""

    @property
    def max_rows(self) -> int:
        """Tokens of one decode at most where rows of all of them are wanted."""

    @property
    def can_trim(self) -> bool:
        """Whether the tail of a sequence can be dropped; without that there is no speculation."""

    @property
    def threads(self) -> int:
        """CPU threads that the last decode used."""

    def length(self, sequence: int) -> int:
        """Tokens of `sequence` in the cache."""

    def decode(self, pieces: Mapping[int, Sequence[int]], outputs: Outputs) -> Rows:
        """Append to every sequence in `pieces` the tokens given for it, all in one pass.

        Returns:
            Logits of every token ("all", shape [tokens of all pieces, vocabulary], piece after piece in the
            order of the mapping) or no rows ("none"); a view that the next decode overwrites.

        Raises:
            EngineError: the pass failed; the cache's content is unknown until `clear`.
        """

    def keep(self, sequence: int, length: int) -> None:
        """Drop all of `sequence` after its first `length` tokens.

        Raises:
            RollbackRefusedError: it cannot.
        """

    def clear(self) -> None:
        """Empty the cache of every sequence."""


class Tap(Protocol):
    """Hidden states of the target, kept with every pass while somebody wants them: keeping them takes time.

    They are those of the newest pass of the context, and void with the next one.
    """

    @property
    def width(self) -> int:
        """Values of a row: of all tapped layers together."""

    def rows(self, rows: Sequence[int] | slice) -> NDArray[np.float32]:
        """A copy of some rows of the newest pass, in batch order, shape [rows, width].

        Of several layers a row holds what belongs to the first one, then the next one's.

        Raises:
            EngineError: the newest pass had fewer rows, or none of the tapped states.
        """

    def resume(self) -> None:
        """Have the states kept from the next pass on; every call needs a `pause` that undoes it."""

    def pause(self) -> None:
        """One caller of `resume` needs them no more; of a closed tap nobody gets any."""

    def close(self) -> None:
        """Have the states no longer kept, whoever wants them."""


class HeadContext(Protocol):
    """A head that drafts from hidden states: its passes, and its own cache of one text.

    Positions are the target's. The cache holds one run of them, which may begin anywhere and is only ever
    extended at its end.
    """

    @property
    def max_batch(self) -> int:
        """Rows of one pass at most."""

    @property
    def length(self) -> int:
        """Rows in the cache."""

    def encode(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """Turn the target's states into the head's (EAGLE-3's encoder), without touching the cache.

        Args:
            features: shape [rows, features of the head], any number of rows.

        Returns:
            A copy, shape [rows, width of the head].
        """

    def decode(
        self,
        start: int,
        tokens: Sequence[int] | None,
        states: NDArray[np.float32] | None,
        outputs: Outputs,
    ) -> None:
        """One pass over rows at the positions `start` and on, which are in the cache from then on.

        Args:
            start: where the cache ends, or anywhere if it is empty.
            tokens: token ids, one a row; None where the head wants states alone (DFlash's features).
            states: a hidden state beside each token, shape [rows, width]; None where it wants tokens alone.
            outputs: whether logits and states of the rows are wanted: of all, or of none.

        Raises:
            EngineError: too many rows for a pass, a gap in the positions, or the pass failed.
        """

    def logits(self, row: int) -> NDArray[np.float32]:
        """Logits of a row of the newest pass, shape [vocabulary]; a view that the next pass overwrites."""

    def state(self, row: int) -> NDArray[np.float32]:
        """The hidden state of a row of the newest pass, shape [width]; a copy."""

    def use_layer(self, number: int) -> None:
        """Have passes run the prediction layer `number` of a head that has several (MTP), from 0.

        Raises:
            EngineError: there is no such layer.
        """

    def keep(self, end: int) -> None:
        """Drop what stands at the position `end` and beyond.

        Raises:
            RollbackRefusedError: it cannot be dropped; its content is unknown until `clear`.
        """

    def clear(self) -> None:
        """Empty the cache."""


class TreeHead(HeadContext, Protocol):
    """A head whose cache can hold a draft tree behind its text."""

    @property
    def sequences(self) -> int:
        """Nodes of a level at most; 1: no trees."""

    @property
    def max_nodes(self) -> int:
        """Nodes of all levels together at most."""

    def decode_nodes(
        self, tokens: Sequence[int], states: NDArray[np.float32], parents: Sequence[int]
    ) -> None:
        """One pass over the next level of a draft tree; logits and states of all its nodes are wanted.

        The first level stands at the position where the cache ends. Each node sees the text and the nodes on
        its path. `length` stays that of the text; `keep` or `clear` drops the tree before the next `decode`.

        Args:
            tokens: one a node.
            states: the hidden state beside each token, shape [nodes, width].
            parents: for each node the place of its parent in the level before, -1 throughout the first level.

        Raises:
            EngineError: too many nodes, no such parents, or the pass failed.
        """
