"""`localspec train`: a head that drafts for a model of the user's own, made on this machine."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from localspec.cli import common
from localspec.errors import LocalspecError, StorageError, UsageError

if TYPE_CHECKING:
    from localspec.models.gguf import GGUFHeader
    from localspec.models.registry import Resolved
    from localspec.train.course import Request, Show
    from localspec.train.state import Run
    from localspec.train.trial import Trial

app = typer.Typer(no_args_is_help=True, help="Make a head that drafts for a model of your own.")


@app.callback()
def train() -> None:
    """Make a head that drafts for a model of your own."""


@app.command("eagle3")
def eagle3(
    target: Annotated[
        str, typer.Option("--target", "--model", metavar="NAME|PATH", help="The model that it drafts for.")
    ],
    tokens: Annotated[
        int | None, typer.Option(metavar="N", min=2000, help="Tokens of texts to learn from at most.")
    ] = None,
    prompts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Your own prompts, in place of the model's questions.")
    ] = None,
    from_history: Annotated[
        bool, typer.Option("--from-history", help="The prompts of your past chats, in the same place.")
    ] = False,
    minutes: Annotated[float, typer.Option(metavar="M", help="Time for all of it.")] = 40.0,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the head goes; else among localspec's data.")
    ] = None,
    threads: common.ThreadsOption = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin anew, not where an interrupt was.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first.")] = False,
    debug: common.DebugOption = False,
) -> None:
    """Train an EAGLE-3 head: the model writes texts of its own, and the head learns to foretell it.

    Ctrl+C interrupts; the same command goes on there.
    """
    del debug
    _check_packages()
    if not 0 < minutes < 60 * 24 * 30:
        raise UsageError("--minutes has to be more than 0; 40 are enough for a small model.")
    from localspec.model_choice import resolve
    from localspec.model_files import file_of
    from localspec.models.own import check_head_name
    from localspec.train.course import Request, check, check_room, estimate, open_run

    questions = _questions(prompts, from_history)
    resolved = resolve(target)
    path = file_of(resolved)
    request = Request(
        name=resolved.name if resolved.entry is not None else path.stem,
        target=path,
        minutes=minutes,
        threads=threads,
        tokens=tokens,
        questions=questions,
        from_history=from_history and prompts is None,
        output=output,
        fresh=fresh,
    )
    header = check(request)
    check_head_name("eagle3", replace(resolved, path=path))
    if output is not None:
        _check_output(output)
    run = open_run(request, header)
    needed = estimate(request, header, run)
    check_room(needed, run.folder)
    _ask(request, needed.disk_bytes, needed.memory_bytes, run=run, yes=yes)
    with run.held():
        run.begin()
        with _progress() as show:
            head, judged = _work(request, header, run, show)
            name = _register(head, resolved, path)
            run.remove()
            trial = _tried(request, head, show)
    _report(judged, head)
    if trial is not None:
        _report_trial(trial)
    typer.echo(
        f"Use it: localspec chat --model {request.name} --draft eagle3   (its name is {name}; --draft auto "
        "takes it too, and only while it pays)"
    )


def _check_packages() -> None:
    lacking = [name for name in ("torch", "gguf") if importlib.util.find_spec(name) is None]
    if lacking:
        command = f"{sys.executable} -m pip install 'localspec[train]'"
        raise UsageError(f"Training needs {' and '.join(lacking)}; install them with: {command}.")


def _check_output(path: Path) -> None:
    """It is written last: what is wrong with it is better known before."""
    if path.is_dir():
        raise UsageError(f"--output: {path} is a folder; give the name of a file.")
    folder = next(one for one in path.absolute().parents if one.exists())
    if not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
        raise StorageError(f"--output: {path} cannot be written: {folder} is no folder that can be.")


def _questions(prompts: Path | None, from_history: bool) -> tuple[str, ...]:
    """The last question of each of the user's prompts."""
    from localspec.bench.prompts import prompts_from_file, prompts_from_history

    tasks = [prompts_from_file(prompts)] if prompts is not None else []
    if from_history:
        tasks.append(prompts_from_history(1000))
    asked = (
        [message.content for message in prompt.messages if message.role == "user"]
        for task in tasks
        for prompt in task.prompts
    )
    questions = tuple(one[-1] for one in asked if one)
    if tasks and not questions:
        raise UsageError("There is no question among these prompts; give a file with some, or none.")
    return questions


