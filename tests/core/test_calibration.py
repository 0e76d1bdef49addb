"""T(n) measured in idle moments, and what is kept of it on disk."""

from __future__ import annotations

import json
import logging
import math
import os
import queue
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from localspec.calibration.costs import PassCosts, bucket_of
from localspec.calibration.idle import KEY_SIZES, IdleCalibration
from localspec.calibration.loading import calibration_key
from localspec.calibration.store import CurveStore, Measured
from localspec.cost import CostCurve
from localspec.engine import Engine
from localspec.errors import EngineError
from localspec.messages import Cancel, Generate, SetSpeculation
from localspec.models.hashes import file_sha256, identity
from localspec.target import Outputs
from localspec.testing import ScriptedModel
from localspec.types import ChatMessage, DraftOptions, EngineOptions, Rows, SamplingParams, Trial
from localspec.worker import Worker

MS = 1_000_000
LIKELY = CostCurve({1: 1.0, 9: 3.0, 33: 9.0})
KEY = {"file": "abc", "threads": None, "gpu_layers": 0}


class TimedModel(ScriptedModel):
    """A scripted model whose passes move a clock by 1 ms and 0.1 ms a token."""

    def __init__(self, slowness: float = 1.0, **options: Any) -> None:
        super().__init__(**options)
        self.now = 0
        self.slowness = slowness
        self.threads_used: Iterator[int] | None = None
        self.widths: list[int] = []

    def decode(self, tokens: Sequence[int], outputs: Outputs) -> Rows:
        rows = super().decode(tokens, outputs)
        self.widths.append(len(tokens))
        self.now += int((0.9 + 0.1 * len(tokens)) * MS * self.slowness)
        if self.threads_used is not None:
            self.threads = next(self.threads_used)
        return rows

    def clock(self) -> int:
        return self.now


def finished(calibration: IdleCalibration) -> IdleCalibration:
    for _ in range(2000):
        if calibration.done:
            return calibration
        calibration.step()
    raise AssertionError("it never ends")


# --- idle passes


def test_every_width_is_measured_and_the_cache_is_as_it_was() -> None:
    model = TimedModel()
    model.decode([1, 2, 3], "none")
    calibration = finished(IdleCalibration(model, [4, 5, 6], model.clock))
    assert model.length == 3
    assert set(calibration.points) > set(KEY_SIZES)
    for size, seconds in calibration.points.items():
        assert seconds == pytest.approx((0.9 + 0.1 * size) * 1e-3)


def test_a_slow_model_has_two_rounds_of_the_key_widths_and_no_pass_that_takes_too_long() -> None:
    model = TimedModel(slowness=150.0)
    calibration = finished(IdleCalibration(model, [4], model.clock))
    assert set(calibration.points) == set(KEY_SIZES)
    assert len(model.widths) == 2 * 2 * len(KEY_SIZES)
    model = TimedModel(slowness=500.0)
    calibration = finished(IdleCalibration(model, [4], model.clock))
    # Thirty-two tokens would take longer than four passes over one.
    assert max(calibration.points) == max(model.widths) == 16


def test_widths_without_room_are_left_out() -> None:
    model = TimedModel(capacity=20)
    model.decode([1] * 10, "none")
    calibration = finished(IdleCalibration(model, [4], model.clock))
    assert max(calibration.points) <= 10
    model.decode([1] * 10, "none")
    assert finished(IdleCalibration(model, [4], model.clock)).points == {}


def test_a_pass_after_a_pause_does_not_count_and_the_one_after_it_does() -> None:
    model = TimedModel()
    calibration = IdleCalibration(model, [4], model.clock)
    calibration.step()
    model.now += 10_000 * MS
    calibration.step()
    assert calibration.points == {}
    calibration.step()
    assert set(calibration.points) == {1}


def test_passes_with_another_number_of_threads_do_not_count() -> None:
    model = TimedModel()
    model.threads_used = iter([1, 1, 1, 2, 2, *[2] * 5000])
    calibration = finished(IdleCalibration(model, [4], model.clock))
    assert calibration.threads == 2
    assert calibration.points[1] == pytest.approx(1e-3)


