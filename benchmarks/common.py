"""What the benchmarks share: the model and its requantizations, one task, alternating runs, medians."""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from localspec.model_choice import resolve
from localspec.models import sources
from localspec.paths import cache_dir, ensure
from localspec.runtime.quantize import requantize

TEXT = '''The scheduler keeps a queue of waiting requests and gives each one a token budget every step. When \
the budget runs out, the remaining requests wait for the next step, and the ones that have waited longest go \
first. A request that finishes early returns its unused tokens to the pool.

def allocate(requests, budget):
    """Assign each request a share of the budget, oldest first."""
    plan = []
    for request in sorted(requests, key=lambda r: r.arrival):
        share = min(request.tokens, budget)
        if share <= 0:
            break
        plan.append((request.id, share))
        budget -= share
    return plan
'''
COPY_PROMPT = (
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"
    f"Copy the following text exactly, twice.\n\n{TEXT}<|im_end|>\n<|im_start|>assistant\n"
)
COPY_REPLY = TEXT + "\n\n" + TEXT
STORY_PROMPT = (
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"
    "Write a long story about a lighthouse keeper who finds a message in a bottle.<|im_end|>\n"
    "<|im_start|>assistant\n"
)


def parser(description: str) -> argparse.ArgumentParser:
    """Options that every benchmark has."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--model", default="smollm2", help="model name or GGUF file")
    options.add_argument("--file-type", default=None, help="requantize to this type first, such as BF16")
    options.add_argument("--runs", type=int, default=5, help="counted runs of each configuration")
    options.add_argument("--threads", type=int, default=2)
    return options


def model_file(name: str, file_type: str | None, threads: int) -> Path:
    """The model's file, fetched and requantized when needed."""
    resolved = resolve(name)
    path = resolved.path
    if path is None:
        assert resolved.entry is not None
        path = sources.pull(resolved.entry, None)
    if file_type is None:
        return path
    target = ensure(cache_dir() / "requantized") / f"{path.stem}.{file_type}.gguf"
    if not target.exists():
        requantize(path, target, file_type, threads=threads)
    return target


def alternate(
    configurations: dict[str, Callable[[], float]], runs: int, warm_up: int = 1
) -> dict[str, list[float]]:
    """Run every configuration in turn, `runs` times after `warm_up` uncounted rounds."""
    results: dict[str, list[float]] = {name: [] for name in configurations}
    for number in range(warm_up + runs):
        for name, run in configurations.items():
            value = run()
            if number >= warm_up:
                results[name].append(value)
    return results


def paired_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Median of the ratios of neighbouring runs: drift of the machine cancels."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def report(name: str, results: dict[str, list[float]], **facts: object) -> None:
    """One JSON line on standard output: medians, spread and derived figures."""
    rows = {
        key: {
            "median": round(statistics.median(values), 4),
            "min": round(min(values), 4),
            "max": round(max(values), 4),
        }
        for key, values in results.items()
    }
    print(json.dumps({"benchmark": name, "results": rows, **facts}))
