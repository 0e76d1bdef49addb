"""The reference experiment's tables, its figures beside ours, and what makes the difference."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from localspec.bench.oracle import pass_cost
from localspec.bench.pooling import clean, pooled_counts
from localspec.bench.records import Measurement, ModelFile, Results, Startup
from localspec.bench.report import reference as there
from localspec.bench.report.cells import table
from localspec.bench.report.identity import Identity, identities
from localspec.bench.report.wording import DASH, between, number, percent, same, seconds, size, times
from localspec.bench.rows import Row, rows

DRAFT = "ngram"
"""The drafter of the reference experiment."""


def seed_tables(results: Results) -> str:
    """Markdown with a part for each of the experiment's results, for every file of the bench."""
    about = (
        f"Reference: {there.WHERE}, n-gram drafts. Its tables were pictures; a dash stands where its prose "
        f"gives no figure, or where this bench has none. Ours is `{DRAFT}` at the same draft lengths k, on "
        "recorded replies where they were measured, else on free ones. tau there counts only the steps that "
        "had a draft, and ours all of them (by position alone: those with a draft, as there). A speed-up is "
        "the tokens of a pass over the mean cost of a pass, less drafting and sampling; the last column says "
        "what the same drafts would give at the reference's costs.\n"
    )
    parts = [about]
    found = [row for row in rows(results) if row.draft == DRAFT and row.verify == "coupled"]
    for file in results.files:
        own = [row for row in found if row.file == file.name]
        parts += [f"### {clean(file.name)}\n", _costs(file), _alone(own, file), _positions(results, file)]
        parts.append(_together(own, file))
    parts += ["### Identity of greedy replies\n", _identity(identities(results)), _startups(results.startup)]
    return "\n".join(part for part in parts if part)


def _costs(file: ModelFile) -> str:
    here, other = pass_cost(file.pass_ms, 9), there.PASS_MS[9] / there.PASS_MS[1]
    if here is None:
        return "T(9)/T(1) was not measured here.\n"
    return (
        f"A pass over nine tokens costs {here:.2f} of one over one token here ({file.pass_ms[1]:.2f} ms) and "
        f"{other:.2f} there ({there.PASS_MS[1]} to {there.PASS_MS[9]} ms).\n"
    )


def _alone(own: Sequence[Row], file: ModelFile) -> str:
    lines = []
    for reference in there.ALONE:
        row = _row(own, reference.task, reference.length)
        acceptance = f"{percent(reference.acceptance)} / {number(reference.acceptance_length, 1)}"
        lines.append(
            [
                reference.task,
                str(reference.length),
                reference.said or DASH,
                f"{times(row.speedup)} ({between(row.speedup_low, row.speedup_high)})" if row else DASH,
                acceptance,
                f"{percent(row.acceptance_rate)} / {number(row.acceptance_length)}" if row else DASH,
                _why(row, reference, file),
            ]
        )
    head = ["task", "k", "speed there", "speed here (spread)", "accepted / tau there", "accepted / tau here"]
    return "**One reply at a time.**\n\n" + table([*head, "what makes the difference"], lines, words=99)


def _row(own: Iterable[Row], task: str, length: int, parallel: int = 1) -> Row | None:
    """Ours of the same task and length, a transcript's before a free one's."""
    fitting = [
        row
        for row in own
        if (row.task, row.draft_length, row.parallel, row.memory) == (task, length, parallel, "cold")
        and row.mode != "synthetic"
    ]
    return min(fitting, key=lambda row: (row.speedup is None, row.mode != "transcript"), default=None)


def _why(row: Row | None, reference: there.Reference, file: ModelFile) -> str:
    """The difference from its two causes: tokens a pass, and what a pass costs."""
    if row is None or row.speedup is None:
        return (row.note if row else None) or "not measured here"
    tau, cost = row.acceptance_length, row.pass_cost or pass_cost(file.pass_ms, 1 + reference.length)
    if not tau or not cost or not row.steps or row.drafted is None:
        return "the counters or T(n) are missing here"
    drafted = row.drafted / row.steps
    # T(n) of the reference is known at 1 and 9; on the line between them a mean length gives the mean cost.
    cost_there = 1 + (there.PASS_MS[9] / there.PASS_MS[1] - 1) * drafted / 8
    return (
        f"a pass of {tau:.2f} tokens costs {cost:.2f} plain ones here, {cost_there:.2f} there: "
        f"{tau / cost:.2f}x at our costs, {tau / cost_there:.2f}x at theirs"
    )


