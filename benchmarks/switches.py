"""A chat that goes prose, copy, prose, code: how soon the draft length fits each turn; with a picture.

Replies are the model's own, T(n) is measured, and the turns are replayed with both: the controller and the
suffix drafter go through all four turns as in a chat, fixed lengths through each turn from its beginning.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from common import TEXT, model_file, parser

from localspec.bench.driver import Driver, Reply
from localspec.calibration.passes import measure_passes
from localspec.chat.template import ChatTemplate
from localspec.control import CostController, FixedLength, LiveCost
from localspec.cost import CostCurve
from localspec.drafters import LONGEST
from localspec.drafters.suffix import SuffixDrafter
from localspec.runtime.context import LlamaContext
from localspec.runtime.cores import physical_cores
from localspec.runtime.model import LlamaModel
from localspec.simulate.replay import Simulated, replay
from localspec.types import ChatMessage, StepStats

TURNS = (
    ("prose", "Tell me about the history of lighthouses, in your own words."),
    ("copy", f"Copy the following text exactly.\n\n{TEXT}"),
    ("prose", "Explain to a child why the sea is salty."),
    ("code", f"Rename allocate to assign and budget to tokens in this, and print all of it.\n\n{TEXT}"),
)
SETTLED = 8
"""Steps after which the length should fit."""
LENGTHS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48)


@dataclass(frozen=True)
class Turn:
    """One recorded turn of the chat."""

    kind: str
    prompt: tuple[int, ...]
    reply: tuple[int, ...]


def main() -> None:
    options = parser(__doc__ or "")
    options.set_defaults(file_type="BF16", threads=1)
    options.add_argument("--tokens", type=int, default=200, help="tokens of a reply at most")
    options.add_argument("--picture", type=Path, default=None, help="SVG file to draw")
    given = options.parse_args()
    model = LlamaModel(model_file(given.model, given.file_type, given.threads))
    context = LlamaContext(model, capacity=4096, threads=given.threads, cores=physical_cores())
    turns = list(recorded(model, context, given.tokens))
    middle = turns[1].prompt
    cost = CostCurve(measure_passes(context, middle)).scaled(1e-3)
    controller, drafter = CostController(LiveCost(cost, cost(1)), longest=LONGEST), SuffixDrafter()
    followed = []
    for turn in turns:
        controller.begin()
        followed.append(replay(turn.prompt, turn.reply, drafter, controller, cost))
    print("| turn | tokens | drafted a step after 8 | speed | best fixed | its speed | after 8 steps |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    best = []
    for turn, found in zip(turns, followed, strict=True):
        start = found.steps[min(SETTLED, len(found.steps) - 1)].position
        fixed = {length: at_length(turn, length, cost) for length in LENGTHS}
        rates = {length: rate(run.steps, start, cost) for length, run in fixed.items()}
        winner = max(rates, key=lambda length: rates[length])
        best.append(winner)
        own = rate(found.steps, start, cost)
        late = [step.drafted for step in found.steps if step.position >= start]
        mean = sum(late) / max(len(late), 1)
        print(
            f"| {turn.kind} | {len(turn.reply)} | {mean:.1f} | {own:.2f}x | {winner} "
            f"| {rates[winner]:.2f}x | {own / rates[winner]:.0%} of the best |"
        )
    print(json.dumps({"benchmark": "switches", "T(9)/T(1)": round(cost.ratio(9), 2), "best": best}))
    if given.picture:
        draw(given.picture, turns, followed, best)


def recorded(model: LlamaModel, context: LlamaContext, tokens: int) -> Iterator[Turn]:
    """The chat as the model says it, greedily, each turn after all before it."""
    template = ChatTemplate(
        model.chat_template, bos=model.token_text(model.bos), eos=model.token_text(model.eos)
    )
    driver = Driver(context, model)
    messages: list[ChatMessage] = []
    for kind, question in TURNS:
        messages.append(ChatMessage("user", question))
        text = template.render(messages)
        prompt = tuple(model.tokenize(text, add_special=False, parse_special=True))
        # A small model does not copy by itself for long: what is copied is forced.
        said: Sequence[int]
        if kind == "copy":
            said = model.tokenize(TEXT, add_special=False, parse_special=False)
        else:
            said = driver.plain(Reply(prompt, tokens)).token_ids
        messages.append(
            ChatMessage("assistant", b"".join(map(model.token_bytes, said)).decode("utf-8", "replace"))
        )
        yield Turn(kind, prompt, tuple(said))


def at_length(turn: Turn, length: int, cost: CostCurve) -> Simulated:
    """The turn with a fixed length; 0 is plain decoding."""
    return replay(turn.prompt, turn.reply, SuffixDrafter(), FixedLength(length), cost)


def rate(steps: Sequence[StepStats], start: int, cost: CostCurve) -> float:
    """Speed over plain decoding of the steps from position `start` on."""
    late = [step for step in steps if step.position >= start]
    spent = sum(step.total_ns for step in late) * 1e-9
    return sum(step.emitted for step in late) * cost(1) / spent if spent else 1.0


def draw(path: Path, turns: Sequence[Turn], followed: Sequence[Simulated], best: Sequence[int]) -> None:
    """Drafted tokens of every step, and the best fixed length of each turn."""
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams |= {"svg.hashsalt": "localspec", "font.size": 9, "axes.spines.top": False}
    figure, axes = plt.subplots(figsize=(9, 3.2))
    steps = 0
    for turn, found, length in zip(turns, followed, best, strict=True):
        drafted = [step.drafted for step in found.steps]
        accepted = [step.accepted for step in found.steps]
        places = range(steps, steps + len(drafted))
        axes.step(places, drafted, where="post", color="#1b3a5c", lw=1.2, label=None if steps else "drafted")
        axes.fill_between(
            places, accepted, step="post", color="#c96f2e", alpha=0.6, label=None if steps else "accepted"
        )
        axes.hlines(
            length,
            steps,
            steps + len(drafted),
            color="#555555",
            linestyle=":",
            label=None if steps else "best fixed length",
        )
        axes.axvline(steps, color="#bbbbbb", lw=0.8)
        axes.text(steps + 2, LONGEST * 1.02, turn.kind)
        steps += len(drafted)
    axes.set(xlabel="step", ylabel="tokens", xlim=(0, steps), ylim=(0, LONGEST * 1.12))
    axes.legend(frameon=False, loc="center right")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
