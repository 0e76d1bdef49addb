"""`localspec tune`: the settings with which a model is fastest here, on one's own prompts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from localspec.cli import common
from localspec.cli.progress import long_work
from localspec.errors import UsageError

if TYPE_CHECKING:
    from localspec.bench.tasks import Task
    from localspec.tune.records import Tuning
    from localspec.tune.tuner import Wanted

INTERRUPTED = 130
_TASKS = ("copy", "code", "edit", "explain", "chat", "summary")
"""What is asked where the user has no prompts: work of many kinds."""
_LONGEST_MINUTES = 24 * 60
_LINE_EVERY_S = 10.0


def tune(
    model: common.ModelOption = None,
    prompts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Your own prompts: text, or JSON lines.")
    ] = None,
    from_history: Annotated[
        int | None, typer.Option("--from-history", metavar="N", help="Your newest chats, N questions.")
    ] = None,
    minutes: Annotated[float, typer.Option(metavar="M", help="Time that it may take.")] = 5.0,
    draft: common.DraftListOption = None,
    quantize: Annotated[
        bool, typer.Option("--quantize/--no-quantize", help="Also try other quantizations of the file.")
    ] = True,
    threads: Annotated[
        str | None, typer.Option(metavar="LIST", help="Numbers of CPU threads to try.")
    ] = None,
    context: common.ContextOption = None,
    gpu_layers: common.GpuLayersOption = None,
    kv_type: common.KvTypeOption = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write all rows as JSON.")
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Write the best settings into your config file; asks before.")
    ] = False,
    debug: common.DebugOption = False,
) -> None:
    """Find the fastest settings for one model on this machine and your own prompts.

    Threads, flash attention, batch, drafters, draft lengths and other quantizations of the file are tried in
    turn with your present settings, and those that are slower leave after every round.
    """
    del debug
    from localspec.bench.report.disk import check_target
    from localspec.cli.models import progress_display
    from localspec.runtime.library import interrupts_kept

    if not 0 < minutes <= _LONGEST_MINUTES:
        raise UsageError(f"--minutes must be above 0 and at most {_LONGEST_MINUTES}, not {minutes:g}.")
    if json_file is not None:
        check_target(json_file)
    flags = {"context": context, "gpu_layers": gpu_layers, "kv_type": kv_type}
    with interrupts_kept(), progress_display() as show:
        wanted = _wanted(model, prompts, from_history, minutes, draft, threads, flags, show)
    found = _tuned(replace(wanted, quantize=quantize))
    _report(found, json_file)
    if not found.complete:
        raise typer.Exit(INTERRUPTED)
    if write:
        _write(found)


def _wanted(
    model: str | None,
    prompts: Path | None,
    from_history: int | None,
    minutes: float,
    drafts: str | None,
    threads: str | None,
    flags: Mapping[str, object],
    show: Callable[..., None],
) -> Wanted:
    """Everything that was typed, checked before anything is fetched."""
    from localspec import settings as config
    from localspec.bench.options import listed, numbers
    from localspec.control import check_policy
    from localspec.drafters import check_spec
    from localspec.model_choice import resolve
    from localspec.model_files import file_of, resolve_drafts, with_files
    from localspec.models.gguf import read_header
    from localspec.models.heads import check_draft
    from localspec.tune.draft_stage import default_drafts
    from localspec.tune.tuner import Wanted

    chosen = config.merge(config.load_settings(), model=model, **flags)
    engine = config.engine_options(chosen)
    found = resolve(chosen.model)
    tried = tuple(map(_absolute, listed(drafts, default_drafts(engine.draft), "--draft")))
    specs = dict.fromkeys([engine.draft.spec, *tried])
    models = {name: each for spec in specs for name, each in resolve_drafts(spec, found).items()}
    engine = replace(engine, draft=with_files(engine.draft, models))
    for spec in specs:
        check_spec(replace(engine.draft, spec=spec))
    check_policy(engine.draft.policy)
    counts = numbers(threads, _thread_counts(), "--threads", int, lambda n: 1 <= n <= 512)
    tasks, notes = _tasks(prompts, from_history)
    path = file_of(found, show)
    header = read_header(path)
    for name, each in models.items():
        check_draft(name, read_header(file_of(each, show)), header)
    recommended = found.entry.sampling.given() if found.entry else None
    return Wanted(
        model=chosen.model,
        path=path,
        tasks=tasks,
        engine=engine,
        drafts=tried,
        threads=counts,
        minutes=minutes,
        temperature=config.sampling_params(chosen, recommended).temperature,
        notes=notes,
    )


def _absolute(spec: str) -> str:
    """With the whole paths of files: the config file is read in other folders too."""
    from localspec.drafters import members_of

    return "+".join(
        str(Path(member).expanduser().absolute()) if member.lower().endswith(".gguf") else member
        for member in members_of(spec)
    )


def _thread_counts() -> tuple[int, ...]:
    """All cores, three quarters, and half of them."""
    from localspec.runtime.cores import physical_cores

    cores = physical_cores()
    return tuple(dict.fromkeys(max(1, count) for count in (cores, cores * 3 // 4, cores // 2)))


def _tasks(prompts: Path | None, from_history: int | None) -> tuple[tuple[Task, ...], tuple[str, ...]]:
    """What is asked, and a sentence about it."""
    from localspec.bench.prompts import prompts_from_file, prompts_from_history
    from localspec.bench.tasks import load_tasks

    found: list[Task] = []
    if prompts is not None:
        found.append(prompts_from_file(prompts))
    if from_history is not None:
        if from_history < 1:
            raise UsageError(f"--from-history takes a number of questions from 1 on, not {from_history}.")
        found.append(prompts_from_history(from_history))
    if found:
        return tuple(found), ()
    return load_tasks(_TASKS), (
        f"Asked were tasks of the bench ({', '.join(_TASKS)}); --prompts or --from-history tunes for yours.",
    )


def _tuned(wanted: Wanted) -> Tuning:
    """All that was found, complete or, after Ctrl+C, as far as it got."""
    from localspec.runtime.cores import physical_cores
    from localspec.runtime.library import interrupts_kept
    from localspec.tune.copies import ModelCopies
    from localspec.tune.tuner import Tuner
    from localspec.tune.workshop import LlamaWorkshop

    workshop = LlamaWorkshop()
    with interrupts_kept(), long_work(every_s=_LINE_EVERY_S) as listen:
        tuner = Tuner(wanted, workshop, ModelCopies(wanted.path, physical_cores()), listen=listen)
        try:
            tuner.run()
        except KeyboardInterrupt:
            pass
        finally:
            workshop.close()
    return tuner.found


def _report(found: Tuning, json_file: Path | None) -> None:
    from rich.console import Console

    from localspec.bench.report.disk import write_whole
    from localspec.tune.report import print_tuning

    # Printed first: what took minutes is not lost to a disk that has become full.
    print_tuning(found, Console())
    if json_file is not None:
        write_whole(json_file, (found.model_dump_json(indent=1) + "\n").encode())


def _write(found: Tuning) -> None:
    """The advice into config.toml, after a question where somebody can answer."""
    from localspec.config_file import write_settings
    from localspec.settings import config_file

    advice, file = found.advice, config_file()
    changes = dict(advice.settings) if advice is not None else {}
    if _somebody_answers() and changes and not typer.confirm(f"Write these settings to {file}?", err=True):
        changes = {}
    if not changes:
        typer.echo(f"Nothing was written to {file}.", err=True)
        return
    write_settings(file, changes)
    typer.echo(f"Written to {file}: {', '.join(changes)}.", err=True)
    _tell_overridden(changes)


def _somebody_answers() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _tell_overridden(changes: dict[str, bool | int | str | None]) -> None:
    """The environment beats the file: say where it does."""
    import os

    from localspec.settings import PREFIX

    names = {key: PREFIX + key.replace(".", "__").upper() for key in changes}
    if "draft.spec" in names and os.environ.get(f"{PREFIX}DRAFT"):
        names["draft.spec"] = f"{PREFIX}DRAFT"
    for key, name in names.items():
        if os.environ.get(name):
            typer.echo(f"{name} is set in your environment and beats {key} there.", err=True)
