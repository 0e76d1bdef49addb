"""The app's own colours: calm, one accent, the same roles on dark and on light ground."""

from __future__ import annotations

import os

from textual.color import Color
from textual.theme import BUILTIN_THEMES, Theme

from localspec.errors import UsageError

DARK = Theme(
    name="localspec-dark",
    primary="#8fb6f5",
    secondary="#7fd1c0",
    accent="#c8a8f0",
    success="#9bcf8f",
    warning="#e3bf78",
    error="#ee8a8a",
    foreground="#d9dde5",
    background="#15171c",
    surface="#1b1e25",
    panel="#22262f",
    dark=True,
    variables={
        "border": "#4f6f9f",
        "border-blurred": "#333945",
        "muted": "#8a93a3",
        "faint": "#4b5362",
    },
)

LIGHT = Theme(
    name="localspec-light",
    primary="#2b5fb0",
    secondary="#0f7a6c",
    accent="#7a46b8",
    success="#3a7d2c",
    warning="#96660a",
    error="#b3332f",
    foreground="#23272e",
    background="#fcfcfa",
    surface="#f3f3f0",
    panel="#eaeae5",
    dark=False,
    variables={
        "border": "#7f9fd0",
        "border-blurred": "#d2d2cc",
        "muted": "#636a75",
        "faint": "#b9bcc2",
    },
)


def check_theme(name: str) -> None:
    """Raise `UsageError` for a theme that there is not."""
    known = sorted({*BUILTIN_THEMES, DARK.name, LIGHT.name})
    if name not in known:
        raise UsageError(f"There is no theme '{name}'; set ui.theme to one of: {', '.join(known)}.")


def greys(theme: Theme) -> dict[str, str]:
    """The app's own two colours for a theme that was not made for it: between its text and its ground."""
    if theme.ansi:
        # The terminal's own colours are not known, and cannot be mixed.
        return {"muted": "ansi_bright_black", "faint": "ansi_bright_black"}
    colors = theme.to_color_system().generate()
    text, ground = Color.parse(colors["foreground"]), Color.parse(colors["background"])
    return {"muted": text.blend(ground, 0.4).hex, "faint": text.blend(ground, 0.7).hex}


def preferred_theme() -> str:
    """The light theme where the terminal says that its ground is light, else the dark one."""
    # Set by rxvt, Konsole and others as "foreground;background" with ANSI colour numbers.
    ground = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    return LIGHT.name if ground in ("7", "15") else DARK.name
