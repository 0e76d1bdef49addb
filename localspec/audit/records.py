"""What an audit finds, frozen and ready for JSON. Logits are the unit of every margin and shift."""

from __future__ import annotations

from typing import Literal

from localspec.bench.records import Record

FORMAT = 1

Promise = Literal["text", "distribution", "lossy"]
"""What a rule promises of a reply with a seed: plain decoding's text, its distribution only, or neither."""

Cause = Literal["near-tie", "filter", "rule", "scores", "session", "lossy"]
"""Why a reply parts from the plain one.

*near-tie*: rounding decided between two tokens. *filter*: rounding moved a token across the border of top-k,
top-p or min-p. *rule*: the rule emitted another token than the model drew. *scores*: the pass's logits differ
from plain decoding's by more than rounding does. *session*: no pass decided on the token that was said.
*lossy*: the rule promises nothing. The first two explain a divergence, the next three are faults.
"""


class WidthNoise(Record):
    """What passes of one width do to the logits of tokens that contend for being said.

    Attributes:
        width: tokens of the pass.
        rows: rows that were compared with plain decoding's.
        median_gap_shift: median over rows of the largest change of a gap between two contenders.
        largest_gap_shift: its maximum.
        largest_shift: the largest change of a single contender's logit.
        bound: twice `largest_shift`: two logits may each move that far, in opposite directions. A divergence
            whose row moved further is not rounding.
    """

    width: int
    rows: int
    median_gap_shift: float
    largest_gap_shift: float
    largest_shift: float
    bound: float


class Noise(Record):
    """The measured rounding of this model on this machine.

    Attributes:
        widths: for every width that a pass of the audit had.
        typical_margin: median over plain decoding's rows of the gap between the two likeliest tokens.
        repeat_shift: the largest change of a contender's logit when plain decoding is repeated; 0 where it
            repeats itself to the last bit.
    """

    widths: tuple[WidthNoise, ...] = ()
    typical_margin: float = 0.0
    repeat_shift: float | None = None

    @property
    def is_rounding(self) -> bool:
        """Whether it can be rounding at all: it moves most gaps by no more than a typical margin.

        Where it does not, passes of several tokens compute something else, and explain nothing.
        """
        return all(width.median_gap_shift <= self.typical_margin for width in self.widths)

    @property
    def largest_bound(self) -> float:
        """The bound of the noisiest width; 0 without any."""
        return max((width.bound for width in self.widths), default=0.0)

    def bound(self, width: int) -> float:
        """The bound for a pass of `width` tokens; the largest of all where that width was not measured."""
        found = next((one.bound for one in self.widths if one.width == width), None)
        return self.largest_bound if found is None else found


class Divergence(Record):
    """Where a reply parts from plain decoding's.

    Attributes:
        index: place in the reply.
        plain, other: the two tokens; None where a reply had ended.
        plain_text, other_text: what they say.
        margin: how far plain decoding put its own token above the other, the noise of a seed included (times
            the temperature, so that the unit is logits); None where that is not known.
        width: tokens of the pass that decided, 1 + drafted; None where no pass did.
        shift: the largest change of a gap between two contenders in that row.
        noise: the bound of that width.
        within_noise: whether the margin lies within it.
        cause: see `Cause`.
        explained: whether rounding explains it; None where nothing was promised.
    """

    index: int
    plain: int | None
    plain_text: str
    other: int | None
    other_text: str
    margin: float | None = None
    width: int | None = None
    shift: float | None = None
    noise: float | None = None
    within_noise: bool | None = None
    cause: Cause
    explained: bool | None


class PlainReply(Record):
    """What the model says alone.

    Attributes:
        place: index of the reply, for `Comparison.reply`.
        task, prompt: names.
        temperature: 0 is greedy.
        prompt_tokens: tokens of the prompt.
        token_ids: the reply.
    """

    place: int
    task: str
    prompt: str
    temperature: float
    prompt_tokens: int
    token_ids: tuple[int, ...]


class Comparison(Record):
    """One reply with speculation beside the plain one.

    Attributes:
        reply: `PlainReply.place` of the plain one.
        draft, length, leaves, verify: how it was made.
        promise: what the rule promises at that temperature.
        token_ids: what was said.
        steps, drafted, accepted: counters of the run.
        median_gap_shift, largest_gap_shift: as `WidthNoise` has them, over the run's own rows up to where
            it parts. What moved them further than `Noise.largest_bound` was not rounding, even where it
            changed no token.
        identical: whether it is the plain reply.
        divergence: where it is not.
    """

    reply: int
    draft: str
    length: int
    leaves: int = 1
    verify: str
    promise: Promise
    token_ids: tuple[int, ...]
    steps: int
    drafted: int
    accepted: int
    median_gap_shift: float | None = None
    largest_gap_shift: float | None = None
    identical: bool
    divergence: Divergence | None = None


class Verdict(Record):
    """The audit's answer.

    Attributes:
        same_answer: whether every promise of the text was kept, rounding aside; None where none was tested.
        compared: replies whose text is promised.
        identical: of these, equal token for token.
        explained: of these, parting where rounding decides.
        sentence: all this for people.
        notes: what else must be known to read it.
    """

    same_answer: bool | None
    compared: int
    identical: int
    explained: int
    sentence: str
    notes: tuple[str, ...] = ()


class Report(Record):
    """One audit.

    Attributes:
        model, file: name as given, and the file's name.
        backend: where it ran, such as "CPU".
        threads, context, max_tokens, seed: how it was asked.
    """

    format: int = FORMAT
    model: str
    file: str
    backend: str
    threads: int
    context: int
    max_tokens: int
    seed: int
    verdict: Verdict
    comparisons: tuple[Comparison, ...]
    plain: tuple[PlainReply, ...]
    noise: Noise
