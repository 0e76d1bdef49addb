"""What a comparison says, in words and figures. No widgets here."""

from __future__ import annotations

import re
import textwrap

from localspec.drafters import models_of
from localspec.messages import TokenLogprobs
from localspec.model_files import draft_label, short_draft_label
from localspec.verify import is_exact
from tui import figures
from tui.chat import Chat
from tui.compare import LIMIT, Comparison, Stage
from tui.compare_runs import NAMES, SIDES, Contender
from tui.keymap import KEYS
from tui.widgets.rows import Row, cut, row_width, spread

CONTEXT = 24
"""Characters that are shown of what both said before they part."""

SAME_SPEED = 0.03
"""Ratios closer to 1 than this are called equal."""


def contender_name(contender: Contender, longest: int = 60) -> str:
    """A way to make replies: "suffix · length 8 · rejection"."""
    draft = contender.draft
    model = [contender.model.name] if contender.model else []
    if draft.spec == "none":
        return " · ".join([*model, "without drafts"])
    label = draft_label(draft.spec)
    parts = [*model, label if len(label) <= longest else short_draft_label(draft.spec, longest)]
    if draft.policy.partition(":")[0] == "fixed":
        parts.append(f"length {draft.length}")
    elif draft.length is not None:
        parts.append(f"up to {draft.length}")
    if contender.verify != "coupled":
        parts.append(contender.verify if is_exact(contender.verify) else f"{contender.verify}, lossy")
    return " · ".join(parts)


def title_row(comparison: Comparison, chat: Chat, width: int) -> Row:
    """What is compared with which, and how replies are drawn."""
    sampling = chat.setup.sampling
    asked = comparison.request
    facts = [f"seed {asked.sampling.seed}"] if asked is not None else []
    facts.append("greedy" if sampling.temperature == 0 else f"temperature {sampling.temperature:g}")
    facts.append(f"at most {chat.requests.max_tokens or LIMIT} tokens")
    left: Row = [("localspec", "accent"), ("  A/B  ", "title"), (chat.setup.name, "value")]
    right: Row = [(" · ".join(facts), "muted")]
    if row_width(left) + row_width(right) + 2 > width:
        right = [(facts[0], "muted")]
    return spread(left, right, width)


def head_row(comparison: Comparison, side: int, width: int) -> Row:
    """The name of a side's way, and how fast it is."""
    run, rate = comparison.latest(side), comparison.rate(side)
    right: Row = []
    at_work = comparison.stage is Stage.RUNNING and not comparison.loading
    if at_work and run is comparison.runs[-1]:
        reading = not run.tally.steps
        words = "reading" if reading else f"{figures.rate(run.tally.tokens_per_second)} tok/s"
        right = [("▸ ", "good"), (words, "value")]
    elif rate is not None:
        median = "median " if len(comparison.ratios) > 1 else ""
        right = [(median, "muted"), (f"{figures.rate(rate)} tok/s", "value")]
    elif comparison.running and run is None:
        right = [("comes next", "muted")]
    room = max(width - row_width(right) - 5, 8)
    name = contender_name(comparison.contenders[side], room)
    left = cut([(f"{NAMES[side]}  ", "key"), (name, "value")], max(width - row_width(right) - 1, 8))
    return spread(left, right, width)


def verdict_rows(comparison: Comparison, width: int, height: int) -> list[Row]:
    """What the comparison has shown, the most important first, in at most `height` rows."""
    rows: list[Row] = []
    for text, style in _sentences(comparison):
        # A figure and its unit stay on one line.
        kept = text.replace(" tok/s", "\N{NO-BREAK SPACE}tok/s")
        lines = textwrap.wrap(kept, max(width, 20))
        if rows and len(rows) + len(lines) > height:
            # No sentence is cut in the middle.
            break
        rows += [[(line, style)] for line in lines]
    return rows[:height]


def _sentences(comparison: Comparison) -> list[tuple[str, str]]:
    trouble = [(comparison.trouble, "bad")] if comparison.trouble else []
    match comparison.stage:
        case Stage.IDLE:
            return [
                (
                    "enter answers the message both ways, one after the other, with the same seed.",
                    "value",
                ),
                ("The chat stays as it is: nothing of this is added to it, or drafted from later.", "muted"),
            ]
        case Stage.RUNNING:
            at_work = f"{NAMES[comparison.runs[-1].side]} is at work." if comparison.runs else ""
            if comparison.loading:
                at_work = f"Loading {comparison.loading}…"
            words = "Stopping…" if comparison.stopping else f"Round {comparison.rounds}: {at_work}"
            return [(words, "muted"), *_result(comparison)]
        case Stage.RETURNING:
            return [
                *trouble,
                *_result(comparison),
                (f"Loading {comparison.loading} again, for the chat…", "muted"),
            ]
        case Stage.WEIGHING:
            return [*_result(comparison), ("Measuring how far apart the two tokens are…", "muted")]
        case Stage.STOPPED:
            return [*trouble, ("Stopped before both ways were through. enter begins anew.", "muted")]
        case Stage.FAILED:
            return [*trouble, ("enter begins anew.", "muted")]
        case Stage.DONE:
            return [*trouble, *_result(comparison), *_reading_matter(comparison)]


