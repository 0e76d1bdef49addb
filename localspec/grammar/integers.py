"""Integers between two bounds, as alternatives of a grammar."""

from __future__ import annotations

_MOST_DIGITS = 15
"""Digits of a number without a bound: exact in every reader of JSON."""


def integers_between(low: int | None, high: int | None) -> list[str]:
    """Alternatives that match the decimal integers from `low` to `high`, both included; none where empty.

    Args:
        low: the smallest; None for any, of 15 digits at most.
        high: the largest; None likewise.
    """
    far = 10**_MOST_DIGITS - 1
    low = min(-far, high if high is not None else 0) if low is None else low
    high = max(far, low) if high is None else high
    negative = [f'"-" {item}' for item in _unsigned(max(1, -high), -low)] if low < 0 else []
    return negative + (_unsigned(max(0, low), high) if high >= 0 else [])


def _unsigned(low: int, high: int) -> list[str]:
    """The same for 0 <= low; zero has one digit, and nothing begins with a zero otherwise."""
    found: list[str] = []
    while low <= high:
        # As far as numbers have as many digits as `low`.
        end = min(high, 10 ** len(str(low)) - 1)
        found += _same_length(str(low), str(end))
        low = end + 1
    return found


def _same_length(low: str, high: str) -> list[str]:
    """Numbers of as many digits as both bounds have."""
    size = len(low)
    if low == high:
        return [f'"{low}"']
    if low == "0" * size and high == "9" * size:
        return ["[0-9]" if size == 1 else f"[0-9]{{{size}}}"]
    if size == 1:
        return [f"[{low}-{high}]"]
    if low[0] == high[0]:
        return [f'"{low[0]}" {rest}' for rest in _same_length(low[1:], high[1:])]
    first, last = int(low[0]), int(high[0])
    before: list[str] = []
    after: list[str] = []
    if low[1:] != "0" * (size - 1):
        before = [f'"{first}" {rest}' for rest in _same_length(low[1:], "9" * (size - 1))]
        first += 1
    if high[1:] != "9" * (size - 1):
        after = [f'"{last}" {rest}' for rest in _same_length("0" * (size - 1), high[1:])]
        last -= 1
    middle = []
    if first <= last:
        digit = f'"{first}"' if first == last else f"[{first}-{last}]"
        middle = [f"{digit} {rest}" for rest in _same_length("0" * (size - 1), "9" * (size - 1))]
    return before + middle + after
