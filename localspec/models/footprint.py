"""The memory that a loaded model takes, from its header: weights, cache, buffers, and where they lie.

Estimated are the buffers that llama.cpp itself reports when it loads a model (weights, a second copy of
those that it lays out anew for the CPU, KV cache, compute buffer, output buffer), and what it does not report
(tables of the vocabulary, scratch memory of the CPU's kernels, graphs). The sum is what a process grows by
once it has read a full batch; right after loading it is less, because memory counts from its first use on.
`benchmarks/memory_estimate.py` compares both with real loads.

Not known from a header, and not contained: what a GPU's driver takes for itself, in the system's memory and
in its own; `localspec.models.fit` leaves a reserve for that.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, fields
from pathlib import Path

from localspec.errors import LocalspecError, UsageError
from localspec.models.cache import cache_widths, is_recurrent, prediction_widths, state_bytes
from localspec.models.ggml_types import bytes_per_element
from localspec.models.gguf import GGUFHeader, read_part
from localspec.trees import MAX_LEAVES

__all__ = ["ROWS", "Footprint", "ModelShape", "Settings", "Sizes", "kv_element", "sizes"]

ROWS = 128
"""Rows of logits of a pass at most, `localspec.runtime.context.MAX_ROWS`."""

_CELLS = 256
"""The cache is made of so many tokens at a time."""

_LAYER = re.compile(r"blk\.(\d+)\.")
_SHARD = re.compile(r"-\d{5}-of-(\d{5})\.gguf$")
_INPUT = ("token_embd", "per_layer_token_embd", "position_embd", "token_types")
"""Tensors that rows are looked up in; they stay in the system's memory, laid out as in the file."""

_TOKEN_BYTES = {"none": 0, "no_vocab": 0, "llama": 160, "bert": 160, "gpt2": 340, "gemma4": 385, "t5": 530}
"""Measured bytes of a vocabulary's tables, an entry, by kind of tokenizer; merges make the difference."""

