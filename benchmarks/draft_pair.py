"""A target and its draft model: acceptance by rule beside theory's bounds, speed, and llama-server's.

Plain decoding, a fixed length and the cost controller alternate on the same seeds. The bounds are means over
the positions of the plain reply, of the two models' final distributions there.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from common import STORY_PROMPT, TEXT, model_file, parser

from localspec.bench.peers.configs import PeerConfig
from localspec.bench.peers.llama_server import LlamaServerPeer, start_llama_server
from localspec.calibration.passes import measure_passes
from localspec.control import Controller, CostController, FixedLength, LiveCost, Off
from localspec.cost import CostCurve
from localspec.drafters.base import Drafter
from localspec.drafters.model import ModelDrafter
from localspec.drafters.none import NoDrafter
from localspec.runtime.context import LlamaContext
from localspec.runtime.cores import physical_cores
from localspec.runtime.model import LlamaModel
from localspec.sampling import Sampler
from localspec.session import Reply, Session, StopRules
from localspec.stats.metrics import Tally
from localspec.text import ReplyText
from localspec.types import SamplingParams
from localspec.verify import GreedyDrawing, make_verifier

CHAT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
PROMPTS = {
    "story": STORY_PROMPT,
    "explain": CHAT.format("Explain to a beginner how a hash table works, step by step."),
    "code": CHAT.format("Write a Python class for a bank account with deposit and withdraw, and comment it."),
    "edit": CHAT.format(f"Rename the function allocate to assign, and print the whole text.\n\n{TEXT}"),
}
TEMPERATURES = (0.0, 0.8, 1.0)


@dataclass
class Pooled:
    """Steps of one way of decoding, of all prompts together, and the rate of every run."""

    tally: Tally = field(default_factory=Tally)
    rates: list[float] = field(default_factory=list)
    texts: list[tuple[int, ...]] = field(default_factory=list)
    draft_ms: list[float] = field(default_factory=list)

    @property
    def acceptance(self) -> float:
        """Accepted of the tokens that were looked at: conditional acceptance."""
        return self.tally.accepted / max(self.tally.reached, 1)


class Pair:
    """Both models, and replies of the target with any controller and rule."""

    def __init__(self, target: Path, draft: Path, threads: int) -> None:
        self._models = [LlamaModel(target), LlamaModel(draft)]
        self.target, self.draft = (
            LlamaContext(model, capacity=2048, threads=threads, cores=physical_cores())
            for model in self._models
        )
        self.vocabulary = self._models[0]
        self._session = Session(self.target, self.vocabulary, drafter=NoDrafter(), controller=Off())
        self._drafter = ModelDrafter(self.draft, self.vocabulary.vocabulary_size, GreedyDrawing())

    def tokens(self, prompt: str) -> list[int]:
        """Token ids of a rendered prompt."""
        return self.vocabulary.tokenize(prompt, add_special=True, parse_special=True)

    def sampler(self, temperature: float, seed: int) -> Sampler:
        """The usual filters; the reply does not end before its length."""
        forbidden = dict.fromkeys(self.vocabulary.eog_tokens, float("-inf"))
        return Sampler(SamplingParams(temperature=temperature, seed=seed), forbidden)

    def say(
        self, prompt: str, count: int, sampler: Sampler, controller: Controller, rule: str, into: Pooled
    ) -> None:
        """One reply."""
        session = self._session
        speculates = bool(controller.budget([0]).tokens)
        drafter: Drafter = self._drafter if speculates else NoDrafter()
        session.drafter, session.controller = drafter, controller
        session.verifier = make_verifier(rule)
        session.prefill(self.tokens(prompt))
        reply, tally = Reply(ReplyText(())), Tally()
        for emission in session.reply(sampler, StopRules(max_tokens=count, ignore_eos=True), reply):
            tally.add(emission.stats)
            into.tally.add(emission.stats)
            if emission.stats.drafted:
                into.draft_ms.append(emission.stats.draft_ns * 1e-6 / emission.stats.drafted)
        assert tally.tokens_per_second is not None
        into.rates.append(tally.tokens_per_second)
        into.texts.append(tuple(reply.token_ids))

    def distances(
        self, prompt: str, reply: Sequence[int], sampler: Sampler
    ) -> Iterator[tuple[float, float, float]]:
        """For each position the total variation, the mass of p q, and p of q's likeliest token."""
        text = [*self.tokens(prompt), *reply]
        start = len(text) - len(reply)
        for context in (self.target, self.draft):
            context.clear()
            context.decode(text[: start - 1], "none")
        for place in range(start - 1, len(text) - 1):
            p, q = (
                self._dense(context.decode([text[place]], "all")[0], sampler)
                for context in (self.target, self.draft)
            )
            yield float(abs(p - q).sum() / 2), float(p @ q), float(p[q.argmax()])
        self.target.clear()
        self.draft.clear()
        self._session.tokens = []
        self._drafter.begin([0])

    def _dense(self, row: np.ndarray, sampler: Sampler) -> np.ndarray:
        ids, probs = sampler.distribution(row)
        whole = np.zeros(len(row))
        whole[ids] = probs
        return whole


