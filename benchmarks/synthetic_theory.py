"""Measured speed-up against theory, drafts being accepted by dice; the seeds' four regularities in one table.

T(n) is measured once in every part of a reply, in the middle of its tokens, beside plain decoding and all
pairs of alpha and gamma: a shared machine changes it from one minute to the next. Dice fall otherwise in
every round and part, and speeds are pooled over them: with few tokens they, not theory, are off.
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise

from common import COPY_PROMPT, TEXT, model_file, parser

from localspec.bench.costs import measure_passes
from localspec.bench.driver import Driver, Reply
from localspec.bench.records import Configuration
from localspec.bench.runs import Run
from localspec.cost import CostCurve
from localspec.cost_presets import CURVES
from localspec.runtime.context import LlamaContext
from localspec.runtime.cores import physical_cores
from localspec.runtime.model import LlamaModel
from localspec.stats.metrics import Tally
from localspec.stats.theory import expected_speedup, expected_tokens
from localspec.types import StepStats

ALPHAS = (0.3, 0.6, 0.8, 0.95)
GAMMAS = (1, 3, 5, 8)
TOLERANCE = 0.05
PLAIN = (0.0, 0)
PART = 128
"""Tokens of a reply that are said side by side after each measurement of T(n)."""

Pair = tuple[float, int]


PAUSE = 3.0
"""A step of so many times the median of its width was a pause of the machine, and counts as the median."""


class Pooled:
    """Steps of one pair, of all rounds together."""

    def __init__(self) -> None:
        self.tally = Tally()
        self._steps: dict[int, list[StepStats]] = defaultdict(list)

    def add(self, run: Run) -> None:
        """Take in one more round."""
        for step in run.steps:
            self.tally.add(step)
            self._steps[step.drafted].append(step)

    @property
    def ms_per_token(self) -> float:
        """Milliseconds of everything after prefill, pauses left out."""
        total = 0.0
        for steps in self._steps.values():
            usual = statistics.median(step.total_ns for step in steps)
            total += sum(step.total_ns if step.total_ns < PAUSE * usual else usual for step in steps)
        return total * 1e-6 / self.tally.emitted

    @property
    def pass_ms(self) -> float:
        """Median time of the passes over whole drafts, as they were made in the runs."""
        return statistics.median(step.verify_ns for step in self._whole) * 1e-6

    @property
    def draft_ms(self) -> float:
        """Median time of drafting."""
        return statistics.median(step.draft_ns for step in self._whole) * 1e-6

    @property
    def outside_ms(self) -> float:
        """Median time of a step outside its pass: drafting, draws, the rest."""
        return statistics.median(step.total_ns - step.verify_ns for step in self._whole) * 1e-6

    @property
    def _whole(self) -> list[StepStats]:
        return self._steps[max(self._steps)]


def main() -> None:
    options = parser(__doc__ or "")
    options.set_defaults(file_type="BF16", runs=8)
    options.add_argument("--tokens", type=int, default=512, help="tokens of a reply")
    given = options.parse_args()
    path = model_file(given.model, given.file_type, given.threads)
    model = LlamaModel(path)
    context = LlamaContext(model, capacity=4096, threads=given.threads, cores=physical_cores())
    driver = Driver(context, model)
    prompt = tuple(model.tokenize(COPY_PROMPT, add_special=True, parse_special=True))
    one = model.tokenize(TEXT, add_special=False, parse_special=False)
    text = tuple((one * (given.tokens // len(one) + 1))[: given.tokens])

    found: dict[Pair, Pooled] = {PLAIN: Pooled()}
    found |= {(alpha, gamma): Pooled() for alpha in ALPHAS for gamma in GAMMAS}
    names = {str(place): pair for place, pair in enumerate(found)}
    contestants = {name: configuration(*pair) for name, pair in names.items()}
    passes: dict[int, list[float]] = {n: [] for n in (1, *(gamma + 1 for gamma in GAMMAS))}
    driver.plain(Reply(prompt, 16, forced=text[:16]))
    parts = [(start, text[start : start + PART]) for start in range(0, len(text), PART)]
    for number in range(given.runs):
        for place, (start, part) in enumerate(parts):
            before = (*prompt, *text[:start])
            # At the middle of the part, where passes are as dear as they are on average.
            middle = [*before, *part[: len(part) // 2]]
            for n, ms in measure_passes(context, middle, tuple(passes), repeats=2).items():
                passes[n].append(ms)
            driver.read(before)
            seed = number * len(parts) + place
            reply = Reply(before, len(part), seed=seed + 1, forced=part)
            runs, failed = driver.together(reply, contestants, {}, seed)
            for error in failed.values():
                raise error
            for name, run in runs.items():
                found[names[name]].add(run)
    curve = CostCurve({n: statistics.median(times) for n, times in passes.items()})
    compare(found, curve)
    regularities(found, curve)
    print(
        json.dumps(
            {
                "benchmark": "synthetic acceptance against theory",
                "file": path.name,
                "pass_ms": {n: round(ms, 3) for n, ms in curve.points.items()},
                "speedup": {f"{a}/{g}": round(_speedup(found, (a, g)), 3) for a, g in found if g},
            }
        )
    )


def configuration(alpha: float, gamma: int) -> Configuration | None:
    """What is measured of a pair; None is plain decoding."""
    if not gamma:
        return None
    rates = tuple(alpha**place for place in range(1, gamma + 1))
    return Configuration(draft="ngram", length=gamma, rates=rates)


def compare(found: Mapping[Pair, Pooled], curve: CostCurve) -> None:
    """A row for each pair: tau and speed-up, measured and in theory.

    Theory knows passes and drafting; "whole" is the same with all that a step does besides, as measured.
    """
    print("| alpha | gamma | T(n) apart, in runs | tau | theory | speed-up | theory | off | whole | off |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    plain, worst = found[PLAIN], [0.0, 0.0]
    print(f"| | 0 | {curve(1):.2f}, {plain.pass_ms:.2f} ms | 1.00 | 1.00 | 1.00x | 1.00x | | 1.00x | |")
    for (alpha, gamma), pooled in found.items():
        if not gamma:
            continue
        tally, measured = pooled.tally, _speedup(found, (alpha, gamma))
        tau = expected_tokens(alpha, gamma)
        theory = expected_speedup(alpha, gamma, curve, pooled.draft_ms)
        # Draws go by the token, the rest by the step: what lies outside passes is taken as it was.
        whole = tau * (curve(1) + plain.outside_ms) / (curve(1 + gamma) + pooled.outside_ms)
        off = [measured / theory - 1, measured / whole - 1]
        worst = [max(most, abs(each)) for most, each in zip(worst, off, strict=True)]
        print(
            f"| {alpha} | {gamma} | {curve(1 + gamma):.2f}, {pooled.pass_ms:.2f} ms "
            f"| {tally.acceptance_length:.2f} | {tau:.2f} "
            f"| {measured:.2f}x | {theory:.2f}x | {off[0]:+.1%} | {whole:.2f}x | {off[1]:+.1%} |"
        )
    for name, most in zip(("theory", "the whole step"), worst, strict=True):
        judged = "within" if most <= TOLERANCE else "beyond"
        print(f"\nLargest difference to {name}: {most:.1%}, {judged} {TOLERANCE:.0%}.")
    print()


def regularities(found: Mapping[Pair, Pooled], curve: CostCurve) -> None:
    """The four of the experiment that this repeats, each with its figures."""
    speeds = {pair: _speedup(found, pair) for pair in found}
    rising = sum(speeds[a, g] < speeds[b, g] for a, b in pairwise(ALPHAS) for g in GAMMAS)
    best = {alpha: max(GAMMAS, key=lambda gamma: speeds[alpha, gamma]) for alpha in ALPHAS}
    low, high = min(ALPHAS), max(ALPHAS)
    shortest, longest = min(GAMMAS), max(GAMMAS)
    fits = {
        gamma: (
            statistics.correlation(ALPHAS, [found[alpha, gamma].ms_per_token for alpha in ALPHAS]) ** 2,
            statistics.correlation(ALPHAS, [1 / found[alpha, gamma].ms_per_token for alpha in ALPHAS]) ** 2,
        )
        for gamma in GAMMAS
    }
    strong = [speeds[alpha, gamma] for alpha in ALPHAS if alpha >= 0.6 for gamma in GAMMAS if gamma >= 5]
    there = [
        expected_speedup(alpha, gamma, CURVES["gpu"])
        for alpha in ALPHAS
        if alpha >= 0.6
        for gamma in GAMMAS
        if gamma >= 5
    ]
    pairs = (len(ALPHAS) - 1) * len(GAMMAS)
    lines = [
        ("The higher alpha, the higher the speed-up", rising == pairs, f"{rising} of {pairs} neighbours"),
        (
            "A larger gamma helps only where tau is high",
            speeds[low, longest] < speeds[low, shortest] and best[high] > best[low],
            "best gamma " + ", ".join(f"{gamma} at {alpha}" for alpha, gamma in best.items()),
        ),
        (
            "Latency falls, throughput rises about linearly with alpha",
            min(min(fit) for fit in fits.values()) > 0.8,
            "R^2 " + ", ".join(f"{ms:.2f}/{rate:.2f} at {gamma}" for gamma, (ms, rate) in fits.items()),
        ),
        (
            "alpha from 0.6 and gamma from 5 on give 2 to 3 times",
            all(speed >= 2 for speed in strong),
            (
                f"{min(strong):.2f}x to {max(strong):.2f}x at T(9)/T(1) {curve.ratio(9):.2f}, in theory "
                f"{min(there):.2f}x to {max(there):.2f}x at a GPU's {CURVES['gpu'].ratio(9):.2f}"
            ),
        ),
    ]
    print("| regularity | here | figures |\n|---|---|---|")
    for what, holds, figures in lines:
        print(f"| {what} | {'yes' if holds else 'no'} | {figures} |")
    print()


def _speedup(found: Mapping[Pair, Pooled], pair: Pair) -> float:
    return found[PLAIN].ms_per_token / found[pair].ms_per_token


if __name__ == "__main__":
    main()