_FIXED_BYTES = 4 * 2**20
"""Measured: graphs, batches, and what the C library's allocator keeps."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a model is loaded, as far as it matters for memory.

    Attributes:
        context: tokens of context.
        batch: tokens of a pass at most.
        kv_type: element type of the cache.
        flash_attention: None and True count as on, which is what llama.cpp decides on every common device.
        rows: rows of logits that a pass may be asked for; the compute buffer is made for so many.
        output_rows: rows that passes are asked for; the output buffer grows to that. None: as many as `rows`.
        sequences: sequences that share the cache.
        repacked: numbers of the tensor types that the CPU's kernels want laid out anew.
        snapshots: earlier recurrent states that are kept; passes are asked for one row more at most.
        prediction: whether the layers that only predict further tokens are read too.
    """

    context: int
    batch: int = 512
    kv_type: str = "f16"
    flash_attention: bool | None = None
    rows: int = ROWS
    output_rows: int | None = None
    sequences: int = MAX_LEAVES
    repacked: frozenset[int] = frozenset()
    snapshots: int = 0
    prediction: bool = False


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes in one kind of memory.

    Attributes:
        weights_bytes: tensors; in the system's memory these are pages of the file itself.
        repacked_bytes: tensors in the layout that the CPU's kernels want.
        replaced_bytes: those of `weights_bytes` that are never read again, because `repacked_bytes` holds
            them too: they count as used memory, and the system takes them back when it needs some.
        kv_bytes: the cache.
        compute_bytes: intermediate results of a pass.
        output_bytes: rows of logits.
        other_bytes: what llama.cpp takes beside its buffers, and does not report.
    """

    weights_bytes: int = 0
    repacked_bytes: int = 0
    replaced_bytes: int = 0
    kv_bytes: int = 0
    compute_bytes: int = 0
    output_bytes: int = 0
    other_bytes: int = 0

    @property
    def buffers_bytes(self) -> int:
        """All buffers that llama.cpp reports."""
        return (
            self.weights_bytes + self.repacked_bytes + self.kv_bytes + self.compute_bytes + self.output_bytes
        )

    @property
    def total_bytes(self) -> int:
        """What is in use when all has been written to."""
        return self.buffers_bytes + self.other_bytes

    @property
    def needed_bytes(self) -> int:
        """What has to be free: all but the pages that the system can take back for good."""
        return self.total_bytes - self.replaced_bytes

    def __add__(self, other: Sizes) -> Sizes:
        """Both together."""
        return Sizes(*(getattr(self, item.name) + getattr(other, item.name) for item in fields(Sizes)))


@dataclass(frozen=True, slots=True)
class Footprint:
    """A model's memory: in the system's memory, and on all GPUs together."""

    host: Sizes
    gpu: Sizes = Sizes()

    @property
    def total_bytes(self) -> int:
        """In both."""
        return self.host.total_bytes + self.gpu.total_bytes

    @property
    def buffers_bytes(self) -> int:
        """All buffers that llama.cpp reports, in both."""
        return self.host.buffers_bytes + self.gpu.buffers_bytes

    @property
    def needed_bytes(self) -> int:
        """What has to be free in both."""
        return self.host.needed_bytes + self.gpu.needed_bytes


def sizes(
    header: GGUFHeader,
    *,
    context: int,
    batch: int = 512,
    kv_type: str = "f16",
    flash_attention: bool | None = None,
    rows: int = ROWS,
    sequences: int = MAX_LEAVES,
    repacked: frozenset[int] = frozenset(),
) -> Sizes:
    """Memory of a model with all of its layers in one memory; arguments as for `Settings`.

    Raises:
        UsageError: a `kv_type` that ggml does not have.
    """
    settings = Settings(
        context, batch, kv_type, flash_attention, rows=rows, sequences=sequences, repacked=repacked
    )
    return ModelShape(header).footprint(settings).host


def kv_element(kv_type: str) -> float:
    """Bytes of an element of a cache; raises `UsageError` for a type that ggml does not have."""
    try:
        return bytes_per_element(kv_type)
    except KeyError:
        raise UsageError(f'"{kv_type}" is not a type for the KV cache; use f16, q8_0, q4_0 or f32.') from None


class ModelShape:
    """What matters of a header, grouped by layer once, so that many placements can be tried.

    Args:
        header: of the file; of the first one for a model in several files, whose others are looked up.
    """

    def __init__(self, header: GGUFHeader) -> None:
        self.header = header
        self.layers = header.block_count
        self._widths, self._states = cache_widths(header), state_bytes(header)
        self._recurrent = is_recurrent(header)
        self._trunk = self.layers - header.extra_layers
        self._of_layer: list[list[tuple[int, int]]] = [[] for _ in range(self.layers)]
        self._input: list[int] = []
        self._output: list[tuple[int, int]] = []
        tensors = _tensors(header)
        for name, (size, kind) in tensors.items():
            layer = _LAYER.match(name)
            if layer:
                if int(layer[1]) < self.layers:
                    self._of_layer[int(layer[1])].append((size, kind))
            elif name.split(".")[0] in _INPUT:
                self._input.append(size)
            else:
                self._output.append((size, kind))
        # A file of prediction layers alone says how many layers its target has, and keeps nothing for them.
        self._only_predicts = header.extra_layers > 0 and not any(self._of_layer[: self._trunk])
        if self._only_predicts:
            self._widths, self._states = prediction_widths(header), (0,) * self.layers
        # Without a matrix of its own the output uses the token table.
        self._tied = None if "output.weight" in tensors else tensors.get("token_embd.weight")

    def footprint(self, settings: Settings, gpu_layers: int = 0, gpus: int = 1) -> Footprint:
        """Memory with so many of the last layers on GPUs, the output counted as one more layer after them.

        Raises:
            UsageError: the settings name a type of cache that ggml does not have.
        """
        element = kv_element(settings.kv_type)
        cells = -(-max(settings.context, 1) // _CELLS) * _CELLS
        first = max(self.layers + 1 - gpu_layers, 0) if gpu_layers > 0 else self.layers + 1
        sequences = 1 if self._recurrent else settings.sequences
        states = sequences * (1 + settings.snapshots)
        host, gpu = Sizes(weights_bytes=sum(self._input)), Sizes()
        read = self.layers if settings.prediction or self._only_predicts else self._trunk
        for layer in range(self.layers):
            kept = int(self._widths[layer] * element * cells) + states * self._states[layer]
            tensors = self._of_layer[layer] if layer < read else []
            here = _weights(tensors, settings.repacked if layer < first else frozenset())
            here += Sizes(kv_bytes=kept)
            if layer < first:
                host += here
            else:
                gpu += here
        if first <= self.layers:
            gpu += _weights(self._output, frozenset())
            gpu += Sizes(weights_bytes=self._tied[0] if self._tied else 0)
        else:
            host += _weights(self._output, settings.repacked)
            if self._tied and self._tied[1] in settings.repacked:
                host += Sizes(repacked_bytes=self._tied[0])
        layers, logits, inputs, scratch = self._compute(settings, cells, sequences)
        wanted = settings.snapshots + 1 if settings.snapshots else settings.output_rows or settings.rows
        output_rows = max(min(wanted, settings.batch), sequences)
        host += Sizes(
            compute_bytes=max(layers if first > 0 else inputs, logits if first > self.layers else 0),
            output_bytes=self._vocabulary * output_rows * 4,
            other_bytes=_FIXED_BYTES
            + self.header.vocabulary * _TOKEN_BYTES.get(self.header.tokenizer, 340)
            + scratch,
        )
        if gpu_layers > 0:
            gpu += Sizes(compute_bytes=max(layers, logits) * gpus)
        return Footprint(host, gpu)

    def _compute(self, settings: Settings, cells: int, sequences: int) -> tuple[int, int, int, int]:
        """Bytes of intermediate results: at most in a layer, at the output, of the inputs alone, and scratch.

        The factors are those of ggml's allocator, read off real loads of many shapes: in a layer the residual
        stream, its normed copy and what the allocator cannot fill take four times the width; gate, up and
        their product three times the feed-forward width.
        """
        tokens = -(-min(settings.batch, settings.context) // sequences) * sequences
        row = 4 * tokens
        flash = settings.flash_attention is not False
        heads = max(self.header.head_count, default=0)
        width = self.header.embedding_length
        query = heads * self.header.key_length
        masks = (2 if self.header.sliding_window else 1) * cells * tokens * (2 if flash else 4)
        scores = 0 if flash else cells * heads * row
        attention = masks + scores + row * (3 * width + 2 * query + max(self._widths, default=0))
        inner, experts_out = self._inner_width
        layer = max(attention, masks + row * (4 * width + 3 * inner + experts_out))
        rows = min(settings.rows, tokens)
        logits = 4 * rows * (self._vocabulary + 2 * width) + 2 * row * width
        return layer, logits, masks + row * width, tokens * max(inner, query, width) * 2

    @functools.cached_property
    def _inner_width(self) -> tuple[int, int]:
        """Width inside the feed-forward, and that of the experts' results where it does not fit in there."""
        header = self.header
        dense, experts = (
            _largest(header, key) for key in ("feed_forward_length", "expert_feed_forward_length")
        )
        _, used = header.experts
        if not used:
            return dense, 0
        inner = (experts or dense) * used
        results = header.embedding_length * used
        return max(inner, dense if experts else 0), results if results > 2 * inner else 0

    @functools.cached_property
    def _vocabulary(self) -> int:
        """Width of a row of logits."""
        return self.header.vocabulary or _largest(self.header, "vocab_size")


