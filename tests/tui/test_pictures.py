"""The pictures of the docs: drawn from a recorded chat, and what is to be seen on them."""

from __future__ import annotations

import html
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from localspec.recording import read_session

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("chat", "tokens", "compare")


@pytest.fixture(scope="module")
def screenshots() -> ModuleType:
    spec = importlib.util.spec_from_file_location("screenshots", ROOT / "scripts" / "screenshots.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def words_of(svg: str) -> str:
    """What can be read on a picture, row by row from the left, without the spaces."""
    rows: dict[float, list[tuple[float, str]]] = {}
    for x, y, text in re.findall(r'<text [^>]*?x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)</text>', svg):
        rows.setdefault(float(y), []).append((float(x), html.unescape(text).replace("\xa0", " ")))
    return "\n".join("".join(text for _, text in sorted(rows[y])) for y in sorted(rows)).replace(" ", "")


async def test_the_recorded_chat_is_drawn(screenshots: ModuleType) -> None:
    session = read_session(screenshots.RECORDING)
    pictures = await screenshots.draw(session)
    assert tuple(pictures) == NAMES
    question = screenshots.QUESTIONS[-1]
    wanted = {
        "chat": (
            question,
            "class BankAccount",
            "SPEED",
            "tok/s",
            "accepted",
            "per pass",
            "CONTEXT",
            "f3 A/B",
        ),
        "tokens": ("reply 2 of 2", "accepted", "bonus", "log-probability", "drafted by suffix"),
        "compare": (question, "without drafts", "suffix", "as fast as A", "tokens are identical"),
    }
    for name, texts in wanted.items():
        words = words_of(pictures[name])
        for text in texts:
            assert text.replace(" ", "") in words, f"{name}: {text}"
        assert "RECORDING" not in words


def test_the_pictures_are_there_and_load_nothing(screenshots: ModuleType) -> None:
    for name in NAMES:
        svg = (screenshots.PICTURES / f"{name}.svg").read_text(encoding="utf-8")
        assert len(svg) < 300_000
        assert not re.search(r"(src|href)=|url\(http|@import", svg)


def test_a_recording_is_small_and_says_nothing_of_its_machine(screenshots: ModuleType) -> None:
    text = screenshots.RECORDING.read_text(encoding="utf-8")
    assert len(text) < 300_000
    assert read_session(screenshots.RECORDING).load.path == "smollm2.gguf"
    assert "/" not in "".join(re.findall(r'"(?:path|name|memory)":"([^"]*)"', text))
