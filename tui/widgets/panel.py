"""The live figures: a panel beside the transcript, or one line where there is no room for it."""

from __future__ import annotations

import textwrap

from localspec.messages import DeviceMemory, DraftModelInfo, MemoryUse
from localspec.model_files import draft_label, short_draft_label
from tui import figures
from tui.state import LiveState
from tui.widgets.rows import BLANK_ROW, Row, Rows, cut, row_width, spread

POSITIONS = 8
"""Draft positions that get a bar, where there is room."""


class LivePanel(Rows):
    """Every figure, under headings."""

    def update_from(self, state: LiveState) -> None:
        """Show the state's figures."""
        self.show(panel_rows(state, self.size.width, self.size.height))


class LiveLine(Rows):
    """The most important figures in one row."""

    def update_from(self, state: LiveState) -> None:
        """Show the state's figures."""
        self.show([line_row(state, self.size.width)])


_TALL = 30
"""Rows of a panel that has room for what is good to know."""


def panel_rows(state: LiveState, width: int, height: int) -> list[Row]:
    """Rows of the panel; sections shrink before one is lost."""
    speed = _speed(state, width)
    speculation = _speculation(state, width)
    times = _times(state, width)
    gauges = [*_context(state, width), BLANK_ROW, *_memory(state, width, whole=height >= _TALL)]
    advice = _advice(state, width)
    needed = len(speed) + len(speculation) + len(gauges) + 2
    if height - needed < len(times) + 6:
        times = _times_in_short(state, width)
    spare = height - needed - len(times) - 1
    # Why there are no drafts is worth more than bars of none.
    if spare >= len(advice) + (3 if state.speculating else 0):
        spare -= len(advice)
    else:
        advice = []
    positions = _positions(state, width)[: max(spare - 1, 0)]
    middle = [*speculation, *([BLANK_ROW, *positions] if positions else ())]
    sections = [speed, [*middle, *advice], times, gauges]
    rows: list[Row] = []
    for section in sections:
        if rows:
            rows.append(BLANK_ROW)
        rows += section
    return rows[:height]


def line_row(state: LiveState, width: int) -> Row:
    """One row: as many figures as fit, the most important first."""
    rate = figures.rate(state.rate)
    parts: list[Row] = [
        [(rate, "value"), (" tok/s", "muted")],
        [(figures.percent(state.reply.acceptance_rate), "value"), (" accepted", "muted")],
        [(figures.decimal(state.reply.acceptance_length), "value"), (" per pass", "muted")],
        [("context ", "muted"), (_context_text(state), "value")],
    ]
    if state.speculating is False and state.reason:
        parts.insert(3, [(f"off: {state.reason}", "muted")])
    memory = _headline_memory(state.memory)
    if memory is not None:
        name, used, total = memory
        parts.append([(f"{name} ", "muted"), (figures.sizes(used, total), "value")])
    row: list[tuple[str, str]] = []
    for part in parts:
        if row_width(row) + row_width(part) + 3 > width:
            break
        if row:
            row.append((" · ", "faint"))
        row += part
    room = width - row_width(row) - 2
    spark = figures.sparkline(list(state.rates), min(room, 16)) if room >= 8 else ""
    return spread(row, [(spark, "bar")], width) if spark else row


def speculation_words(state: LiveState) -> tuple[str, str]:
    """Whether speculation is on, in words, and the style of it."""
    if state.speculating is None or state.speculating != state.wanted:
        if state.info is None:
            return ("on" if state.wanted else "off"), "muted"
        if state.wanted and state.draft != "none":
            # Wanted and refused: the reason is shown beside it.
            return "off", "warning"
        return "off", "muted"
    return ("on", "good") if state.speculating else ("off", "muted")


def _heading(title: str, value: str, width: int, style: str = "value") -> Row:
    return spread([(title, "title")], [(value, style)], width)


def _speed(state: LiveState, width: int) -> list[Row]:
    rate: Row = [(figures.rate(state.rate), "value"), (" tok/s", "muted")]
    base: Row = [(figures.rate(state.base_rate), "value"), (" tok/s", "muted")]
    spark = figures.sparkline(list(state.rates), width)
    return [
        spread([("SPEED", "title")], rate, width),
        [(spark, "bar")],
        spread([("without drafts", "muted")], base, width),
        _pair("gain", figures.times(state.speedup), width),
    ]


def _speculation(state: LiveState, width: int) -> list[Row]:
    word, style = speculation_words(state)
    tally = state.reply
    title = "SPECULATION"
    room = max(width - len(f"{title}  {word} · "), 6)
    drafter = cut([(short_draft_label(state.draft, room), "muted")], room)
    return [
        spread([(title, "title")], [(word, style), (" · ", "muted"), *drafter], width),
        *(row for model in state.draft_models for row in _draft_model(model, width)),
        _pair("accepted", figures.percent(tally.acceptance_rate), width),
        _pair("tokens per pass", figures.decimal(tally.acceptance_length), width),
        _lengths(state, width),
        *_rule(state, width),
    ]


def _draft_model(model: DraftModelInfo, width: int) -> list[Row]:
    """A draft model's name and device, and whether its drafts have to be translated."""
    device = "CPU"
    if model.gpu_layers:
        some = f"{model.gpu_layers}/{model.layers} " if model.gpu_layers < model.layers else ""
        device = f"{some}{model.backend}"
    name = figures.middle(draft_label(model.name), max(width - len(device) - 2, 8))
    rows: list[Row] = [spread([(name, "muted")], [(device, "value")], width)]
    return [*rows, [("its drafts go through text", "muted")]] if model.through_text else rows


