"""`localspec run`: one prompt, one reply, made for pipes and scripts."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from localspec.cli import common
from localspec.errors import UsageError

if TYPE_CHECKING:
    from localspec.messages import EmittedToken, Reply
    from localspec.model_files import ModelFiles

INTERRUPTED = 130

UNANSWERED = (
    "The reply ended within its reasoning; --max-tokens lets it be longer, --no-think leaves reasoning out."
)


@common.with_shared_options
def run(
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="What to ask; - reads standard input.")],
    flags: common.Flags,
    stop: Annotated[
        list[str] | None, typer.Option("--stop", metavar="TEXT", help="End the reply there; may be repeated.")
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Continue PROMPT as it stands, without a chat template.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object with reply and timings.")
    ] = False,
    json_schema: Annotated[
        Path | None,
        typer.Option("--json-schema", metavar="FILE", help="The reply is JSON that this schema accepts."),
    ] = None,
    grammar: Annotated[
        Path | None, typer.Option("--grammar", metavar="FILE", help="The reply keeps to this GBNF grammar.")
    ] = None,
    logprobs: Annotated[
        int | None,
        typer.Option(
            "--logprobs",
            metavar="N",
            help="With --json: log-probabilities of the tokens, and of the N best in their place.",
        ),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option("--record", metavar="FILE", help="Write the counters of every step as JSON lines."),
    ] = None,
    ignore_eos: Annotated[bool, typer.Option("--ignore-eos", hidden=True)] = False,
) -> None:
    """Print the reply to one prompt.

    The reply alone goes to standard output, everything else to standard error. Reasoning is shown there in a
    terminal, and left out elsewhere; --json and --raw print all of it as it is.
    """
    # First of all: the engine's process loads its libraries while the rest is read and checked here.
    from localspec.client import EngineClient
    from localspec.paths import engine_log

    client = EngineClient(log_path=engine_log())
    client.start()
    reply = None
    try:
        text = _read_prompt(prompt, raw=raw)
        if raw and flags.system is not None:
            raise UsageError("--system has no place beside --raw; write it into the prompt.")
        if raw and flags.think is not None:
            raise UsageError("--think has no place beside --raw: no chat template is used.")
        _check_logprobs(logprobs, as_json=as_json)
        constraint = _grammar(json_schema, grammar)
        plan = common.plan(flags)
        from localspec.cli.stream import ReplyStream
        from localspec.cli.thoughts import DimmedThoughts
        from localspec.messages import Generate, Load
        from localspec.stats.recorder import Recorder
        from localspec.types import ChatMessage

        turns = (ChatMessage("system", plan.system),) if plan.system else ()
        request = Generate(
            id=1,
            messages=() if raw else (*turns, ChatMessage("user", text)),
            prompt=text if raw else None,
            sampling=plan.sampling,
            max_tokens=plan.max_tokens,
            stop=_stop_strings(stop or []),
            ignore_eos=ignore_eos,
            grammar=constraint,
            logprobs=logprobs,
            conversation=f"run-{secrets.token_hex(6)}",
            think=plan.settings.chat.think,
        )
        with ExitStack() as stack:
            recorder = None
            if record is not None:
                about = {
                    "model": plan.model.name,
                    "draft": plan.engine.draft.spec,
                    "verify": plan.engine.verify,
                }
                recorder = stack.enter_context(Recorder(record, about))
            files = _model_files(plan)
            load = Load(path=str(files.path), name=plan.model.name, options=files.options)
            thoughts = DimmedThoughts() if sys.stderr.isatty() and not as_json else None
            out = None if as_json else sys.stdout
            stream = ReplyStream(client, out, recorder, thoughts=thoughts, whole=raw)
            reply = stream.answer(load, request)
    finally:
        # An engine that has answered ends by itself at once; another is not worth waiting for.
        client.close(timeout=0.0 if reply is None else 3.0)
    if as_json:
        told = _as_json(reply, plan, stream.reason)
        if logprobs is not None:
            told["logprobs"] = _logprobs(stream.tokens)
        sys.stdout.write(json.dumps(told, ensure_ascii=False) + "\n")
        sys.stdout.flush()
    else:
        if stream.unanswered and reply.finish_reason != "cancelled":
            typer.echo(f"note: {UNANSWERED}", err=True)
        if sys.stderr.isatty():
            typer.echo(summary(reply, plan.engine.verify), err=True)
    if reply.finish_reason == "cancelled":
        raise typer.Exit(INTERRUPTED)


def _read_prompt(prompt: str, *, raw: bool) -> str:
    """The prompt's text; raises `UsageError` where there is none, or where it is no text."""
    if prompt != "-":
        text, where = common.check_text(prompt, "The prompt"), "The prompt"
    else:
        where = "Standard input"
        data = sys.stdin.buffer.read()
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise UsageError(
                f"Standard input is not valid UTF-8 (byte {error.start + 1}); convert it to UTF-8 text first."
            ) from error
        if "\0" in text:
            raise UsageError("Standard input is binary, not text; give `localspec run -` UTF-8 text.")
        # The line end that `echo` adds is no part of a question.
        text = text if raw else text.rstrip("\r\n")
    if not text.strip():
        raise UsageError(f"{where} is empty; give some text to answer.")
    return text


