"""The target's own weights in the form that this machine multiplies fastest for many texts at once.

A 4-bit file is read fast, and so is quick for one token; over 32 tokens a CPU computes, and is quicker with
the same weights written out: three times on SmolLM2's Q4_1 and a CPU that multiplies BF16. That rounds
otherwise than the file does, whose passes round what goes into each product to 8 bits: states part by 1 to
3.5 %, and the likeliest token by one in thirty.
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
from localspec.train.sizes import AT_ONCE
from localspec.train.state import Run, write_whole

_TYPE, _BYTES = "BF16", 2
_ROOM = 0.25
"""Share of the free disk and memory that the copy may take at most."""
_WORTH = 1.3
"""Times faster that it has to be."""
_PASSES = 3
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
    if refused.exists() or not copy_bytes(header, run.folder):
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
        write_whole(refused, lambda path: path.write_bytes(b""))
    return copy if faster else target


def copy_bytes(header: GGUFHeader, folder: Path) -> int:
    """What the copy takes on the disk and in memory; 0 where none is made."""
    size = header.parameters * _BYTES
    if size <= header.tensor_bytes or supports_gpu_offload():
        return 0
    there = next(path for path in (folder, *folder.parents) if path.exists())
    room = min(shutil.disk_usage(there).free, psutil.virtual_memory().available)
    return size if size <= room * _ROOM else 0


def _pass_time(path: Path, threads: int) -> float:
    """Seconds of a pass over one token of each of many texts; the median of some."""
    model = LlamaModel(path, gpu_layers=0)
    try:
        context = LlamaContext(
            model, capacity=AT_ONCE, batch=AT_ONCE, threads=threads, sequences=AT_ONCE, unified=False
        )
        try:
            times: list[float] = []
            for place in range(1 + _PASSES):
                began = time.perf_counter()
                context.decode_batch(
                    Batch(
                        [0] * AT_ONCE,
                        [place] * AT_ONCE,
                        [(number,) for number in range(AT_ONCE)],
                        [True] * AT_ONCE,
                    )
                )
                times.append(time.perf_counter() - began)
            return statistics.median(times[1:])
        finally:
            context.close()
    finally:
        model.close()