def _lengths(state: LiveState, width: int) -> Row:
    """The draft length, and its course over time."""
    label = "length "
    spark = figures.sparkline(list(state.lengths), max(width - len(label) - 6, 0))
    return spread([(label, "muted"), (spark, "bar")], [(figures.decimal(state.draft_length), "value")], width)


def _rule(state: LiveState, width: int) -> list[Row]:
    """The rule of verification, where replies under it are not the model's own."""
    if state.exact:
        return []
    return [spread([("rule", "muted")], [(f"{state.verify} · lossy", "warning")], width)]


def _positions(state: LiveState, width: int) -> list[Row]:
    rows: list[Row] = []
    shares = state.reply.acceptance_at()
    room = max(width - 10, 4)
    for index in range(POSITIONS):
        share = shares[index] if index < len(shares) else None
        filled, rest = figures.bar(share or 0.0, room)
        label = f"{index + 1:>2} "
        rows.append(
            [(label, "muted"), (filled, "bar"), (rest, "track"), (f"{figures.percent(share):>7}", "value")]
        )
    return rows


def _times(state: LiveState, width: int) -> list[Row]:
    tally = state.reply
    total = tally.seconds_per_token
    rows = [
        _heading(
            "TIME PER TOKEN", f"{figures.milliseconds(None if total is None else total * 1e3)} ms", width
        )
    ]
    room = max(width - 17, 4)
    for name, spent in (
        ("draft", tally.draft_ns),
        ("verify", tally.verify_ns),
        ("sample", tally.sample_ns),
        ("other", tally.other_ns),
    ):
        each = spent / tally.emitted / 1e6 if tally.emitted else None
        filled, rest = figures.bar(spent / tally.total_ns if tally.total_ns else 0.0, room)
        rows.append(
            [
                (f"{name:<8}", "muted"),
                (filled, "bar"),
                (rest, "track"),
                (f"{figures.milliseconds(each):>6} ms", "value"),
            ]
        )
    return rows


def _times_in_short(state: LiveState, width: int) -> list[Row]:
    tally = state.reply
    parts: list[tuple[str, str]] = []
    for name, spent in (
        ("draft", tally.draft_ns),
        ("verify", tally.verify_ns),
        ("rest", tally.sample_ns + tally.other_ns),
    ):
        each = f"{spent / tally.emitted / 1e6:.1f}" if tally.emitted else figures.DASH
        parts += [(f"{name} ", "muted"), (f"{each} ", "value")]
    return [_times(state, width)[0], cut(parts, width)]


def _context_text(state: LiveState) -> str:
    total = state.info.context if state.info else None
    return f"{figures.count(state.context_used)}/{figures.count(total)}"


def _context(state: LiveState, width: int) -> list[Row]:
    total = state.info.context if state.info else 0
    share = (state.context_used or 0) / total if total else 0.0
    filled, rest = figures.bar(share, width)
    style = "bad" if share >= 0.95 else "warning" if share >= 0.8 else "bar"
    return [_heading("CONTEXT", _context_text(state), width), [(filled, style), (rest, "track")]]


def _memory(state: LiveState, width: int, *, whole: bool) -> list[Row]:
    memory = state.memory
    planned = _planned(state, width) if whole else []
    gpus = _gpus(memory)
    if gpus:
        rows: list[Row] = []
        for gpu in gpus[:2]:
            filled, rest = figures.bar(gpu.used / gpu.total if gpu.total else 0.0, width)
            rows.append(
                spread(
                    [("VRAM", "title"), (f" {gpu.name}", "muted")],
                    [(figures.sizes(gpu.used, gpu.total), "value")],
                    width,
                )
            )
            rows.append([(filled, "bar"), (rest, "track")])
        rows.append([(f"measured by {gpus[0].source}", "muted")])
        return [*rows, *planned]
    used = memory.system_used if memory else None
    total = memory.system_total if memory else None
    share = used / total if used is not None and total else 0.0
    filled, rest = figures.bar(share, width)
    style = "bad" if share >= 0.95 else "warning" if share >= 0.9 else "bar"
    return [
        spread([("RAM", "title")], [(figures.sizes(used, total), "value")], width),
        [(filled, style), (rest, "track")],
        spread(
            [("engine", "muted")],
            [(figures.size(memory.engine_rss if memory else None), "value"), (" (psutil)", "muted")],
            width,
        ),
        *planned,
    ]


def _planned(state: LiveState, width: int) -> list[Row]:
    """What llama.cpp took for the models, beside what was expected of them before they were loaded."""
    if state.info is None:
        return []
    info, drafts = state.info, state.draft_models
    used = info.memory_used + sum(draft.memory_used for draft in drafts)
    expected = info.memory_estimated + sum(draft.memory_estimated for draft in drafts)
    if not used or not expected:
        return []
    what = "models" if drafts else "model"
    value = [(figures.sizes(used, expected), "value"), (" planned", "muted")]
    return [spread([(what, "muted")], value, width)]


def _advice(state: LiveState, width: int) -> list[Row]:
    if not state.reason:
        return []
    # A number and its percent sign stay on one line.
    reason = state.reason.replace(" %", "\N{NO-BREAK SPACE}%")
    lines = textwrap.wrap(reason, max(width, 10), max_lines=3, placeholder="…")
    return [BLANK_ROW, *([(line, "muted")] for line in lines)]


def _gpus(memory: MemoryUse | None) -> list[DeviceMemory]:
    return [device for device in memory.devices if device.kind == "gpu"] if memory else []


def _headline_memory(memory: MemoryUse | None) -> tuple[str, int, int] | None:
    gpus = _gpus(memory)
    if gpus:
        return "VRAM", gpus[0].used, gpus[0].total
    return ("RAM", memory.system_used, memory.system_total) if memory else None


def _pair(label: str, value: str, width: int) -> Row:
    return spread([(label, "muted")], [(value, "value")], width)
