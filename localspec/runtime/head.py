"""A head's passes and cache: a second context that reads hidden states beside, or in place of, tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from localspec.errors import EngineError, IncompatibleError, NotEnoughMemoryError, RollbackRefusedError
from localspec.runtime.context import LlamaContext
from localspec.runtime.ext import ext, missing
from localspec.runtime.head_rows import HeadRows
from localspec.runtime.head_tree import HeadTree
from localspec.runtime.library import forget_errors, lib, recent_errors
from localspec.runtime.model import LlamaModel, looks_like_memory
from localspec.runtime.views import floats_at
from localspec.target import Outputs

Kind = Literal["eagle3", "mtp", "dflash", "dspark"]

MAX_BATCH = 128
"""Rows of a pass at most: an encoder's pass reserves a row of logits for each."""
MAX_ROWS = 64
"""Rows of a pass whose logits are wanted at most."""
TREE_CELLS = 256
"""Room for a draft tree behind the text, in a head that can draft one."""


@dataclass(frozen=True, slots=True)
class HeadShape:
    """What a head's passes need to know of it; see `localspec.models.heads.HeadFacts`.

    Attributes:
        kind: the method.
        width: values of its own hidden states.
        features: values of a row of the target's states that it reads.
        causal: whether a token of a block sees only those before it (DFlash, DSpark).
        block: tokens of a block at most; 0 for heads that go token by token.
        prediction_layers: layers of a head that predict one token each (MTP); 1 for the other kinds.
    """

    kind: Kind
    width: int
    features: int
    causal: bool = True
    block: int = 0
    prediction_layers: int = 1