# --- buckets and the live curve


def measured(costs: PassCosts, model: TimedModel) -> int:
    passes = 0
    while costs.measure(model, [4, 5]):
        passes += 1
        assert passes < 2000
    return passes


@pytest.fixture
def store(tmp_path: Path) -> CurveStore:
    return CurveStore(tmp_path / "calibration", KEY)


def timed(monkeypatch: pytest.MonkeyPatch, **options: Any) -> TimedModel:
    model = TimedModel(**options)
    original = IdleCalibration.__init__
    monkeypatch.setattr(
        IdleCalibration,
        "__init__",
        lambda self, context, tokens: original(self, context, tokens, model.clock),
    )
    return model


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_in_the_place_of_a_curve_is_not_waited_for(store: CurveStore) -> None:
    store.path.parent.mkdir(parents=True)
    os.mkfifo(store.path)
    assert store.load() == {}


def test_what_was_measured_is_there_the_next_time(monkeypatch: pytest.MonkeyPatch, store: CurveStore) -> None:
    model = timed(monkeypatch)
    costs = PassCosts(LIKELY, store)
    assert (costs.live.known, costs.live(9)) == (False, 3.0)
    live = costs.live
    assert measured(costs, model) > 20
    assert costs.live is live
    assert live(1) == pytest.approx(1e-3)
    assert live(9) == pytest.approx(1.8e-3)
    assert costs.measure(model, [4]) is False
    again = PassCosts(LIKELY, CurveStore(store.path.parent, KEY))
    assert again.live.known
    assert again.live(9) == pytest.approx(1.8e-3)
    passes = len(model.widths)
    assert again.measure(model, [4]) is False
    assert len(model.widths) == passes


def test_a_longer_text_has_a_curve_of_its_own(monkeypatch: pytest.MonkeyPatch, store: CurveStore) -> None:
    assert [bucket_of(length) for length in (0, 511, 512, 2047, 2048, 8191, 8192, 10**6)] == [
        0, 0, 1, 1, 2, 2, 3, 3,
    ]  # fmt: skip
    model = timed(monkeypatch, capacity=4096, max_batch=128)
    costs = PassCosts(LIKELY, store)
    measured(costs, model)
    for _ in range(6):
        model.decode([1] * 100, "none")
    model.slowness = 2.0
    costs.at(600)
    # Not measured yet: the nearest there is.
    assert costs.live(9) == pytest.approx(1.8e-3)
    assert measured(costs, model) > 20
    assert costs.live(9) == pytest.approx(3.6e-3)
    costs.at(10)
    assert costs.live(9) == pytest.approx(1.8e-3, rel=0.01)
    assert set(store.load()) == {0, 1}


def test_what_replies_show_is_kept_where_nothing_was_calibrated(store: CurveStore) -> None:
    costs = PassCosts(LIKELY, store)
    for _ in range(60):
        costs.live.observe(1, 0.010)
        costs.live.observe(5, 0.015)
    costs.save()
    (kept,) = store.load().values()
    assert (set(kept.points), kept.complete) == ({1, 5}, False)
    again = PassCosts(LIKELY, CurveStore(store.path.parent, KEY))
    assert again.live(1) == pytest.approx(0.010, rel=0.1)
    assert again.live(5) == pytest.approx(0.015, rel=0.1)
    assert again.live(9) == pytest.approx(0.030, rel=0.1)


def test_replies_refine_the_shape_and_the_load_of_a_moment_is_not_kept(store: CurveStore) -> None:
    store.save({0: Measured({1: 0.01, 9: 0.02, 33: 0.05}, 2, complete=True)})
    costs = PassCosts(LIKELY, store)
    for _ in range(150):
        costs.live.observe(1, 0.03)
        costs.live.observe(9, 0.12)
    height = costs.live(1)
    costs.save()
    assert costs.live(1) == pytest.approx(height)
    kept = store.load()[0]
    assert kept.points[1] == 0.01
    assert kept.points[9] == pytest.approx(0.04, rel=0.12)
    assert (kept.threads, kept.complete) == (2, True)


# --- the file