def main() -> None:
    options = parser(__doc__ or "")
    options.set_defaults(file_type="F32", runs=3)
    options.add_argument("--draft-type", default="Q4_0", help="quantization of the draft model")
    options.add_argument("--length", type=int, default=3, help="draft tokens a step")
    options.add_argument("--tokens", type=int, default=160)
    options.add_argument("--no-peer", action="store_true", help="leave llama-server out")
    given = options.parse_args()
    files = [model_file(given.model, kind, given.threads) for kind in (given.file_type, given.draft_type)]
    pair = Pair(files[0], files[1], given.threads)
    curve = CostCurve(measure_passes(pair.target, pair.tokens(STORY_PROMPT), repeats=3)).scaled(1e-3)
    print(f"target {given.file_type}, draft {given.draft_type}, T(4)/T(1) {curve.ratio(4):.2f}")
    for temperature in TEMPERATURES:
        ours = compare(pair, given, temperature, curve)
        if temperature:
            bounds(pair, temperature, ours["plain"])
    if not given.no_peer:
        peers(files, given, pair)


def compare(pair: Pair, given: argparse.Namespace, temperature: float, curve: CostCurve) -> dict[str, Pooled]:
    """Rates, acceptance and identity of every way of decoding at one temperature."""
    found: dict[str, Pooled] = {}
    cost = CostController(LiveCost(curve, curve(1)), longest=16)
    fixed = FixedLength(given.length)
    ways: dict[str, tuple[Controller, str]] = {
        "plain": (Off(), "coupled"),
        "coupled": (fixed, "coupled"),
        "cost": (cost, "coupled"),
        "rejection": (fixed, "rejection"),
    }
    for number in range(given.runs):
        for prompt in PROMPTS.values():
            for name, (controller, rule) in ways.items():
                controller.begin()
                sampler = pair.sampler(temperature, number + 1)
                pooled = found.setdefault(name, Pooled())
                pair.say(prompt, given.tokens, sampler, controller, rule, pooled)
    plain = found["plain"]
    print(f"\nT {temperature:g}")
    for name, pooled in found.items():
        ratio = statistics.median(a / b for a, b in zip(pooled.rates, plain.rates, strict=True))
        worst = min(a / b for a, b in zip(pooled.rates, plain.rates, strict=True))
        same = sum(a == b for a, b in zip(pooled.texts, plain.texts, strict=True))
        tally = pooled.tally
        by_position = " ".join(
            f"{accepted / drafted:.2f}"
            for accepted, drafted in zip(tally.accepted_at, tally.drafted_at, strict=False)
            if drafted
        )
        drafting = statistics.median(pooled.draft_ms) if pooled.draft_ms else 0.0
        print(
            f"  {name:9s} {ratio:.2f}x plain (worst run {worst:.2f})  tau {tally.acceptance_length:.2f}  "
            f"alpha {pooled.acceptance:.3f}  by position {by_position or '-'}  "
            f"draft {drafting:.2f} ms/token  same text {same}/{len(plain.texts)}"
        )
    return found


def bounds(pair: Pair, temperature: float, plain: Pooled) -> None:
    """What theory says of acceptance, from the distributions along the plain replies."""
    seen = [
        each
        for prompt, text in zip(PROMPTS.values(), plain.texts, strict=False)
        for each in pair.distances(prompt, text, pair.sampler(temperature, 1))
    ]
    variation, product, likeliest = (np.array(column) for column in zip(*seen, strict=True))
    print(
        f"  theory: coupled draws at least {np.mean((1 - variation) / (1 + variation)):.3f} and at most "
        f"{np.mean(1 - variation):.3f} (rejection's); independent draws {product.mean():.3f}, "
        f"the draft's likeliest token {likeliest.mean():.3f}"
    )


def peers(files: Sequence[Path], given: argparse.Namespace, pair: Pair) -> None:
    """llama-server with the same pair and length, and its plain decoding of the draft model alone."""
    settings = (("draft.n_max", given.length), ("draft.n_min", 0), ("draft.p_min", 0.0))
    config = PeerConfig(f"draft-simple {given.length}", "draft-simple", settings)
    where = {"threads": given.threads, "context": 2048}
    server = start_llama_server(files[0], config, draft_path=files[1], **where)
    print("\nllama-server, draft-simple")
    for temperature in TEMPERATURES:
        accepted = drafted = 0
        for number in range(given.runs):
            for prompt in PROMPTS.values():
                reply = server.complete(pair.tokens(prompt), given.tokens, temperature, number + 1)
                accepted, drafted = accepted + (reply.accepted or 0), drafted + (reply.drafted or 0)
        print(f"  T {temperature:g}  accepted of drafted {accepted / max(drafted, 1):.3f}")
    server.close()
    alone = start_llama_server(files[1], PeerConfig("plain", "none"), **where)
    ratios, theirs, ours = [], [], []
    for number in range(given.runs + 1):
        for prompt in PROMPTS.values():
            theirs.append(_ms_per_token(alone, pair.tokens(prompt), given.tokens))
            pooled = Pooled()
            fixed = FixedLength(given.length)
            pair.say(prompt, given.tokens, pair.sampler(0.8, number + 1), fixed, "coupled", pooled)
            ours.append(statistics.median(pooled.draft_ms))
            ratios.append(ours[-1] / theirs[-1])
    alone.close()
    print(
        f"  drafting: {statistics.median(ours):.2f} ms a token here, {statistics.median(theirs):.2f} ms for "
        f"its plain decoding of the draft model "
        f"(less than it takes to draft), ratio {statistics.median(ratios):.2f}"
    )


def _ms_per_token(server: LlamaServerPeer, prompt: Sequence[int], count: int) -> float:
    reply = server.complete(prompt, count, 0.8, 1)
    return reply.seconds * 1e3 / reply.timed_tokens


if __name__ == "__main__":
    main()
