"""The stages, one after the other, within the time that there is; what is known so far is always at hand."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

from localspec.bench.driver import Driver
from localspec.bench.pooling import clean
from localspec.bench.prompts import prompt_tokens
from localspec.bench.records import ModelFile, Settings
from localspec.bench.runner import Progress
from localspec.bench.tasks import Prompt, Task
from localspec.bench.transcripts import Transcripts
from localspec.errors import LocalspecError, UsageError
from localspec.models.hashes import file_sha256
from localspec.tune.advice import advise
from localspec.tune.budget import Clock, Deadline, TimeBudget
from localspec.tune.contest import contest
from localspec.tune.copies import Copies
from localspec.tune.draft_stage import Recorder, draft_options, kind_of, pass_costs, rivals_of
from localspec.tune.engine_stage import Measuring, best_batch, best_engine, changes
from localspec.tune.file_stage import FileStage
from localspec.tune.records import UNTRIED, Trial, Tuning
from localspec.tune.rivals import LEAST, LONG, Asked, ReplyRounds, Rival, draft_name, reply_length
from localspec.tune.verdict import wins
from localspec.tune.workshop import Bench, Workshop
from localspec.types import DraftOptions, EngineOptions

DEFAULT_CONTEXT = 4096
_ENGINE, _BATCH, _DRAFTS = 0.2, 0.1, 0.65
"""Shares of what is left at their beginning: engine, batch, and drafts where copies come after them."""
_FIRST_ROUND = 0.3
"""Of the time for drafts: it has all rivals, and the better ones shall meet often enough after it."""
_RECORDING, _CURVE = 0.3, 0.1


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to tune.

    Attributes:
        model: as the user named it.
        path: its file.
        tasks: prompts.
        engine: the present settings.
        drafts: drafters to try.
        threads: numbers of threads to try.
        minutes: that there are, above 0.
        temperature: of replies to the user's own prompts.
        quantize: whether to try copies.
        seed: of the sampling.
        notes: sentences for the report.
    """

    model: str
    path: Path
    tasks: tuple[Task, ...]
    engine: EngineOptions
    drafts: tuple[str, ...]
    threads: tuple[int, ...]
    minutes: float
    temperature: float
    quantize: bool = True
    seed: int = 1
    notes: tuple[str, ...] = ()


