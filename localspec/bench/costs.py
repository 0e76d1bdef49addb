"""What a pass of the target costs here: T(n) as measured, and what memory alone asks for."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from pathlib import Path

from localspec.bench.records import ModelFile, Settings
from localspec.errors import UsageError
from localspec.models.gguf import estimate_memory, read_header
from localspec.models.hashes import file_sha256
from localspec.models.passes import cache_bytes_of_a_pass, weight_bytes_of_a_pass
from localspec.runtime.bandwidth import measured_bandwidth
from localspec.runtime.devices import devices
from localspec.runtime.loading import LoadedModel
from localspec.target import TargetContext

SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 24, 28, 32, 48, 64)
"""Tokens of the passes that are measured."""

_WARM_UP = 1
_ROUNDS = 5
_BUDGET_S = 30.0
"""A large model on a slow machine is measured in fewer rounds: nobody waits minutes for a curve."""
_POSITION = 192
"""Tokens in the cache during these passes. With 64 more it is 256, where kernels change their block."""

_TEXT = """\
The ferry leaves the island at seven in the morning, long before the shops on the quay open. Anna, who has
made this trip every week for eleven years, keeps a list: 3 crates of eggs, 12 jars of honey, and the letters
that nobody else would carry. "If the wind turns to the north," says the captain, "we will be back before
noon; if it does not, bring a book." She laughs. On the way she counts the buoys (there are 27) and writes
their numbers down.

    def total(prices: list[float], discount: float = 0.1) -> float:
        return sum(price * (1 - discount) for price in prices)

