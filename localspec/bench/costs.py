"""What a pass of the target costs here: T(n) as measured, and what memory alone asks for."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path

from localspec.bench.records import ModelFile, Settings
from localspec.calibration.passes import SIZES, measure_passes
from localspec.models.gguf import estimate_memory, read_header
from localspec.models.hashes import file_sha256
from localspec.models.passes import cache_bytes_of_a_pass, weight_bytes_of_a_pass
from localspec.runtime.bandwidth import measured_bandwidth
from localspec.runtime.devices import used_gpus
from localspec.runtime.loading import LoadedModel

_ROUNDS = 5
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
    if loaded.gpu_layers <= loaded.model.placed_layers:
        return None
    first = next((device.name for device in used_gpus()), None)
    return measured_bandwidth(first) if first else None
