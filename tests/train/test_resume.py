"""A run that was killed goes on: nothing is lost but the piece at work, and the head is as good."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from localspec.models.gguf import read_header
from localspec.train.course import Course, check, open_run
from localspec.train.features import saved_lessons
from localspec.train.lessons import Lessons
from localspec.train.state import CHECKPOINT, Clock
from tests.heads import randoms
from tests.heads.making import Made
from tests.train.child import TOKENS, request_for

torch = pytest.importorskip("torch")

from localspec.train.loop import Trainer  # noqa: E402 - after torch is known to be there
from localspec.train.network import Head  # noqa: E402 - after torch is known to be there
from localspec.train.target import TargetWeights  # noqa: E402 - after torch is known to be there

MINUTES = 4.0
"""Of a clock that ticks twice a step."""
SPREAD = 0.1
"""By how much two heads may differ in what is accepted: batches come in another order after a kill."""


class Child:
    """A run in a process of its own, which is killed if it has not ended."""

    def __init__(self, target: Path, output: Path | None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.train.child", str(target), str(output), str(MINUTES)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def lines(self) -> Iterator[str]:
        """What it says, as it says it."""
        assert self.process.stdout is not None
        yield from self.process.stdout

    def kill_at(self, pattern: str, count: int = 1) -> None:
        """SIGKILL where it has said `pattern` so many times."""
        for line in self.lines():
            if re.search(pattern, line):
                count -= 1
            if not count:
                self.process.kill()
                self.process.wait()
                return
        pytest.fail(f"It ended before it said {pattern}.")

    def judged(self) -> list[float]:
        """What came out, once it has ended."""
        said = list(self.lines())
        assert self.process.wait() == 0, said[-20:]
        return [float(value) for value in said[-1].split()[1:]]


@pytest.fixture
def killing() -> Iterator[list[Child]]:
    """Children that end with the test."""
    children: list[Child] = []
    yield children
    for child in children:
        if child.process.poll() is None:
            child.process.kill()
            child.process.wait()
        assert child.process.stdout is not None
        child.process.stdout.close()


def test_a_target_that_is_killed_while_it_writes_keeps_what_it_has_written(
    made: Made, tmp_path: Path, killing: list[Child]
) -> None:
    target = made(randoms.target)
    request = request_for(target, tmp_path / "head.gguf", MINUTES)
    tokens: list[np.ndarray] = []
    for stop in ("writes texts", "training"):
        killing.append(Child(target, request.output))
        killing[-1].kill_at(stop, 7 if stop == "writes texts" else 1)
        run = open_run(request, check(request))
        assert run.goes_on
        kept = saved_lessons(run)
        assert kept, "whole pieces stay"
        for before, after in zip(tokens, kept, strict=False):
            assert np.array_equal(before, after.tokens)
        assert len(kept) > len(tokens)
        tokens = [piece.tokens.copy() for piece in kept]
    assert sum(map(len, tokens)) >= TOKENS


def test_a_run_that_is_killed_again_and_again_ends_as_one_that_is_not(
    made: Made, tmp_path: Path, killing: list[Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    target, draw = made(randoms.target), random.Random(5)

    def child(home: str) -> Child:
        monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / home))
        killing.append(Child(target, tmp_path / f"{home}.gguf"))
        return killing[-1]

    whole = child("one").judged()
    child("two").kill_at("training", draw.randint(30, 60))
    request = request_for(target, tmp_path / "two.gguf", MINUTES)
    assert open_run(request, check(request)).path(CHECKPOINT).exists()
    child("two").kill_at("training", draw.randint(1, 10))
    broken = child("two").judged()
    assert abs(broken[0] - whole[0]) < SPREAD, (whole, broken)
    assert read_header(tmp_path / "two.gguf").architecture == "eagle3"


def test_a_kill_while_a_file_is_written_leaves_no_half_of_it(made: Made, tmp_path: Path) -> None:
    """The last array of a piece makes it whole: what was written of one before that is written anew."""
    request = request_for(made(randoms.target), tmp_path / "head.gguf", 0.05)
    header = check(request)
    run = open_run(request, header)
    run.begin()
    Course(request, header, run, lambda *_: None).write_texts()
    pieces = len(saved_lessons(run))
    assert pieces >= 1
    run.path(f"final-{pieces - 1:04}.npy").unlink()
    run.path(f"states-{pieces:04}.part.npy").write_bytes(b"half")
    assert len(saved_lessons(run)) == pieces - 1
    Course(request, header, open_run(request, header), lambda *_: None).write_texts()
    assert len(saved_lessons(run)) >= pieces


def test_a_trainer_goes_on_with_the_very_state_of_its_checkpoint(made: Made, tmp_path: Path) -> None:
    target = made(randoms.target)
    request = request_for(target, tmp_path / "head.gguf", 0.05)
    header = check(request)
    run = open_run(request, header)
    run.begin()
    Course(request, header, run, lambda *_: None).write_texts()
    weights = TargetWeights(target, header)
    lessons = Lessons(saved_lessons(run))
    chosen = lessons.chosen(header.vocabulary)

    def trainer() -> Trainer:
        return Trainer(Head(weights, lessons.scale, chosen), lessons, weights.embeddings(), chosen, run)

    torch.set_num_threads(1)
    # Without time nothing is learnt, and no checkpoint keeps a later start from writing more texts.
    trainer().train(Clock(run, "training", 0.0), lambda _: None)
    assert not run.path(CHECKPOINT).exists()
    first = trainer()
    began = time.monotonic()
    first.train(Clock(run, "training", 1.0), lambda _: None)
    assert time.monotonic() - began < 60
    second = trainer()
    assert second.steps == first.steps > 0
    assert second.seconds == first.seconds
    for name, value in first.head.state_dict().items():
        assert torch.equal(value, second.head.state_dict()[name]), name
    batch = lessons.batch(lessons.learnt[:4], judged=False)
    assert first._learn(batch, 0.5) == second._learn(batch, 0.5)
    assert first._learn(batch, 0.5) == second._learn(batch, 0.5), "the optimizer's state too"
    # A checkpoint of another version's head is no beginning; the texts stay.
    state = torch.load(run.path(CHECKPOINT), weights_only=True)
    state["head"]["q.weight"] = state["head"]["q.weight"][:-1]
    torch.save(state, run.path(CHECKPOINT))
    assert trainer().steps == 0


def test_held_out_texts_are_never_learnt_from_and_stay_the_same(made: Made, tmp_path: Path) -> None:
    request = request_for(made(randoms.target), tmp_path / "head.gguf", 0.05)
    header = check(request)
    run = open_run(request, header)
    run.begin()
    Course(request, header, run, lambda *_: None).write_texts()
    pieces = saved_lessons(run)
    lessons = Lessons(pieces)
    assert lessons.judged
    assert not set(lessons.judged) & set(lessons.learnt)
    assert len(lessons.judged) + len(lessons.learnt) == sum(len(piece.answers) for piece in pieces)
    assert lessons.tokens == sum(len(piece.tokens) for piece in pieces)
    seen = [number for group in lessons.batches(lessons.learnt, np.random.default_rng(1)) for number in group]
    assert sorted(seen) == sorted(lessons.learnt), "each text once a round"
    for piece in pieces:
        assert len({len(getattr(piece, one.name)) for one in fields(piece) if one.name in _ROWS}) == 1
        assert np.isfinite(piece.states.astype(np.float32)).all()


_ROWS = ("tokens", "likeliest", "states", "final")


def test_ctrl_c_says_130_and_the_same_command_goes_on(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    target = made(randoms.target)
    command = [
        sys.executable, "-m", "localspec", "train", "eagle3", "--target", str(target), "--yes",
        "--threads", "1", "--tokens", "2000", "--minutes",
    ]  # fmt: skip
    folder = tmp_path / "home" / "data" / "train" / f"{target.stem}-eagle3"
    process = subprocess.Popen([*command, "10"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        for _ in range(600):
            if saved_lessons(open_run(request_for(target, folder, 1), read_header(target))):
                break
            assert process.poll() is None, process.communicate()
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    # Python ends itself by the signal where Ctrl+C fell into an `exec` of text, as packages do while they are
    # imported; shells say 130 of that too.
    assert process.returncode in (130, -signal.SIGINT), err
    assert out == ""
    assert "Traceback" not in err
    assert folder.is_dir()
    done = subprocess.run([*command, "0.06"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "It goes on where it was interrupted." in done.stderr
    assert "Traceback" not in done.stderr
    assert not folder.exists(), "what is done leaves nothing behind"
    assert "--draft eagle3" in done.stdout