def _result(comparison: Comparison) -> list[tuple[str, str]]:
    """Speed and text, once a round is whole."""
    if comparison.identical is None:
        return []
    return [_speed(comparison), *_text(comparison)]


def _speed(comparison: Comparison) -> tuple[str, str]:
    ratio = comparison.ratio
    rates = [figures.rate(comparison.rate(side)) for side in SIDES]
    if ratio is None:
        return f"Speed {figures.DASH}: there were no tokens to measure.", "muted"
    figure = f"{rates[1]} against {rates[0]} tok/s"
    ratios = comparison.ratios
    low, high = figures.times(min(ratios)), figures.times(max(ratios))
    if min(ratios) < 1 - SAME_SPEED and max(ratios) > 1 + SAME_SPEED:
        return f"The rounds do not agree on which is faster ({low} to {high} for B): {figure}.", "warning"
    if abs(ratio - 1) < SAME_SPEED:
        words, style = f"A and B are equally fast, {figures.times(ratio)}: {figure}", "value"
    elif ratio > 1:
        words, style = f"B is {figures.times(ratio)} as fast as A: {figure}", "good"
    else:
        words, style = f"B is slower, {figures.times(ratio)} the speed of A: {figure}", "warning"
    if len(ratios) > 1:
        words += f", medians of {len(ratios)} rounds ({low} to {high})"
    return f"{words}.", style


def _text(comparison: Comparison) -> list[tuple[str, str]]:
    runs = [run for run in map(comparison.latest, SIDES) if run is not None]
    if not comparison.same_model:
        return [("Two models: each says its own, so only the speeds compare.", "muted")]
    if comparison.identical:
        return [(f"Same text: all {len(runs[0].token_ids)} tokens are identical.", "good")]
    parting, promise = comparison.parting, comparison.promise
    if parting is None:
        return [("The texts differ.", "warning")]
    where = f"The texts part at token {parting.index + 1}"
    shared = _shared(runs[0].text, runs[-1].text)
    if shared:
        where += f", after “…{_shown(shared)}”"
    if parting.ended:
        where += f", where {parting.ended} ends"
    elif parting.scores:
        one, other = parting.scores
        where += f": {_said('A', one)}, {_said('B', other)}; {abs(one.logprob - other.logprob):.2f} apart"
        if parting.margin is not None and comparison.draws:
            where += f", {parting.margin:+.2f} with this seed's noise"
    else:
        where += f"; how far apart: {figures.DASH}"
    return [(f"{where}.", "value" if promise == "distribution" else "warning"), (_WHY[promise], "muted")]


_WHY = {
    "text": "Rounding decides between near-ties; `localspec audit` measures how far it reaches.",
    "distribution": "Rejection keeps the distribution, not the text of a seed.",
    "lossy": "A lossy rule may say something else.",
}


def _said(name: str, scored: TokenLogprobs) -> str:
    return f"{name} “{_shown(scored.text) or 'nothing'}” {scored.logprob:.2f}"


def _shared(one: str, other: str) -> str:
    """The last words that both texts begin with."""
    length = min(len(one), len(other))
    end = next((place for place in range(length) if one[place] != other[place]), length)
    shared = one[max(end - CONTEXT, 0) : end]
    # From the beginning of a word.
    return (shared if end <= CONTEXT else shared.partition(" ")[2] or shared).lstrip()


def _shown(text: str) -> str:
    """A piece of text whose blanks and line ends can be seen."""
    shown = re.sub(r"\n+", "⏎", text)
    return shown if text.strip() else shown.replace(" ", "␣")


def _reading_matter(comparison: Comparison) -> list[tuple[str, str]]:
    """What is to be known for reading the figures."""
    first = comparison.runs[0]
    notes: list[tuple[str, str]] = []
    for side in SIDES:
        run = comparison.latest(side)
        spec = comparison.contenders[side].draft.spec
        if run and models_of(spec):
            # Its cache is for one text at a time, so it begins anew each time.
            read = f"{NAMES[side]}'s draft model reads the prompt too; {run.prompt_s:.2f} s, not counted."
            notes.append((read, "muted"))
        if run and not run.tally.drafted and spec != "none":
            never = f"{NAMES[side]} drafted nothing: it had nothing to guess from, or guesses would not pay."
            notes.append((never, "warning"))
    prompt = first.prompt
    if prompt is not None:
        what = f"the prompt ({figures.count(prompt.total)} tokens) was read before it"
        if comparison.same_model and prompt.total - prompt.cached > 1:
            what += f", once, for {NAMES[first.side]}"
        notes.append((f"Speed is that of writing: {what}.", "muted"))
    if comparison.guests.loads:
        took = figures.duration(comparison.guests.seconds)
        notes.append((f"Models were loaded {comparison.guests.loads} times for it, {took} in all.", "muted"))
    if comparison.rounds == 1:
        notes.append(
            (f"One round is a glimpse; {KEYS['compare.again']} adds one in the other order.", "muted")
        )
    return notes