class LlamaHead:
    """Implements `localspec.target.HeadContext` on llama.cpp, for every kind of head.

    Must be closed before the target's context: it reads the target's embeddings and output layer.

    Args:
        model: the head's weights; for prediction layers in the target's own file, the target's.
        target: the context whose states it reads.
        shape: what it is.
        capacity: positions that its cache holds.
        threads: CPU threads of its passes.
        snapshots: rows that can be rolled back where its state is recurrent; 0 for other heads.
        sequences: branches of a draft tree at most.
        flash_attention: None lets llama.cpp decide.

    Raises:
        IncompatibleError: this build of llama.cpp, or this pair of files, cannot do it.
        NotEnoughMemoryError: its cache does not fit.
    """

    def __init__(
        self,
        model: LlamaModel,
        target: LlamaContext,
        shape: HeadShape,
        *,
        capacity: int,
        threads: int = 1,
        snapshots: int = 0,
        sequences: int = 1,
        flash_attention: bool | None = None,
    ) -> None:
        lacking = missing()
        if lacking:
            raise IncompatibleError(lacking)
        if shape.kind == "mtp" and not model.with_prediction:
            raise IncompatibleError(
                f"The prediction layers of {model.path.name} are not loaded; start anew with --draft mtp."
            )
        if target.closed:
            raise EngineError("The target of this head has been closed.")
        _check_widths(model, target, shape)
        low = lib()
        self.shape, self.model, self.sequences = shape, model, sequences
        self._target = target
        self._vocabulary = model.vocabulary_size
        self.max_batch = min(MAX_BATCH, capacity)
        self.max_rows = min(MAX_ROWS, self.max_batch)
        if shape.block > self.max_rows:
            raise IncompatibleError(
                f"{model.path.name} drafts blocks of {shape.block} tokens, and a pass has {self.max_rows} at "
                "most; raise --context, or choose another --draft."
            )
        params = low.llama_context_default_params()
        self._capacity = capacity
        self._cells = capacity + (TREE_CELLS if sequences > 1 else 0)
        params.n_ctx = self._cells
        # llama.cpp reserves a row for every sequence.
        params.n_batch = params.n_ubatch = max(self.max_batch, sequences)
        params.n_outputs_max = max(self.max_batch if shape.kind == "eagle3" else self.max_rows, sequences)
        params.n_seq_max = sequences
        params.kv_unified = True
        params.n_threads = params.n_threads_batch = threads
        params.n_rs_seq = snapshots
        params.flash_attn_type = -1 if flash_attention is None else int(flash_attention)
        params.ctx_other = target.handle
        if shape.kind == "mtp":
            params.ctx_type = low.LLAMA_CONTEXT_TYPE_MTP
        forget_errors()
        self._handle: Any = low.llama_init_from_model(model.handle, params)
        if not self._handle:
            raise _open_error(model, capacity)
        self._memory: Any = low.llama_get_memory(self._handle)
        ext().set_nextn(self._handle, True, True)
        if shape.block:
            low.llama_set_causal_attn(self._handle, shape.causal)
        self._batch = HeadRows(self.max_batch, max(shape.features, shape.width), sequences)
        self._tree = HeadTree(self._memory, sequences)
        self._start = self._end = 0
        self._tree_cells = 0
        self._outputs = 0

    @property
    def max_nodes(self) -> int:
        """Nodes of all levels of a draft tree at most."""
        return self._cells - self._capacity

    @property
    def length(self) -> int:
        """Rows in the cache."""
        return self._end - self._start

    @property
    def handle(self) -> Any:
        """The native pointer."""
        return self._handle

    def encode(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """See `HeadContext.encode`; raises `EngineError` for a head without an encoder."""
        if self.shape.kind != "eagle3" or features.shape[1:] != (self.shape.features,):
            raise EngineError(f"This head cannot encode features of the shape {features.shape}.")
        self._check_open()
        self._outputs = 0
        encoded = np.empty((len(features), self.shape.width), np.float32)
        for start in range(0, len(features), self.max_batch):
            piece = features[start : start + self.max_batch]
            # Nothing is stored, but positions have to go on from the cache's end.
            batch = self._batch.fill(self._end, None, piece, outputs=True)
            self._run(lib().llama_encode, batch, len(piece))
            pointer = ext().get_nextn(self._handle)
            if not pointer:
                raise EngineError("llama.cpp has kept no states of this head's encoder.")
            encoded[start : start + len(piece)] = floats_at(pointer, len(piece), self.shape.width)
        return encoded

    def decode(
        self,
        start: int,
        tokens: Sequence[int] | None,
        states: NDArray[np.float32] | None,
        outputs: Outputs,
    ) -> None:
        """See `HeadContext.decode`."""
        count = self._check(start, tokens, states)
        if self._tree.grows:
            raise EngineError("A draft tree stands behind the text of this head; drop it first.")
        wanted = count if outputs == "all" else 0
        if count > self.max_batch or wanted > self.max_rows:
            raise EngineError(f"A pass of {count} rows, {wanted} of them wanted, is too large for this head.")
        self._check_room(count)
        self._outputs = 0
        self._run(lib().llama_decode, self._batch.fill(start, tokens, states, outputs=wanted > 0), count)
        if self.length == 0:
            self._start = start
        self._end = start + count
        self._outputs = wanted

    def decode_nodes(
        self, tokens: Sequence[int], states: NDArray[np.float32], parents: Sequence[int]
    ) -> None:
        """See `TreeHead.decode_nodes`."""
        if self.sequences == 1 or not self.length:
            raise EngineError("This head cannot draft a tree, or has read no text before it.")
        count = self._check(self._end, tokens, states)
        if len(parents) != count:
            raise EngineError(f"{count} nodes of a tree need as many parents, not {len(parents)}.")
        self._check_room(count)
        place = self._end + self._tree.depth
        sequences = self._tree.level(parents, self._end)
        self._outputs = 0
        batch = self._batch.fill(place, tokens, states, outputs=True, sequences=sequences)
        self._run(lib().llama_decode, batch, count)
        self._tree_cells += count
        self._outputs = count

    def logits(self, row: int) -> NDArray[np.float32]:
        """See `HeadContext.logits`; raises `EngineError` for a row that was not wanted."""
        self._known(row)
        pointer = lib().llama_get_logits_ith(self._handle, row)
        if not pointer:
            raise EngineError("llama.cpp has kept no logits of this head.")
        return floats_at(pointer, 1, self._vocabulary).reshape(-1)

    def state(self, row: int) -> NDArray[np.float32]:
        """See `HeadContext.state`; raises `EngineError` for a row that was not wanted."""
        self._known(row)
        pointer = ext().get_nextn_row(self._handle, row)
        if not pointer:
            raise EngineError("llama.cpp has kept no hidden state of this head.")
        return floats_at(pointer, 1, self.shape.width).flatten()

    def use_layer(self, number: int) -> None:
        """See `HeadContext.use_layer`."""
        if not 0 <= number < self.shape.prediction_layers:
            raise EngineError(
                f"This head has {self.shape.prediction_layers} prediction layers, not {number + 1}."
            )
        self._check_open()
        ext().set_nextn_layer(self._handle, number)

    def keep(self, end: int) -> None:
        """See `HeadContext.keep`; a draft tree behind the text is dropped too."""
        if end > self._start and (end < self._end or self._tree.grows):
            self._check_open()
            self._tree.drop(end)
            self._tree_cells = self._outputs = 0
        if end >= self._end:
            return
        if end <= self._start:
            self.clear()
            return
        if not lib().llama_memory_seq_rm(self._memory, 0, end, -1):
            raise RollbackRefusedError(f"llama.cpp refused to roll a head's cache back to position {end}.")
        self._end = end

    def clear(self) -> None:
        """See `HeadContext.clear`."""
        if self._handle is None:
            return
        lib().llama_memory_clear(self._memory, False)
        self._tree.forget()
        self._start = self._end = self._tree_cells = self._outputs = 0

    def close(self) -> None:
        """Free cache and buffers; the weights stay."""
        if self._handle:
            lib().llama_free(self._handle)
            self._handle = None

    # --- inner steps

    def _check(self, start: int, tokens: Sequence[int] | None, states: NDArray[np.float32] | None) -> int:
        """Rows of a pass; what native code would answer with an abort or with wrong drafts is refused."""
        kind, block = self.shape.kind, bool(self.shape.block)
        given = states if tokens is None else tokens
        if given is None:
            raise EngineError("A head's pass needs tokens or states.")
        if block and (tokens is not None) == (states is not None):
            raise EngineError("A pass of a block drafter takes tokens or states, not both.")
        if not block and (tokens is None or states is None):
            raise EngineError(f"A pass of an {kind} head takes a hidden state beside every token.")
        wide = self.shape.features if block else self.shape.width
        if states is not None and states.shape[1:] != (wide,):
            raise EngineError(f"This head reads states of {wide} values, not of the shape {states.shape}.")
        count = len(given)
        if not count or (states is not None and len(states) != count):
            raise EngineError("A head's pass needs as many states as tokens, and at least one.")
        if tokens is not None and not 0 <= min(tokens) <= max(tokens) < self._vocabulary:
            raise EngineError(f"A head of {self._vocabulary} tokens was given one that it does not have.")
        if tokens is not None and block and count > self.shape.block:
            raise EngineError(f"This head drafts blocks of at most {self.shape.block} tokens, not {count}.")
        if start < 0 or (self.length and start != self._end):
            raise EngineError(f"A head's cache that ends at position {self._end} cannot go on at {start}.")
        self._check_open()
        return count

    def _check_open(self) -> None:
        if self._handle is None or self._target.closed:
            raise EngineError("This head or its target has been closed.")

    def _check_room(self, count: int) -> None:
        if self.length + self._tree_cells + count > self._cells:
            raise EngineError(f"A head's cache of {self._cells} positions has no room for {count} more.")

    def _run(self, call: Any, batch: Any, count: int) -> None:
        code = call(self._handle, batch)
        lib().llama_synchronize(self._handle)
        if code != 0:
            lines = recent_errors()
            detail = f": {lines[-1]}" if lines else ""
            raise EngineError(f"llama.cpp failed in a head's pass over {count} rows (code {code}){detail}.")

    def _known(self, row: int) -> None:
        if not 0 <= row < self._outputs:
            raise EngineError(f"The newest pass of this head has {self._outputs} wanted rows, not row {row}.")
        self._check_open()


def _check_widths(model: LlamaModel, target: LlamaContext, shape: HeadShape) -> None:
    """Raise `IncompatibleError` where a head would read rows of another width than there are."""
    low = lib()
    own, there = low.llama_model_n_embd(model.handle), low.llama_model_n_embd(target.model.handle)
    joined = shape.kind == "eagle3" or shape.features % there == 0
    if own != shape.width or not joined or (shape.kind != "eagle3" and own != there):
        raise IncompatibleError(
            f"{model.path.name} was made for another model: its states are {own} values wide, it reads "
            f"{shape.features}, and the states of this model have {there}."
        )


def _open_error(model: LlamaModel, capacity: int) -> Exception:
    lines = recent_errors()
    if looks_like_memory(lines):
        return NotEnoughMemoryError(
            f"There is not enough memory for {model.path.name} beside the model, with {capacity} tokens of "
            "context; choose a smaller --context or another --draft."
        )
    cause = lines[-1] if lines else "no reason given"
    return IncompatibleError(f"llama.cpp cannot use {model.path.name} as a head: {cause}.")
