"""`localspec simulate`: what a drafter would gain on recorded replies, without running a model."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from localspec.cli import common
from localspec.errors import UsageError

if TYPE_CHECKING:
    from localspec.simulate.inputs import Recording, Source, Tokenizer
    from localspec.types import DraftOptions


def simulate(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE...]", help="Recorded replies: JSON lines, or plain text."),
    ] = None,
    from_history: Annotated[
        bool, typer.Option("--from-history", help="Also the replies of your own past chats.")
    ] = False,
    tasks: Annotated[
        str | None, typer.Option(metavar="LIST", help="Also the bench's tasks: given or recorded replies.")
    ] = None,
    draft: common.DraftListOption = None,
    draft_length: common.DraftLengthListOption = None,
    policy: common.PolicyListOption = None,
    leaves: Annotated[
        str | None, typer.Option("--leaves", "--draft-leaves", metavar="LIST", help="Branches of a draft.")
    ] = None,
    ngram_min: Annotated[
        str | None, typer.Option(metavar="LIST", help="Shortest matches of n-gram drafts.")
    ] = None,
    ngram_max: Annotated[
        str | None, typer.Option(metavar="LIST", help="Longest matches of n-gram drafts.")
    ] = None,
    ngram_pick: Annotated[
        str | None, typer.Option(metavar="LIST", help="Which match they copy: recent, frequent, first.")
    ] = None,
    ngram_min_hits: Annotated[
        str | None, typer.Option(metavar="LIST", help="How often what they copy must have followed.")
    ] = None,
    cost: Annotated[
        str,
        typer.Option(
            metavar="FILE|NAME|POINTS",
            help="What passes cost: a bench's JSON, gpu, cpu-bf16, cpu-q4_0, cpu-q4_1, or 1:1,2:1.4,9:2.1.",
        ),
    ] = "gpu",
    token_ms: Annotated[
        float | None, typer.Option(metavar="MS", help="Time of one token, to weigh the drafter's own time.")
    ] = None,
    memory: Annotated[
        bool, typer.Option("--memory/--no-memory", help="Whether drafters remember the replies before.")
    ] = True,
    prompt_tokens: Annotated[
        int | None, typer.Option(metavar="N", help="First tokens of a plain text that are its prompt.")
    ] = None,
    max_tokens: Annotated[
        int,
        typer.Option("--max-tokens", "-n", metavar="N", help="The bench's, to find its recorded replies."),
    ] = 128,
    seed: Annotated[int, typer.Option(metavar="N", help="The bench's, likewise.")] = 1,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", metavar="NAME|PATH", help="Whose vocabulary turns text into tokens."),
    ] = None,
    per_reply: Annotated[bool, typer.Option("--per-reply", help="Also a line for every reply.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    debug: common.DebugOption = False,
) -> None:
    """Replay recorded replies through drafters that need no model, and predict what they gain.

    Reads JSON lines ({"prompt": "...", "reply": "..."}, messages with a reply, or token ids) and plain text.
    Only a model's vocabulary is loaded, and that only for text.
    """
    del debug
    from localspec.simulate import inputs, study
    from localspec.simulate.costs import pass_cost
    from localspec.simulate.report import document, print_report, report

    if not files and not from_history and tasks is None:
        raise UsageError("Name a file with recorded replies, or give --from-history or --tasks.")
    text_prompt = inputs.TEXT_PROMPT if prompt_tokens is None else prompt_tokens
    if text_prompt < 1 or max_tokens < 2:
        raise UsageError("--prompt-tokens must be 1 or more, and --max-tokens 2 or more.")
    # Everything that was typed is checked before anything is read or fetched.
    options = _options(
        draft, draft_length, policy, leaves, (ngram_min, ngram_max, ngram_pick, ngram_min_hits)
    )
    passes = pass_cost(cost, token_ms)
    sources = [source for path in files or () for source in inputs.from_file(path, text_prompt)]
    sources += inputs.from_tasks(_listed(tasks, "--tasks")) if tasks is not None else []
    sources += inputs.from_history() if from_history else []
    recordings, ends, notes = _recordings(sources, model, max_tokens, seed)
    line = common.StatusLine()
    outcomes = []
    try:
        for number, option in enumerate(options, 1):
            line.show(f"{number} of {len(options)}: {option.spec}")
            outcomes.append(study.simulate(recordings, option, passes.seconds, memory=memory, ends=ends))
    finally:
        line.clear()
    found = report(outcomes, recordings, passes, notes)
    if as_json:
        import json

        sys.stdout.write(json.dumps(document(found), ensure_ascii=False) + "\n")
        return
    from rich.console import Console

    print_report(found, Console(), per_reply=per_reply)


def _listed(text: str | None, option: str, default: Sequence[str] = ()) -> tuple[str, ...]:
    from localspec.bench.options import listed

    return listed(text, default, option)


def _options(
    draft: str | None,
    lengths: str | None,
    policies: str | None,
    leaves: str | None,
    ngram: tuple[str | None, ...],
) -> list[DraftOptions]:
    """The drafters to compare; raises `UsageError` for what cannot be used."""
    from itertools import product

    from localspec import settings as config
    from localspec.bench.options import lengths_and_policies, numbers
    from localspec.drafters import DEFAULT_LENGTH
    from localspec.simulate.study import configurations

    usual = config.engine_options(config.load_settings()).draft
    shortest, longest, pick, hits = ngram
    ngrams = product(
        numbers(shortest, (usual.ngram_min,), "--ngram-min", int, lambda n: n >= 1),
        numbers(longest, (usual.ngram_max,), "--ngram-max", int, lambda n: n >= 1),
        _listed(pick, "--ngram-pick", (usual.ngram_pick,)),
        numbers(hits, (usual.ngram_min_hits,), "--ngram-min-hits", int, lambda n: n >= 1),
    )
    # Of lists of lengths some pairs may be the wrong way round; of single ones that is a mistake.
    every = list(ngrams)
    ordered = [each for each in every if each[0] <= each[1]] or every
    fixed, chosen = lengths_and_policies(lengths, policies, usual.length or DEFAULT_LENGTH)
    return configurations(
        _listed(draft, "--draft", (usual.spec,)),
        fixed,
        numbers(leaves, (usual.leaves,), "--leaves", int, lambda n: n >= 1),
        ordered,
        chosen,
    )


def _recordings(
    sources: Sequence[Source], model: str | None, max_tokens: int, seed: int
) -> tuple[list[Recording], frozenset[int], list[str]]:
    """Recordings of all sources in order, tokens that end a reply, and a sentence about what is missing."""
    from localspec.simulate.inputs import tokens_only

    if not any(source.is_text for source in sources):
        return tokens_only(sources), frozenset(), []
    with _tokenizer(model, max_tokens, seed) as tokenizer:
        found = [(source, tokenizer.recording(source)) for source in sources]
        ends = tokenizer.ends
    silent = dict.fromkeys(source.task.name for source, made in found if made is None and source.task)
    recordings = [made for _, made in found if made is not None]
    notes = []
    if silent:
        names = ",".join(silent)
        again = f"localspec bench --mode transcript --tasks {names}{f' --model {model}' if model else ''}"
        notes.append(f"Not every reply of {names} is recorded for this model file; `{again}` records them.")
    if not recordings:
        raise UsageError(*notes)
    return recordings, ends, notes


@contextmanager
def _tokenizer(model: str | None, max_tokens: int, seed: int) -> Iterator[Tokenizer]:
    """The vocabulary of a model, fetched where it is missing; no weights are loaded."""
    from functools import cache

    from localspec import settings as config
    from localspec.bench.transcripts import Transcripts
    from localspec.chat.template import ChatTemplate
    from localspec.cli.models import progress_display
    from localspec.model_choice import resolve
    from localspec.models.hashes import file_sha256
    from localspec.models.sources import pull
    from localspec.runtime.vocabulary import vocabulary
    from localspec.simulate.inputs import Tokenizer

    found = resolve(config.merge(config.load_settings(), model=model).model)
    path = found.path
    if path is None and found.entry is not None:
        with progress_display() as show:
            path = pull(found.entry, show)
    path = path or Path(found.name)
    common.check_text(str(path), "The path of the model's file")
    with vocabulary(path) as words:
        template = ChatTemplate.of(words)
        yield Tokenizer(
            words,
            template,
            transcripts=Transcripts(),
            model_sha256=cache(lambda: file_sha256(path)),
            tokens=max_tokens,
            seed=seed,
        )
