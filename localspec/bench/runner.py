"""The whole bench: files, sweeps over their blocks, concurrency, peers and start-up, saved as it goes on."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from localspec.bench import costs, peer_rounds
from localspec.bench.blocks import BlockRunner
from localspec.bench.driver import NO_DRAFTS, Driver
from localspec.bench.files import engine_options, load_file
from localspec.bench.grid import Block, BlockKey, blocks, measured
from localspec.bench.ledger import Ledger
from localspec.bench.machine import machine_facts
from localspec.bench.parallel_rounds import measure_together
from localspec.bench.pooling import clean
from localspec.bench.records import Measurement, ModelFile, PeerMeasurement, Results, Settings, Startup
from localspec.bench.rounds import BlockRuns
from localspec.bench.startup import compare_startup
from localspec.bench.sweeps import REPEATABLE, sweep_over
from localspec.bench.tasks import Task
from localspec.bench.transcripts import Transcripts
from localspec.chat.template import ChatTemplate
from localspec.control import DEFAULT_POLICY
from localspec.draft_models import DraftModels
from localspec.drafters import models_of
from localspec.errors import LocalspecError, UsageError
from localspec.models.hashes import file_sha256
from localspec.runtime.features import hush
from localspec.runtime.loading import LoadedModel
from localspec.types import DraftOptions


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the bench is.

    Attributes:
        done: share of the work, 0 to 1.
        seconds_left: estimate from the speed so far; None before there is one.
        what: the block at work, in words.
    """

    done: float
    seconds_left: float | None
    what: str


