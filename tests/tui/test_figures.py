"""Figures, and the panel as a fold over the engine's events."""

from __future__ import annotations

from dataclasses import replace

import pytest

from localspec.messages import DeviceMemory, Loaded, MemoryChanged, PrefillProgress, SpeculationChanged
from tests.tui.scripted import INFO, MEMORY, ScriptedEngine
from tui import figures
from tui.conversation import Message, title_of
from tui.screens.history import age
from tui.state import PLAIN_STEPS, LiveState, Phase
from tui.widgets.bars import model_words
from tui.widgets.entries import footer
from tui.widgets.panel import line_row, panel_rows
from tui.widgets.rows import Row, cut, row_width, spread


def texts(rows: list[Row]) -> list[str]:
    return ["".join(text for text, _ in row).rstrip() for row in rows]


def played(*steps: tuple[int, int], ms: float = 10.0) -> LiveState:
    """A state that has seen steps of (drafted, accepted)."""
    from localspec.messages import Generate

    state = LiveState(speculation=True, draft="ngram")
    engine = ScriptedEngine()
    engine.start()
    engine.loaded()
    engine.send(Generate(1))
    for drafted, accepted in steps:
        engine.step("x", drafted=drafted, accepted=accepted, ms=ms)
    for event in engine.drain():
        state.apply(event)
    return state


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (figures.rate(None), "–"),
        (figures.rate(61.44), "61.4"),
        (figures.rate(131.2), "131"),
        (figures.percent(0.714), "71 %"),
        (figures.times(1.806), "1.81×"),
        (figures.milliseconds(0.123), "0.12"),
        (figures.count(812), "812"),
        (figures.count(3100), "3.1k"),
        (figures.count(131072), "131k"),
        (figures.size(212 << 20), "212 MiB"),
        (figures.sizes(3 << 30, 16 << 30), "3.0 / 16.0 GiB"),
        (figures.sizes(300 << 20, 16 << 30), "0.3 / 16.0 GiB"),
        (figures.sizes(3 << 20, 16 << 20), "3 / 16 MiB"),
        (figures.sizes(300 << 30, 2000 << 30), "300 / 2000 GiB"),
        (figures.duration(300), "5 min"),
        (figures.sparkline([0.0, 50.0, 100.0], 10), "▁▅█"),
        (figures.sparkline([], 10), ""),
        ("".join(figures.bar(0.5, 5)), "━━╸──"),
        ("".join(figures.bar(7.0, 3)), "━━━"),
    ],
)
def test_numbers_as_people_read_them(shown: str, expected: str) -> None:
    assert shown == expected


def test_nothing_measured_is_a_dash_everywhere() -> None:
    state = LiveState(speculation=True, draft="ngram")
    rows = texts(panel_rows(state, 31, 36))
    assert rows[0] == "SPEED" + " " * 19 + "– tok/s"
    assert not any(character.isdigit() for row in rows for character in row.removeprefix(row[:3]))
    assert "–" in texts([line_row(state, 76)])[0]


def test_the_panel_shows_what_the_steps_add_up_to() -> None:
    state = played((4, 4), (4, 2), (0, 0), (2, 0))
    rows = texts(panel_rows(state, 31, 36))
    assert state.phase is Phase.WRITING
    assert any(row.startswith("accepted") and row.endswith("60 %") for row in rows)
    assert any(row.startswith("tokens per pass") and row.endswith("2.50") for row in rows)
    bars = [row for row in rows if row.strip()[:2] in ("1 ", "2 ", "3 ", "4 ", "5 ")]
    assert [row.split()[-2:] for row in bars[:4]] == [["67", "%"], ["67", "%"], ["50", "%"], ["50", "%"]]
    assert bars[4].endswith("–")
    assert any(row.startswith("TIME PER TOKEN") and row.endswith("4.0 ms") for row in rows)
    assert any(row.startswith("RAM") and row.endswith("3.0 / 16.0 GiB") for row in rows)
    assert any("212 MiB (psutil)" in row for row in rows)


def test_the_panel_plots_the_draft_length_over_time() -> None:
    state = played(*[(8, 4)] * 25, *[(0, 0)] * 25, *[(4, 4)] * 25)
    assert list(state.lengths) == [8.0, 0.0, 4.0]
    assert state.draft_length == 4.0
    assert "length █▁▅" + " " * 17 + "4.00" in texts(panel_rows(state, 31, 36))
    state.begin_reply()
    assert (len(state.lengths), state.phase) == (3, Phase.WRITING)


def test_a_lossy_rule_is_marked_in_the_panel_and_under_replies() -> None:
    state = played((4, 2))
    assert "lossy" not in "".join(texts(panel_rows(state, 31, 36)))
    state.apply(Loaded(replace(INFO, verify="typical", exact=False), 1.0, MEMORY))
    assert any(
        row.startswith("rule") and row.endswith("typical · lossy") for row in texts(panel_rows(state, 31, 36))
    )
    stats = {"generated_tokens": 3, "verify": "typical", "exact": False}
    assert footer(Message("assistant", "text", stats=stats)) == "3 tokens · lossy (typical)"


