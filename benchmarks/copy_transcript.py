"""N-gram drafting against plain decoding on the copy task, on a fixed transcript, alternating runs."""

from __future__ import annotations

from collections.abc import Callable

from common import COPY_PROMPT, COPY_REPLY, alternate, model_file, paired_ratio, parser, report

from localspec.control import FixedLength, Off
from localspec.drafters.ngram import NgramDrafter
from localspec.runtime.context import LlamaContext
from localspec.runtime.cores import physical_cores
from localspec.runtime.model import LlamaModel
from localspec.sampling import Sampler
from localspec.session import Session, StopRules
from localspec.stats.metrics import Tally
from localspec.testing import TranscriptVerifier
from localspec.types import SamplingParams


def main() -> None:
    options = parser(__doc__ or "")
    options.set_defaults(file_type="BF16")
    options.add_argument("--draft-length", type=int, default=8)
    options.add_argument("--temperature", type=float, default=0.0)
    options.add_argument("--follow-load", action="store_true", help="let the thread count follow the load")
    given = options.parse_args()
    path = model_file(given.model, given.file_type, given.threads)
    model = LlamaModel(path)
    threads = None if given.follow_load else given.threads
    context = LlamaContext(model, capacity=4096, threads=threads, cores=physical_cores())
    prompt = model.tokenize(COPY_PROMPT, add_special=True, parse_special=True)
    reply = model.tokenize(COPY_REPLY, add_special=False, parse_special=False)
    tallies: dict[int, Tally] = {}

    def run(length: int) -> Callable[[], float]:
        def once() -> float:
            session = Session(
                context,
                model,
                drafter=NgramDrafter(),
                controller=FixedLength(length) if length else Off(),
                verifier=TranscriptVerifier(prompt + reply),
            )
            context.clear()
            session.prefill(prompt)
            rules = StopRules(max_tokens=len(reply), ignore_eos=True)
            sampler = Sampler(SamplingParams(temperature=given.temperature))
            tallies[length] = Tally(emission.stats for emission in session.reply(sampler, rules))
            assert tallies[length].tokens_per_second is not None
            return tallies[length].tokens_per_second or 0.0

        return once

    results = alternate({"plain": run(0), "ngram": run(given.draft_length)}, given.runs)
    tally = tallies[given.draft_length]
    report(
        "copy task on a fixed transcript, tok/s",
        results,
        file=path.name,
        speedup=round(paired_ratio(results["ngram"], results["plain"]), 3),
        acceptance_length=round(tally.acceptance_length or 0, 2),
        acceptance_rate=round(tally.acceptance_rate or 0, 3),
        outside_target_pass=round(1 - tally.verify_ns / tally.total_ns, 4),
    )


if __name__ == "__main__":
    main()
