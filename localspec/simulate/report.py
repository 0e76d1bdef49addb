"""A simulation's results: a table for people, a document for programs. The best drafter comes first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from localspec.bench.report.wording import DASH, number, percent, times
from localspec.control import DEFAULT_POLICY
from localspec.simulate.costs import PassCost
from localspec.simulate.figures import Figures, Ideal, Matches, figures, widest_pass
from localspec.simulate.inputs import Recording
from localspec.simulate.replay import Simulated
from localspec.simulate.study import FIXED, NO_DRAFTS, Outcome
from localspec.stats.metrics import Tally
from localspec.text import printable
from localspec.types import DraftOptions

FORMAT = 1
DETAILED = 8
"""Drafters of which positions and match lengths are printed; the JSON has all."""
_POSITIONS = 8


@dataclass(frozen=True, slots=True)
class Line:
    """One drafter: what was run, and its figures over all replies and for each."""

    outcome: Outcome
    figures: Figures
    replies: tuple[Figures, ...]

    @property
    def label(self) -> str:
        """The drafter in short: "ngram 8, match 2-3, first"."""
        return label(self.outcome.options)


@dataclass(frozen=True, slots=True)
class Report:
    """A whole simulation, the best drafter first.

    Attributes:
        notes: sentences about what was left out.
    """

    cost: PassCost
    recordings: tuple[Recording, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()


def report(
    outcomes: Sequence[Outcome], recordings: Sequence[Recording], cost: PassCost, notes: Sequence[str] = ()
) -> Report:
    """Figures of `outcomes`, each of which has a reply for every one of `recordings`."""
    curve, timed = cost.seconds, cost.token_ms is not None
    ideal = Ideal(curve, max(len(each.reply) for each in recordings), widest_pass(outcomes, curve))

    def of(outcome: Outcome, replies: tuple[Simulated, ...]) -> Figures:
        return figures(Outcome(outcome.options, outcome.remembered, replies), curve, ideal, timed=timed)

    lines = [
        Line(outcome, of(outcome, outcome.replies), tuple(of(outcome, (reply,)) for reply in outcome.replies))
        for outcome in outcomes
    ]
    lines.sort(key=lambda line: line.figures.predicted, reverse=True)
    return Report(cost, tuple(recordings), tuple(lines), tuple(notes))


def label(options: DraftOptions) -> str:
    """A drafter and what differs from its usual settings."""
    usual = DraftOptions()
    parts = [options.spec]
    if options.spec != NO_DRAFTS:
        parts[0] += f" {_length(options)}"
    if options.leaves > 1:
        parts.append(f"{options.leaves} branches")
    if (options.ngram_min, options.ngram_max) != (usual.ngram_min, usual.ngram_max):
        parts.append(f"match {options.ngram_min}-{options.ngram_max}")
    if options.ngram_pick != usual.ngram_pick:
        parts.append(options.ngram_pick)
    if options.ngram_min_hits > 1:
        parts.append(f"{options.ngram_min_hits} hits")
    return ", ".join(parts)


def _length(options: DraftOptions) -> str:
    """The fixed length, or the policy that chooses: "8", "auto", "ema"."""
    if options.policy == FIXED and options.length:
        return str(options.length)
    return "auto" if options.policy == DEFAULT_POLICY else options.policy


def headline(found: Report) -> str:
    """The result in a sentence."""
    drafting = [line for line in found.lines if line.outcome.options.spec != NO_DRAFTS]
    if not drafting:
        return f"Nothing drafts here; the best possible is {times(found.lines[0].figures.best)}."
    best = drafting[0]
    speed, ideal = times(best.figures.predicted), times(best.figures.best)
    if best.figures.predicted > 1:
        return f"Best: {best.label}, {speed} plain decoding; the best possible is {ideal}."
    return (
        f"No drafter here is faster than plain decoding: {best.label} {speed}; the best possible is {ideal}."
    )


# --- for people


def print_report(found: Report, console: Console, *, per_reply: bool = False) -> None:
    """Print tables that fit 80 columns."""
    tokens = sum(len(each.reply) for each in found.recordings)
    said = f"{len(found.recordings)} replies" if len(found.recordings) != 1 else "1 reply"
    cost = found.cost.name if found.cost.token_ms is None else f"{found.cost.name}, {_ms(found.cost)}"
    console.print(Text(f"{said}, {tokens} {'token' if tokens == 1 else 'tokens'}; passes cost as: {cost}"))
    if found.cost.token_ms is None:
        console.print(Text("The drafter's own time is left out: --token-ms says what a token takes."))
    console.print()
    console.print(_main_table(found.lines))
    detailed = [line for line in found.lines if line.figures.tally.drafts][:DETAILED]
    if detailed:
        console.print()
        console.print(_positions_table(detailed))
        console.print()
        console.print(_matches_table(detailed))
        if any(line.figures.theory for line in detailed):
            console.print()
            console.print(_theory_table(detailed))
    if per_reply:
        for line in found.lines:
            console.print()
            console.print(Text(line.label, style="bold"))
            console.print(_replies_table(found.recordings, line))
    console.print()
    for note in found.notes:
        console.print(Text(printable(note)))
    console.print(Text(headline(found)))


def _ms(cost: PassCost) -> str:
    return f"{cost.token_ms:.3g} ms a token"


def _table(words: str, *numbers: str) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    table.add_column(words, overflow="fold", min_width=10)
    for title in numbers:
        table.add_column(title, justify="right", no_wrap=True)
    return table


def _main_table(lines: Sequence[Line]) -> Table:
    table = _table(
        "Draft", "speed", "free", "of best", "tau", "acc.", "alpha", "waste", "p50", "p90", "p99 us"
    )
    for line in lines:
        table.add_row(Text(line.label), *_cells(line.figures))
    return table


def _cells(of: Figures) -> list[str]:
    tally, calls = of.tally, of.propose
    spent = [number(each, 0) if calls.calls else DASH for each in (calls.p50, calls.p90, calls.p99)]
    return [
        times(of.predicted),
        times(of.speedup),
        percent(of.predicted / of.best),
        number(tally.acceptance_length),
        percent(tally.acceptance_rate),
        percent(tally.conditional_acceptance),
        number(of.wasted_per_token) if tally.drafts else DASH,
        *spent,
    ]


def _positions_table(lines: Sequence[Line]) -> Table:
    reached = max(len(line.figures.tally.drafted_at) for line in lines)
    shown = range(min(reached, _POSITIONS))
    table = _table("Accepted at", *(str(place + 1) for place in shown))
    for line in lines:
        rates = line.figures.tally.acceptance_at()
        table.add_row(Text(line.label), *(percent(rates[n]) if n < len(rates) else DASH for n in shown))
    return table


def _matches_table(lines: Sequence[Line]) -> Table:
    bins = sorted({(m.shortest, m.longest or 0) for line in lines for m in line.figures.matches})
    table = _table("Speed by match", *map(_bin, bins))
    for line in lines:
        by_bin: dict[tuple[int, int], Matches] = {
            (m.shortest, m.longest or 0): m for m in line.figures.matches
        }
        table.add_row(
            Text(line.label), *(times(by_bin[place].speedup) if place in by_bin else DASH for place in bins)
        )
    return table


def _theory_table(lines: Sequence[Line]) -> Table:
    """A fixed length as theory has it, from alpha alone, beside the same as simulated."""
    table = _table("In theory", "alpha", "break-even", "tau", "theory", "speed", "theory", "best k")
    for line in lines:
        of, theory = line.figures, line.figures.theory
        if theory is not None:
            table.add_row(
                Text(line.label),
                percent(of.tally.conditional_acceptance),
                DASH if theory.break_even is None else percent(theory.break_even),
                number(of.tally.acceptance_length),
                number(theory.tau),
                times(of.predicted),
                times(theory.speedup),
                str(theory.best_length),
            )
    return table


def _bin(place: tuple[int, int]) -> str:
    shortest, longest = place
    if not shortest:
        return "none"
    if not longest:
        return f"{shortest}+"
    return str(shortest) if shortest == longest else f"{shortest}-{longest}"


def _replies_table(recordings: Sequence[Recording], line: Line) -> Table:
    table = _table("Reply", "tokens", "steps", "speed", "best", "tau", "acc.", "waste")
    for recording, of in zip(recordings, line.replies, strict=True):
        table.add_row(
            Text(printable(recording.name)),
            str(of.tally.emitted),
            str(of.tally.steps),
            times(of.predicted),
            times(of.best),
            number(of.tally.acceptance_length),
            percent(of.tally.acceptance_rate),
            number(of.wasted_per_token),
        )
    return table


# --- for programs


def document(found: Report) -> dict[str, Any]:
    """Everything as plain values; counters are raw, ratios beside them for convenience."""
    return {
        "format": FORMAT,
        "cost": {
            "name": found.cost.name,
            "token_ms": found.cost.token_ms,
            "ratios": {str(n): ratio for n, ratio in found.cost.ratios.points.items()},
        },
        "recordings": [
            {
                "name": each.name,
                "conversation": each.conversation,
                "prompt_tokens": len(each.prompt),
                "reply_tokens": len(each.reply),
            }
            for each in found.recordings
        ],
        "rows": [_row(line) for line in found.lines],
        "notes": list(found.notes),
    }


def _row(line: Line) -> dict[str, Any]:
    options = line.outcome.options
    is_ngram = options.spec == "ngram"
    return {
        "label": line.label,
        "draft": options.spec,
        "draft_length": options.length,
        "policy": None if options.spec == NO_DRAFTS else options.policy,
        "leaves": options.leaves,
        "ngram": {
            "min": options.ngram_min,
            "max": options.ngram_max,
            "pick": options.ngram_pick,
            "min_hits": options.ngram_min_hits,
        }
        if is_ngram
        else None,
        "memory": line.outcome.remembered,
        **_figures(line.figures),
        "per_reply": [_figures(each) for each in line.replies],
    }


def _figures(of: Figures) -> dict[str, Any]:
    return {
        "replies": of.replies,
        **_counts(of.tally),
        "wasted": of.wasted,
        "wasted_per_token": of.wasted_per_token,
        "draft_ms": of.tally.draft_ns * 1e-6,
        "verify_ms": of.tally.verify_ns * 1e-6 if of.speedup_drafting is not None else None,
        "begin_ms": {"sum": of.begin_ms[0], "max": of.begin_ms[1]},
        "propose_us": asdict(of.propose),
        "predicted_speedup": of.predicted,
        "speedup_without_drafting_time": of.speedup,
        "speedup_with_drafting_time": of.speedup_drafting,
        "best_possible": of.best,
        "theory": asdict(of.theory) if of.theory else None,
        "by_match_length": [asdict(each) for each in of.matches],
    }


def _counts(tally: Tally) -> dict[str, Any]:
    return {
        "tokens": tally.emitted,
        "steps": tally.steps,
        "drafts": tally.drafts,
        "drafted": tally.drafted,
        "accepted": tally.accepted,
        "reached": tally.reached,
        "drafted_at": tally.drafted_at,
        "accepted_at": tally.accepted_at,
        "tokens_per_pass": tally.acceptance_length,
        "acceptance_rate": tally.acceptance_rate,
        "conditional_acceptance": tally.conditional_acceptance,
        "acceptance_at": tally.acceptance_at(),
    }