class Tuner:
    """Tunes one model; everything that can be changed for a test is an argument.

    Args:
        wanted: what to tune.
        workshop: makes contexts; the model is loaded through it.
        copies: makes quantizations.
        transcripts: where replies are recorded.
        listen: called with the progress.
        clock: nanoseconds.

    Attributes:
        found: all that is known so far, also after an interrupt.
    """

    def __init__(
        self,
        wanted: Wanted,
        workshop: Workshop,
        copies: Copies,
        *,
        transcripts: Transcripts | None = None,
        listen: Callable[[Progress], None] = lambda progress: None,  # noqa: ARG005 - nobody listens
        clock: Clock = time.perf_counter_ns,
    ) -> None:
        self._wanted = wanted
        self._workshop = workshop
        self._copies = copies
        self._transcripts = transcripts or Transcripts()
        self._listen = listen
        self._clock = clock
        self._budget = TimeBudget(clock, wanted.minutes * 60)
        self._sizes: list[int] = []
        self.found = Tuning(
            model=wanted.model,
            file=wanted.path.stem,
            file_type=copies.file_type,
            minutes=wanted.minutes,
            started=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            kinds=len({kind_of(*each) for each in self._prompts()}),
            notes=wanted.notes,
        )

    def run(self) -> Tuning:
        """All stages.

        Raises:
            LocalspecError: the model cannot be used with its present settings. Everything smaller is a trial
                with a note.
        """
        self._budget = TimeBudget(self._clock, self._wanted.minutes * 60)
        try:
            self._look()
            engine = self._engine()
            with ExitStack() as stack:
                self._replies(engine, stack)
            advice = advise(self.found, self._copies.loss)
            self.found = self.found.model_copy(update={"advice": advice, "complete": True})
        finally:
            self.found = self.found.model_copy(update={"seconds": self._budget.spent_s})
        return self.found

    # --- stages

    def _engine(self) -> EngineOptions:
        """Stage one: the settings of the engine."""
        wanted = self._wanted
        measuring = Measuring(self._workshop, wanted.path, wanted.engine, self._clock, self._tell)
        engine = best_engine(measuring, wanted.threads, self._budget.share(_ENGINE), self._add)
        batch = best_batch(measuring, engine, self._pass_s(), self._budget.share(_BATCH), self._add)
        return replace(engine, batch=batch)

    def _pass_s(self) -> dict[int, float]:
        """Seconds of passes with the present settings, as far as stage one came."""
        present = next(trial for trial in self.found.trials if trial.present)
        return {n: ms * 1e-3 for n, ms in present.pass_ms.items()}

    def _replies(self, engine: EngineOptions, stack: ExitStack) -> None:
        """Stages two and three, on replies."""
        wanted = self._wanted
        candidates = draft_options(wanted.engine.draft, wanted.drafts)
        deadline = self._budget.share(_DRAFTS if wanted.quantize else 1.0)
        if deadline.passed():
            self._untried(candidates)
            return
        pass_s = self._pass_s()
        length, count = reply_length(
            deadline.left_s * _FIRST_ROUND,
            pass_s.get(1, 0.0),
            len(candidates) + 2,
            len(self._prompts()),
            self.found.kinds,
        )
        capacity = self._capacity(length)
        now = self._open(wanted.path, wanted.engine, capacity, stack)
        best = now
        # The batch only matters for prompts: a second context is worth its memory for the rest alone.
        if changes(wanted.engine, replace(engine, batch=wanted.engine.batch)):
            best = self._open(wanted.path, engine, capacity, stack)
        if not best.context.can_trim:
            self._note("This model's state cannot be rolled back: there are no drafts, and none were tried.")
            return
        self._tell("time of a pass over n tokens")
        costs = pass_costs(best, pass_s, deadline.share(_CURVE), self._clock)
        driver = Driver(best.context, best.vocabulary, clock=self._clock, pass_ms=costs)
        old = driver
        if best is not now:
            old_costs = pass_costs(now, pass_s, deadline.share(_CURVE), self._clock)
            old = Driver(now.context, now.vocabulary, clock=self._clock, pass_ms=old_costs)
        rivals = rivals_of(
            wanted.engine.draft,
            candidates,
            now=(old, now),
            best=(driver, best),
            engine_changes=changes(wanted.engine, engine if best is not now else wanted.engine),
        )
        asked: list[Asked] = []
        if not deadline.passed():
            asked = self._record(old, now, length, count, deadline.share(_RECORDING))
        self._drafts(asked, rivals, deadline)
        if wanted.quantize:
            self._files(asked, rivals, engine, capacity, pass_s)

    def _untried(self, candidates: Sequence[DraftOptions]) -> None:
        """Name what should have been tried on replies."""
        options = (self._wanted.engine.draft, *candidates)
        self._add(*(Trial(stage="draft", name=draft_name(each), note=UNTRIED) for each in options))
        if self._wanted.quantize:
            copies = self._copies.planned()
            self._add(*(Trial(stage="file", name=copy.file_type, note=UNTRIED) for copy in copies))

    def _drafts(self, asked: Sequence[Asked], rivals: dict[str, Rival], deadline: Deadline) -> None:
        """Stage two: who drafts."""
        present = next(iter(rivals))
        always = list(dict.fromkeys([present, rivals[present].plain or present]))
        others = [name for name in rivals if name not in always]
        rounds = ReplyRounds(asked, rivals, present, deadline, self._tell)
        try:
            contest(others, always, rounds.visit, rounds.rank, rounds.within, deadline)
        finally:
            self._add(*(rounds.trial("draft", name) for name in rivals))

    def _files(
        self,
        asked: Sequence[Asked],
        rivals: dict[str, Rival],
        engine: EngineOptions,
        capacity: int,
        pass_s: Mapping[int, float],
    ) -> None:
        """Stage three: other quantizations, with the best drafts known by now."""
        present = next(iter(rivals.values()))
        chosen = wins(self.found.of("draft"))
        drafting = rivals[chosen.name].options if chosen else present.options
        if chosen is None or rivals[chosen.name].driver is present.driver:
            # What replies did not confirm is not carried on.
            engine = self._wanted.engine
        FileStage(
            workshop=self._workshop,
            copies=self._copies,
            engine=engine,
            capacity=capacity,
            asked=asked,
            present=present,
            drafting=drafting,
            base=present.driver,
            pass_s=pass_s,
            clock=self._clock,
            budget=self._budget,
            tell=self._tell,
            add=self._add,
        ).run()

    # --- inner steps

    def _prompts(self) -> list[tuple[Task, Prompt]]:
        """All prompts: one of every task, then another of every task, and so on."""
        columns = [[(task, prompt) for prompt in task.prompts] for task in self._wanted.tasks]
        return [each for rank in zip_longest(*columns) for each in rank if each is not None]

    def _look(self) -> None:
        """Load the model, and count the tokens of all prompts; raises `UsageError` where none can be used."""
        wanted, most = self._wanted, self._most
        self._tell(f"loading {wanted.path.stem}")
        problems = []
        bench = self._workshop.open(wanted.path, wanted.engine, 2 * LONG)
        try:
            for task, prompt in self._prompts():
                try:
                    size = len(prompt_tokens(prompt, bench.template, bench.vocabulary))
                except LocalspecError as error:
                    problems.append(f"{task.name} {prompt.name}: {error}")
                    continue
                if size + LEAST > most:
                    problems.append(
                        f"{task.name} {prompt.name}: it has {size} tokens, and the context holds {most}."
                    )
                else:
                    self._sizes.append(size)
        finally:
            bench.close()
        if not self._sizes:
            raise UsageError(
                f"No prompt can be used. {clean(problems[0]) if problems else 'There are none.'}"
            )

    @property
    def _most(self) -> int:
        """Tokens of context at most: as many as a chat would have, where the user says."""
        return self._wanted.engine.context or DEFAULT_CONTEXT

    def _capacity(self, length: int) -> int:
        """Tokens of context for every prompt with a reply of `length`, where the user's context takes it."""
        fitting = [size + length for size in self._sizes if size + length <= self._most]
        return min(self._most, max([*fitting, 2 * LONG]) + 1)

    def _open(self, path: Path, engine: EngineOptions, capacity: int, stack: ExitStack) -> Bench:
        bench = self._workshop.open(path, engine, capacity)
        stack.callback(bench.close)
        return bench

    def _record(
        self, driver: Driver, bench: Bench, length: int, count: int, deadline: Deadline
    ) -> list[Asked]:
        """The replies that all rivals are judged on; raises `UsageError` where there is none."""
        wanted, prompts = self._wanted, self._prompts()
        if count < len(prompts):
            self._note(
                f"{count} of {len(prompts)} prompts were asked: the time does not suffice for more; see "
                "--minutes."
            )
        recorder = Recorder(
            driver,
            bench,
            _model_file(wanted.path, self._copies.file_type),
            _settings(wanted, length, bench.context.capacity),
            self._transcripts,
            wanted.temperature,
        )
        asked: list[Asked] = []
        for one in recorder.replies(prompts[:count], deadline, self._tell):
            if isinstance(one, str):
                self._note(clean(one))
            else:
                asked.append(one)
        if not asked:
            raise UsageError("; ".join(self.found.notes[len(wanted.notes) :]) or "There is nothing to ask.")
        kinds = tuple(dict.fromkeys(one.kind for one in asked))
        self.found = self.found.model_copy(update={"prompts": kinds})
        return asked

    def _add(self, *trials: Trial) -> None:
        self.found = self.found.model_copy(update={"trials": (*self.found.trials, *trials)})

    def _note(self, sentence: str) -> None:
        if sentence not in self.found.notes:
            self.found = self.found.model_copy(update={"notes": (*self.found.notes, sentence)})

    def _tell(self, what: str) -> None:
        self._listen(Progress(self._budget.done, self._budget.left_s, clean(what)))


def _model_file(path: Path, file_type: str) -> ModelFile:
    """What recorded replies are kept by; the other facts are not asked for."""
    return ModelFile(
        name=path.stem,
        file_type=file_type,
        bytes=path.stat().st_size,
        sha256=file_sha256(path),
        parameters=0,
        weight_bytes=0,
        kv_bytes_per_token=0,
        context=0,
        kv_type="",
        load_s=0.0,
    )


def _settings(wanted: Wanted, length: int, capacity: int) -> Settings:
    """As a bench of recorded replies has them."""
    return Settings(
        model=wanted.model,
        files=(),
        tasks=(),
        prompts_per_task=1,
        modes=("transcript",),
        drafts=wanted.drafts,
        lengths=(),
        tokens=length,
        runs=1,
        context=capacity,
        threads=wanted.engine.threads or 1,
        seed=wanted.seed,
    )
