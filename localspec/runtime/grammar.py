"""llama.cpp's grammar sampler as a constraint: its states kept for every beginning of a reply.

Native code aborts the process when it is told of a token that a grammar forbids, so none is without asking.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.errors import EngineError, UsageError
from localspec.grammar import check_grammar
from localspec.grammar.gbnf import ROOT
from localspec.runtime.library import forget_errors, lib, recent_errors
from localspec.runtime.model import LlamaModel

_MOST_STATES = 256
"""States kept, a draft's depth and more: each is a copy of the grammar's rules. Older ones are made anew."""
_TOO_LONG_S = 2.0
_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


class Grammar:
    """A GBNF grammar over a model's vocabulary; implements `localspec.target.Constraint`.

    Control tokens are no text, and are allowed only where the grammar names them as tokens; so are, where
    the reply may end, the tokens that end it.

    Args:
        model: the vocabulary; must stay open as long as the grammar.
        text: GBNF with a rule "root".

    Raises:
        UsageError: the grammar cannot be used.
    """

    def __init__(self, model: LlamaModel, text: str) -> None:
        tokens = check_grammar(text)
        self._visible = model.visible_tokens
        if tokens:
            self._visible = self._visible.copy()
            self._visible[[_token_id(model, name) for name in tokens]] = True
        forget_errors()
        handle = lib().llama_sampler_init_grammar(model.vocab, text.encode(), ROOT.encode())
        if not handle:
            raise UsageError(f"llama.cpp does not accept the grammar ({recent_errors()[-1]}); simplify it.")
        # The state after `_said[:n]` is `_states[n - _first]`; the very first one is kept apart.
        self._begin: Any = handle
        self._states: list[Any] = []
        self._first = 1
        self._said: list[int] = []
        self._candidates = np.zeros(0, dtype=_CANDIDATE)
        self._view = lib().llama_token_data_array()

    def allowed(self, said: Sequence[int], ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """See `Constraint.allowed`."""
        return self._allows(self._state_after(said), ids) & self._visible[ids]

    def close(self) -> None:
        """Free every state."""
        self._forget(0)
        if self._begin:
            lib().llama_sampler_free(self._begin)
            self._begin = None

    def _state_after(self, said: Sequence[int]) -> Any:
        """The state after `said`, made from the longest beginning of it whose state is kept."""
        held = len(self._said)
        if list(said[:held]) != self._said:
            pairs = enumerate(zip(self._said, said, strict=False))
            shared = next((place for place, (mine, theirs) in pairs if mine != theirs), min(held, len(said)))
            self._forget(shared if shared >= self._first else 0)
        for token in said[len(self._said) :]:
            self._advance(token)
        return self._states[-1] if self._states else self._begin

    def _advance(self, token: int) -> None:
        state = self._states[-1] if self._states else self._begin
        if not self._allows(state, np.array([token]))[0]:
            raise EngineError(
                f"The grammar was told of token {token}, which it forbids; this is a fault of localspec."
            )
        began = time.perf_counter()
        following = lib().llama_sampler_clone(state)
        lib().llama_sampler_accept(following, token)
        self._states.append(following)
        self._said.append(token)
        if len(self._states) > _MOST_STATES:
            lib().llama_sampler_free(self._states.pop(0))
            self._first += 1
        if time.perf_counter() - began > _TOO_LONG_S:
            # The readings that llama.cpp follows in parallel double with every such token: end it in time.
            raise UsageError(
                "The grammar has too many readings of one text; let its alternatives begin differently."
            )

    def _forget(self, length: int) -> None:
        """Drop the states after the first `length` tokens."""
        while len(self._said) > length:
            self._said.pop()
            if self._states:
                lib().llama_sampler_free(self._states.pop())
        if not self._states:
            self._said.clear()
            self._first = 1

    def _allows(self, state: Any, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        count = len(ids)
        if count > len(self._candidates):
            self._candidates = np.zeros(max(count, 256), dtype=_CANDIDATE)
            pointer = ctypes.POINTER(lib().llama_token_data)
            self._view.data = self._candidates.ctypes.data_as(pointer)
        candidates = self._candidates[:count]
        candidates["id"] = ids
        candidates["logit"] = 0.0
        self._view.size = count
        self._view.selected = -1
        self._view.sorted = False
        lib().llama_sampler_apply(state, ctypes.byref(self._view))
        allowed: NDArray[np.bool_] = candidates["logit"] == 0.0
        return allowed


def _token_id(model: LlamaModel, name: str) -> int:
    """The id of a token that a grammar names, as "<[7]>" or by its text."""
    ids = (
        [int(name[2:-2])]
        if name.startswith("<[")
        else model.tokenize(name, add_special=False, parse_special=True)
    )
    if len(ids) != 1 or not 0 <= ids[0] < model.vocabulary_size:
        raise UsageError(f"The grammar names {name}, which is no token of this model; correct it.")
    return ids[0]
