"""Values in files that others wrote: checked, and made fit to be kept."""

from __future__ import annotations

import re
import time
from typing import Any

_SURROGATES = re.compile("[\ud800-\udfff]")


class DamageError(Exception):
    """What is wrong with a file, in a few words."""


def clean(text: str) -> str:
    """Text that can be kept as UTF-8: half a character becomes U+FFFD."""
    return _SURROGATES.sub("\ufffd", text)


def word(data: dict[str, Any], key: str, where: str, *, needed: bool = False) -> str:
    """A text of an object, "" where there is none; raises `DamageError` for something else."""
    found = data.get(key)
    if found is None and not needed:
        return ""
    if not isinstance(found, str):
        raise DamageError(f"{where} has no {key}, or one that is no text")
    return clean(found)


def moment(value: Any) -> float:
    """A Unix time in seconds; now, where it is none."""
    usable = isinstance(value, int | float) and not isinstance(value, bool)
    # What calendars can show.
    if usable and 0 <= value < 253_402_300_800:
        return float(value)
    return time.time()


def text_of(content: Any) -> str:
    """What a message says: a text, or the texts among its parts; "" for anything else."""
    if isinstance(content, str):
        return clean(content)
    if isinstance(content, list):
        texts = [one.get("text") if isinstance(one, dict) else one for one in content]
        return clean("\n\n".join(text for text in texts if isinstance(text, str) and text))
    return ""