def _weights(tensors: list[tuple[int, int]], repacked: frozenset[int]) -> Sizes:
    again = sum(size for size, kind in tensors if kind in repacked)
    return Sizes(sum(size for size, _ in tensors), again, again)


def _tensors(header: GGUFHeader) -> dict[str, tuple[int, int]]:
    """Size and type of every tensor, those in the other files of the model included."""
    found = {name: (size, header.tensor_types.get(name, -1)) for name, size in header.tensor_sizes.items()}
    shard = _SHARD.search(header.path.name)
    if header.split_count > 1 and shard:
        stem = header.path.name[: shard.start()]
        for number in range(1, int(shard[1]) + 1):
            other = _other_shard(header.path.with_name(f"{stem}-{number:05}-of-{shard[1]}.gguf"))
            if other is not None:
                found |= {
                    name: (size, other.tensor_types.get(name, -1))
                    for name, size in other.tensor_sizes.items()
                }
    return found


def _other_shard(path: Path) -> GGUFHeader | None:
    """Its header; None where it is missing or damaged, which llama.cpp says better than an estimate."""
    try:
        return read_part(path)
    except LocalspecError:
        return None


def _largest(header: GGUFHeader, key: str) -> int:
    value = header.metadata.get(f"{header.architecture}.{key}", 0)
    if isinstance(value, tuple):
        value = max(value, default=0)
    return value if isinstance(value, int) else 0