def _positions(results: Results, file: ModelFile) -> str:
    length = len(there.ACCEPTED_AT)
    fitting = [
        m
        for m in results.measurements
        if m.file == file.name
        and m.task in there.ACCEPTED_AT_TASKS
        and m.parallel == 1
        and (m.configuration.draft, m.configuration.length) == (DRAFT, length)
        and (m.configuration.memory, m.configuration.verify) == ("cold", "coupled")
    ]
    modes = [[m for m in fitting if m.mode == mode and m.counts] for mode in ("transcript", "free")]
    used: list[Measurement] = next(filter(None, modes), [])
    counts = pooled_counts([m.counts for m in used if m.counts])
    if counts is None or not counts.steps or not counts.drafts:
        return ""
    at = [a / d for a, d in zip(counts.accepted_at, counts.drafted_at, strict=False) if d]
    at += [0.0] * (length - len(at))
    # As there: of the steps that had a draft, each of which ends with a token of the target's own.
    tau = 1 + counts.accepted / counts.drafts
    # Tokens of all steps depend besides on how often there is a draft at all.
    here = (
        f"{counts.drafts / counts.steps:.0%} of the steps had a draft here, {at[0]:.0%} of them began right"
    )
    lines = [
        ["there", *(percent(share, 1) for share in there.ACCEPTED_AT), number(there.ACCEPTANCE_LENGTH), ""],
        ["here", *(percent(share, 1) for share in at[:length]), number(tau), here],
        ["difference", *(_points(a - b) for a, b in zip(at, there.ACCEPTED_AT, strict=False)),
         f"{tau - there.ACCEPTANCE_LENGTH:+.2f}", f"tasks here: {', '.join(sorted({m.task for m in used}))}"],
    ]  # fmt: skip
    head = [
        "",
        *(f"position {place}" for place in range(1, length + 1)),
        "tokens a draft",
        "what makes the difference",
    ]
    return f"**Acceptance by position, k = {length}.**\n\n" + table(head, lines, words=99)


def _points(difference: float) -> str:
    return f"{100 * difference:+.1f} points"


def _together(own: Sequence[Row], file: ModelFile) -> str:
    measured = sorted({row.parallel for row in own if row.parallel > 1 and row.speedup is not None})
    if not measured:
        return ""
    lines = []
    for task in ("copy", "random"):
        for sequences in sorted({*measured, *(count for name, count in there.CONCURRENCY if name == task)}):
            length = next((k for k in (4, 8, 2) if _row(own, task, k, sequences)), 4)
            row = _row(own, task, length, sequences)
            said = there.CONCURRENCY.get((task, sequences), DASH)
            if row or said != DASH:
                ours = times(row.speedup) if row else DASH
                lines.append([task, str(sequences), said, ours, _crowd(file, sequences, length, row)])
    head = ["task", "at once", "speed there", "speed here", "what makes the difference"]
    return "**Several replies at once.**\n\n" + table(head, lines, words=99)


def _crowd(file: ModelFile, sequences: int, length: int, row: Row | None) -> str:
    """What a crowded pass costs here: the gain is in passes that cost no more than plain ones."""
    if row is None or row.speedup is None:
        return (row.note if row else None) or "not measured here"
    plain, full = pass_cost(file.pass_ms, sequences), pass_cost(file.pass_ms, sequences * (1 + length))
    if plain is None:
        return f"T({sequences}) was not measured here"
    said = f"a plain pass over {sequences} tokens already costs {plain:.2f} of T(1) here"
    return said if full is None else f"{said}, one with drafts of {length} for all {full:.2f}"


def _identity(found: Iterable[Identity]) -> str:
    lines = [["reference", DRAFT, str(there.IDENTITY_LENGTH), there.IDENTITY, DASH, ""]]
    for identity in found:
        if identity.draft != DRAFT:
            continue
        margins = [d.margin for _, d in identity.divergences if d.margin is not None]
        if identity.same == identity.compared:
            why = "no reply left the plain one"
        elif margins:
            why = f"plain decoding preferred its own token by {min(margins):.3f} to {max(margins):.3f} there"
        else:
            why = "the margins were not measured"
        lines.append(
            [
                clean(identity.file), identity.draft, str(identity.length or DASH),
                f"{same(identity.same, identity.compared)} ({identity.by_task})",
                ", ".join(f"{prompt} at {d.index}" for prompt, d in identity.divergences) or DASH, why,
            ]
        )  # fmt: skip
    head = ["file", "draft", "k", "equal replies", "first difference", "what makes the difference"]
    return table(head, lines, words=99)


def _startups(found: Sequence[Startup]) -> str:
    lines = [["reference", DRAFT, there.KV_TOKENS, DASH, there.STARTUP, ""]]
    for one in found:
        plain = next((s for s in found if s.file == one.file and s.draft == "none"), None)
        if one.draft == "none" or plain is None:
            continue
        lines.append(
            [
                clean(one.file),
                clean(one.draft),
                _change(plain.context_tokens, one.context_tokens, "tokens"),
                _more(plain, one),
                f"{seconds(_ready(plain))} without, {seconds(_ready(one))} with speculation",
                clean(one.note or "") or _startup_cause(plain, one),
            ]
        )
    head = ["file", "draft", "KV cache", "memory", "until the first token", "what makes the difference"]
    return "### What speculation costs before the first token\n\n" + table(head, lines, words=99)


def _startup_cause(plain: Startup, one: Startup) -> str:
    draft = f"the draft model takes {size(one.draft_bytes)}" if one.draft_bytes else "no draft model"
    if plain.context_tokens == one.context_tokens:
        return f"{draft}; the cache is as long as --context says, not what memory is left"
    return f"{draft}; the cache had to be shorter"


def _change(before: int | None, after: int | None, unit: str) -> str:
    if not before or after is None:
        return DASH
    return f"{before:,} to {after:,} {unit}: {after / before - 1:+.0%}"


def _more(plain: Startup, one: Startup) -> str:
    if plain.resident_bytes is None or one.resident_bytes is None:
        return DASH
    more = one.resident_bytes - plain.resident_bytes
    return f"{'-' if more < 0 else '+'}{size(abs(more))}"


def _ready(one: Startup) -> float | None:
    return None if one.load_s is None or one.first_token_s is None else one.load_s + one.first_token_s
