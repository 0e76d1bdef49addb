"""The copy that texts are written with: made where it is faster, with the file's own weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from localspec.errors import ModelFileError
from localspec.models.gguf import GGUFHeader, read_header
from localspec.runtime.quantize import requantize
from localspec.train import widening
from localspec.train.course import Course, Request, check, open_run
from localspec.train.features import saved_lessons
from localspec.train.state import Run
from localspec.train.target import TargetWeights
from localspec.train.widening import copy_bytes, file_to_write_with
from tests.heads import randoms
from tests.heads.making import Made


@pytest.fixture
def quantized(made: Made, tmp_path: Path) -> Path:
    path = tmp_path / "quantized.gguf"
    requantize(made(randoms.target), path, "Q8_0", threads=1)
    return path


@pytest.fixture
def run(quantized: Path) -> Run:
    request = request_for(quantized)
    found = open_run(request, check(request))
    found.begin()
    return found


def request_for(target: Path) -> Request:
    return Request(name="quantized", target=target, minutes=0.05, threads=1, tokens=2000)


def times(monkeypatch: pytest.MonkeyPatch, copy: float) -> list[Path]:
    """Have a pass of the file take a second, and one of its copy `copy`; returns what was timed."""
    seen: list[Path] = []

    def pass_time(path: Path, threads: int) -> float:
        del threads
        seen.append(path)
        return copy if path.name == "wide.gguf" else 1.0

    monkeypatch.setattr(widening, "_pass_time", pass_time)
    return seen


def test_a_faster_copy_has_the_files_weights(
    quantized: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, header = times(monkeypatch, 0.5), read_header(quantized)
    copy = file_to_write_with(quantized, header, run, 1)
    assert copy.parent == run.folder
    assert copy.stat().st_size >= copy_bytes(header, run.folder) > 0
    theirs, ours = TargetWeights(quantized, header), TargetWeights(copy, read_header(copy))
    for name in ("blk.0.attn_q.weight", "token_embd.weight"):
        # BF16 has eight bits of each number.
        assert np.allclose(theirs.array(name), ours.array(name), rtol=2**-8, atol=0)
    assert file_to_write_with(quantized, header, run, 1) == copy
    assert len(seen) == 2, "decided once"


def test_a_copy_that_is_no_faster_is_deleted(
    quantized: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, header = times(monkeypatch, 0.9), read_header(quantized)
    assert file_to_write_with(quantized, header, run, 1) == quantized
    assert not list(run.folder.glob("*.gguf"))
    assert file_to_write_with(quantized, header, run, 1) == quantized
    assert len(seen) == 2, "decided once"


def test_no_copy_of_what_is_not_quantized(made: Made, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    target = made(randoms.target)
    seen = times(monkeypatch, 0.1)
    assert copy_bytes(read_header(target), run.folder) == 0
    assert file_to_write_with(target, read_header(target), run, 1) == target
    assert not seen


def test_no_copy_where_there_is_no_room(quantized: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = times(monkeypatch, 0.1)
    monkeypatch.setattr(widening, "_ROOM", 0.0)
    assert file_to_write_with(quantized, read_header(quantized), run, 1) == quantized
    assert not seen


def test_a_model_that_cannot_be_converted_writes_itself(
    quantized: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ModelFileError("cannot be written")

    monkeypatch.setattr(widening, "requantize", refuse)
    assert file_to_write_with(quantized, read_header(quantized), run, 1) == quantized
    assert not list(run.folder.glob("*.gguf"))


def test_texts_are_written_with_it(quantized: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    times(monkeypatch, 0.5)
    used: list[GGUFHeader] = []

    def chosen(target: Path, header: GGUFHeader, run: Run, threads: int | None) -> Path:
        path = file_to_write_with(target, header, run, threads)
        used.append(read_header(path))
        return path

    monkeypatch.setattr("localspec.train.widening.file_to_write_with", chosen)
    request = request_for(quantized)
    tokens = Course(request, check(request), run, lambda *_: None).write_texts()
    assert tokens >= request.tokens
    assert [header.file_type for header in used] == ["BF16"]
    for piece in saved_lessons(run):
        assert np.isfinite(piece.states.astype(np.float32)).all()


def test_passes_are_timed(quantized: Path) -> None:
    assert 0.0 < widening._pass_time(quantized, 1) < 60.0
