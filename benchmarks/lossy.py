"""What the lossy rules gain and cost: tokens a pass, speed, and how likely the model itself finds the text.

A target and its draft model, drafts of a fixed length, the same prompts and seeds for every rule. The mean
log-probability is that of the emitted tokens under the target, before temperature and filters: exact rules
give that of plain decoding within the noise, lossy ones move it.
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict

from common import model_file, parser
from draft_pair import PROMPTS, Pair

from localspec.control import FixedLength, Off
from localspec.drafters.none import NoDrafter
from localspec.session import Reply, StopRules
from localspec.stats.metrics import Tally
from localspec.text import ReplyText
from localspec.verify import make_verifier

WAYS = ("plain", "coupled", "rejection", "typical", "adasd")
TEMPERATURES = (0.8, 1.0)


def main() -> None:
    options = parser(__doc__ or "")
    options.set_defaults(file_type="F32", runs=4)
    options.add_argument("--draft-type", default="Q4_0", help="quantization of the draft model")
    options.add_argument("--length", type=int, default=3, help="draft tokens a step")
    options.add_argument("--tokens", type=int, default=128)
    given = options.parse_args()
    files = [model_file(given.model, kind, given.threads) for kind in (given.file_type, given.draft_type)]
    pair = Pair(files[0], files[1], given.threads)
    for temperature in TEMPERATURES:
        rates: dict[str, list[float]] = defaultdict(list)
        likely: dict[str, list[float]] = defaultdict(list)
        tallies: dict[str, Tally] = {way: Tally() for way in WAYS}
        for seed in range(1, given.runs + 1):
            for prompt in PROMPTS.values():
                for way in WAYS:
                    rate, mean = say(pair, prompt, given, way, temperature, seed, tallies[way])
                    rates[way].append(rate)
                    likely[way].append(mean)
        print(f"T {temperature:g}, {len(likely['plain'])} replies of {given.tokens} tokens")
        for way in WAYS:
            apart = [a - b for a, b in zip(likely[way], likely["plain"], strict=True)]
            error = statistics.stdev(apart) / len(apart) ** 0.5 if way != "plain" else 0.0
            ratio = statistics.median(a / b for a, b in zip(rates[way], rates["plain"], strict=True))
            print(
                f"  {way:9s} tau {tallies[way].acceptance_length:.2f}  {ratio:.2f}x plain  log-probability a "
                f"token {statistics.fmean(likely[way]):.3f} ({statistics.fmean(apart):+.3f} +- {error:.3f})"
            )


def say(
    pair: Pair, prompt: str, given: argparse.Namespace, way: str, temperature: float, seed: int, tally: Tally
) -> tuple[float, float]:
    """One reply: its rate, and the mean log-probability of its tokens."""
    session = pair._session
    plain = way == "plain"
    session.drafter = NoDrafter() if plain else pair._drafter
    session.controller = Off() if plain else FixedLength(given.length)
    session.verifier = make_verifier("coupled" if plain else way)
    session.prefill(pair.tokens(prompt))
    rules = StopRules(max_tokens=given.tokens, ignore_eos=True)
    own, scores = Tally(), []
    for emission in session.reply(pair.sampler(temperature, seed), rules, Reply(ReplyText(())), logprobs=1):
        own.add(emission.stats)
        tally.add(emission.stats)
        scores += [token.logprobs.logprob for token in emission.tokens if token.logprobs is not None]
    return own.tokens_per_second or 0.0, statistics.fmean(scores)


if __name__ == "__main__":
    main()