GOOD = {
    "version": 1,
    "key": KEY,
    "buckets": {"0": {"points": {"1": 0.01, "9": 0.02}, "threads": 2, "complete": True}},
}


def changed(change: Callable[[Any], object]) -> str:
    data = json.loads(json.dumps(GOOD))
    change(data)
    return json.dumps(data)


def points(**given: Any) -> Callable[[Any], object]:
    return lambda data: data["buckets"]["0"].update(points={name[1:]: cost for name, cost in given.items()})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "1",
        '"text"',
        "[" * 100_000,
        "\0\1\2",
        '{"version": 1}',
        changed(lambda data: data.update(version=2)),
        changed(lambda data: data.update(version="1")),
        changed(lambda data: data["key"].update(file="def")),
        changed(lambda data: data.update(key=[])),
        changed(lambda data: data.update(buckets=[1])),
        changed(lambda data: data.update(buckets={"x": data["buckets"]["0"]})),
        changed(lambda data: data["buckets"]["0"].pop("threads")),
        changed(lambda data: data["buckets"]["0"].update(threads="two")),
        changed(lambda data: data["buckets"]["0"].update(complete=None)),
        changed(lambda data: data["buckets"]["0"].update(points=[0.1, 0.2])),
        changed(points()),
        changed(points(_9=0.02)),
        changed(points(_1=math.nan, _9=0.02)),
        changed(points(_2=0.02, _1=0.0)),
        changed(points(_1=0.01, _9=math.inf)),
        changed(points(_1=0.01, _9=-0.02)),
        changed(points(_1=0.0, _9=0.02)),
        changed(points(_1=0.01, _0=0.01)),
        changed(points(_1=0.01, _9=100.0)),
        changed(points(_1=0.01, _9=0.0001)),
        changed(points(_1=1e6, _9=2e6)),
        changed(points(_1="fast", _9=0.02)),
        changed(points(_1=True)),
        changed(points(_1=0.01, _99999=0.02)),
        changed(lambda data: data.update(more="x" * 300_000)),
    ],
    ids=lambda text: text[:60] if text.isprintable() else "bytes",
)
def test_a_file_that_cannot_be_used_is_passed_over(
    store: CurveStore, text: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.path.parent.mkdir()
    store.path.write_text(text)
    with caplog.at_level(logging.WARNING):
        assert store.load() == {}
    assert "is not used" in caplog.text
    # And it is measured anew, and written.
    model = timed(monkeypatch)
    costs = PassCosts(LIKELY, store)
    measured(costs, model)
    assert set(store.load()) == {0}
    assert [path.name for path in store.path.parent.iterdir()] == [store.path.name]


def test_a_good_file_is_read(store: CurveStore) -> None:
    store.path.parent.mkdir()
    store.path.write_text(json.dumps(GOOD))
    assert store.load() == {0: Measured({1: 0.01, 9: 0.02}, 2, complete=True)}


def test_a_folder_that_cannot_be_written_is_no_reason_to_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "calibration").write_text("in the way")
    model = timed(monkeypatch)
    costs = PassCosts(LIKELY, CurveStore(tmp_path / "calibration", KEY))
    measured(costs, model)
    costs.save()
    assert costs.live(9) == pytest.approx(1.8e-3)
    assert "cannot be written" in caplog.text


def test_every_part_of_the_key_names_another_file(tmp_path: Path) -> None:
    names = {CurveStore(tmp_path, KEY | {name: "other"}).path for name in KEY}
    assert len(names | {CurveStore(tmp_path, KEY).path}) == len(KEY) + 1


