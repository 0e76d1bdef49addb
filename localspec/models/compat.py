"""Whether one model can draft for another, and if not, why: by their files, and by their vocabularies."""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from localspec.errors import IncompatibleError, ModelFileError
from localspec.models.disk import readable_size
from localspec.models.gguf import GGUFHeader
from localspec.models.lookalikes import purpose
from localspec.models.passes import weight_bytes_of_a_pass

Verdict = Literal["same", "text", "none"]
"""Drafts as tokens, because ids mean the same; drafts through text; or no drafts."""

MOST_EXTRA = 128
"""Entries that one vocabulary may have more than the other: models of a family are padded differently."""
FIRST_COMPARED = 5
"""Tokens before this one are special ones in all families; llama.cpp does not compare their texts either."""

_LOSSY = ("WPM", "UGM")
"""Tokenizers that change the text, so that what they draft cannot be put back into it."""
_MARKER = re.compile(r"<\|?/?[\w ]+\|?>|\[/?[A-Z_]{3,}\]|<\uff5c[^\uff5c]+\uff5c>")
_SHARD = re.compile(r"(.+)-\d{5}-of-(\d{5})\.gguf")
_SHOWN_MARKERS = 2


@dataclass(frozen=True, slots=True)
class VocabularyFacts:
    """What decides whether token ids of two models mean the same.

    Attributes:
        name: of the model's file.
        kind: of the tokenizer, such as "BPE" or "SPM"; "" for a model without one.
        pre_tokenizer: how text is split before the tokenizer's merges, such as "qwen2".
        size: number of tokens.
        bos: beginning-of-text token, -1 for none.
        eos: end-of-text token, -1 for none.
        adds_bos: whether a text is made to begin with `bos`.
        adds_eos: whether a text is made to end with `eos`.
        eog: tokens that end a reply, ascending.
        texts: each token as the file has it, one an id.
        template: source of the chat template, "" without one.
    """

    name: str
    kind: str
    pre_tokenizer: str
    size: int
    bos: int
    eos: int
    adds_bos: bool
    adds_eos: bool
    eog: tuple[int, ...]
    texts: Sequence[bytes]
    template: str = ""

    def text(self, token: int) -> str:
        """A token's text, "" for an id that there is not."""
        return self.texts[token].decode("utf-8", "replace") if 0 <= token < len(self.texts) else ""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first token that is another one in the draft's vocabulary, with its text in both."""

    id: int
    target_text: str
    draft_text: str


@dataclass(frozen=True, slots=True)
class Compatibility:
    """What a comparison found.

    Attributes:
        verdict: how the one can draft for the other.
        reasons: why not as tokens, each a clause, the most important first.
        note: what a user of the pair should know, in a sentence or two; "" for nothing.
        difference: the first token that is not the same, if any is compared and not.
    """

    verdict: Verdict
    reasons: tuple[str, ...] = ()
    note: str = ""
    difference: Difference | None = None


SAME = Compatibility("same")
"""Of files whose headers have the same fingerprint, and of whose chat templates nothing is known."""


def compare_headers(target: GGUFHeader, draft: GGUFHeader) -> Compatibility | None:
    """What the headers alone tell: that ids mean the same; None where the vocabularies must be compared."""
    if not target.fingerprint or target.fingerprint != draft.fingerprint:
        return None
    templates = (str(one.metadata.get("tokenizer.chat_template", "")) for one in (target, draft))
    return replace(SAME, note=_about_templates(draft.path.name, *templates))


def compare_vocabularies(target: VocabularyFacts, draft: VocabularyFacts) -> Compatibility:
    """Whether `draft` can draft for `target`; ids mean the same where llama.cpp's own check says so."""
    for facts, whose in ((draft, "the draft"), (target, "the target")):
        if not facts.kind or not facts.size:
            return Compatibility("none", (f"{whose} has no vocabulary of its own",))
    difference = _difference(target, draft)
    reasons = tuple(_reasons(target, draft, difference))
    if not reasons:
        return Compatibility("same", note=_about_templates(draft.name, target.template, draft.template))
    for facts, whose in ((draft, "the draft's"), (target, "the target's")):
        if facts.kind in _LOSSY:
            lossy = f"{whose} tokenizer ({facts.kind}) does not keep text as it is"
            return Compatibility("none", (lossy, *reasons), difference=difference)
    note = (
        f"{draft.name} has another vocabulary than the target ({reasons[0]}), so its drafts go through text, "
        "which is slower, and fewer are accepted."
    )
    return Compatibility("text", reasons, note, difference)


def check_draft_file(header: GGUFHeader, *, target: GGUFHeader) -> None:
    """Raise `IncompatibleError` where a file's header alone tells that it cannot draft for `target`."""
    name = header.path.name
    if _same_model(header.path, target.path):
        raise IncompatibleError(
            f"{name} is the target itself, and a model gains nothing by drafting for itself; choose a "
            "smaller one for --draft."
        )
    what = purpose(header)
    if what:
        raise IncompatibleError(f"{name} cannot draft by itself: it is {what}; choose another --draft.")
    larger = _larger(header, target)
    if larger:
        raise IncompatibleError(
            f"{name} cannot draft for {target.path.name}: it is larger ({larger}); choose a smaller one for "
            "--draft."
        )


