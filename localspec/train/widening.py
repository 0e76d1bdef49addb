"""The target's own weights in the form that this machine multiplies fastest for many texts at once.

A 4-bit file is read fast, and so is quick for one token; over 32 tokens a CPU computes, and is quicker with
the same weights written out: three times on SmolLM2's Q4_1. The values are the file's; sums round otherwise,
as they do between passes of different widths.
"""

from __future__ import annotations

import shutil
import statistics
import time
from pathlib import Path

import psutil

from localspec.errors import LocalspecError
from localspec.models.gguf import GGUFHeader
from localspec.runtime.context import Batch, LlamaContext
from localspec.runtime.cores import physical_cores
from localspec.runtime.devices import supports_gpu_offload
from localspec.runtime.model import LlamaModel
from localspec.runtime.quantize import requantize
from localspec.train.state import Run, write_whole

_TYPE, _BYTES = "BF16", 2
_ROOM = 0.25
"""Share of the free disk and memory that the copy may take at most."""
_WORTH = 1.3
"""Times faster that it has to be."""
_WIDE, _PASSES = 32, 3
_COPY, _REFUSED = "wide.gguf", "wide.slower"


def file_to_write_with(target: Path, header: GGUFHeader, run: Run, threads: int | None) -> Path:
    """The target's file, or a copy of it in the run's folder where that writes faster; decided once a run.

    Args:
        target: the file.
        header: its header.
        run: keeps the copy, which goes with it, and the decision.
        threads: CPU threads; None: all cores.
    """
    copy, refused = run.path(_COPY), run.path(_REFUSED)
    if copy.is_file():
        return copy
    if refused.exists() or not _may_help(header, run.folder):
        return target
    count = threads or physical_cores()
    try:
        write_whole(copy, lambda path: requantize(target, path, _TYPE, threads=count))
        faster = _pass_time(target, count) / _pass_time(copy, count) >= _WORTH
    except LocalspecError:
        # Not every model can be converted, or twice be held: then the file itself does.
        faster = False
    if not faster:
        copy.unlink(missing_ok=True)
        refused.touch()
    return copy if faster else target


def copy_bytes(header: GGUFHeader) -> int:
    """What the copy takes on the disk and in memory; 0 where none is made."""
    quantized = header.tensor_bytes < header.parameters * _BYTES
    return header.parameters * _BYTES if quantized and not supports_gpu_offload() else 0


def _may_help(header: GGUFHeader, folder: Path) -> bool:
    needed = copy_bytes(header)
    room = min(shutil.disk_usage(folder).free, psutil.virtual_memory().available)
    return 0 < needed <= room * _ROOM


def _pass_time(path: Path, threads: int) -> float:
    """Seconds of a pass over one token of each of many texts; the median of some."""
    model = LlamaModel(path, gpu_layers=0)
    try:
        context = LlamaContext(
            model, capacity=_WIDE, batch=_WIDE, threads=threads, sequences=_WIDE, unified=False
        )
        try:
            times: list[float] = []
            for place in range(1 + _PASSES):
                began = time.perf_counter()
                context.decode_batch(
                    Batch(
                        [0] * _WIDE, [place] * _WIDE, [(number,) for number in range(_WIDE)], [True] * _WIDE
                    )
                )
                times.append(time.perf_counter() - began)
            return statistics.median(times[1:])
        finally:
            context.close()
    finally:
        model.close()
