"""Rounds of replies: every rival says the same recorded replies, in an order that turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from localspec.bench.driver import NO_DRAFTS, Driver, Reply
from localspec.bench.records import Configuration
from localspec.bench.runs import Run, turn
from localspec.drafters import DEFAULT_LENGTH, Drafter
from localspec.errors import LocalspecError
from localspec.model_files import draft_label
from localspec.tune.budget import Deadline
from localspec.tune.records import UNTRIED, Stage, Trial, Value
from localspec.tune.speeds import Speed, Times
from localspec.types import DraftOptions

_WARM_UP_TOKENS = 16
_FIXED = "fixed"


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt with the reply that is forced.

    Attributes:
        kind: of prompt, as the tables name it.
        label: names it among all.
        reply: tokens of both.
    """

    kind: str
    label: str
    reply: Reply


@dataclass(frozen=True, slots=True)
class Rival:
    """Settings that make replies.

    Attributes:
        name: in words.
        driver: makes the replies.
        options: who drafts how much.
        drafter: makes the drafter that `options` ask for.
        settings: keys of config.toml that it changes.
        present: whether these are the present settings.
        plain: name of the rival that decodes plainly with the same model; None: nothing to compare with.
    """

    name: str
    driver: Driver
    options: DraftOptions
    drafter: Callable[[DraftOptions], Drafter]
    settings: Mapping[str, Value] = field(default_factory=dict)
    present: bool = False
    plain: str | None = None

    def run(self, reply: Reply) -> Run:
        """One reply; raises `LocalspecError` where a drafter or policy cannot be had here."""
        if self.options.spec == NO_DRAFTS:
            return self.driver.plain(reply)
        drafter = self.drafter(self.options)
        try:
            return self.driver.speculative(reply, configuration_of(self.options), drafter)
        finally:
            drafter.close()


def configuration_of(options: DraftOptions) -> Configuration:
    """The bench's name for a drafter and its policy."""
    if options.spec == NO_DRAFTS:
        return Configuration(draft=NO_DRAFTS)
    name, _, argument = options.policy.partition(":")
    if name == _FIXED:
        length = int(argument) if argument else options.length or DEFAULT_LENGTH
        return Configuration(draft=options.spec, length=length, leaves=options.leaves)
    return Configuration(
        draft=options.spec, length=options.length, policy=options.policy, leaves=options.leaves
    )


def draft_name(options: DraftOptions) -> str:
    """A drafter and its policy in words, as the command line has them."""
    if options.spec == NO_DRAFTS:
        return "none (plain)"
    configuration, spec = configuration_of(options), draft_label(options.spec)
    leaves = f", {options.leaves} branches" if options.leaves > 1 else ""
    if configuration.policy is None:
        return f"{spec} {_FIXED}:{configuration.length}{leaves}"
    at_most = f", {options.length} at most" if options.length else ""
    return f"{spec} {options.policy}{at_most}{leaves}"


