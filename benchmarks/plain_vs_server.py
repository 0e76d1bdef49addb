"""Plain decoding against llama-server's (package `xllamacpp`): same file and threads, alternating runs."""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection
from pathlib import Path

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
    server = Peer(path, given.threads)
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
        return server.rate(STORY_PROMPT, given.tokens)

    results = alternate({"localspec": ours, "llama-server": theirs}, given.runs)
    ratio = paired_ratio(results["localspec"], results["llama-server"])
    report("plain decoding, tok/s", results, file=path.name, ratio=round(ratio, 4))


class Peer:
    """llama-server in a process of its own, so that its waiting threads are not ours."""

    def __init__(self, path: Path, threads: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._pipe, child = spawn.Pipe()
        process = spawn.Process(target=serve, args=(path, threads, child), daemon=True)
        process.start()

    def rate(self, prompt: str, tokens: int) -> float:
        """Tokens per second of one greedy completion, as the server itself counts them."""
        self._pipe.send((prompt, tokens))
        return float(self._pipe.recv())


def serve(path: Path, threads: int, pipe: Connection) -> None:
    """The peer's process: one slot, no prompt cache."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx = 4096
    params.n_parallel = 1
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(params)
    while True:
        prompt, tokens = pipe.recv()
        answer = server.handle_completions(
            {
                "prompt": prompt,
                "n_predict": tokens,
                "temperature": 0.0,
                "top_k": 1,
                "cache_prompt": False,
                "ignore_eos": True,
                "stream": False,
            }
        )
        pipe.send(answer["timings"]["predicted_per_second"])


if __name__ == "__main__":
    main()
