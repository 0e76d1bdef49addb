"""T(n) on a scripted model with a scripted clock, and the facts of a model file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from localspec.bench import costs
from localspec.bench.costs import model_file
from localspec.bench.records import ModelFile, Settings
from localspec.calibration.passes import SIZES, measure_passes
from localspec.errors import EngineError, UsageError
from localspec.runtime.loading import LoadedModel, load
from localspec.target import Outputs
from localspec.testing import ScriptedModel
from localspec.types import EngineOptions, Rows

TEXT = list(range(4, 30))


class TimedModel(ScriptedModel):
    """A scripted model whose passes move a clock; passes of a size that was not repeated cost more."""

    def __init__(self, disturbed: Sequence[int] = (), **options: int | bool) -> None:
        super().__init__(**options)
        self.now = 0
        self.disturbed = set(disturbed)
        self.decoded: list[tuple[int, ...]] = []
        self.positions: set[int] = set()

    def decode(self, tokens: Sequence[int], outputs: Outputs) -> Rows:
        size, position = len(tokens), self.length
        again = bool(self.passes) and self.passes[-1] == size
        rows = super().decode(tokens, outputs)
        if outputs == "all":
            self.now += 5_000_000 + 1_000_000 * size + (0 if again else 777_000)
            self.decoded.append(tuple(tokens))
            self.positions.add(position)
            if len(self.decoded) in self.disturbed:
                self.now += 10**12
        return rows

    def clock(self) -> int:
        return self.now


def test_every_pass_is_timed_from_the_same_place() -> None:
    model = TimedModel()
    told: list[float] = []
    found = measure_passes(model, TEXT, repeats=3, clock=model.clock, progress=told.append)
    assert found == {n: 5.0 + n for n in SIZES}
    assert list(found) == sorted(SIZES)
    assert model.positions == {len(TEXT)}
    assert model.length == 0
    assert told == sorted(told)
    assert told[-1] == 1.0


def test_sizes_take_turns_and_come_back_in_the_next_round() -> None:
    model = TimedModel()
    measure_passes(model, TEXT, (1, 2, 3, 4, 5), repeats=1, clock=model.clock)
    counted = [len(tokens) for tokens in model.decoded[1::2]]
    assert counted == [1, 5, 2, 4, 3, 3, 4, 2, 5, 1]
    # The pass before has the size, and other tokens of the text.
    for first, second in zip(model.decoded[::2], model.decoded[1::2], strict=True):
        assert len(first) == len(second)
        assert first != second
        assert set(first + second) <= set(TEXT)
    assert len(set(model.decoded)) > 10


def test_disturbances_and_the_first_round_do_not_count() -> None:
    sizes = (1, 2, 3, 4)
    one_round = 2 * len(sizes)
    first_round = range(1, one_round + 1)
    two_of_five = [*range(one_round + 1, 3 * one_round + 1)]
    model = TimedModel([*first_round, *two_of_five])
    found = measure_passes(model, TEXT, sizes, repeats=5, budget_s=math.inf, clock=model.clock)
    assert found == {n: 5.0 + n for n in sizes}


def test_only_sizes_that_fit() -> None:
    model = TimedModel(max_batch=16)
    assert list(measure_passes(model, TEXT, repeats=1, clock=model.clock)) == [n for n in SIZES if n <= 16]
    small = TimedModel(capacity=len(TEXT) + 3)
    assert list(measure_passes(small, TEXT, repeats=1, clock=small.clock)) == [1, 2, 3]
    for tokens, sizes, repeats in (([], SIZES, 1), ([5] * 4096, SIZES, 1), (TEXT, (), 1), (TEXT, SIZES, 0)):
        with pytest.raises(UsageError, match="--context"):
            measure_passes(TimedModel(), tokens, sizes, repeats=repeats)


def test_a_context_that_cannot_roll_back_reads_the_text_again() -> None:
    model = TimedModel(can_trim=False, max_batch=16)
    found = measure_passes(model, TEXT, (1, 2, 8), repeats=2, clock=model.clock)
    assert list(found) == [1, 2, 8]
    assert model.positions == {len(TEXT)}


def test_a_failed_pass_leaves_an_empty_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    model = TimedModel()
    monkeypatch.setattr(model, "row", lambda tokens: (_ for _ in ()).throw(EngineError("It failed.")))
    with pytest.raises(EngineError, match="It failed"):
        measure_passes(model, TEXT, repeats=1)
    assert model.length == 0


def settings(**changes: object) -> Settings:
    values: dict[str, object] = {
        "model": "smollm2",
        "files": ("smollm2",),
        "tasks": ("copy",),
        "prompts_per_task": 1,
        "modes": ("transcript",),
        "drafts": ("ngram",),
        "lengths": (4,),
        "tokens": 16,
        "runs": 1,
        "context": 256,
        "threads": 1,
    }
    return Settings(**(values | changes))


@pytest.mark.model
def test_the_facts_of_the_real_model(smollm2_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "SIZES", (1, 2, 4))
    monkeypatch.setattr(costs, "_ROUNDS", 1)
    loaded = load(smollm2_path, EngineOptions(context=256, threads=1))
    try:
        found = model_file(smollm2_path, loaded, settings(), load_s=0.5)
        assert loaded.context.length == 0
        # Tied: the token table is the output matrix too, so a pass reads every tensor.
        assert found.weight_bytes == loaded.model.weight_bytes
    finally:
        loaded.close()
    assert (found.name, found.file_type, found.bytes) == (smollm2_path.stem, "Q4_1", 98_362_432)
    assert found.sha256 == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    assert found.parameters == 134_515_008
    assert found.kv_bytes_per_token == 30 * 3 * (64 + 64) * 2
    assert (found.context, found.pass_position, found.load_s) == (256, 128, 0.5)
    assert list(found.pass_ms) == [1, 2, 4]
    assert all(ms > 0 for ms in found.pass_ms.values())
    assert found.bandwidth is not None
    moved = found.weight_bytes + 128 * found.kv_bytes_per_token
    assert found.floor_ms == pytest.approx(moved / found.bandwidth * 1e3)
    assert ModelFile.model_validate_json(found.model_dump_json()) == found


class _Layers:
    placed_layers = 30


@pytest.mark.parametrize(
    ("gpu_layers", "asked"),
    [(0, [(None, 3)]), (31, [("CUDA0", None)]), (30, []), (12, [])],
)
def test_bandwidth_is_that_of_the_memory_that_holds_the_weights(
    gpu_layers: int, asked: list[tuple[str | None, int | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from localspec.runtime.devices import Device

    gpus = [Device("CUDA0", "c", "CUDA", "gpu", 9, 9)]
    calls: list[tuple[str | None, int | None]] = []

    def measure(device: str | None = None, *, threads: int | None = None) -> float:
        calls.append((device, threads))
        return 1e9

    monkeypatch.setattr(costs, "used_gpus", lambda: gpus)
    monkeypatch.setattr(costs, "measured_bandwidth", measure)
    loaded = LoadedModel(_Layers(), None, gpu_layers, "CUDA")
    assert costs._bandwidth(loaded, 3) == (1e9 if asked else None)
    assert calls == asked