class ReplyRounds:
    """Rounds over all prompts.

    Args:
        asked: prompts and replies, at least one.
        rivals: by name.
        present: name of the rival that the others are compared with.
        deadline: when to stop.
        tell: called with what is at work.
    """

    def __init__(
        self,
        asked: Sequence[Asked],
        rivals: Mapping[str, Rival],
        present: str,
        deadline: Deadline,
        tell: Callable[[str], None],
    ) -> None:
        self._asked = asked
        self._rivals = rivals
        self._present = present
        self._deadline = deadline
        self._tell = tell
        self._times = Times()
        self._failed: dict[str, str] = {}

    def visit(self, names: Sequence[str], number: int) -> bool:
        """Round `number` of these rivals; False where the time ended within it.

        Raises:
            LocalspecError: the present settings cannot make a reply.
        """
        for place, asked in enumerate(self._asked):
            if self._deadline.passed():
                return False
            self._tell(f"replies, round {number + 1}: {asked.label}")
            self._prepare(asked.reply, names)
            for name in turn(names, number + place):
                if self._deadline.passed():
                    return False
                if name in self._failed:
                    continue
                try:
                    run = self._rivals[name].run(asked.reply)
                except LocalspecError as error:
                    if name == self._present:
                        raise
                    self._failed[name] = str(error)
                else:
                    self._times.add(asked.label, number, name, len(run.token_ids), run.seconds)
        return True

    def rank(self, name: str) -> float | None:
        """Speed over the present settings; less where a kind of prompt is slowed down."""
        speed = self.speed(name)
        if speed is None or name in self._failed:
            return None
        lowest = min((one.ratio for one in self.kinds(name).values()), default=1.0)
        return speed.ratio * min(lowest, 1.0)

    def within(self, name: str) -> float | None:
        """How far the speed may be off."""
        speed = self.speed(name)
        return None if speed is None else speed.within

    def speed(self, name: str, against: str | None = None) -> Speed | None:
        """Over the present settings, or `against` another rival."""
        return self._times.speed(name, against or self._present)

    def kinds(self, name: str) -> dict[str, Speed]:
        """Speed over plain decoding by kind of prompt."""
        plain = self._rivals[name].plain
        if plain is None:
            return {}
        labels: dict[str, list[str]] = {}
        for asked in self._asked:
            labels.setdefault(asked.kind, []).append(asked.label)
        found = {kind: self._times.speed(name, plain, cells) for kind, cells in labels.items()}
        return {kind: speed for kind, speed in found.items() if speed is not None}

    def trial(self, stage: Stage, name: str) -> Trial:
        """What is known of a rival."""
        rival, speed = self._rivals[name], self.speed(name)
        base = Trial(stage=stage, name=name, settings=dict(rival.settings), present=rival.present)
        if speed is None:
            return base.model_copy(update={"note": self._failed.get(name, UNTRIED)})
        kinds = self.kinds(name)
        over = None if rival.plain is None else self._times.speed(name, rival.plain)
        last = self._times.last(name)
        notes = [self._failed.get(name)]
        if speed.cells < len(self._asked):
            notes.append(f"only {speed.cells} of {len(self._asked)} prompts: no more time was left")
        return base.model_copy(
            update={
                "speed": speed.ratio,
                "within": speed.within,
                "rounds": speed.rounds,
                "prompts": speed.cells,
                "of_plain": None if over is None else over.ratio,
                "kinds": {kind: one.ratio for kind, one in kinds.items()},
                "kinds_within": {kind: one.within for kind, one in kinds.items() if one.within is not None},
                "tokens_per_second": last[0] / last[1] if last else None,
                "note": "; ".join(filter(None, notes)) or None,
            }
        )

    def _prepare(self, reply: Reply, names: Sequence[str]) -> None:
        """The prompt in every cache that is used, and a beginning of the reply that does not count."""
        forced = reply.forced
        short = replace(reply, tokens=_WARM_UP_TOKENS, forced=forced and forced[:_WARM_UP_TOKENS])
        for driver in {id(each): each for each in (self._rivals[name].driver for name in names)}.values():
            driver.prefill(reply.prompt)
            driver.plain(short)


LEAST, SHORT, LONG = 24, 48, 128
"""Tokens of a reply: at least, before a kind of prompt is left out instead, and at most."""


def reply_length(seconds: float, token_s: float, rivals: int, prompts: int, kinds: int) -> tuple[int, int]:
    """Tokens of a reply, and how many prompts, for a round of about `seconds`.

    First one prompt of every kind, then longer replies (a drafter shows what it can do once there is
    something to repeat), then more prompts.

    Args:
        seconds: of a round.
        token_s: time of one token by plain decoding.
        rivals: that make each reply.
        prompts: there are.
        kinds: of prompts.
    """
    room = min(seconds / (token_s * max(rivals, 1)), 1e9) if token_s > 0 else 1e9
    asked = min(kinds, max(1, int(room / SHORT)))
    length = int(min(max(room / asked, LEAST), LONG))
    if length == LONG and asked == kinds:
        asked = min(prompts, max(asked, int(room / LONG)))
    return length, asked
