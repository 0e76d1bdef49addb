"""Start-up of fresh engine processes: scripted ones for every failure, the real one once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from localspec.bench import startup
from localspec.bench.records import Startup
from localspec.bench.startup import compare_startup, measure_startup
from localspec.client import EngineClient
from localspec.types import DraftOptions, EngineOptions

WORKER = Path(__file__).parents[1] / "cli" / "scripted_worker.py"
MODEL = Path("model.gguf")
OPTIONS = {draft: EngineOptions(draft=DraftOptions(draft, 4)) for draft in ("none", "ngram")}


class Engines:
    """Makes clients of scripted workers, one scenario after the other."""

    def __init__(self, *scenarios: str) -> None:
        self._scenarios = list(scenarios)
        self.made: list[EngineClient] = []

    def __call__(self) -> EngineClient:
        scenario = self._scenarios.pop(0) if len(self._scenarios) > 1 else self._scenarios[0]
        self.made.append(EngineClient(command=(sys.executable, str(WORKER), scenario)))
        return self.made[-1]


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The drafters in the order of their starts."""
    order: list[str] = []
    original: Callable[..., object] = startup._start_once

    def watched(client: EngineClient, path: Path, name: str, options: EngineOptions, prompt: str) -> object:
        order.append(options.draft.spec)
        return original(client, path, name, options, prompt)

    monkeypatch.setattr(startup, "_start_once", watched)
    return order


def test_drafters_take_turns_after_one_start_that_does_not_count(starts: list[str]) -> None:
    engines = Engines("normal")
    none, ngram = compare_startup(MODEL, "tiny", OPTIONS, 2, connect=engines)
    assert starts == ["none", "none", "ngram", "none", "ngram"]
    assert not any(client.alive for client in engines.made)
    assert (none.file, none.draft, none.length, ngram.draft) == ("tiny", "none", 4, "ngram")
    assert none.load_s is not None
    assert none.load_s > 0
    # What the scripted engine says of itself.
    assert (none.first_token_s, none.context_tokens, none.resident_bytes) == (0.2, 64, 1)
    assert none.device_bytes is None
    assert none.note is None
    assert Startup.model_validate_json(none.model_dump_json()) == none


@pytest.mark.parametrize(
    ("scenario", "why"),
    [
        ("load-fails", "It needs 9 GB; lower --context."),
        ("fails", "The model returned NaN."),
        ("dies", "ended by SIGKILL (often the system running out of memory)."),
    ],
)
def test_a_failed_engine_is_a_note(scenario: str, why: str, starts: list[str]) -> None:
    engines = Engines("normal", "normal", scenario, "normal")
    none, ngram = compare_startup(MODEL, "tiny", OPTIONS, 2, connect=engines)
    assert starts == ["none", "none", "ngram", "none"]
    assert none.note is None
    assert ngram == Startup(file="tiny", draft="ngram", length=4, note=ngram.note)
    assert ngram.note is not None
    assert ngram.note.startswith("start 1 of 2 failed: ")
    assert why in ngram.note
    assert not any(client.alive for client in engines.made)


def test_an_engine_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup, "_SILENCE_S", 0.1)
    engines = Engines("load-hangs")
    row = measure_startup(MODEL, OPTIONS["none"], runs=1, connect=engines)
    assert row.note == "start 1 of 1 failed: The engine said nothing for 0 seconds."
    assert not engines.made[0].alive


def test_figures_of_earlier_starts_stay_beside_the_note() -> None:
    row = measure_startup(MODEL, OPTIONS["none"], runs=2, connect=Engines("normal", "normal", "dies"))
    assert row.first_token_s == 0.2
    assert row.note is not None
    assert row.note.startswith("start 2 of 2 failed: ")
    assert row.file == "model"


def test_an_engine_that_cannot_start() -> None:
    def nowhere() -> EngineClient:
        return EngineClient(command=("/nowhere/to/be/found",))

    row = measure_startup(MODEL, OPTIONS["none"], runs=1, connect=nowhere)
    assert row.note is not None
    assert row.load_s is None
    gone = measure_startup(
        MODEL, OPTIONS["none"], runs=1, connect=lambda: EngineClient(command=(sys.executable, "-c", ""))
    )
    assert gone.note is not None
    assert "has stopped" in gone.note


@pytest.mark.model
def test_the_real_engine(smollm2_path: Path) -> None:
    options = {
        draft: EngineOptions(context=512, threads=1, draft=DraftOptions(draft)) for draft in ("none", "ngram")
    }
    for row in compare_startup(smollm2_path, "smollm2", options, 1):
        assert row.note is None
        assert row.context_tokens == 512
        assert row.first_token_s is not None
        assert row.load_s is not None
        assert row.resident_bytes is not None
        assert row.resident_bytes > 50_000_000
