"""Plain decoding against llama-server's (package `xllamacpp`): same file and threads, alternating runs."""

from __future__ import annotations

from pathlib import Path

import xllamacpp
from common import STORY_PROMPT, alternate, model_file, paired_ratio, parser, report

from localspec.control import Off
from localspec.drafters.none import NoDrafter
from localspec.runtime.context import LlamaContext
from localspec.runtime.model import LlamaModel
from localspec.sampling import Sampler
from localspec.session import Session, StopRules
from localspec.stats.metrics import Tally
from localspec.types import SamplingParams


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--tokens", type=int, default=256)
    given = options.parse_args()
    path = model_file(given.model, given.file_type, given.threads)
    server = start_server(path, given.threads)
    model = LlamaModel(path)
    context = LlamaContext(model, capacity=4096, threads=given.threads)
    session = Session(context, model, drafter=NoDrafter(), controller=Off())
    prompt = model.tokenize(STORY_PROMPT, add_special=True, parse_special=True)
    forbidden = dict.fromkeys(model.eog_tokens, float("-inf"))

    def ours() -> float:
        context.clear()
        session.tokens = []
        session.prefill(prompt)
        sampler = Sampler(SamplingParams(temperature=0), forbidden)
        rules = StopRules(max_tokens=given.tokens, ignore_eos=True)
        tally = Tally(emission.stats for emission in session.reply(sampler, rules))
        assert tally.tokens_per_second is not None
        return tally.tokens_per_second

    def theirs() -> float:
        answer = server.handle_completions(
            {
                "prompt": STORY_PROMPT,
                "n_predict": given.tokens,
                "temperature": 0.0,
                "top_k": 1,
                "cache_prompt": False,
                "ignore_eos": True,
                "stream": False,
            }
        )
        return float(answer["timings"]["predicted_per_second"])

    results = alternate({"localspec": ours, "llama-server": theirs}, given.runs)
    ratio = paired_ratio(results["localspec"], results["llama-server"])
    report("plain decoding, tok/s", results, file=path.name, ratio=round(ratio, 4))


def start_server(path: Path, threads: int) -> xllamacpp.Server:
    """llama-server with one slot on `path`."""
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx = 4096
    params.n_parallel = 1
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    return xllamacpp.Server(params)


if __name__ == "__main__":
    main()