Why does the water look green near the rocks and grey further out? Because of the sand, her father used to
say; because of the light, according to her teacher. Both were right, as it turned out, and neither of them
knew it.
"""


def measure_passes(
    context: TargetContext,
    tokens: Sequence[int],
    sizes: Sequence[int] = SIZES,
    *,
    repeats: int = _ROUNDS,
    budget_s: float = _BUDGET_S,
    progress: Callable[[float], None] | None = None,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> dict[int, float]:
    """T(n): milliseconds of one target pass over n tokens with the rows of all of them, by n.

    `tokens` are read into the cache first, and every pass starts from there. The sizes take turns, narrow and
    wide ones alternating and back again in the next round, so that a disturbance of the machine hits them
    alike; a round of warm-up does not count, and each figure is a median. Right before a pass that counts
    comes another of its size, because an engine that repeats a size reuses what it has prepared for it, as it
    does in plain decoding. What was in the cache before is lost; afterwards it is empty.

    Args:
        context: with a fixed number of threads, or T(n) mixes several.
        tokens: a text's, at least one. The passes take theirs from it too: other ones in every round, for a
            model whose experts depend on the token.
        sizes: tokens of a pass; those that the context has no room for are left out.
        repeats: passes of each size that count.
        budget_s: seconds after which no other round is begun; one round beside the warm-up is always made.
        progress: called with the fraction done, 0 to 1.
        clock: monotonic nanoseconds.

    Raises:
        UsageError: no tokens, no repeats, or no room for any size after `tokens`.
        EngineError: a pass failed.
    """
    room = min(context.max_rows, context.max_batch, context.capacity - len(tokens))
    order = _alternating([size for size in sorted(set(sizes)) if 1 <= size <= room])
    if not tokens or not order or repeats < 1:
        raise UsageError(
            f"T(n) cannot be measured after {len(tokens)} tokens in a context of {context.capacity}; raise "
            "--context."
        )
    times: dict[int, list[int]] = {size: [] for size in order}
    rounds = _WARM_UP + repeats
    start = clock()
    try:
        context.clear()
        _read(context, tokens)
        for turn in range(rounds):
            spent = (clock() - start) * 1e-9
            if turn > _WARM_UP and spent * (turn + 1) / turn > budget_s:
                break
            for visit, size in enumerate(order if turn % 2 == 0 else order[::-1]):
                first, second = _pieces(tokens, turn * max(order), size)
                context.decode(first, "all")
                _roll_back(context, tokens)
                began = clock()
                context.decode(second, "all")
                times[size].append(clock() - began)
                _roll_back(context, tokens)
                if progress:
                    progress((turn + (visit + 1) / len(order)) / rounds)
    finally:
        context.clear()
    return {size: statistics.median(times[size][_WARM_UP:]) * 1e-6 for size in sorted(times)}


def _alternating(sizes: Sequence[int]) -> list[int]:
    """Smallest, largest, second smallest, second largest, ... of ascending sizes."""
    half = (len(sizes) + 1) // 2
    small, large = list(sizes[:half]), list(reversed(sizes[half:]))
    mixed = [size for pair in zip(small, large, strict=False) for size in pair]
    return mixed + small[len(large) :]


def _pieces(tokens: Sequence[int], start: int, size: int) -> tuple[list[int], list[int]]:
    """Two different runs of `size` tokens, from the text as if it began again at its end."""
    start %= len(tokens)
    drawn = list(islice(cycle(tokens), start, start + 2 * size))
    return drawn[:size], drawn[size:]


def _read(context: TargetContext, tokens: Sequence[int]) -> None:
    for start in range(0, len(tokens), context.max_batch):
        context.decode(tokens[start : start + context.max_batch], "none")


def _roll_back(context: TargetContext, tokens: Sequence[int]) -> None:
    """Back to `tokens`; a context that cannot drop its tail reads them again."""
    if context.can_trim:
        context.keep(len(tokens))
    else:
        context.clear()
        _read(context, tokens)


def model_file(
    path: Path,
    loaded: LoadedModel,
    settings: Settings,
    load_s: float,
    progress: Callable[[float], None] | None = None,
) -> ModelFile:
    """Facts of a model file, T(n) on a text of our own, and the floor that memory sets.

    Args:
        path: the file.
        loaded: the same, loaded as `settings` say; its cache is empty afterwards.
        settings: of the bench.
        load_s: seconds that loading took.
        progress: called with the fraction of T(n) that is done.

    Raises:
        ModelFileError: the file changed or cannot be read.
        UsageError: a context too small for a single pass.
        EngineError: a pass failed.
    """
    header = read_header(path)
    model, context = loaded.model, loaded.context
    text = model.tokenize(_TEXT, add_special=True, parse_special=False)
    position = min(_POSITION, context.capacity // 2)
    filled = list(islice(cycle(text), position))
    pass_ms = measure_passes(context, filled, settings.passes or SIZES, repeats=_ROUNDS, progress=progress)
    weights = weight_bytes_of_a_pass(header)
    whole = header.split_count <= 1
    bandwidth = _bandwidth(loaded, settings.threads)
    floor = None
    # Of a model in several files this one holds only a part of the weights.
    if bandwidth is not None and whole:
        moved = weights + cache_bytes_of_a_pass(header, position, settings.kv_type)
        floor = moved / bandwidth * 1e3
    return ModelFile(
        name=path.stem,
        file_type=header.file_type or "unknown",
        bytes=header.file_bytes,
        sha256=file_sha256(path),
        parameters=model.parameters,
        weight_bytes=weights if whole else model.weight_bytes,
        kv_bytes_per_token=estimate_memory(header, 1, settings.kv_type).kv_bytes,
        context=context.capacity,
        kv_type=settings.kv_type,
        load_s=load_s,
        pass_ms=pass_ms,
        pass_position=position,
        bandwidth=bandwidth,
        floor_ms=floor,
    )


def _bandwidth(loaded: LoadedModel, threads: int) -> float | None:
    """Of the memory that holds the weights; None where they are spread over the system's and a GPU's."""
    if loaded.gpu_layers == 0:
        return measured_bandwidth(threads=threads)
    if loaded.gpu_layers <= loaded.model.layers:
        return None
    first = next((device.name for device in devices() if device.kind in ("gpu", "igpu")), None)
    return measured_bandwidth(first) if first else None