def test_a_model_is_named_with_its_own_size() -> None:
    counted = replace(INFO, description="llama 256M Q4_K - Medium", parameters=134_515_008)
    assert model_words(counted) == "llama 135M Q4_K - Medium"
    assert figures.parameters(999_600_000) == "1.0B"
    assert figures.parameters(8_190_735_360) == "8.2B"
    assert figures.parameters(70_553_706_496) == "71B"


def test_the_base_rate_is_measured_on_steps_without_a_draft() -> None:
    state = played(*[(0, 0)] * (PLAIN_STEPS - 1))
    assert state.base_rate is None
    state = played(*[(0, 0)] * PLAIN_STEPS, *[(3, 3)] * PLAIN_STEPS)
    assert state.base_rate == pytest.approx(100)
    assert state.speedup == pytest.approx(2.5)


def test_a_base_rate_is_of_its_own_reply() -> None:
    state = played(*[(0, 0)] * PLAIN_STEPS, (3, 3))
    assert state.speedup is not None
    state.begin_reply()
    assert (state.base_rate, state.speedup) == (None, None)


@pytest.mark.parametrize("height", range(12, 40))
def test_the_panel_fits_any_height_and_keeps_its_sections(height: int) -> None:
    state = played((4, 2))
    state.reason = "acceptance 22 %, break-even 38 %: speculation is off for now"
    rows = panel_rows(state, 31, height)
    assert len(rows) <= height
    assert max(row_width(row) for row in rows) <= 31
    shown = "\n".join(texts(rows))
    assert "SPEED" in shown
    assert "SPECULATION" in shown
    if height >= 19:
        assert all(word in shown for word in ("TIME PER TOKEN", "CONTEXT", "RAM"))
    if height >= 36:
        assert "break-even" in shown
        assert " 8 " in shown


@pytest.mark.parametrize("width", [40, 60, 80, 99])
def test_the_line_leaves_out_what_does_not_fit(width: int) -> None:
    row = line_row(played((4, 2)), width)
    assert row_width(row) <= width
    assert "tok/s" in texts([row])[0]


def test_graphics_memory_is_shown_with_its_source() -> None:
    state = played((4, 2))
    gpu = DeviceMemory("H200", "gpu", 6 << 30, 8 << 30, "ggml")
    state.apply(MemoryChanged(replace(MEMORY, devices=(gpu,))))
    rows = texts(panel_rows(state, 31, 36))
    assert any(row.startswith("VRAM H200") and row.endswith("6.0 / 8.0 GiB") for row in rows)
    assert "measured by ggml" in rows
    assert "VRAM 6.0 / 8.0 GiB" in texts([line_row(state, 99)])[0]


def test_the_state_follows_the_engine() -> None:
    state = LiveState(speculation=True, draft="ngram")
    assert (state.phase, state.speculating) == (Phase.STARTING, None)
    state.apply(Loaded(replace(INFO, gpu_layers=30), 1.0, MEMORY))
    assert (state.phase, state.on_gpu, state.speculating) == (Phase.READY, True, True)
    state.apply(PrefillProgress(1, 40, 100, 20, 0.1))
    assert (state.phase, state.context_used) == (Phase.PREFILL, 40)
    state.apply(SpeculationChanged(False, "ngram", "does not pay"))
    assert (state.speculating, state.reason) == (False, "does not pay")


def test_the_sparkline_has_a_point_each_quarter_second_of_the_engine() -> None:
    state = played(*[(0, 0)] * 200, ms=10.0)
    assert len(state.rates) == 8
    assert all(rate == pytest.approx(100, rel=0.1) for rate in state.rates)


def test_rows_are_cut_by_cells() -> None:
    assert texts([cut([("日本語", ""), ("text", "")], 5)]) == ["日本…"]
    assert row_width(cut([("日本語", ""), ("text", "")], 4)) <= 4
    assert texts([spread([("a long left side", "")], [("right", "")], 12)]) == ["a lon… right"]


def test_footers_say_what_was_measured_and_why_it_ended() -> None:
    stats = {
        "tokens_per_second": 61.4,
        "generated_tokens": 284,
        "acceptance_rate": 0.71,
        "acceptance_length": 3.84,
        "finish_reason": "length",
    }
    message = Message("assistant", "text", stats=stats)
    assert footer(message) == (
        "61.4 tok/s · 284 tokens · 71 % accepted · 3.84 per pass · length limit reached"
    )
    assert footer(replace(message, status="cancelled")).endswith("· stopped")
    assert footer(Message("assistant", "", "failed")) == "not finished"


def test_titles_and_ages() -> None:
    assert title_of("  several\n words ") == "several words"
    assert len(title_of("word " * 40)) <= 60
    assert age(1000.0, 1030.0) == "just now"
    assert age(0.0, 3600.0) == "1 hour ago"
    assert age(0.0, 86400.0 * 3) == "3 days ago"
