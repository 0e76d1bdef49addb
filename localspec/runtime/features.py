"""Taps: hidden states of a target context's newest pass, read in one copy."""

from __future__ import annotations

import math
import weakref
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from localspec.errors import EngineError, IncompatibleError
from localspec.models.heads import highest_tap
from localspec.runtime.context import LlamaContext
from localspec.runtime.ext import ext
from localspec.runtime.library import lib
from localspec.runtime.views import floats_at

_FINAL = -1
"""In place of a layer: the states after the last one."""

_kept: weakref.WeakKeyDictionary[LlamaContext, Counter[int]] = weakref.WeakKeyDictionary()
"""How many taps want a layer, for each context: closing one must not blind another."""

_quiet: weakref.WeakKeyDictionary[LlamaContext, float] = weakref.WeakKeyDictionary()
"""Of hushed contexts, the number of passes up to which nothing was kept; infinite while they are hushed."""


def hush(context: LlamaContext, quiet: bool) -> None:
    """Keep no hidden states of `context` from the next pass on, or again those that its taps want.

    For passes whose states nobody will read: the taps do not know of it.
    """
    if quiet == _hushed(context) or context.closed:
        return
    for layer, count in _kept.get(context, Counter()).items():
        if count:
            _switch(context, layer, on=not quiet)
    _quiet[context] = math.inf if quiet else context.passes


def _hushed(context: LlamaContext) -> bool:
    return _quiet.get(context) == math.inf


class _SwitchedTap:
    """What taps have in common: they are on while somebody wants their states."""

    def __init__(self, context: LlamaContext, layers: Sequence[int], *, on: bool) -> None:
        self._context, self._layers = context, tuple(layers)
        self._since = context.passes
        self._open = True
        self._users = 0
        if on:
            self.resume()

    def resume(self) -> None:
        """See `Tap.resume`."""
        self._users += 1
        if self._users == 1 and self._open and not self._context.closed:
            # What is there is of a pass that kept nothing for this tap.
            self._since = self._context.passes
            for layer in self._layers:
                _want(self._context, layer)

    def pause(self) -> None:
        """See `Tap.pause`."""
        self._users -= 1
        if self._users == 0 and self._open:
            self._release()

    def close(self) -> None:
        """See `Tap.close`."""
        if self._open:
            self._open = False
            if self._users:
                self._release()

    def _release(self) -> None:
        for layer in self._layers:
            _release(self._context, layer)

    def _count(self, rows: Sequence[int] | slice) -> int:
        """Rows of the newest pass; reading where nothing was kept would end the process."""
        context = self._context
        since = max(self._since, _quiet.get(context, 0))
        if not (self._open and self._users) or context.passes <= since or context.closed:
            raise EngineError("No pass has kept hidden states for this head yet.")
        count = context.pass_rows
        if isinstance(rows, slice):
            known = 0 <= (rows.start or 0) <= (count if rows.stop is None else rows.stop) <= count
        else:
            known = all(0 <= row < count for row in rows)
        if not known:
            raise EngineError(f"The newest pass has {count} rows of hidden states, not {rows}.")
        return count


class LayerTap(_SwitchedTap):
    """The inputs of some layers; implements `localspec.target.Tap`.

    Args:
        context: the target's.
        layers: numbers of layers from 0, in the order in which a row holds them.
        on: whether states are kept from the beginning; else from the first `resume` on.

    Raises:
        IncompatibleError: llama.cpp does not hand out states of this architecture, or of such a layer.
    """

    def __init__(self, context: LlamaContext, layers: Sequence[int], *, on: bool = True) -> None:
        model = context.model
        highest = highest_tap(model.architecture, model.layers)
        if highest is None:
            raise IncompatibleError(
                f"llama.cpp hands out no hidden states of models of the architecture '{model.architecture}'; "
                "choose another --draft."
            )
        if not layers or min(layers) < 0 or max(layers) > highest:
            raise IncompatibleError(
                f"This head reads the layers {', '.join(map(str, layers)) or 'none'} of its target, and this "
                f"target has them up to {highest}; it was made for another model."
            )
        self._layer_width: int = lib().llama_model_n_embd(model.handle)
        super().__init__(context, layers, on=on)

    @property
    def width(self) -> int:
        """Values of a row."""
        return self._layer_width * len(self._layers)

    def rows(self, rows: Sequence[int] | slice) -> NDArray[np.float32]:
        """See `Tap.rows`."""
        count = self._count(rows)
        handle, width = self._context.handle, self._layer_width
        size = len(range(count)[rows]) if isinstance(rows, slice) else len(rows)
        taken = np.empty((size, self.width), np.float32)
        for place, layer in enumerate(self._layers):
            pointer = ext().get_layer_input(handle, layer)
            if not pointer:
                raise EngineError(f"llama.cpp has kept no hidden states of layer {layer}.")
            states = floats_at(pointer, count, width)
            part = taken[:, place * width : (place + 1) * width]
            if isinstance(rows, slice):
                part[:] = states[rows]
            else:
                # An index of several rows would make a copy of its own first.
                for to, row in enumerate(rows):
                    part[to] = states[row]
        return taken


class FinalTap(_SwitchedTap):
    """The states after the last layer, that a model's own prediction layers (MTP) go on from; a `Tap`.

    Args:
        context: the target's.
        on: whether states are kept from the beginning; else from the first `resume` on.
    """

    def __init__(self, context: LlamaContext, *, on: bool = True) -> None:
        self.width: int = lib().llama_model_n_embd_out(context.model.handle)
        super().__init__(context, (_FINAL,), on=on)

    def rows(self, rows: Sequence[int] | slice) -> NDArray[np.float32]:
        """See `Tap.rows`."""
        count = self._count(rows)
        pointer = ext().get_nextn(self._context.handle)
        if not pointer:
            raise EngineError("llama.cpp has kept no final hidden states of this model.")
        states = floats_at(pointer, count, self.width)
        if isinstance(rows, slice):
            return states[rows].copy()
        chosen: NDArray[np.float32] = states[list(rows)]
        return chosen


def _want(context: LlamaContext, layer: int) -> None:
    counts = _kept.setdefault(context, Counter())
    counts[layer] += 1
    if counts[layer] == 1 and not _hushed(context):
        _switch(context, layer, on=True)


def _release(context: LlamaContext, layer: int) -> None:
    counts = _kept.get(context, Counter())
    counts[layer] -= 1
    if counts[layer] == 0 and not (context.closed or _hushed(context)):
        _switch(context, layer, on=False)


def _switch(context: LlamaContext, layer: int, *, on: bool) -> None:
    if layer == _FINAL:
        # Not masked: rows of all tokens, whether their logits are wanted or not.
        ext().set_nextn(context.handle, on, False)
    else:
        ext().set_layer_input(context.handle, layer, on)
