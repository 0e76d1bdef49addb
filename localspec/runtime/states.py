"""The state behind a model's last layer, normed: what its output layer turns into logits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from localspec.errors import EngineError
from localspec.runtime.context import LlamaContext
from localspec.runtime.library import lib
from localspec.runtime.views import floats_at


class NormedStates:
    """Has a context hand out these states of the rows whose logits are wanted, until it is closed.

    Args:
        context: the model's.
    """

    def __init__(self, context: LlamaContext) -> None:
        self._context = context
        self.width: int = lib().llama_model_n_embd_out(context.model.handle)
        lib().llama_set_embeddings(context.handle, True)
        # llama.cpp counts every row as wanted then, and ends the process over more than it has room for.
        self._most, context.max_batch = context.max_batch, context.max_rows

    def rows(self, count: int) -> NDArray[np.float32]:
        """Those of the newest pass, a copy of shape [count, width].

        Args:
            count: rows of that pass whose logits were wanted.

        Raises:
            EngineError: the newest pass has not kept any.
        """
        if count > self._context.pass_rows or self._context.closed:
            raise EngineError(f"The newest pass has {self._context.pass_rows} rows, not {count}.")
        pointer = lib().llama_get_embeddings(self._context.handle)
        if not pointer:
            raise EngineError("llama.cpp has kept no states of the newest pass.")
        return floats_at(pointer, count, self.width).copy()

    def close(self) -> None:
        """Have them no longer kept."""
        if not self._context.closed:
            lib().llama_set_embeddings(self._context.handle, False)
            self._context.max_batch = self._most
