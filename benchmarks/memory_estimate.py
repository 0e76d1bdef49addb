"""Estimated memory against real loads: llama.cpp's own account of its buffers, and what the process grows by.

Each model and context is loaded in a process of its own. Then two full batches are read, and a pass asks for
as many rows of logits as passes may, because memory counts from its first use on. On one line:

- buffers: the estimate of `localspec.models.fit`, and the sum that llama.cpp logs (weights, cache, compute
  buffer, and the output buffer at the size to which the pass with all rows makes it grow);
- process: the estimate with what llama.cpp does not log (vocabulary, scratch memory), and the growth of the
  resident size, of which the pages of the model's file are a part; on a GPU its memory is added;
- the error of both in percent.

Without files: smollm2 as Q4_1, BF16, Q2_K and Q4_0, and gemma3-270m where it has been fetched.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

CONTEXTS = (512, 2048, 8192)
TYPES = (None, "BF16", "Q2_K", "Q4_0")
LIMIT = 10.0


def measure(path: Path, context: int, kv_type: str, threads: int) -> dict[str, int]:
    """Load and fill one model here, and compare; sizes in bytes."""
    import psutil

    from localspec.runtime.devices import memory_use
    from localspec.runtime.library import lib
    from localspec.runtime.loading import load
    from localspec.types import EngineOptions

    lib()
    process = psutil.Process()
    before = process.memory_info().rss + sum(device.used for device in memory_use().devices)
    loaded = load(path, EngineOptions(context=context, kv_type=kv_type, threads=threads))
    cache, rows = loaded.context, loaded.context.max_rows
    tokens = [token % loaded.model.vocabulary_size for token in range(100, 100 + context)]
    read = min(context - rows, 2 * cache.max_batch)
    while cache.length < read:
        cache.decode(tokens[cache.length : min(cache.length + cache.max_batch, read)], "none")
    cache.decode(tokens[:rows], "all")
    after = process.memory_info().rss + sum(device.used for device in memory_use().devices)
    footprint = loaded.footprint
    result = {
        "estimated_buffers": footprint.buffers_bytes,
        "real_buffers": loaded.used_bytes,
        "estimated_total": footprint.total_bytes,
        "real_total": after - before,
    }
    loaded.close()
    return result


def default_files(threads: int) -> list[Path]:
    """Four requantizations of the default model, and the one with a sliding window where it is here."""
    from benchmarks.common import model_file
    from localspec.models import registry

    files = [model_file("smollm2", kind, threads) for kind in TYPES]
    other = registry.resolve("gemma3-270m").path
    return [*files, other] if other else files


def error(estimate: int, real: int) -> float:
    """In percent of what is real."""
    return (estimate / real - 1) * 100


def main() -> None:
    """Measure all that is asked for, a process each."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("files", nargs="*", type=Path, help="GGUF files")
    options.add_argument("--contexts", nargs="+", type=int, default=CONTEXTS)
    options.add_argument("--kv-type", default="f16")
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--one", action="store_true", help="measure the only file here, and print JSON")
    given = options.parse_args()
    if given.one:
        print(json.dumps(measure(given.files[0], given.contexts[0], given.kv_type, given.threads)))
        return
    print("model,context,estimated_buffers_mb,real_buffers_mb,error,estimated_mb,real_mb,error")
    worst_buffers = worst_total = 0.0
    for path in given.files or default_files(given.threads):
        for context in given.contexts:
            alone = [sys.executable, "-m", "benchmarks.memory_estimate", str(path), "--one"]
            alone += ["--contexts", str(context), "--kv-type", given.kv_type, "--threads", str(given.threads)]
            found = json.loads(subprocess.run(alone, check=True, capture_output=True, text=True).stdout)
            buffers = error(found["estimated_buffers"], found["real_buffers"])
            total = error(found["estimated_total"], found["real_total"])
            worst_buffers = max(worst_buffers, buffers, key=abs)
            worst_total = max(worst_total, total, key=abs)
            sizes = {name: f"{count / 1e6:.1f}" for name, count in found.items()}
            cells = (
                path.stem,
                str(context),
                sizes["estimated_buffers"],
                sizes["real_buffers"],
                f"{buffers:+.2f} %",
                sizes["estimated_total"],
                sizes["real_total"],
                f"{total:+.2f} %",
            )
            print(",".join(cells), flush=True)
    print(
        f"worst: {worst_buffers:+.2f} % of llama.cpp's buffers, {worst_total:+.2f} % of the process's growth"
    )
    if max(abs(worst_buffers), abs(worst_total)) > LIMIT:
        sys.exit(1)


if __name__ == "__main__":
    main()
