"""What a head costs besides its own passes: its share of a step, drafting three tokens on the bench tasks."""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path
from typing import Any

from common import model_file, parser

from localspec.bench.prompts import prompt_tokens
from localspec.bench.tasks import load_tasks
from localspec.chat.template import ChatTemplate
from localspec.control import FixedLength
from localspec.draft_models import DraftModels
from localspec.reply import StopRules
from localspec.runtime.head import LlamaHead
from localspec.runtime.loading import load
from localspec.sampling import Sampler
from localspec.session import Session
from localspec.stats.metrics import Tally
from localspec.types import DraftOptions, EngineOptions, SamplingParams

LENGTH, TOKENS = 3, 96


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("head", type=Path, help="an EAGLE-3 head's GGUF file")
    given = options.parse_args()
    member = f"eagle3:{given.head}"
    draft = DraftOptions(member, LENGTH, policy="fixed", files={member: str(given.head)})
    engine = EngineOptions(context=2048, threads=given.threads, draft=draft)
    loaded = load(model_file(given.model, given.file_type, given.threads), engine)
    models = DraftModels(loaded, engine)
    passes_ns = 0
    run = LlamaHead._run

    def timed(self: LlamaHead, *arguments: Any) -> None:
        nonlocal passes_ns
        began = time.perf_counter_ns()
        run(self, *arguments)
        passes_ns += time.perf_counter_ns() - began

    LlamaHead._run = timed  # type: ignore[method-assign]
    shares: list[float] = []
    try:
        session = Session(
            loaded.context,
            loaded.model,
            drafter=models.drafter(member, draft),
            controller=FixedLength(LENGTH),
        )
        template = ChatTemplate.of(loaded.model)
        for _ in range(given.runs):
            tally, passes_ns, spent = Tally(), 0, 0
            for task in load_tasks():
                session.context.clear()
                session.tokens = []
                session.prefill(prompt_tokens(task.prompts[0], template, loaded.model))
                before = passes_ns
                for emission in session.reply(
                    Sampler(SamplingParams(temperature=0.0)), StopRules(max_tokens=TOKENS)
                ):
                    tally.add(emission.stats)
                spent += passes_ns - before
            shares.append((tally.draft_ns - spent) / tally.total_ns)
    finally:
        models.close()
        loaded.close()
    print(
        json.dumps(
            {
                "benchmark": "bookkeeping of a head's drafts",
                "share_of_a_step": round(statistics.median(shares), 4),
                "runs": [round(share, 4) for share in shares],
                "tokens_a_pass": round(tally.emitted / tally.steps, 3),
                "drafting": round(tally.draft_ns / tally.total_ns, 3),
            }
        )
    )


if __name__ == "__main__":
    main()
