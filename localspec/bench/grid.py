"""The grid: which configurations run on which prompt, in blocks that are measured together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from localspec.bench.driver import NO_DRAFTS
from localspec.bench.records import Configuration, Measurement, Mode, Settings
from localspec.bench.synthetic import parse_rates
from localspec.bench.tasks import Prompt, Task
from localspec.drafters import models_of, remembers

PARALLEL_TASKS = ("copy", "chain", "random")
"""What several sequences are measured on, where the grid has any of them."""


BlockKey = tuple[str, str, str, str, float, int]
"""File, task, prompt, mode, temperature and number of sequences."""


@dataclass(frozen=True, slots=True)
class Block:
    """Configurations that alternate with plain decoding on one prompt.

    Attributes:
        file: name of the model file.
        task, prompt: what is answered.
        mode: transcript, free or synthetic.
        temperature: of the sampling.
        configurations: at least one.
        parallel: sequences in one batch; above 1 the task's prompts are answered together.
    """

    file: str
    task: Task
    prompt: Prompt
    mode: Mode
    temperature: float
    configurations: tuple[Configuration, ...]
    parallel: int = 1

    @property
    def key(self) -> BlockKey:
        """What tells it from the other blocks of a grid."""
        return (self.file, self.task.name, self.prompt.name, self.mode, self.temperature, self.parallel)

    def weight(self, settings: Settings, done: int = 0) -> float:
        """Tokens that the block's runs will decode, `done` rounds apart: what progress counts."""
        rounds = max(settings.runs - done, 0)
        contestants = 1.0 + len(self.configurations)
        if self.parallel == 1 and self.mode != "free":
            # Those with a draft model have a plain decoding of their own.
            with_model = sum(bool(models_of(c.draft)) for c in self.configurations)
            contestants += with_model - (with_model == len(self.configurations))
        return contestants * rounds * settings.tokens * self.parallel

    def empty(self, configuration: Configuration, note: str) -> Measurement:
        """The measurement of a configuration that could not be run, with the reason."""
        return Measurement(
            file=self.file,
            task=self.task.name,
            prompt=self.prompt.name,
            mode=self.mode,
            configuration=configuration,
            parallel=self.parallel,
            note=note,
        )


def blocks(settings: Settings, file: str, tasks: Sequence[Task], together: bool = True) -> list[Block]:
    """All blocks of one file, in the order in which they run; with those of several sequences if `together`.

    Raises:
        UsageError: an unknown drafter, a rate that cannot be used.
    """
    found = []
    # The experiment's own tasks: what repeats fully, by half and hardly. They take long with many sequences.
    shared = {task.name for task in tasks if task.name in PARALLEL_TASKS} or {task.name for task in tasks}
    for task in tasks:
        for temperature in settings.temperatures or (task.temperature,):
            of_mode = {mode: _configurations(settings, mode, temperature) for mode in settings.modes}
            # Blocks of one prompt are neighbours: it is read once for all of them.
            found += [
                Block(file, task, prompt, mode, temperature, configurations)
                for prompt in task.prompts[: settings.prompts(task.name)]
                for mode, configurations in of_mode.items()
            ]
            found += [
                Block(
                    file,
                    task,
                    task.prompts[0],
                    "transcript",
                    temperature,
                    _together(_configurations(settings, "transcript", temperature)),
                    parallel,
                )
                for parallel in (settings.parallel if together else ())
                # One sequence alone is the transcript mode's own row.
                if task.name in shared and (parallel > 1 or "transcript" not in settings.modes)
            ]
    return [block for block in found if block.configurations]


def measured(block: Block, measurements: Iterable[Measurement], runs: int) -> bool:
    """Whether every configuration of `block` is among `measurements`, with all its runs or none to be had."""
    there = {
        m.configuration
        for m in measurements
        if (m.file, m.task, m.prompt, m.mode, m.parallel)
        == (block.file, block.task.name, block.prompt.name, block.mode, block.parallel)
        and (m.timing is None or len(m.timing.runs) >= runs)
    }
    return there.issuperset(block.configurations)


def _together(configurations: tuple[Configuration, ...]) -> tuple[Configuration, ...]:
    """One length of each drafter, the middle one: concurrency changes the gain, whatever the length."""
    # Policies choose for one sequence: what a pass costs there is another thing. Nothing is remembered there.
    cold = (c.model_copy(update={"memory": "cold"}) for c in configurations if c.length is not None)
    fixed = tuple(dict.fromkeys(cold))
    drafts = dict.fromkeys(c.draft for c in fixed)
    lengths = {draft: [c for c in fixed if c.draft == draft] for draft in drafts}
    return tuple(same[len(same) // 2] for same in lengths.values())


def _configurations(settings: Settings, mode: Mode, temperature: float) -> tuple[Configuration, ...]:
    found = []
    for draft in settings.drafts:
        # Without drafts there is nothing to verify, and a forced text is not verified by a rule.
        rules = settings.verify if mode == "free" and draft != NO_DRAFTS else ("coupled",)
        chosen: list[tuple[int | None, str | None]] = [(None, None)]
        if draft != NO_DRAFTS:
            chosen = [(length, None) for length in settings.lengths]
            chosen += [(None, policy) for policy in settings.policies]
        for length, policy in chosen:
            for rule in rules:
                base = Configuration(
                    draft=draft, length=length, policy=policy, verify=rule, temperature=temperature
                )
                if mode == "synthetic":
                    found += [
                        base.model_copy(update={"rates": parse_rates(text, length or 0)})
                        for text in settings.synthetic
                        if length is not None
                    ]
                else:
                    # Only a drafter that keeps earlier replies answers otherwise after them.
                    kept = settings.memories if remembers(draft) else ("cold",)
                    found += [base.model_copy(update={"memory": memory}) for memory in kept]
    return tuple(found)