def test_a_model_file_is_known_by_its_hash_or_else_by_its_beginning(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF" + bytes(100))
    first = identity(file)
    assert identity(file) == first
    file.write_bytes(b"GGUF" + bytes(99) + b"x")
    second = identity(file)
    assert second != first
    os.utime(file, ns=(1, 1))
    assert identity(file) not in (first, second)
    assert identity(file) != file_sha256(file)
    assert identity(file) == file_sha256(file)


# --- engine and worker


def test_the_worker_measures_while_no_command_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localspec.worker._QUIET_S", 0.001)
    worker = Worker(BytesIO(), BytesIO())
    asked = 0

    class Idle:
        def calibrate(self) -> bool:
            nonlocal asked
            asked += 1
            if asked == 3:
                worker._arrived.put(command)
            return asked < 5

    command: Any = object()
    worker._engine = Idle()
    # The third pass is not followed by another: the command comes first.
    assert worker._next() is command
    assert asked == 3
    worker._arrived = queue.SimpleQueue()
    worker._arrived.put(command)
    assert worker._next() is command
    assert asked == 3


def test_what_the_chat_drafts_with_is_changed_after_a_trial_and_not_in_it() -> None:
    worker, done = Worker(BytesIO(), BytesIO()), []

    class Trying:
        def generate(self, request: Generate, emit: object, between: Callable[[], bool]) -> str:
            del emit
            worker._arrived.put(SetSpeculation(False))
            worker._arrived.put(Cancel())
            assert between(), "a cancel is heard behind it"
            assert bool(done) == (request.trial is None)
            return "reply"

        def set_speculation(self, enabled: bool) -> None:
            done.append(enabled)

    worker._engine = Trying()
    worker._outbox.put = lambda event: None
    for trial in (Trial(DraftOptions("none")), None):
        done.clear()
        assert worker._generate(Generate(1, prompt="x", trial=trial)) == "reply"
        while worker._later:
            worker._handle(worker._later.popleft())
        assert done == [False]


@pytest.mark.model
def test_idle_passes_leave_the_session_alone(smollm2_path: Path, private_home: Path) -> None:
    def asked(between: Callable[[Engine], None]) -> tuple[list[tuple[int, ...]], int]:
        options = EngineOptions(context=256, threads=1, draft=DraftOptions(policy="fixed:2"))
        engine = Engine(smollm2_path, "smollm2", options)
        try:
            between(engine)
            turns = [ChatMessage("user", "Name three rivers.")]
            said, cached = [], 0
            for number in range(2):
                request = Generate(number, tuple(turns), None, SamplingParams(seed=3), 20)
                reply = engine.generate(request).reply
                said.append(reply.token_ids)
                cached = reply.timings.cached_tokens
                turns += [ChatMessage("assistant", reply.text), ChatMessage("user", "And lakes?")]
                between(engine)
            return said, cached
        finally:
            engine.close()

    def idle(engine: Engine) -> None:
        held = engine.session.context.length
        for _ in range(6):
            assert engine.calibrate()
            assert engine.session.context.length == held

    assert asked(idle) == asked(lambda engine: None)
    # Interrupted every time: nothing was measured to the end, so nothing is kept but what replies showed.
    kept = [json.loads(path.read_text()) for path in (private_home / "cache" / "calibration").glob("*.json")]
    assert all(not bucket["complete"] for one in kept for bucket in one["buckets"].values())


@pytest.mark.model
def test_a_failed_pass_ends_it_and_the_next_prompt_is_read_anew(
    smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(smollm2_path, "smollm2", EngineOptions(context=256, threads=1))
    try:
        request = Generate(1, (ChatMessage("user", "Name three rivers."),), None, SamplingParams(seed=3), 5)
        first = engine.generate(request).reply
        with monkeypatch.context() as patch:
            patch.setattr(
                engine.session.context, "keep", lambda length: (_ for _ in ()).throw(EngineError("no"))
            )
            assert not engine.calibrate()
        assert not engine.calibrate()
        again = engine.generate(request).reply
        assert (again.token_ids, again.timings.cached_tokens) == (first.token_ids, 0)
        engine.set_speculation(False)
        assert not engine.calibrate()
    finally:
        engine.close()


@pytest.mark.model
def test_the_key_names_what_times_depend_on(smollm2_path: Path) -> None:
    def key(**options: Any) -> dict[str, Any]:
        return dict(calibration_key(smollm2_path, EngineOptions(**options), gpu_layers=0, backend="CPU"))

    usual = key()
    assert key() == usual
    for options in ({"threads": 1}, {"batch": 64}, {"flash_attention": True}, {"kv_type": "q8_0"}):
        assert key(**options) != usual
    assert str(smollm2_path) not in json.dumps(usual)
