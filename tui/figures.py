"""Numbers as people read them; a figure that was not measured is a dash."""

from __future__ import annotations

DASH = "–"

_BLOCKS = "▁▂▃▄▅▆▇█"


def rate(value: float | None) -> str:
    """Tokens per second, three digits at most."""
    if value is None:
        return DASH
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def estimate(value: float) -> str:
    """Tokens per second that are expected, not measured."""
    return f"~{value:.0f}" if value >= 9.95 else f"~{value:.1f}"


def percent(value: float | None) -> str:
    """A share of 1."""
    return DASH if value is None else f"{value * 100:.0f} %"


def times(value: float | None) -> str:
    """A factor."""
    return DASH if value is None else f"{value:.2f}×"


def decimal(value: float | None) -> str:
    """A small number, such as an acceptance length."""
    return DASH if value is None else f"{value:.2f}"


def milliseconds(value: float | None) -> str:
    """Milliseconds without the unit."""
    if value is None:
        return DASH
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def count(value: int | None) -> str:
    """A number of tokens: 812, 3.1k, 128k."""
    if value is None:
        return DASH
    if value < 1000:
        return str(value)
    if value < 99_950:
        return f"{value / 1000:.1f}k"
    return f"{value / 1000:.0f}k"


def parameters(value: int) -> str:
    """A number of weights: 135M, 1.7B, 12B."""
    if value < 999_500_000:
        return f"{value / 1e6:.0f}M"
    return f"{value / 1e9:.1f}B" if value < 9_950_000_000 else f"{value / 1e9:.0f}B"


def size(value: float | None) -> str:
    """A number of bytes."""
    if value is None:
        return DASH
    if value < 1 << 30:
        return f"{value / (1 << 20):.0f} MiB"
    return f"{value / (1 << 30):.1f} GiB"


def sizes(used: float | None, total: float | None) -> str:
    """One number of bytes of another, both in the unit of the whole, so that the width hardly changes."""
    if used is None or total is None:
        return DASH
    if total < 1 << 30:
        return f"{used / (1 << 20):.0f} / {total / (1 << 20):.0f} MiB"
    decimals = 1 if total < 100 << 30 else 0
    return f"{used / (1 << 30):.{decimals}f} / {total / (1 << 30):.{decimals}f} GiB"


def duration(seconds: float) -> str:
    """A waiting time: 12 s, 3 min, 1.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def middle(text: str, width: int) -> str:
    """`text` with its middle left out where it is wider: names of model files differ at the end."""
    if len(text) <= width:
        return text
    end = (width - 1) // 2
    return f"{text[: width - 1 - end]}…{text[len(text) - end :]}"


def bar(fraction: float, width: int) -> tuple[str, str]:
    """Filled and empty part of a bar of `width` cells, exact to half a cell."""
    halves = round(min(max(fraction, 0.0), 1.0) * width * 2)
    filled = "━" * (halves // 2) + "╸" * (halves % 2)
    return filled, "─" * (width - len(filled))


def sparkline(values: list[float], width: int) -> str:
    """The last `width` values as a row of blocks, scaled from zero to the highest."""
    shown = values[-width:]
    top = max(shown, default=0.0)
    if top <= 0:
        return ""
    return "".join(_BLOCKS[min(int(value / top * len(_BLOCKS)), len(_BLOCKS) - 1)] for value in shown)