def _ask(request: Request, disk: int, memory: int, *, run: Run, yes: bool) -> None:
    from localspec.models.disk import readable_size

    begun = "It goes on where it was interrupted. " if run.goes_on else ""
    if run.replaces:
        begun = "What is there of an unfinished run is deleted. "
    typer.echo(
        f"A head for {request.name}: about {request.minutes:g} minutes, up to {readable_size(disk)} in "
        f"{run.folder}, and about {readable_size(memory)} of memory. {begun}",
        err=True,
    )
    if yes or run.goes_on:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("Nobody is there to be asked; give --yes to begin.")
    if not typer.confirm("Begin?", default=True, err=True):
        raise typer.Exit


def _work(request: Request, header: GGUFHeader, run: Run, show: Show) -> tuple[Path, tuple[float, ...]]:
    from localspec.paths import data_dir
    from localspec.train.course import Course

    course = Course(request, header, run, show)
    course.write_texts()
    head = request.output or data_dir() / "heads" / f"{run.folder.name}.gguf"
    return head, tuple(course.train(head))


def _tried(request: Request, head: Path, show: Show) -> Trial | None:
    """What the head is worth on tasks that it has not seen; None where that cannot be told: why is said."""
    from localspec.train.trial import try_out

    try:
        return try_out(
            request.target, head, request.threads, lambda share, word: show(0.97 + share / 50, word)
        )
    except LocalspecError as error:
        typer.echo(f"The head is made and known, and could not be tried out: {error}", err=True)
        return None


def _register(head: Path, target: Resolved, path: Path) -> str:
    from localspec.models.own import register_head

    return register_head(head, kind="eagle3", target=replace(target, path=path))


def _report(judged: tuple[float, ...], head: Path) -> None:
    typer.echo(f"Head: {head}\n\nAcceptance by place, those before it being accepted")
    typer.echo(f"  texts that were held out   {'  '.join(f'{one:.2f}' for one in judged)}")


def _report_trial(trial: Trial) -> None:
    from localspec.train.trial import APART, LENGTH

    out = sys.stdout.write
    out(f"  the bench's tasks          {'  '.join(f'{one:.2f}' for one in trial.conditional)}\n\n")
    out(f"Tokens a pass with drafts of {LENGTH}\n")
    for task, one in trial.tasks.items():
        apart = "   (not counted below)" if task in APART else ""
        out(f"  {task:<12} {one.length:5.2f}   {one.accepted} of {one.drafted} accepted{apart}\n")
    out(f"  {'all':<12} {trial.length:5.2f}\n\n")
    out(
        f"Here a pass over {1 + LENGTH} tokens takes {trial.pass_ratio:.2f} of one over a single token and a "
        f"draft {trial.draft_ratio:.2f}: {trial.speedup:.2f}x expected.\n"
        "On a consumer graphics card, where nine tokens take 1.4 of one: "
        f"{trial.speedup_on_gpu:.2f}x expected.\n"
    )
    sys.stdout.flush()


@dataclass(frozen=True, slots=True)
class _Work:
    done: float
    seconds_left: float | None
    what: str


@contextmanager
def _progress() -> Iterator[Show]:
    from localspec.cli.progress import long_work

    began, first = time.monotonic(), None

    with long_work(every_s=15.0) as tell:

        def show(done: float, what: str) -> None:
            nonlocal first
            first = done if first is None else first
            gone = time.monotonic() - began
            moved = done - first
            left = gone * (1 - done) / moved if moved > 0.01 else None
            tell(_Work(done, left, what))

        yield show