def check_target_file(header: GGUFHeader) -> None:
    """Whether a file can be a target.

    Raises:
        IncompatibleError: it is no language model by itself.
        ModelFileError: it is damaged.
    """
    what = purpose(header)
    if what:
        raise IncompatibleError(f"{header.path.name} cannot be a target: it is {what}; choose another model.")
    if header.extra_layers > header.block_count:
        # llama.cpp ends the process over it.
        raise ModelFileError(
            f"{header.path.name} says that {header.extra_layers} of its {header.block_count} layers predict "
            "further tokens; fetch the model again."
        )


# --- vocabularies


def _difference(target: VocabularyFacts, draft: VocabularyFacts) -> Difference | None:
    shorter = min(len(target.texts), len(draft.texts))
    ours, theirs = target.texts[FIRST_COMPARED:shorter], draft.texts[FIRST_COMPARED:shorter]
    if ours == theirs:
        return None
    for token, (one, two) in enumerate(zip(ours, theirs, strict=True), start=FIRST_COMPARED):
        if one != two:
            return Difference(token, target.text(token), draft.text(token))
    return None


def _reasons(target: VocabularyFacts, draft: VocabularyFacts, difference: Difference | None) -> list[str]:
    reasons: list[str] = []
    if target.kind != draft.kind:
        reasons.append(f"the draft's tokenizer is {draft.kind}, the target's {target.kind}")
    if abs(target.size - draft.size) > MOST_EXTRA:
        reasons.append(f"the draft has {draft.size} tokens, the target {target.size}")
    if difference is not None:
        reasons.append(
            f"token {difference.id} is {quoted(difference.draft_text)} in the draft, "
            f"{quoted(difference.target_text)} in the target"
        )
    for word, ours, theirs in (
        ("begin", _added(target, target.bos, target.adds_bos), _added(draft, draft.bos, draft.adds_bos)),
        ("end", _added(target, target.eos, target.adds_eos), _added(draft, draft.eos, draft.adds_eos)),
    ):
        if ours[0] != theirs[0]:
            reasons.append(f"texts of the draft {word} with {theirs[1]}, of the target with {ours[1]}")
    return reasons


def _added(facts: VocabularyFacts, token: int, adds: bool) -> tuple[int | None, str]:
    if not adds:
        return None, "no special token"
    return token, f"token {token} ({quoted(facts.text(token))})"


def _about_templates(name: str, target: str, draft: str) -> str:
    """A sentence where the draft `name` does not know the target's format of turns."""
    if not target or target == draft:
        return ""
    if not draft:
        return (
            f"{name} has no chat template: it may not have been trained to chat, and less of what it drafts "
            "may be accepted."
        )
    unknown = _markers(target) - _markers(draft)
    if not unknown:
        return ""
    shown = " and ".join(sorted(unknown)[:_SHOWN_MARKERS])
    return (
        f"{name} was made for another chat format (its template does not know {shown}), so less of what it "
        "drafts may be accepted."
    )


def _markers(template: str) -> frozenset[str]:
    """What marks turns in a template; words of a template's own prose are not in angle brackets."""
    return frozenset(_MARKER.findall(template))


def quoted(text: str) -> str:
    """A token's text in quotes, with what cannot be printed as escapes."""
    shown = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown) + '"'


# --- files


def _same_model(one: Path, other: Path) -> bool:
    one, other = one.resolve(), other.resolve()
    if one == other:
        return True
    mine, its = _SHARD.fullmatch(one.name), _SHARD.fullmatch(other.name)
    return bool(mine and its and mine.groups() == its.groups() and one.parent == other.parent)


def _larger(draft: GGUFHeader, target: GGUFHeader) -> str:
    """In which way a draft is larger than the target; "" where it is not."""
    if max(draft.split_count, target.split_count) > 1:
        ours, theirs = _bytes_of_all_parts(draft), _bytes_of_all_parts(target)
        return f"{readable_size(ours)} against {readable_size(theirs)}" if ours > theirs else ""
    if draft.parameters > target.parameters:
        return f"{_count(draft.parameters)} parameters against {_count(target.parameters)}"
    ours, theirs = weight_bytes_of_a_pass(draft), weight_bytes_of_a_pass(target)
    if ours > theirs:
        return f"it reads {readable_size(ours)} for every token, the target {readable_size(theirs)}"
    return ""


def _bytes_of_all_parts(header: GGUFHeader) -> int:
    match = _SHARD.fullmatch(header.path.name)
    if match is None:
        return header.file_bytes
    parts = header.path.parent.glob(f"{glob.escape(match[1])}-?????-of-{match[2]}.gguf")
    return sum(part.stat().st_size for part in parts)


def _count(parameters: int) -> str:
    for unit, name in ((10**9, "B"), (10**6, "M"), (10**3, "k")):
        if parameters >= unit:
            return f"{parameters / unit:.3g}{name}"
    return str(parameters)
