"""Speculation beside a second program that takes a core: never under 0.9 of plain decoding under that load.

Threads follow the load in both, the neighbour comes after a third of every run, and runs alternate. The cost
controller keeps what it has learnt from run to run, as in a chat.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from common import COPY_PROMPT, STORY_PROMPT, alternate, model_file, paired_ratio, parser, report
from neighbour import start_neighbour, stop_neighbour

from localspec.calibration.passes import measure_passes
from localspec.control import Controller, CostController, LiveCost, Off
from localspec.cost import CostCurve
from localspec.drafters import LONGEST
from localspec.drafters.none import NoDrafter
from localspec.drafters.suffix import SuffixDrafter
from localspec.runtime.context import LlamaContext
from localspec.runtime.cores import physical_cores
from localspec.runtime.model import LlamaModel
from localspec.sampling import Sampler
from localspec.session import Session, StopRules
from localspec.types import SamplingParams

PROMPTS = {"prose": STORY_PROMPT, "copy": COPY_PROMPT}


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--seconds", type=float, default=4.0, help="length of one run")
    given = options.parse_args()
    model = LlamaModel(model_file(given.model, given.file_type, given.threads))
    forbidden = dict.fromkeys(model.eog_tokens, float("-inf"))
    tokens = {
        name: model.tokenize(text, add_special=True, parse_special=True) for name, text in PROMPTS.items()
    }
    measured = LlamaContext(model, capacity=4096, threads=given.threads, cores=physical_cores())
    curve = CostCurve(measure_passes(measured, tokens["copy"], repeats=3)).scaled(1e-3)
    measured.close()
    cost = CostController(LiveCost(curve, curve(1)), longest=LONGEST)
    controllers: dict[str, Controller] = {"plain": Off(), "auto": cost}
    sessions = {
        name: Session(
            LlamaContext(model, capacity=8192, threads=None, cores=physical_cores()),
            model,
            drafter=SuffixDrafter() if name == "auto" else NoDrafter(),
            controller=controllers[name],
        )
        for name in controllers
    }

    def rate(name: str, prompt: str) -> Callable[[], float]:
        def once() -> float:
            session = sessions[name]
            session.controller.begin()
            session.context.clear()
            session.tokens = []
            session.prefill(tokens[prompt])
            began, neighbour = time.monotonic(), None
            end = began + float(given.seconds)

            def until() -> bool:
                nonlocal neighbour
                now = time.monotonic()
                if neighbour is None and now - began > given.seconds / 3:
                    neighbour = start_neighbour()
                return now > end

            sampler = Sampler(SamplingParams(temperature=0.8, seed=1), forbidden)
            rules = StopRules(max_tokens=7000, ignore_eos=True, cancelled=until)
            last, count = 1, 0
            for emission in session.reply(sampler, rules):
                last, count = emission.stats.time_ns, count + emission.stats.emitted
            if neighbour is not None:
                stop_neighbour(neighbour)
            return count / (last * 1e-9)

        return once

    for prompt in PROMPTS:
        rates = alternate({name: rate(name, prompt) for name in sessions}, given.runs)
        report(
            f"neighbour from a third on, {prompt}, tok/s",
            rates,
            ratio=round(paired_ratio(rates["auto"], rates["plain"]), 3),
            worst=round(min(a / b for a, b in zip(rates["auto"], rates["plain"], strict=True)), 3),
        )


if __name__ == "__main__":
    main()
