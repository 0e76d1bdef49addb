"""What the token view says beside the tokens: title, signs, all about one token. No widgets here."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.cells import cell_len

from localspec.messages import TokenLogprobs
from tui import figures
from tui.conversation import title_of
from tui.token_flow import MARKS
from tui.token_reading import ALTERNATIVES, Figures, Reading
from tui.tokens import Item, ItemKind, Pass, Record
from tui.widgets.rows import Row, row_width, spread

NAMES: dict[ItemKind, str] = {
    "accepted": "accepted",
    "bonus": "bonus",
    "correction": "correction",
    "own": "no draft",
    "ghost": "rejected",
}

_SAYS: dict[ItemKind, str] = {
    "accepted": "drafted, and accepted by the model",
    "bonus": "the model's own, after a draft that was right to its end",
    "correction": "the model's own, in place of a drafted token",
    "own": "the model's own, nothing was drafted here",
    "ghost": "drafted, and rejected by the model: no part of the reply",
}

_DROPPED = "drafted after a rejected token, and dropped with it: no part of the reply"

NOT_RECORDED = (
    "This reply was not written since the app was started, or too many others were: how its tokens came "
    "about was not recorded."
)
NOTHING = "There is no reply yet. Its tokens appear here while it is written."
UNSPELLED = "The engine has not said how these tokens are spelled; they appear here when it does."
WAITING = "The prompt is being read; tokens appear here as they are written."

PRECISION = (
    "Before filters and temperature, of one wide pass over the finished reply: last digits may differ from "
    "the passes that wrote it."
)


def title_row(reading: Reading, width: int) -> Row:
    """Which reply, and how many tokens in how many passes of the model."""
    replies, record = reading.replies, reading.record
    left: list[tuple[str, str]] = [("localspec", "accent"), ("  tokens", "title")]
    if len(replies) > 1:
        left.append((f"  reply {reading.number + 1} of {len(replies)}", "value"))
    right: list[tuple[str, str]] = []
    if record is not None and record.passes:
        tokens, passes = record.length, len(record.passes)
        more = " and more" if record.cut else ""
        right.append((f"{_count(tokens, 'token')}{more} in {_count(passes, 'pass')}", "value"))
        if width >= 80:
            right.append((f" · {figures.decimal(tokens / passes)} per pass", "muted"))
        if width >= 100:
            left.append((f"  {title_of(record.model)}", "muted"))
    return spread(left, right, width)


def legend_row(record: Record | None, width: int, *, ghosts: bool) -> Row:
    """The signs and what they mean, with how often each kind occurs."""
    counts: dict[ItemKind, int] = record.counts if record is not None else {}
    for with_counts, gap in ((True, "   "), (True, "  "), (False, "  ")):
        row: list[tuple[str, str]] = []
        for kind, name in NAMES.items():
            row += [(gap, "")] if row else []
            mark = MARKS[kind]
            shown = f"[{mark}{name}]" if kind == "ghost" else f"{mark}{name}"
            row.append((shown, kind))
            if with_counts:
                row.append((f" {counts.get(kind, 0)}", "muted"))
        if not ghosts:
            row.append((" hidden", "muted"))
        if row_width(row) <= width:
            break
    return row


def detail_rows(reading: Reading, item: Item | None, width: int, height: int) -> list[Row]:
    """All that is known of a token, in at most `height` rows; the most important first."""
    record = reading.record
    if record is None or item is None:
        return []
    one = record.passes[item.number]
    score = reading.score_of(item)
    told = [
        _what(reading, record, item, one),
        _whence(one, item),
        _likelihood(reading, item, one, score),
        _alternatives(reading, item, one, score),
    ]
    rows = [row for atoms in told for row in flowed(atoms, width)]
    note = _note(reading, record) if score is not None and not _fell(item, one) else ""
    below = flowed([(word, "muted") for word in note.split()], width, gap=" ") if note else []
    return [*rows, *below][:height] if len(rows) + len(below) <= height else rows[:height]


def flowed(atoms: Sequence[tuple[str, str]], width: int, gap: str = "  ") -> list[Row]:
    """Pieces of text one after the other, in rows of `width` cells."""
    rows: list[list[tuple[str, str]]] = []
    for text, style in atoms:
        # Only what is wider than a row is broken.
        parts = [text] if cell_len(text) <= width else text.split()
        for place, part in enumerate(parts):
            between = " " if place else gap
            if rows and row_width(rows[-1]) + len(between) + cell_len(part) <= width:
                rows[-1] += [(between, ""), (part, style)]
            else:
                rows.append([(part, style)])
    return list(rows)


def _what(reading: Reading, record: Record, item: Item, one: Pass) -> list[tuple[str, str]]:
    text = reading.label(item.id)
    where = f"for token {item.place + 1}" if item.ghost else f"token {item.place + 1} of {record.length}"
    says = _DROPPED if _fell(item, one) else _SAYS[item.kind]
    atoms = [(f"{MARKS[item.kind]}{text}", str(item.kind)), (where, "value"), (says, "value")]
    return [*atoms, (f"id {item.id}", "muted")]


def _whence(one: Pass, item: Item) -> list[tuple[str, str]]:
    """The draft of the pass."""
    number = f"pass {item.number + 1}"
    if not one.drafted:
        return [(f"{number}:", "muted"), ("without a draft", "value")]
    atoms = [(f"{number}:", "muted"), (f"{_count(one.drafted, 'token')} drafted by {one.source}", "value")]
    if one.leaves > 1:
        atoms.append((f"on {one.leaves} branches", "value"))
    if one.match_length:
        atoms.append((f"after a match of {one.match_length}", "muted"))
    atoms.append((f"{one.accepted} accepted", "value"))
    if item.depth >= 0:
        atoms.append((f"this is its {_ordinal(item.depth + 1)}", "value"))
        sure = one.confidence[item.depth] if item.depth < len(one.confidence) else None
        atoms.append((f"confidence {figures.decimal(sure)}", "value"))
    return atoms


def _likelihood(
    reading: Reading, item: Item, one: Pass, score: TokenLogprobs | None
) -> list[tuple[str, str]]:
    """How likely the model finds the token."""
    if _fell(item, one):
        return [("log-probability", "muted"), (figures.DASH, "value"), ("it was not weighed", "muted")]
    if score is None:
        return [("log-probability", "muted"), (figures.DASH, "value"), (_why_none(reading), "muted")]
    if item.ghost:
        found = next((other for other in score.top if other.id == item.id), None)
        if found is None:
            return [("log-probability", "muted"), (figures.DASH, "value")]
        logprob = found.logprob
        beside = [
            (f"the reply has {reading.label(one.tokens[one.accepted])} {_both(score.logprob)}", "value")
        ]
    else:
        logprob, beside = score.logprob, []
    best = enumerate(score.top[:ALTERNATIVES], 1)
    rank = next((place for place, other in best if other.id == item.id), None)
    words = f"the {_ordinal(rank)} likeliest" if rank else "less likely than those below"
    words = "the likeliest" if rank == 1 else words
    return [
        ("log-probability", "muted"),
        (f"{logprob:.2f}", "value"),
        (f"{_share(logprob)}, {words}", "value"),
        *beside,
    ]


def _alternatives(
    reading: Reading, item: Item, one: Pass, score: TokenLogprobs | None
) -> list[tuple[str, str]]:
    """The most likely tokens in its place."""
    if score is None or not score.top or _fell(item, one):
        return []
    best = score.top[:ALTERNATIVES]
    listed = ((f"{reading.label(other.id, other.text)} {_both(other.logprob)}", "value") for other in best)
    return [("likeliest here:", "muted"), *listed]


def _note(reading: Reading, record: Record) -> str:
    """Where the figures come from, or why there are none."""
    match reading.figures:
        case Figures.KNOWN if record.shortened:
            return f"{PRECISION} The oldest messages, which the reply's beginning still saw, are left out."
        case Figures.KNOWN:
            return PRECISION
        case _:
            return ""


def _why_none(reading: Reading) -> str:
    record = reading.record
    match reading.figures:
        case Figures.READING:
            prompt = reading.prompt
            return f"reading the prompt, {prompt.done} of {prompt.total}" if prompt else "being computed"
        case Figures.SCORING:
            done = len(record.scores) if record is not None else 0
            return f"being computed, {done} of {record.length if record is not None else 0} tokens"
        case Figures.FAILED:
            return reading.trouble
        case _:
            pass
    if record is not None and not record.ended:
        return "computed when the reply is whole"
    if not reading.model_is_here:
        return f"only {record.model if record is not None else 'its model'} can tell; it is not loaded"
    return "s has the engine compute it" if reading.can_score else "the engine is busy"


def _fell(item: Item, one: Pass) -> bool:
    """Whether a token was not even looked at, since one before it in its draft was rejected."""
    return item.ghost and item.depth > one.accepted


def _both(logprob: float) -> str:
    return f"{logprob:.2f} ({_share(logprob)})"


def _share(logprob: float) -> str:
    share = math.exp(logprob) * 100
    if share >= 99.95:
        return "100 %"
    return f"{share:.0f} %" if share >= 10 else f"{share:.1f} %" if share >= 0.1 else "< 0.1 %"


def _count(number: int, thing: str) -> str:
    plural = f"{thing}es" if thing.endswith("s") else f"{thing}s"
    return f"{number} {thing if number == 1 else plural}"


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