def _check_logprobs(count: int | None, *, as_json: bool) -> None:
    """Raise `UsageError` for a --logprobs that is out of range or has nowhere to be printed."""
    if count is None:
        return
    from localspec.logprobs import check_logprobs

    check_logprobs(count)
    if not as_json:
        raise UsageError("--logprobs is part of what --json prints; add --json.")


def _grammar(json_schema: Path | None, grammar: Path | None) -> str | None:
    """The grammar that the reply keeps to; checked here, before a model is loaded."""
    if json_schema is None and grammar is None:
        return None
    from localspec.grammar import check_grammar, grammar_of_schema

    if json_schema is not None:
        if grammar is not None:
            raise UsageError("--json-schema and --grammar exclude each other; give one of them.")
        return grammar_of_schema(common.read_text(json_schema, "JSON schema"))
    assert grammar is not None  # noqa: S101 - one of the two is given
    text = common.read_text(grammar, "grammar")
    check_grammar(text)
    return text


def _model_files(plan: common.Plan) -> ModelFiles:
    """The files of the model and its draft models, fetched first where missing, with progress on stderr."""
    for note in plan.files.notes:
        typer.echo(note, err=True)
    missing = plan.files.missing
    if not missing:
        return plan.files.find()
    from localspec.cli.models import progress_display

    typer.echo(f"Fetching {' and '.join(missing)}.", err=True)
    with progress_display() as show_progress:
        return plan.files.find(show_progress)


def _stop_strings(given: list[str]) -> tuple[str, ...]:
    if "" in given:
        raise UsageError("--stop needs some text; leave it out to end where the model ends.")
    return tuple(common.check_text(text, "A --stop text") for text in given)


def _as_json(reply: Reply, plan: common.Plan, reason: str) -> dict[str, Any]:
    """The one object of `--json`; other programs read these names."""
    from localspec.verify import is_exact

    return {
        "text": reply.text,
        "token_ids": list(reply.token_ids),
        "finish_reason": reply.finish_reason,
        "model": plan.model.name,
        "draft": plan.engine.draft.spec,
        "policy": plan.engine.draft.policy,
        "reason": reason,
        "verify": plan.engine.verify,
        "exact": is_exact(plan.engine.verify),
        "seed": reply.seed,
        "sampling": asdict(plan.sampling),
        "timings": asdict(reply.timings),
        "speculation": asdict(reply.speculation),
    }


def _logprobs(tokens: Sequence[EmittedToken]) -> list[dict[str, Any]]:
    """The field `logprobs` of `--json`: one entry for each emitted token."""
    return [
        {
            "id": token.id,
            "text": token.logprobs.text,
            "logprob": token.logprobs.logprob,
            "top": [asdict(other) for other in token.logprobs.top],
        }
        for token in tokens
        if token.logprobs is not None
    ]


def summary(reply: Reply, verify: str) -> str:
    """One line of figures; what was not measured is left out."""
    from localspec.verify import is_exact

    timings, speculation = reply.timings, reply.speculation
    parts = [f"{timings.generated_tokens} tokens"]
    if timings.tokens_per_second is not None:
        parts.insert(0, f"{timings.tokens_per_second:.1f} tok/s")
    if speculation.acceptance_rate is not None:
        parts.append(f"acceptance {speculation.acceptance_rate:.0%}")
    if speculation.acceptance_length is not None:
        parts.append(f"tau {speculation.acceptance_length:.2f}")
    if not is_exact(verify):
        parts.append(f"lossy ({verify})")
    return "  ".join(parts)
