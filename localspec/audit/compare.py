"""Plain and speculative replies side by side, and what became of every place where they part."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import zip_longest

from localspec.audit.noise import NoiseMeter, Plain
from localspec.audit.records import Cause, Comparison, Divergence, Noise, PlainReply, Promise
from localspec.audit.witness import Parting, PlainRows, Witness
from localspec.bench.driver import Driver, Reply
from localspec.bench.records import Configuration
from localspec.bench.runs import Run
from localspec.drafters import DEFAULT_LENGTH, Drafter, make_drafter
from localspec.errors import PromptTooLongError
from localspec.target import Vocabulary
from localspec.types import DraftOptions
from localspec.verify import Verifier, make_verifier, shares_noise

_ROUNDING = 1e-4
"""Slack for the arithmetic of margins themselves, in logits."""


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt, asked at one temperature."""

    task: str
    prompt: str
    tokens: tuple[int, ...]
    temperature: float

    @property
    def title(self) -> str:
        """For people: "copy reservoir, greedy"."""
        asked = "greedy" if self.temperature == 0 else f"temperature {self.temperature:g}"
        return f"{self.task} {self.prompt}, {asked}"


@dataclass(frozen=True, slots=True)
class Findings:
    """What was compared, in the order of the questions, and the noise by which it was judged."""

    plain: tuple[PlainReply, ...]
    comparisons: tuple[Comparison, ...]
    noise: Noise


def promise_of(rule: str, temperature: float) -> Promise:
    """What the rule `rule` promises of a reply: see `Promise`.

    A rule whose verdict is the target's own draw promises the text of a seed. Rejection draws other numbers
    when other tokens were drafted; greedy, it has nothing to draw. Raises `UsageError` for an unknown rule.
    """
    verifier = make_verifier(rule)
    if not verifier.exact:
        return "lossy"
    return "text" if temperature == 0 or shares_noise(verifier) else "distribution"


def options_of(configuration: Configuration) -> DraftOptions:
    """The drafter of a configuration, without the files of its draft models."""
    return DraftOptions(configuration.draft, configuration.length, leaves=configuration.leaves)


@dataclass(frozen=True, slots=True)
class _Compared:
    reply: int
    configuration: Configuration
    promise: Promise
    run: Run
    witness: Witness


