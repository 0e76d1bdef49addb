"""`localspec models check`: whether one model can draft for another, and what speaks against it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from localspec.models.compat import Compatibility, VocabularyFacts
    from localspec.models.gguf import GGUFHeader
    from localspec.models.heads import HeadFacts
    from localspec.models.registry import Resolved

_CONTEXT = 8192
_SHOWN_ENDS = 4


@dataclass(frozen=True)
class _Side:
    """One of the two models; `vocabulary` is None for a file that is no language model."""

    header: GGUFHeader
    vocabulary: VocabularyFacts | None
    context: int
    head: HeadFacts | None = None


def check(
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="The model that answers: a known one or a GGUF file.")
    ],
    draft: Annotated[
        str,
        typer.Argument(
            metavar="DRAFT",
            help="What would draft for it: a smaller model, or a head, as --draft takes them.",
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Tell whether DRAFT can draft for TARGET: vocabularies, memory, and a verdict. No weights are loaded."""
    from localspec.errors import IncompatibleError
    from localspec.model_choice import resolve
    from localspec.models.compat import (
        Compatibility,
        check_draft_file,
        check_target_file,
        compare_vocabularies,
    )
    from localspec.models.gguf import read_header
    from localspec.models.heads import check_head, head_note, head_of
    from localspec.models.lookalikes import purpose

    answers = resolve(target)
    headers = [
        read_header(_file_of(target, answers)),
        read_header(_file_of(draft, _drafting(draft, answers))),
    ]
    context = min(headers[0].context_length or _CONTEXT, _CONTEXT)
    refusal, head = "", None
    try:
        check_target_file(headers[0])
        head = head_of(draft, headers[1])
        if head is None:
            check_draft_file(headers[1], target=headers[0])
        else:
            check_head(head, headers[0])
    except IncompatibleError as error:
        refusal = str(error)
    # Native code has nothing to say of a file that is no language model.
    facts = [None if purpose(header) else _vocabulary_of(header.path) for header in headers]
    sides = [_Side(headers[0], facts[0], context), _Side(headers[1], facts[1], context, head)]
    found = Compatibility("none")
    if head is not None:
        found = Compatibility("same", note=head_note(head, headers[1], headers[0]))
    elif facts[0] is not None and facts[1] is not None:
        found = compare_vocabularies(facts[0], facts[1])
    if refusal:
        found = replace(found, verdict="none", reasons=(refusal, *found.reasons), note="")
        verdict = f"No: {refusal}"
    elif head is not None:
        verdict = _head_verdict(head, found.note)
    else:
        verdict = _verdict(found, headers[1].path.name)
    if as_json:
        typer.echo(json.dumps(_as_values(sides, found, verdict), indent=2, ensure_ascii=False))
    else:
        _print(sides, found, verdict)
    if found.verdict == "none":
        raise typer.Exit(IncompatibleError.exit_code)


def _drafting(name: str, target: Resolved) -> Resolved:
    from localspec.model_choice import resolve_draft, resolve_head
    from localspec.models.heads import kind_named

    kind = kind_named(name)
    return resolve_draft(name) if kind is None else resolve_head(kind, name.partition(":")[2], target)


def _file_of(name: str, found: Resolved) -> Path:
    from localspec.errors import NotFoundError

    if found.path is None:
        raise NotFoundError(f"{name} is not fetched yet; run `localspec models pull {name}`.")
    return found.path


def _vocabulary_of(path: Path) -> VocabularyFacts:
    from localspec.runtime.vocabulary import vocabulary, vocabulary_facts

    with vocabulary(path) as model:
        return vocabulary_facts(model)


def _head_verdict(head: HeadFacts, note: str) -> str:
    from localspec.models.entries import HEADS

    reads = "the states of the model's last layer"
    if head.target_layers:
        reads = f"the states of the model's layers {', '.join(map(str, head.target_layers))}"
    where = "the model itself has" if head.in_model else f"{head.path.name} is"
    what = f"Yes: {where} an {HEADS[head.kind]} head"
    if head.kind in ("dflash", "dspark"):
        what = f"Yes: {head.path.name} is a {HEADS[head.kind]} head, with blocks of {head.block} tokens"
    elif head.prediction_layers > 1:
        what += f" of {head.prediction_layers} layers"
    return f"{what}, which drafts from {reads}. {note}".rstrip()


