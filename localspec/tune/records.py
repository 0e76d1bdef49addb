"""What tuning finds: plain values that go through JSON unchanged; None stands for what was not measured."""

from __future__ import annotations

from typing import Literal

from localspec.bench.records import Record

FORMAT = 1

Stage = Literal["engine", "batch", "draft", "file"]
Value = bool | int | str | None
"""Of a setting; None: not set."""

UNTRIED = "untried: its turn did not come in this time"
SAFE = 0.98
"""Of plain decoding's speed: what no kind of prompt may fall below."""


class Fidelity(Record):
    """How near a copy's next-token distributions are to those of the file that it was made from.

    Attributes:
        tokens: places in recorded replies at which both were asked.
        divergence: mean Kullback-Leibler divergence from the file to the copy, in nats.
        agreement: share of places at which both prefer the same token.
    """

    tokens: int
    divergence: float
    agreement: float


class Trial(Record):
    """One setting that was tried, or should have been.

    Attributes:
        stage: *engine* (threads, flash attention), *batch*, *draft*, or *file* (another quantization).
        name: what was tried, in words.
        settings: keys of config.toml, such as "engine.threads", that it would change, with their values.
        present: whether these are the present settings.
        speed: over that of the present settings in the same rounds: of passes over one and nine tokens
            (engine), of reading a prompt (batch), of replies (draft, file).
        within: `speed` is known within this share of itself (95 %); None after too few rounds to tell.
        rounds: in which both ran.
        prompts: over which `speed` is pooled.
        of_plain: speed over that of plain decoding of the same file.
        kinds: the same by kind of prompt.
        kinds_within: shares as `within`, by kind.
        tokens_per_second: in the last round.
        pass_ms: T(1) and T(9) in milliseconds, by tokens.
        bytes: size of a copy.
        fidelity: of a copy.
        note: why something is missing or to be read with care.
    """

    stage: Stage
    name: str
    settings: dict[str, Value] = {}
    present: bool = False
    speed: float | None = None
    within: float | None = None
    rounds: int = 0
    prompts: int = 0
    of_plain: float | None = None
    kinds: dict[str, float] = {}
    kinds_within: dict[str, float] = {}
    tokens_per_second: float | None = None
    pass_ms: dict[int, float] = {}
    bytes: int | None = None
    fidelity: Fidelity | None = None
    note: str | None = None

    @property
    def worst(self) -> tuple[str, float] | None:
        """The kind of prompt on which it gains least over plain decoding, and that speed."""
        return min(self.kinds.items(), key=lambda item: item[1], default=None)

    @property
    def slower(self) -> dict[str, float]:
        """Kinds of prompts on which it is below `SAFE` of plain decoding, by more than the noise."""
        return {
            kind: speed
            for kind, speed in self.kinds.items()
            if speed * (1 + self.kinds_within.get(kind, 0.0)) < SAFE
        }

    @property
    def doubtful(self) -> dict[str, float]:
        """Kinds on which it seems to be below `SAFE`, and the noise may be the reason."""
        slower = self.slower
        return {kind: speed for kind, speed in self.kinds.items() if speed < SAFE and kind not in slower}


class Advice(Record):
    """What to do.

    Attributes:
        settings: keys of config.toml with their new values, None to take a key out; empty: keep all as it is.
        speed, within: of replies with them, over the present settings; None where only other things change.
        sentences: why, and what to know about it.
        file_type: of a copy of the model that is faster still, at the price that `sentences` tell; replies of
            a copy are not those of the file.
    """

    settings: dict[str, Value] = {}
    speed: float | None = None
    within: float | None = None
    sentences: tuple[str, ...] = ()
    file_type: str | None = None


class Tuning(Record):
    """All that is known so far.

    Attributes:
        format: of this record.
        model, file, file_type: what was tuned.
        minutes: that there were.
        started: date and time.
        seconds: spent.
        complete: whether every stage was gone through; False after an interrupt.
        prompts: kinds of prompts that were asked.
        kinds: how many kinds there are.
        trials: in the order of the stages.
        notes: sentences about the whole.
        advice: None before the end.
    """

    format: int = FORMAT
    model: str
    file: str
    file_type: str = ""
    minutes: float
    started: str
    seconds: float = 0.0
    complete: bool = False
    prompts: tuple[str, ...] = ()
    kinds: int = 0
    trials: tuple[Trial, ...] = ()
    notes: tuple[str, ...] = ()
    advice: Advice | None = None

    def of(self, stage: Stage) -> list[Trial]:
        """The trials of one stage."""
        return [trial for trial in self.trials if trial.stage == stage]
