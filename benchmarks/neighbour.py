"""Throughput with and without a core-bound neighbour: threads that follow the load against fixed counts."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable

from common import STORY_PROMPT, alternate, model_file, paired_ratio, parser, report

from localspec.control import Off
from localspec.drafters.none import NoDrafter
from localspec.runtime.context import LlamaContext
from localspec.runtime.cores import physical_cores
from localspec.runtime.model import LlamaModel
from localspec.sampling import Sampler
from localspec.session import Emission, Session, StopRules
from localspec.types import SamplingParams


def spin() -> None:
    """Keep one core busy."""
    while True:
        pass


def main() -> None:
    options = parser(__doc__ or "")
    options.set_defaults(file_type="BF16")
    options.add_argument("--seconds", type=float, default=4.0, help="length of one run")
    given = options.parse_args()
    path = model_file(given.model, given.file_type, given.threads)
    model = LlamaModel(path)
    prompt = model.tokenize(STORY_PROMPT, add_special=True, parse_special=True)
    forbidden = dict.fromkeys(model.eog_tokens, float("-inf"))
    sessions = {
        name: Session(
            LlamaContext(model, capacity=8192, threads=threads, cores=physical_cores()),
            model,
            drafter=NoDrafter(),
            controller=Off(),
        )
        for name, threads in (("following", None), ("fixed", given.threads))
    }

    def stream(session: Session, until: Callable[[], bool]) -> list[Emission]:
        session.context.clear()
        session.tokens = []
        session.prefill(prompt)
        sampler = Sampler(SamplingParams(temperature=0), forbidden)
        rules = StopRules(max_tokens=7000, ignore_eos=True, cancelled=until)
        return list(session.reply(sampler, rules))

    def rate(name: str) -> Callable[[], float]:
        def once() -> float:
            end = time.monotonic() + given.seconds
            emissions = stream(sessions[name], lambda: time.monotonic() > end)
            return len(emissions) / (emissions[-1].stats.time_ns * 1e-9)

        return once

    configurations = {name: rate(name) for name in sessions}
    idle = alternate(configurations, given.runs)
    report("idle machine, tok/s", idle, ratio=round(paired_ratio(idle["following"], idle["fixed"]), 3))
    neighbour = start_neighbour()
    busy = alternate(configurations, given.runs)
    stop_neighbour(neighbour)
    report("one neighbour, tok/s", busy, ratio=round(paired_ratio(busy["following"], busy["fixed"]), 3))
    print_reaction(stream, sessions["following"], given.runs)


def print_reaction(
    stream: Callable[[Session, Callable[[], bool]], list[Emission]], session: Session, runs: int
) -> None:
    """Seconds from the neighbour's coming and going until nearly all passes use the new thread count."""
    down, up = [], []
    for _ in range(runs):
        began = time.perf_counter_ns()
        neighbour, came, went = None, 0, 0

        def change(began: int = began) -> bool:
            nonlocal neighbour, came, went
            elapsed = (time.perf_counter_ns() - began) * 1e-9
            if neighbour is None and elapsed > 2:
                neighbour, came = start_neighbour(), time.perf_counter_ns()
            elif neighbour is not None and went == 0 and elapsed > 5:
                stop_neighbour(neighbour)
                went = time.perf_counter_ns()
            return elapsed > 8

        emissions = stream(session, change)
        end = time.perf_counter_ns()
        last = emissions[-1].stats.time_ns
        clock = [(end - last + emission.stats.time_ns, emission.stats.threads) for emission in emissions]
        down.append(settled(clock, came, went, fewest=True))
        up.append(settled(clock, went, end, fewest=False))
    report("seconds until the thread count has followed", {"coming": down, "going": up})


def settled(clock: list[tuple[int, int]], start: int, end: int, *, fewest: bool) -> float:
    """Seconds after `start` from which on 9 of 10 passes before `end` use the right number of threads."""
    window = [(when, threads) for when, threads in clock if start <= when < end]
    counts = [threads for _, threads in clock]
    right = min(counts) if fewest else max(counts)
    for index, (when, threads) in enumerate(window):
        rest = [count for _, count in window[index:]]
        if threads == right and rest.count(right) / len(rest) >= 0.9:
            return (when - start) * 1e-9
    return float("inf")


def start_neighbour() -> multiprocessing.Process:
    """A core-bound process."""
    process = multiprocessing.get_context("spawn").Process(target=spin, daemon=True)
    process.start()
    return process


def stop_neighbour(process: multiprocessing.Process) -> None:
    """End it."""
    process.kill()
    process.join()


if __name__ == "__main__":
    main()