class Bench:
    """Measures a grid.

    Args:
        settings: the grid.
        paths: the model file of each entry of `settings.files`.
        tasks: tasks with their prompts, the user's own included.
        save: called with the results after everything new.
        listen: called with the progress.
        earlier: results of an interrupted run of the same settings.
        ledger: where rounds are kept as they come, so that an interrupt loses one at most; None keeps none.
        transcripts: where replies are recorded.
        notes: sentences for the report, such as prompts that could not be read.
        drafts: the files of the grid's draft models and heads, by the names that its drafters have for them;
            "" for the prediction layers of whichever file is measured.
        peer_draft: what llama-server drafts with, where its configuration needs a file; the grid's own draft
            models and heads come next.
    """

    def __init__(
        self,
        settings: Settings,
        paths: Sequence[Path],
        tasks: Sequence[Task],
        *,
        save: Callable[[Results], None],
        listen: Callable[[Progress], None] = lambda progress: None,  # noqa: ARG005 - nobody listens
        earlier: Results | None = None,
        ledger: Ledger | None = None,
        transcripts: Transcripts | None = None,
        notes: Sequence[str] = (),
        drafts: Mapping[str, str] | None = None,
        peer_draft: Path | None = None,
    ) -> None:
        self._settings = settings
        self._paths = list(paths)
        self._tasks = list(tasks)
        self._save = save
        self._listen = listen
        self._transcripts = transcripts or Transcripts()
        self.results = earlier or Results(
            settings=settings,
            machine=machine_facts(settings.threads),
            notes=tuple(notes),
            started=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        )
        self._drafts = dict(drafts or {})
        self._peer_draft = peer_draft
        self._ledger = ledger
        self._rounds: dict[tuple[str, BlockKey], BlockRuns] = {}
        self._what = ""
        self._begun = time.monotonic()
        self._done = 0.0
        self._total = 1.0

    def run(self) -> Results:
        """Measure what is missing.

        Raises:
            LocalspecError: a model file cannot be loaded at all, or is another one than in `earlier`.
                Everything smaller is a row with a note.
        """
        # At once, so that a place that cannot be written is known before anything is measured.
        self._save(self.results)
        if self._ledger is None:
            return self._measure()
        try:
            self._rounds = self._ledger.begin(self.results)
            self._measure()
            self._ledger.remove()
        finally:
            self._ledger.close()
        return self.results

    def _measure(self) -> Results:
        settings, names = self._settings, [path.stem for path in self._paths]
        plan = {name: blocks(settings, name, self._tasks, name == names[0]) for name in names}
        there = self.results.measurements
        left = [b for grid in plan.values() for b in grid if not measured(b, there, settings.runs)]
        # Peers and concurrency take long, and each file tells the same about them: the first one does.
        asked = {names[0]: peer_rounds.missing(settings, self._tasks, names[0], self.results)}
        peers = {name: asked.get(name, []) for name in names}
        hashes = {file.name: file.sha256 for file in self.results.files}
        self._total = sum(
            block.weight(settings, self._so_far(block, hashes.get(block.file, "")).done) for block in left
        )
        self._total += sum(peer_rounds.weight(settings, cells) for cells in peers.values())
        for path in self._paths:
            self._file(path, [block for block in left if block.file == path.stem], peers[path.stem])
        self._add(complete=True)
        return self.results

    def _file(self, path: Path, left: Sequence[Block], peers: Sequence[peer_rounds.Cell]) -> None:
        """Everything on one model file."""
        settings = self._settings
        known = next((file for file in self.results.files if file.name == path.stem), None)
        if left or peers or known is None:
            with ExitStack() as stack:
                self._tell(f"{path.stem}: loading")
                if known is not None and file_sha256(path) != known.sha256:
                    raise UsageError(
                        f"{path} is not the file that this bench began with; bring that one back, or start "
                        "anew without --resume."
                    )
                drafts = self._drafts_of(path)
                loaded, load_s = load_file(path, settings, drafts)
                stack.callback(loaded.close)
                if known is None:
                    known = self._costs(path, loaded, load_s)
                    self._add(files=(*self.results.files, known))
                template = ChatTemplate.of(loaded.model)
                models = DraftModels(loaded, engine_options(settings))
                stack.callback(models.close)
                driver = Driver(
                    loaded.context,
                    loaded.model,
                    pass_ms=known.pass_ms,
                    models=models,
                    files=drafts,
                    hush=partial(hush, loaded.context),
                )
                runner = BlockRunner(
                    driver, loaded.model, template, known, settings, self._transcripts, self._after_run
                )
                if self._done == 0:
                    # What came before is no measure of the speed of the blocks.
                    self._begun = time.monotonic()
                self._sweeps([block for block in left if block.parallel == 1], runner, known.sha256)
                for block in left:
                    if block.parallel > 1:
                        self._tell(f"{path.stem}: {block.task.name}, {block.parallel} together")
                        self._replace(
                            measure_together(block, runner, loaded.model, settings, self._after_run)
                        )
                        self._save(self.results)
                if peers:
                    peer_rounds.PeerRounds(
                        path,
                        runner,
                        driver,
                        settings,
                        drafts=self._peer_drafts(path),
                        tell=self._tell,
                        after_run=self._after_run,
                        add=self._add_peers,
                        note=self._note,
                    ).measure(peers)
        if settings.startup and not any(row.file == path.stem for row in self.results.startup):
            self._tell(f"{path.stem}: starting up")
            self._add(startup=(*self.results.startup, *self._startup(path)))

    def _drafts_of(self, path: Path) -> dict[str, str]:
        """Files of the drafters that the model `path` is measured with."""
        return {name: file or str(path) for name, file in self._drafts.items()}

    def _peer_drafts(self, path: Path) -> list[Path]:
        """What llama-server may draft with beside the model `path`, which it has anyway."""
        found = [
            *([self._peer_draft] if self._peer_draft else []),
            *map(Path, self._drafts_of(path).values()),
        ]
        return [file for file in dict.fromkeys(found) if file != path]

    def _sweeps(self, alone: Sequence[Block], runner: BlockRunner, sha256: str) -> None:
        """The blocks of one sequence each."""
        if not alone:
            return
        runs = self._settings.runs

        def tell(block: Block, sweep: int) -> None:
            # Those beyond what was asked for are made while a speed-up is uncertain.
            of = f" of {runs}" if sweep < runs else f" of at most {2 * runs}"
            which = f"sweep {sweep + 1}{of}: " if runs > 1 else ""
            self._tell(f"{block.file}: {which}{block.task.name}, {block.prompt.name}, {block.mode}")

        sweep_over(
            alone,
            runs,
            runner,
            {block.key: self._so_far(block, sha256) for block in alone},
            there=lambda: self.results.measurements,
            tell=tell,
            keep=self._ledger.add if self._ledger else lambda made: None,  # noqa: ARG005 - nobody keeps it
            add=self._replace,
            save=lambda: self._save(self.results),
            most=2 * runs if runs >= REPEATABLE else runs,
        )
        name = alone[0].file
        mine = [m.timing for m in self.results.measurements if m.timing and m.file == name]
        made = max((len(timing.runs) for timing in mine), default=0)
        if made > runs:
            self._note(f"{name}: {made} rounds instead of {runs}, since speed-ups were uncertain.")

    def _so_far(self, block: Block, sha256: str) -> BlockRuns:
        """The block's rounds of an interrupted run of this very file."""
        return self._rounds.get((sha256, block.key)) or BlockRuns()

    def _costs(self, path: Path, loaded: LoadedModel, load_s: float) -> ModelFile:
        """The file's facts and its T(n), taken on a prompt of the bench."""
        what = f"{path.stem}: time of a pass over n tokens"
        self._tell(what)
        return costs.model_file(
            path,
            loaded,
            self._settings,
            load_s,
            progress=lambda share: self._tell(f"{what}, {share:.0%}"),
        )

    def _startup(self, path: Path) -> tuple[Startup, ...]:
        settings = self._settings
        options = {
            draft: replace(engine_options(settings), draft=_started(draft, settings, self._drafts_of(path)))
            for draft in dict.fromkeys(("none", *settings.drafts))
        }
        try:
            return compare_startup(path, path.stem, options, settings.runs)
        except LocalspecError as error:
            self._note(f"Start-up of {path.stem} was not measured: {error}")
            return ()

    # --- bookkeeping

    def _add(self, **new: Any) -> None:
        self.results = self.results.model_copy(update=new)
        self._save(self.results)

    def _replace(self, found: Sequence[Measurement]) -> None:
        """Put measurements in the place of earlier ones of the same, else behind all."""
        there = {_cell(m): m for m in self.results.measurements}
        there |= {_cell(m): m for m in found}
        self.results = self.results.model_copy(update={"measurements": tuple(there.values())})

    def _add_peers(self, found: Sequence[PeerMeasurement]) -> None:
        self._add(peers=(*self.results.peers, *found))

    def _note(self, sentence: str) -> None:
        if sentence not in self.results.notes:
            self._add(notes=(*self.results.notes, sentence))

    def _tell(self, what: str) -> None:
        self._what = clean(what)
        self._report()

    def _after_run(self, tokens: float) -> None:
        self._done += tokens
        self._report()

    def _report(self) -> None:
        share = min(self._done / self._total, 1.0)
        spent = time.monotonic() - self._begun
        left = spent * (1 - share) / share if share > 0.01 else None
        self._listen(Progress(share, left, self._what))


def _started(draft: str, settings: Settings, files: Mapping[str, str]) -> DraftOptions:
    """A drafter as a chat would start with it: at the grid's greatest length, else with its first policy."""
    # Only its own: what else the file holds to draft with is not loaded for it.
    own = {name: files[name] for name in models_of(draft)}
    if draft == NO_DRAFTS or not settings.lengths:
        policy = next(iter(settings.policies), DEFAULT_POLICY)
        return DraftOptions(draft, policy=policy, files=own)
    return DraftOptions(draft, max(settings.lengths), policy="fixed", files=own)


def _cell(m: Measurement) -> tuple[object, ...]:
    return (m.file, m.task, m.prompt, m.mode, m.parallel, m.configuration)