def _verdict(found: Compatibility, name: str) -> str:
    if found.verdict == "same":
        return f"Yes: token ids mean the same in both. {found.note}".rstrip()
    if found.verdict == "text":
        return f"Yes, through text: {found.note}"
    return f"No: {name} cannot draft for this model: {'; '.join(found.reasons)}."


def _print(sides: list[_Side], found: Compatibility, verdict: str) -> None:
    from localspec.cli.models import print_table
    from localspec.models.disk import readable_size
    from localspec.text import printable

    columns = [_column(side) for side in sides]
    if found.difference is not None:
        from localspec.models.compat import quoted

        label = f"first different token, {found.difference.id}"
        columns[0][label] = quoted(found.difference.target_text)
        columns[1][label] = quoted(found.difference.draft_text)
    for side, column in zip(sides, columns, strict=True):
        column["context"] = f"{side.header.context_length} tokens"
        column[f"memory, {side.context} tokens"] = readable_size(_memory(side)["total"])
    rows = [("", "TARGET", "DRAFT")]
    rows += [(label, columns[0].get(label, "-"), columns[1].get(label, "-")) for label in columns[0]]
    print_table([tuple(printable(cell) for cell in row) for row in rows])
    typer.echo(printable(verdict))


def _column(side: _Side) -> dict[str, str]:
    """What is shown of one model, by label; the same labels for both."""
    header, facts = side.header, side.vocabulary
    shown = {"file": header.path.name, "vocabulary": "-", "tokens": str(header.vocabulary)}
    if facts is None:
        return shown
    pre = f" ({facts.pre_tokenizer})" if facts.pre_tokenizer else ""
    ends = [_token(facts, token) for token in facts.eog[:_SHOWN_ENDS]]
    more = len(facts.eog) - _SHOWN_ENDS
    return shown | {
        "vocabulary": f"{facts.kind}{pre}" if facts.kind else "none",
        "tokens": str(facts.size),
        "beginning of text": f"{_token(facts, facts.bos)}{', added' if facts.adds_bos else ''}",
        "end of text": f"{_token(facts, facts.eos)}{', added' if facts.adds_eos else ''}",
        "ends a reply": ", ".join(ends) + (f" and {more} more" if more > 0 else "") or "-",
        "chat template": "yes" if facts.template else "no",
    }


def _token(facts: VocabularyFacts, token: int) -> str:
    from localspec.models.compat import quoted

    return f"{token} {quoted(facts.text(token))}" if token >= 0 else "-"


def _memory(side: _Side) -> dict[str, int]:
    """Estimated bytes with all layers in one memory."""
    from localspec.models.footprint import sizes

    all_of_it = sizes(side.header, context=side.context)
    return {
        "context": side.context,
        "weights": all_of_it.weights_bytes,
        "kv_cache": all_of_it.kv_bytes,
        "total": all_of_it.total_bytes,
    }


def _as_values(sides: list[_Side], found: Compatibility, verdict: str) -> dict[str, Any]:
    models = [
        {
            "path": str(side.header.path.absolute()),
            "architecture": side.header.architecture,
            "parameters": side.header.parameters,
            "trained_context": side.header.context_length,
            "chat_template": side.header.has_chat_template,
            "memory": _memory(side),
            "vocabulary": None if side.vocabulary is None else _vocabulary_values(side.vocabulary),
        }
        for side in sides
    ]
    difference = found.difference
    return {
        "target": models[0],
        "draft": models[1],
        "verdict": found.verdict,
        "can_draft": found.verdict != "none",
        "sentence": verdict,
        "head": None if sides[1].head is None else sides[1].head.kind,
        "reasons": list(found.reasons),
        "note": found.note or None,
        "first_difference": None if difference is None else asdict(difference),
    }


def _vocabulary_values(facts: VocabularyFacts) -> dict[str, Any]:
    return {
        "type": facts.kind or None,
        "pre_tokenizer": facts.pre_tokenizer or None,
        "size": facts.size,
        "bos": facts.bos if facts.bos >= 0 else None,
        "eos": facts.eos if facts.eos >= 0 else None,
        "adds_bos": facts.adds_bos,
        "adds_eos": facts.adds_eos,
        "ends_a_reply": list(facts.eog),
    }
