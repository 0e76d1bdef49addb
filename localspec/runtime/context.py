"""A context over a model: the KV cache, one batch call, rows without a copy, checked roll back."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from localspec.errors import EngineError, NotEnoughMemoryError, RollbackRefusedError, UsageError
from localspec.models.ggml_types import KV_TYPES
from localspec.runtime.branches import Branches
from localspec.runtime.library import forget_errors, lib, recent_errors
from localspec.runtime.load import SpareCores
from localspec.runtime.model import LlamaModel, looks_like_memory
from localspec.runtime.threads import ThreadGovernor
from localspec.runtime.views import floats_at
from localspec.target import Outputs
from localspec.trees import branches_through, depths_of, leaves_of
from localspec.types import Draft, Rows

MAX_ROWS = 128
"""Rows of logits a pass at most. The output buffer is reserved for this many: 75 MB at 152k tokens."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Input of one pass.

    Attributes:
        tokens: token ids.
        positions: position of each in its sequences.
        sequences: for each token the ids of the sequences that it belongs to.
        outputs: for each token whether its row of logits is wanted.
    """

    tokens: Sequence[int]
    positions: Sequence[int]
    sequences: Sequence[Sequence[int]]
    outputs: Sequence[bool]


class LlamaContext:
    """One sequence (number 0) in one KV cache; implements `localspec.target.TargetContext`.

    Args:
        model: the loaded weights.
        capacity: tokens that the cache holds.
        batch: tokens of one pass at most.
        threads: a fixed thread count, or None to follow the machine's load.
        cores: threads of an idle machine.
        flash_attention: None lets llama.cpp decide.
        kv_type: element type of the cache, a key of `KV_TYPES`.
        sequences: sequences at most; a draft tree of n branches needs n.
        unified: whether sequences share one cache, as trees need; else each has `capacity` cells of its own,
            and a pass over many long ones is much faster.
        spare: idle cores, watched since before the model was read, so that the first pass fits the load.
        snapshots: earlier states to be kept of a model with recurrent layers, so that as many tokens of the
            newest pass can be dropped, once. Passes then have one row more at most.

    Attributes:
        snapshots: those that llama.cpp keeps.
        passes: how many there were; `pass_rows` are the tokens of the newest.

    Raises:
        NotEnoughMemoryError: cache or compute buffers do not fit.
        UsageError: settings that llama.cpp refuses together.
    """

    def __init__(
        self,
        model: LlamaModel,
        *,
        capacity: int,
        batch: int = 512,
        threads: int | None = None,
        cores: int = 1,
        flash_attention: bool | None = None,
        kv_type: str = "f16",
        sequences: int = 1,
        unified: bool = True,
        spare: SpareCores | None = None,
        snapshots: int = 0,
    ) -> None:
        low = lib()
        if kv_type not in KV_TYPES:
            raise UsageError(f"There is no KV cache type '{kv_type}'; use one of: {', '.join(KV_TYPES)}.")
        self.model = model
        self.sequences = sequences
        self._spare = spare or SpareCores()
        idle = self._spare.read(time.perf_counter_ns())
        self._governor = ThreadGovernor(cores, idle) if threads is None else None
        self._threads = threads or cores
        self.max_batch = min(batch, capacity)
        self.max_rows = min(MAX_ROWS, self.max_batch)
        params = low.llama_context_default_params()
        params.n_ctx = capacity if unified else capacity * sequences
        params.n_batch = params.n_ubatch = self.max_batch
        params.n_outputs_max = self.max_rows
        params.n_seq_max = sequences
        params.n_rs_seq = snapshots if model.is_recurrent else 0
        params.kv_unified = unified
        params.n_threads = params.n_threads_batch = self._threads
        params.flash_attn_type = -1 if flash_attention is None else int(flash_attention)
        params.type_k = params.type_v = KV_TYPES[kv_type]
        forget_errors()
        self._handle: Any = low.llama_init_from_model(model.handle, params)
        if not self._handle:
            raise _context_error(capacity, kv_type)
        # llama.cpp rounds the size up; promise no more than was asked for.
        self.capacity = min(capacity, int(low.llama_n_ctx_seq(self._handle)))
        self._memory: Any = low.llama_get_memory(self._handle)
        self._batch: Any = low.llama_batch_init(self.max_batch, 0, sequences)
        self._views = _BatchViews(self._batch, self.max_batch)
        self._branches = Branches(self._memory, sequences)
        self._tree: list[list[int]] | None = None
        self._length = 0
        self.passes = self.pass_rows = 0
        self.snapshots = int(low.llama_n_rs_seq(self._handle))
        if self.snapshots:
            self.max_rows = min(self.max_rows, self.snapshots + 1)
        self._rolled_back = False
        self.can_trim = self._probe_trim()
        self.can_trim_far = self.can_trim and not self.snapshots
        # The state of a recurrent layer belongs to a sequence as a whole and cannot be shared by branches.
        self.max_leaves = sequences if self.can_trim and not model.is_recurrent else 1

    @property
    def handle(self) -> Any:
        """The native pointer, for taps and for heads beside this context."""
        return self._handle

    @property
    def closed(self) -> bool:
        """Whether it has been freed."""
        return self._handle is None

    @property
    def length(self) -> int:
        """Tokens in the cache."""
        return self._length

    @property
    def threads(self) -> int:
        """CPU threads that the last pass used."""
        return self._threads

    def decode(self, tokens: Sequence[int], outputs: Outputs) -> Rows:
        """See `TargetContext.decode`."""
        count = len(tokens)
        rows = count if outputs == "all" else 0
        if count > self.max_batch or rows > self.max_rows or self._length + count > self.capacity:
            raise EngineError(f"A pass of {count} tokens does not fit at position {self._length}.")
        self._views.chain(tokens, self._length, rows > 0)
        self._run(count)
        self._length += count
        return self._rows(rows)

    def decode_tree(self, root: int, draft: Draft) -> Rows:
        """See `TargetContext.decode_tree`."""
        through = branches_through(draft)
        leaves = max(1, len(leaves_of(draft)))
        count = len(draft) + 1
        if leaves > self.max_leaves or self._length + count > self.capacity:
            raise EngineError(
                f"A tree of {count} tokens on {leaves} branches does not fit at position {self._length}."
            )
        self._branches.attach(leaves, self._length)
        rows = self.decode_batch(
            Batch(
                tokens=[root, *draft.tokens],
                positions=[self._length, *(self._length + depth for depth in depths_of(draft))],
                sequences=[list(range(leaves)), *through],
                outputs=[True] * count,
            )
        )
        self._tree = through
        self._length += count
        return rows

    def keep_path(self, path: Sequence[int]) -> None:
        """See `TargetContext.keep_path`; raises `EngineError` where no tree was decoded."""
        through, self._tree = self._tree, None
        if through is None:
            raise EngineError("There is no draft tree in the cache to keep a path of.")
        start = self._length - len(through)
        end = start + len(path)
        self._branches.settle(through[path[-1]][0] if path else 0, start, end)
        self._length = end

    def decode_batch(self, batch: Batch) -> Rows:
        """One pass over any batch: trees, several sequences.

        Returns:
            Logits of the wanted rows in batch order, shape [wanted, vocabulary]; a view that the next pass
            overwrites.

        Raises:
            EngineError: the batch does not fit or the pass failed. The caller keeps count of the sequences.
        """
        count, wanted = len(batch.tokens), sum(batch.outputs)
        if count > self.max_batch or wanted > self.max_rows:
            raise EngineError(f"A pass of {count} tokens with {wanted} rows is too large for this context.")
        self._views.fill(batch)
        self._run(count)
        return self._rows(wanted)

    def keep(self, length: int) -> None:
        """Drop all after the first `length` tokens; raises `RollbackRefusedError` when refused."""
        if length >= self._length:
            return
        if self.snapshots:
            self._check_snapshot(self._length - length)
        if not lib().llama_memory_seq_rm(self._memory, 0, length, -1):
            raise RollbackRefusedError(
                f"llama.cpp refused to roll the cache back from {self._length} to {length} tokens."
            )
        self._rolled_back = True
        self._branches.trim(length)
        self._length = length

    def keep_sequence(self, sequence: int, length: int) -> None:
        """Drop all of one sequence after its first `length` tokens; other sequences stay as they are.

        For what `decode_batch` put there: the caller keeps count, `length` of the context is not changed.

        Raises:
            RollbackRefusedError: llama.cpp refused.
        """
        if not lib().llama_memory_seq_rm(self._memory, sequence, length, -1):
            raise RollbackRefusedError(
                f"llama.cpp refused to roll sequence {sequence} of the cache back to {length} tokens."
            )

    def clear(self) -> None:
        """Empty the cache."""
        lib().llama_memory_clear(self._memory, False)
        self._branches.forget()
        self._tree = None
        self._length = 0
        self._rolled_back = False

    def close(self) -> None:
        """Free cache and buffers."""
        if self._handle:
            lib().llama_batch_free(self._batch)
            lib().llama_free(self._handle)
            self._handle = None

    def _run(self, count: int) -> None:
        low = lib()
        threads = self._governor.threads_for(count) if self._governor else self._threads
        if threads != self._threads:
            low.llama_set_n_threads(self._handle, threads, threads)
            self._threads = threads
        began = time.perf_counter_ns()
        self._batch.n_tokens = count
        code = low.llama_decode(self._handle, self._batch)
        low.llama_synchronize(self._handle)
        ended = time.perf_counter_ns()
        if code != 0:
            lines = recent_errors()
            detail = f": {lines[-1]}" if lines else ""
            raise EngineError(f"llama.cpp failed to decode {count} tokens (code {code}){detail}.")
        self.passes += 1
        self.pass_rows = count
        self._rolled_back = False
        if self._governor:
            self._governor.observe(threads, count, ended - began, ended, self._spare.read(ended))

    def _check_snapshot(self, dropped: int) -> None:
        """Snapshots are of the newest pass, for one roll back; llama.cpp does not check all of that."""
        if self._rolled_back or dropped > self.snapshots or dropped >= self.pass_rows:
            raise RollbackRefusedError(
                f"The recurrent state before the last {dropped} tokens is not kept; they are read again."
            )

    def _rows(self, count: int) -> Rows:
        shape = (count, self.model.vocabulary_size)
        if count == 0:
            return np.zeros(shape, dtype=np.float32)
        pointer = lib().llama_get_logits(self._handle)
        return floats_at(pointer, *shape)

    def _probe_trim(self) -> bool:
        """Find out once whether the tail can be dropped; the pass also warms caches and pages weights in."""
        self.decode([0, 0], "all")
        try:
            self.keep(1)
        except RollbackRefusedError:
            return False
        else:
            return True
        finally:
            self.clear()


class _BatchViews:
    """numpy views of a native batch's arrays, so that filling it costs microseconds."""

    def __init__(self, batch: Any, size: int) -> None:
        self._tokens = np.ctypeslib.as_array(batch.token, (size,))
        self._positions = np.ctypeslib.as_array(batch.pos, (size,))
        self._counts = np.ctypeslib.as_array(batch.n_seq_id, (size,))
        self._outputs = np.ctypeslib.as_array(batch.logits, (size,))
        self._sequences = batch.seq_id
        self._ramp = np.arange(size, dtype=np.int32)
        self._reset_sequences = True

    def chain(self, tokens: Sequence[int], start: int, outputs: bool) -> None:
        """Tokens of sequence 0 at consecutive positions."""
        count = len(tokens)
        self._tokens[:count] = tokens
        np.add(self._ramp[:count], start, out=self._positions[:count])
        self._outputs[:count] = outputs
        if self._reset_sequences:
            self._counts[:] = 1
            for index in range(len(self._ramp)):
                self._sequences[index][0] = 0
            self._reset_sequences = False

    def fill(self, batch: Batch) -> None:
        """Any batch."""
        count = len(batch.tokens)
        self._tokens[:count] = batch.tokens
        self._positions[:count] = batch.positions
        self._outputs[:count] = batch.outputs
        for index, members in enumerate(batch.sequences):
            self._counts[index] = len(members)
            for place, sequence in enumerate(members):
                self._sequences[index][place] = sequence
        self._reset_sequences = True


def _context_error(capacity: int, kv_type: str) -> Exception:
    lines = recent_errors()
    cause = lines[-1] if lines else "no reason given"
    if looks_like_memory(lines):
        return NotEnoughMemoryError(
            f"There is not enough memory for a context of {capacity} tokens; choose a smaller --context, a "
            "smaller --kv-type, or put fewer layers on the GPU."
        )
    return UsageError(f"llama.cpp refuses a context of {capacity} tokens with a {kv_type} cache: {cause}.")
