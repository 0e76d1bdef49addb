"""A bench as one Markdown document: what was measured, how, on which machine, slow-downs included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import PurePath

from localspec.bench.oracle import best_length
from localspec.bench.peer_rows import PeerRow, peer_rows
from localspec.bench.pooling import clean
from localspec.bench.records import Results, Settings
from localspec.bench.report.cells import bullets, escaped, table
from localspec.bench.report.identity import identities
from localspec.bench.report.seed import seed_tables
from localspec.bench.report.theory import gpu_table, theory_table
from localspec.bench.report.wording import (
    DASH,
    between,
    beyond_oracle,
    facts,
    grouped_notes,
    marks,
    number,
    overhead,
    percent,
    rate,
    same,
    seconds,
    size,
    task_name,
    times,
    where,
)
from localspec.bench.rows import Row, rows, short_draft
from localspec.bench.runs import ENOUGH
from localspec.bench.sweeps import REPEATABLE
from localspec.bench.winners import winners

_MODES = {
    "transcript": "Transcript",
    "free": "Free",
    "synthetic": "Synthetic acceptance: invalid as a measurement of a drafter",
}
_WORDS = (
    (
        "**speed**: tokens per second over those of plain decoding in the same rounds; **spread**: slowest "
        "and fastest round"
    ),
    (
        "**accepted**: draft tokens accepted of those drafted; **alpha**: accepted of the positions that the "
        "verifier reached; **tau**: tokens emitted a pass of the model, its own token included"
    ),
    (
        "**theory**: (1 - alpha^(k+1)) / (1 - alpha) tokens a pass over T(1+k)/T(1) where a step drafted, "
        "one token a pass where none did"
    ),
    "**of oracle**: share of the speed that the best draft lengths reach with the text known, from T(n)",
    "**same**: replies equal to plain decoding's, token for token, of those compared",
    "**T(n)**: time of one pass of the model over n tokens",
)


def markdown(results: Results, plots: Mapping[str, str] | None = None) -> str:
    """The whole document.

    Args:
        results: complete or not.
        plots: pictures by name, as `localspec.bench.report.plots.plots` names them, and where they lie as
            seen from the document.
    """
    found = rows(results)
    pictures = plots or {}
    parts = ["# Results\n", _opening(results, found)]
    parts += [
        "## Machine\n",
        bullets(f"{escaped(name)}: {escaped(value)}" for name, value in facts(results.machine)),
    ]
    parts += ["## How it was measured\n", _method(results.settings, found)]
    parts += ["## Speed\n", _pictures("speedup", pictures), _speed(found)]
    parts += ["## Slow-downs\n", _slow(found)]
    parts += ["## Acceptance by position\n", _pictures("positions", pictures), _positions(found)]
    parts += ["## What a pass costs\n", _pictures("passes", pictures), _costs(results, found)]
    parts += [_pictures("alpha", pictures), _pictures("lengths", pictures)]
    parts += _section("## Theory beside practice\n", theory_table(results, found))
    parts += _section("## On a consumer GPU\n", gpu_table(found))
    parts += _section(
        "## Several sequences in one batch\n", _pictures("concurrency", pictures) + _together(found)
    )
    parts += _section("## Other programs\n", _peers(results))
    parts += _section("## Are the replies the same?\n", _identity(results))
    parts += _section("## Memory and start-up\n", _startup(results))
    parts += ["## The reference experiment, side by side\n", seed_tables(results)]
    return "\n".join(part for part in parts if part)


def _section(title: str, body: str) -> list[str]:
    return [title, body] if body else []


def _opening(results: Results, found: Sequence[Row]) -> str:
    # Of a path the name: where it lies is nobody's business.
    model = PurePath(results.settings.model).name
    said = [f"Measured by `localspec bench` with `{escaped(model)}`, {escaped(results.started)}."]
    if results.invalid:
        said.insert(0, f"**INVALID: {escaped(results.invalid)}.**")
    if not results.complete:
        said.append("**The bench was interrupted: rows are missing.**")
    said += [escaped(note) for note in results.notes]
    if not found:
        said.append("Nothing has been measured yet.")
    return " ".join(said) + "\n"


def _pictures(kind: str, plots: Mapping[str, str]) -> str:
    links = [f"![{escaped(name)}]({link})\n" for name, link in plots.items() if name.startswith(kind)]
    return "\n".join(links) + ("\n" if links else "")


def _method(settings: Settings, found: Sequence[Row]) -> str:
    names = ", ".join
    drafts = [short_draft(spec) for spec in settings.drafts]
    asked = [
        (
            f"files: {escaped(names(settings.files))}; tasks: {escaped(names(settings.tasks))}; prompts of a "
            f"task: {settings.prompts_per_task}; drafts: {escaped(names(drafts))}; draft lengths: "
            f"{escaped(names([*map(str, settings.lengths), *settings.policies]))}; rules of verification: "
            f"{escaped(names(settings.verify))}"
        ),
        (
            f"{settings.tokens} tokens a reply, {settings.runs} rounds"
            f"{' or more' if settings.runs >= REPEATABLE else ''} after a warm-up, seed {settings.seed};"
            f" context {settings.context}, {settings.threads} threads, KV cache {escaped(settings.kv_type)}"
        ),
        (
            "plain decoding and every configuration take turns on each prompt, in rounds that are spread "
            "over the whole run of a file; prompts of a task are pooled by adding up their tokens and "
            "seconds, prefill apart"
        ),
        (
            "the time of a reply is the sum over its steps of "
            f"{'their lower quartile' if settings.runs >= ENOUGH else 'their median'} over the rounds, where "
            "all rounds took the same steps, else the median of the rounds; speed-ups are taken round by "
            "round, plain decoding's time over the other's, pauses of single steps apart where all rounds "
            "took the same steps, and are their mean without an eighth at each end (else without a quarter)"
        ),
        (
            "**transcript**: the outcome of every step is forced to one recorded reply at the real cost of "
            "decoding, so that all drafters are judged on one text; **free**: as users run it"
        ),
        *_WORDS,
    ]
    taken = overhead(found)
    return bullets([*asked, taken] if taken else asked)


def _speed(found: Sequence[Row]) -> str:
    parts = []
    for (file, mode), group in groupby(
        (row for row in found if row.parallel == 1), key=lambda row: (row.file, row.mode)
    ):
        of_mode = list(group)
        parts.append(f"### {escaped(file)}: {_MODES[mode]}\n")
        head = [
            "task", "draft", "plain tok/s", "tok/s", "speed", "spread", "accepted", "alpha", "tau", "theory",
            "oracle", "of oracle", *(["same"] if mode == "free" else []), "",
        ]  # fmt: skip
        lines = [
            [
                task_name(row), row.label, rate(row.baseline_tokens_per_second), rate(row.tokens_per_second),
                times(row.speedup), between(row.speedup_low, row.speedup_high), percent(row.acceptance_rate),
                percent(row.conditional_acceptance), number(row.acceptance_length),
                times(row.predicted_speedup), times(row.oracle_speedup), percent(row.of_oracle),
                *([same(row.identical_count, row.compared)] if mode == "free" else []), marks(row),
            ]
            for row in of_mode
            if row.prompts
        ]  # fmt: skip
        said = [line for line in [beyond_oracle(of_mode)] if line]
        parts += [table(head, lines, words=2), bullets(map(escaped, said)), _notes(of_mode)]
    return "\n".join(part for part in parts if part)


def _notes(found: Sequence[Row]) -> str:
    return bullets(map(escaped, grouped_notes((where(row), row.note) for row in found)))


def _slow(found: Sequence[Row]) -> str:
    slow = [row for row in found if row.slower and row.mode != "synthetic"]
    if not slow:
        return "No configuration was slower than plain decoding.\n"
    lines = [
        [
            row.file, where(row), row.mode, times(row.speedup), between(row.speedup_low, row.speedup_high),
            percent(row.acceptance_rate), number(row.acceptance_length), number(row.pass_cost),
        ]
        for row in sorted(slow, key=lambda row: row.speedup or 0.0)
    ]  # fmt: skip
    head = ["file", "what", "mode", "speed", "spread", "accepted", "tau", "cost of a pass"]
    measured = sum(row.speedup is not None and row.mode != "synthetic" for row in found)
    said = (
        f"{len(slow)} of {measured} rows are slower than plain decoding: fewer tokens a pass than it costs.\n"
    )
    return f"{said}\n{table(head, lines, words=3)}"


def _positions(found: Sequence[Row]) -> str:
    drafted = [row for row in found if row.accepted_at and row.parallel == 1]
    # One mode a file is enough: transcripts come first, and all drafters see the same text there.
    modes = {row.file: row.mode for row in reversed(drafted)}
    shown = [row for row in drafted if row.mode == modes[row.file]]
    if not shown:
        return "No drafts were made.\n"
    width = min(max(len(row.accepted_at) for row in shown), 8)
    lines = [
        [row.file, row.mode, task_name(row), row.label]
        + [percent(share, 1) for share in row.accepted_at[:width]]
        + [DASH] * (width - len(row.accepted_at))
        for row in shown
    ]
    said = f"Share of the drafts that were at least that long, the first {width} positions.\n"
    head = ["file", "mode", "task", "draft", *map(str, range(1, width + 1))]
    return f"{said}\n{table(head, lines, words=4)}"


def _costs(results: Results, found: Sequence[Row]) -> str:
    widths = sorted({n for file in results.files for n in file.cost_curve})
    curve = [
        [file.name, f"{file.pass_ms[1]:.2f} ms", *(number(file.cost_curve.get(n)) for n in widths)]
        for file in results.files
        if file.cost_curve
    ]
    limits = []
    for file in results.files:
        best, own = best_length(file.pass_ms), [r for r in found if r.file == file.name and r.outside_pass]
        of_floor = file.floor_ms / file.pass_ms[1] if file.floor_ms and file.pass_ms.get(1) else None
        limits.append(
            [
                file.name, file.file_type, size(file.bytes), DASH if best is None else str(best),
                f"{size(file.bandwidth)}/s" if file.bandwidth else DASH,
                f"{file.floor_ms:.2f} ms" if file.floor_ms else DASH, percent(of_floor),
                f"{size(file.kv_bytes_per_token)}", seconds(file.load_s),
                percent(max((r.outside_pass or 0.0 for r in own), default=None), 1),
            ]
        )  # fmt: skip
    head = [
        "file", "type", "size", "best length", "bandwidth", "floor of a pass", "floor of T(1)", "KV a token",
        "load", "outside the pass",
    ]  # fmt: skip
    said = (
        "T(n)/T(1) and, from it, the constant draft length that is best when every draft is right. The floor "
        "is what reading weights and cache takes at the bandwidth of copying. Outside the pass: drafting, "
        "sampling and the rest, in the row where their share is largest.\n"
    )
    tables = [table(["file", "T(1)", *map(str, widths)], curve), table(head, limits, words=2)]
    return "\n".join([said, *filter(None, tables)])


def _together(found: Sequence[Row]) -> str:
    shown = [row for row in found if row.parallel > 1]
    lines = [
        [
            row.file, task_name(row), row.label, str(row.parallel), rate(row.baseline_tokens_per_second),
            rate(row.tokens_per_second), times(row.speedup), between(row.speedup_low, row.speedup_high),
            percent(row.acceptance_rate), marks(row),
        ]
        for row in shown
        if row.prompts
    ]  # fmt: skip
    head = ["file", "task", "draft", "at once", "plain tok/s", "tok/s", "speed", "spread", "accepted", ""]
    return "\n".join(part for part in [table(head, lines, words=3), _notes(shown)] if part)


def _peers(results: Results) -> str:
    found = peer_rows(results)
    if not found:
        return ""
    about = (
        "In the same rounds as localspec's plain decoding. **vs ours**: over localspec's plain decoding; "
        "**vs own**: over the program's own; **same**: texts equal to its own plain ones.\n"
    )
    parts = [about]
    for file, group in groupby(found, key=lambda row: row.file):
        peers = list(group)
        lines = [
            [
                row.task, row.name, row.config, row.memory, rate(row.tokens_per_second), times(row.relative),
                between(row.relative_low, row.relative_high), times(row.speedup),
                percent(row.acceptance_rate), same(row.identical_count, row.compared),
            ]
            for row in peers
            if row.prompts
        ]  # fmt: skip
        head = [
            "task", "program", "settings", "memory", "tok/s", "vs ours", "spread", "vs own", "accepted",
            "same",
        ]  # fmt: skip
        parts += [f"### {escaped(file)}\n", table(head, lines, words=4), bullets(_peer_notes(peers))]
        ahead = [winner.statement for winner in winners(results) if winner.file == file]
        if ahead:
            parts += [
                "Fastest on each task, both against our plain decoding:\n",
                bullets(map(escaped, ahead)),
            ]
    return "\n".join(part for part in parts if part)


def _peer_notes(found: Sequence[PeerRow]) -> list[str]:
    said = grouped_notes(
        (f"{clean(row.task)}, {clean(row.name)} {clean(row.config)}", row.note) for row in found
    )
    return [escaped(line) for line in said]


def _identity(results: Results) -> str:
    lines = [
        [
            one.file,
            " ".join(
                [short_draft(one.draft), *([str(one.length)] if one.length else [])]
                + ([] if one.memory == "cold" else [one.memory])
            ),
            same(one.same, one.compared), one.by_task,
            ", ".join(
                f"{prompt}: token {d.index}, margin {DASH if d.margin is None else format(d.margin, '.3f')}"
                for prompt, d in one.divergences
            )
            or DASH,
        ]
        for one in identities(results)
    ]  # fmt: skip
    if not lines:
        return ""
    said = (
        "Up to six copies and six chains, greedy, as users run them. A reply may leave the plain one where "
        "two tokens are nearly equal, because a pass over several tokens rounds otherwise than one over one; "
        "the margin is by how much plain decoding preferred its own token there.\n"
    )
    return f"{said}\n{table(['file', 'draft', 'equal', 'by task', 'differences'], lines, words=5)}"


def _startup(results: Results) -> str:
    lines = [
        [
            one.file, short_draft(one.draft), seconds(one.load_s), seconds(one.first_token_s),
            number(one.context_tokens, 0), size(one.resident_bytes), size(one.device_bytes),
            size(one.draft_bytes),
        ]
        for one in results.startup
    ]  # fmt: skip
    if not lines:
        return ""
    head = ["file", "draft", "load", "first token", "KV tokens", "memory", "GPU memory", "draft model"]
    notes = grouped_notes((f"{one.file}, {short_draft(one.draft)}", one.note) for one in results.startup)
    said = (
        "From a fresh engine process: medians until it is loaded and until the first token, and its memory.\n"
    )
    return f"{said}\n{table(head, lines, words=2)}{bullets(map(escaped, notes))}"
