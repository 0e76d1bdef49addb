"""Time to sample one row with the default filters, by vocabulary."""

from __future__ import annotations

import argparse
import timeit

import numpy as np
from common import report

from localspec.sampling import Sampler
from localspec.types import SamplingParams


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    generator = np.random.default_rng(0)
    shapes = {
        "spread": lambda size: generator.normal(0, 3, size),
        "peaked": lambda size: generator.normal(0, 2, size) + 12 * (np.arange(size) == 77),
        "flat": lambda size: generator.normal(0, 0.3, size),
    }
    results = {}
    for size in (49_152, 151_936, 262_144):
        for shape, make in shapes.items():
            rows = [make(size).astype(np.float32) for _ in range(8)]
            sampler = Sampler(SamplingParams(seed=1))

            def once(rows: list[np.ndarray] = rows, sampler: Sampler = sampler) -> None:
                for position, row in enumerate(rows):
                    sampler.sample(row, position)

            once()
            times = timeit.repeat(once, number=5, repeat=15)
            results[f"{size} {shape}"] = [time / 5 / len(rows) * 1e3 for time in times]
    report("milliseconds a row, default filters", results)


if __name__ == "__main__":
    main()