class Audit:
    """Answers every question plainly and with every configuration.

    Args:
        driver: the model.
        configurations: drafter, length and rule of each contestant; their temperature is the question's.
        questions: what is asked.
        tokens: of a reply at most.
        seed: of the sampling.
        spell: a token's text; None takes the vocabulary's bytes.
        make: makes the drafter of a configuration, a new one for every reply; None knows no draft models.
        listen: called with what is being done, and the share that is done.
    """

    def __init__(
        self,
        driver: Driver,
        configurations: Sequence[Configuration],
        questions: Sequence[Question],
        *,
        tokens: int,
        seed: int,
        spell: Callable[[int], str] | None = None,
        make: Callable[[Configuration], Drafter] | None = None,
        listen: Callable[[str, float], None] = lambda what, share: None,  # noqa: ARG005 - nobody listens
    ) -> None:
        self._driver = driver
        self._configurations = tuple(configurations)
        self._questions = tuple(questions)
        self._tokens = tokens
        self._seed = seed
        self._spell = spell or (lambda token: _text(driver.vocabulary, token))
        self._make = make or (lambda configuration: make_drafter(options_of(configuration)))
        self._listen = listen
        self._plain: list[Plain] = []
        self._compared: list[_Compared] = []
        self._done = 0
        self._parts = len(self._questions) * (2 + len(self._configurations)) or 1

    def run(self) -> Findings:
        """Ask everything.

        Raises:
            PromptTooLongError: a prompt and its reply do not fit into the context; nothing was asked then.
            UsageError: a rule that cannot judge a drafter's drafts.
            EngineError: a pass failed.
        """
        for question in self._questions:
            self._check_room(question)
        for question in self._questions:
            self._ask(question)
        parted = any(self._first_difference(one) is not None for one in self._compared)
        noise = self._measure(thorough=parted)
        return Findings(
            plain=tuple(
                PlainReply(
                    place=place,
                    task=question.task,
                    prompt=question.prompt,
                    temperature=question.temperature,
                    prompt_tokens=len(question.tokens),
                    token_ids=plain.said,
                )
                for place, (question, plain) in enumerate(zip(self._questions, self._plain, strict=True))
            ),
            comparisons=tuple(self._comparison(one, noise) for one in self._compared),
            noise=noise,
        )

    def _check_room(self, question: Question) -> None:
        needed, capacity = len(question.tokens) + self._tokens, self._driver.context.capacity
        if needed > capacity:
            raise PromptTooLongError(
                f"The prompt {question.task} {question.prompt} needs {needed} tokens with its reply and the "
                f"context holds {capacity}; raise --context or lower --max-tokens."
            )

    # --- replies

    def _ask(self, question: Question) -> None:
        driver = self._driver
        asked = Reply(question.tokens, self._tokens, question.temperature, self._seed, stops=True)
        self._tell(f"{question.title}: plain")
        driver.read(question.tokens)
        looking: list[PlainRows] = []

        def remember(verifier: Verifier) -> Verifier:
            looking.append(PlainRows(verifier))
            return looking[-1]

        said = driver.plain(asked, remember).token_ids
        plain = Plain(question.tokens, said, tuple(looking[-1].candidates))
        self._plain.append(plain)
        for configuration in self._configurations:
            promise = promise_of(configuration.verify, question.temperature)
            self._tell(f"{question.title}: {configuration.draft}, {configuration.verify}")
            if promise != "distribution":
                self._compare(asked, plain, configuration, promise)

    def _compare(self, asked: Reply, plain: Plain, configuration: Configuration, promise: Promise) -> None:
        looking: list[Witness] = []

        def witness(verifier: Verifier) -> Verifier:
            looking.append(Witness(verifier, plain.prompt, plain.said, plain.candidates))
            return looking[-1]

        with closing(self._make(configuration)) as drafter:
            run = self._driver.speculative(asked, configuration, drafter, watch=witness)
        place = len(self._plain) - 1
        self._compared.append(_Compared(place, configuration, promise, run, looking[-1]))
        if run.token_ids != plain.said:
            # Whatever went wrong, the next reply starts from a cache that is known to be right.
            self._driver.read(plain.prompt)

    def _measure(self, *, thorough: bool) -> Noise:
        steps = [step for one in self._compared for step in one.run.steps]
        meter = NoiseMeter(
            self._driver,
            {1, *(1 + step.drafted for step in steps)},
            branches=any(step.leaves > 1 for step in steps),
            after_reply=lambda: self._tell("measuring the model's rounding"),
        )
        return meter.measure(self._plain, thorough=thorough)

    def _tell(self, what: str) -> None:
        self._listen(what, min(self._done / self._parts, 1.0))
        self._done += 1

    # --- judgement

    def _first_difference(self, one: _Compared) -> int | None:
        pairs = zip_longest(self._plain[one.reply].said, one.run.token_ids)
        return next((index for index, (plain, other) in enumerate(pairs) if plain != other), None)

    def _comparison(self, one: _Compared, noise: Noise) -> Comparison:
        steps, configuration, shifts = one.run.steps, one.configuration, one.witness.gap_shifts
        index = self._first_difference(one)
        return Comparison(
            reply=one.reply,
            draft=configuration.draft,
            length=configuration.length or DEFAULT_LENGTH,
            leaves=configuration.leaves,
            verify=configuration.verify,
            promise=one.promise,
            token_ids=one.run.token_ids,
            steps=len(steps),
            drafted=sum(step.drafted for step in steps),
            accepted=sum(step.accepted for step in steps),
            median_gap_shift=statistics.median(shifts) if shifts else None,
            largest_gap_shift=max(shifts, default=None),
            identical=index is None,
            divergence=None if index is None else self._divergence(one, index, noise),
        )

    def _divergence(self, one: _Compared, index: int, noise: Noise) -> Divergence:
        plain, other = _at(self._plain[one.reply].said, index), _at(one.run.token_ids, index)
        texts = ["" if token is None else self._spell(token) for token in (plain, other)]
        parting = one.witness.parting
        if parting is not None and (parting.index, parting.token) != (index, other):
            parting = None
        bound = None if parting is None else noise.bound(parting.width)
        cause = _cause(one.promise, parting, noise)
        return Divergence(
            index=index,
            plain=plain,
            plain_text=texts[0],
            other=other,
            other_text=texts[1],
            margin=parting and parting.margin,
            width=parting and parting.width,
            shift=parting and parting.shift,
            noise=bound,
            within_noise=_within(parting, bound),
            cause=cause,
            explained=None if cause == "lossy" else cause in ("near-tie", "filter"),
        )


def _cause(promise: Promise, parting: Parting | None, noise: Noise) -> Cause:
    if promise == "lossy":
        return "lossy"
    if parting is None:
        return "session"
    if parting.drawn != parting.token:
        return "rule"
    if parting.shift > noise.bound(parting.width) or not noise.is_rounding:
        return "scores"
    # The draw is a pure function of row, seed and position, so what is left is one of these two.
    if parting.margin is not None and -_ROUNDING <= parting.margin <= parting.shift + _ROUNDING:
        return "near-tie"
    return "filter" if parting.filters_differ else "scores"


def _within(parting: Parting | None, bound: float | None) -> bool | None:
    if parting is None or parting.margin is None or bound is None:
        return None
    return abs(parting.margin) <= bound


def _at(tokens: Sequence[int], index: int) -> int | None:
    return tokens[index] if index < len(tokens) else None


def _text(vocabulary: Vocabulary, token: int) -> str:
    return vocabulary.token_bytes(token).decode("utf-8", errors="replace")
