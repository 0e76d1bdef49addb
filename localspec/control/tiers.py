"""Draft lengths among which a policy chooses."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.errors import UsageError


def fitting_tiers(tiers: Sequence[int], longest: int) -> tuple[int, ...]:
    """`tiers` in order without those beyond `longest`, which stands in where none is left to draft with."""
    fitting = sorted({tier for tier in tiers if tier <= longest})
    return tuple(fitting) if any(fitting) else (*fitting, longest)


def parse_tiers(policy: str, text: str, least: int = 0) -> tuple[int, ...]:
    """Lengths as typed behind a policy's name: "1,3,5,7", or "1/3/5/7" where commas part policies.

    Raises:
        UsageError: anything but numbers from `least` on, at least one above 0.
    """
    parts = [part.strip() for part in text.replace("/", ",").split(",")]
    if not all(part.isdecimal() and least <= int(part) <= 127 for part in parts) or not any(map(int, parts)):
        raise UsageError(
            f"The policy '{policy}' takes draft lengths from {least} to 127, as in {policy}:1,3,5,7; "
            f"'{text}' is no such list."
        )
    return tuple(sorted(set(map(int, parts))))
