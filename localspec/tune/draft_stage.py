"""Who drafts and how much, on recorded replies to the user's prompts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from localspec.bench.blocks import BlockRunner
from localspec.bench.driver import NO_DRAFTS, Driver
from localspec.bench.grid import Block
from localspec.bench.records import Configuration, ModelFile, Settings
from localspec.bench.tasks import Prompt, Task
from localspec.bench.transcripts import Transcripts
from localspec.calibration.passes import measure_passes
from localspec.control import DEFAULT_POLICY
from localspec.drafters import METHODS, make_drafter, models_of
from localspec.errors import LocalspecError
from localspec.tune.budget import Clock, Deadline
from localspec.tune.engine_stage import sample_text
from localspec.tune.records import Value
from localspec.tune.rivals import Asked, Rival, draft_name
from localspec.tune.workshop import Bench
from localspec.types import DraftOptions

LENGTHS = (2, 4, 8)
"""Fixed draft lengths beside the policy that chooses."""
SIZES = (1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 24, 32, 48)
FEW_SIZES = (1, 2, 4, 9, 16, 32)
"""Widths at which T(n) is taken for the policy; fewer where passes take long."""

_HELD = 128
_PASSES = 4
"""Of each width at least: two in the round of warm-up, two in the one that counts."""


def default_drafts(present: DraftOptions) -> tuple[str, ...]:
    """What is tried where the user names nothing: the present drafter and the methods without a model."""
    found = dict.fromkeys([present.spec, "ngram", "suffix"])
    found.pop(NO_DRAFTS, None)
    kinds: dict[object, str] = {}
    for spec in found:
        # "auto" may be another name of one of the others.
        kinds.setdefault(spec if models_of(spec) or spec not in METHODS else _kind(spec), spec)
    return tuple(kinds.values())


def _kind(spec: str) -> type:
    drafter = make_drafter(DraftOptions(spec))
    drafter.close()
    return type(drafter)


def draft_options(present: DraftOptions, drafts: Sequence[str]) -> list[DraftOptions]:
    """Every drafter with the policy and with fixed lengths, and none; without the present one."""
    found: dict[str, DraftOptions] = {}
    for spec in drafts:
        if spec == NO_DRAFTS:
            continue
        for policy in (DEFAULT_POLICY, *(f"fixed:{length}" for length in LENGTHS)):
            options = replace(present, spec=spec, policy=policy, length=None, leaves=1)
            found[draft_name(options)] = options
    found[draft_name(replace(present, spec=NO_DRAFTS))] = replace(present, spec=NO_DRAFTS)
    found.pop(draft_name(present), None)
    return list(found.values())


def draft_changes(present: DraftOptions, options: DraftOptions) -> dict[str, Value]:
    """Keys of config.toml that make `options` of `present`."""
    if options.spec == NO_DRAFTS:
        return {} if present.spec == NO_DRAFTS else {"draft.spec": NO_DRAFTS}
    pairs: dict[str, tuple[Value, Value]] = {
        "draft.spec": (present.spec, options.spec),
        "draft.policy": (present.policy, options.policy),
        "draft.length": (present.length, options.length),
        "draft.leaves": (present.leaves, options.leaves),
    }
    return {key: new for key, (old, new) in pairs.items() if old != new}


def pass_costs(
    bench: Bench, pass_s: Mapping[int, float], deadline: Deadline, clock: Clock
) -> dict[int, float]:
    """T(n) in milliseconds, which the policy goes by; raises as `measure_passes`.

    Args:
        bench: where.
        pass_s: seconds of some passes as measured before, from which follows how many there is time for.
        deadline: when it should be done.
        clock: nanoseconds.
    """
    widest = max(pass_s, default=1)
    a_token = pass_s.get(widest, 0.0) / widest
    sizes = SIZES if sum(SIZES) * a_token * _PASSES < deadline.left_s else FEW_SIZES
    held = min(_HELD, bench.context.capacity // 2)
    return measure_passes(
        bench.context,
        sample_text(bench, held),
        sizes,
        repeats=3,
        budget_s=deadline.left_s,
        clock=clock,
    )


def rivals_of(
    present: DraftOptions,
    candidates: Sequence[DraftOptions],
    *,
    now: tuple[Driver, Bench],
    best: tuple[Driver, Bench],
    engine_changes: Mapping[str, Value],
) -> dict[str, Rival]:
    """The present settings first, plain decoding second, then the others; by name.

    Args:
        present: who drafts at present.
        candidates: who else may, see `draft_options`.
        now: driver with the present settings of the engine.
        best: driver with the best ones; the same where they are the same.
        engine_changes: keys that make the best ones of the present ones.
    """
    driver, bench = best
    plain = replace(present, spec=NO_DRAFTS)
    name, without = f"{draft_name(present)} (present)", draft_name(plain)
    if present.spec == NO_DRAFTS and not engine_changes:
        without = name
    rivals = [Rival(name, now[0], present, now[1].drafter, present=True, plain=without)]
    others = list(candidates)
    if engine_changes:
        # The same drafter may pay more, or less, with another engine under it.
        others.insert(0, present)
    if without != name and draft_name(plain) not in map(draft_name, others):
        others.insert(0, plain)
    rivals += [
        Rival(
            draft_name(options),
            driver,
            options,
            bench.drafter,
            settings={**engine_changes, **draft_changes(present, options)},
            plain=without,
        )
        for options in sorted(others, key=lambda options: options.spec != NO_DRAFTS)
    ]
    return {rival.name: rival for rival in rivals}


@dataclass(frozen=True, slots=True)
class Recorder:
    """Has the model say the replies that all rivals are judged on, once for each file.

    Attributes:
        driver: of the model, with its present settings.
        bench: its context and vocabulary.
        file: the model file.
        settings: tokens of a reply, and the seed.
        transcripts: where replies are kept.
        temperature: of own prompts' replies; None takes each task's.
    """

    driver: Driver
    bench: Bench
    file: ModelFile
    settings: Settings
    transcripts: Transcripts
    temperature: float | None

    def replies(
        self, prompts: Sequence[tuple[Task, Prompt]], deadline: Deadline, tell: Callable[[str], None]
    ) -> Iterator[Asked | str]:
        """Each prompt with its reply, or a sentence that says why there is none; ends with the time."""
        runner = BlockRunner(
            self.driver,
            self.bench.vocabulary,
            self.bench.template,
            self.file,
            self.settings,
            self.transcripts,
            lambda tokens: None,  # noqa: ARG005 - progress goes by the clock
        )
        for number, (task, prompt) in enumerate(prompts):
            if number and deadline.passed():
                yield f"{len(prompts) - number} of {len(prompts)} prompts were not asked: no time was left."
                return
            own = task.name in OWN_TASKS
            label = f"{task.name} {prompt.name}"
            tell(f"recording the reply to {label}")
            temperature = task.temperature if self.temperature is None or not own else self.temperature
            block = Block(
                self.file.name, task, prompt, "transcript", temperature, (Configuration(draft=NO_DRAFTS),)
            )
            try:
                prepared = runner.prepare(block)
            except LocalspecError as error:
                yield f"{label} was left out: {error}"
                continue
            if not prepared.reply.forced:
                yield f"{label} was left out: its reply is empty."
                continue
            yield Asked(kind_of(task, prompt), label, prepared.reply)


def kind_of(task: Task, prompt: Prompt) -> str:
    """Of a prompt: its task, but the user's own prompts are each a kind."""
    return f"{task.name} {prompt.name}" if task.name in OWN_TASKS else task.name


OWN_TASKS = ("prompts", "history")
"""Tasks of the user's own prompts."""
