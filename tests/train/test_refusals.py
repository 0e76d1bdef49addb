"""What `localspec train eagle3` does not do: a sentence, an exit code, and nothing left behind."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
from typer.testing import CliRunner, Result

from localspec.cli import app
from localspec.errors import (
    IncompatibleError,
    ModelFileError,
    NotEnoughMemoryError,
    NotFoundError,
    StorageError,
)
from localspec.paths import data_dir
from localspec.train.course import Course, Request, check, open_run
from localspec.train.state import Run, write_whole
from tests.heads import alphabet, randoms
from tests.heads.making import Made


def train(target: Path | str, *args: str) -> Result:
    """The command, which is asked to begin unless something is wrong."""
    return CliRunner().invoke(app, ["train", "eagle3", "--target", str(target), "--yes", *args])


def refused(result: Result, code: int, *words: str) -> None:
    """One sentence that says all of `words`, and nothing begun."""
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in result.stderr
    assert not (data_dir() / "train").exists()


@pytest.fixture
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation without the extra."""
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "torch" else find(name, *more)
    )


@pytest.mark.usefixtures("no_torch")
def test_without_torch(made: Made) -> None:
    refused(train(made(randoms.target)), 2, "torch", "pip install 'localspec[train]'")


@pytest.mark.parametrize("minutes", ["0", "-1", "nan", "inf"])
def test_no_such_time(made: Made, minutes: str) -> None:
    refused(train(made(randoms.target), "--minutes", minutes), 2, "--minutes")


def test_an_output_that_cannot_be_written_is_refused_before_anything_is_done(
    made: Made, tmp_path: Path
) -> None:
    target = made(randoms.target)
    refused(train(target, "--output", str(tmp_path)), 2, "--output", "is a folder")
    file = tmp_path / "file"
    file.write_text("", encoding="utf-8")
    refused(train(target, "--output", str(file / "head.gguf")), 1, "--output", "cannot be written")


def test_two_trainings_of_one_target(made: Made) -> None:
    target = made(randoms.target)
    request = Request(name=target.stem, target=target, minutes=1.0, threads=1)
    run = open_run(request, check(request))
    with run.held():
        result = train(target)
    assert result.exit_code == 2
    assert "Another localspec is training" in result.stderr
    assert not run.folder.exists()


def test_too_few_tokens(made: Made) -> None:
    refused(train(made(randoms.target), "--tokens", "1"), 2, "--tokens")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("empty.txt", "", "is empty"),
        ("blank.jsonl", "\n\n", "is empty"),
        ("broken.jsonl", "{", "line 1"),
    ],
)
def test_prompts_that_are_none(made: Made, tmp_path: Path, name: str, text: str, words: str) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    refused(train(made(randoms.target), "--prompts", str(path)), 2, words)


def test_prompts_that_are_not_there(made: Made, tmp_path: Path) -> None:
    result = train(made(randoms.target), "--prompts", str(tmp_path / "none.txt"))
    refused(result, NotFoundError.exit_code, "none.txt")


def test_a_history_without_questions(made: Made) -> None:
    refused(train(made(randoms.target), "--from-history"), 2, "reply")


def test_a_target_whose_states_are_not_handed_out(made: Made) -> None:
    refused(train(made(alphabet.target_hybrid)), IncompatibleError.exit_code, "No head can be trained")
    refused(train(made(randoms.target_mtp)), IncompatibleError.exit_code, "No head can be trained")


def test_a_head_is_no_target(made: Made) -> None:
    refused(train(made(randoms.eagle3)), IncompatibleError.exit_code, "head")


@pytest.mark.parametrize("content", [b"", b"no model at all", b"GGUF\x03\0\0\0"])
def test_a_file_that_is_no_model(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    refused(train(path), ModelFileError.exit_code, "model.gguf")


def test_a_target_that_is_not_there(tmp_path: Path) -> None:
    refused(train(tmp_path / "none.gguf"), NotFoundError.exit_code, "none.gguf")


def test_a_truncated_target(made: Made, tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    whole = made(randoms.target).read_bytes()
    path.write_bytes(whole[: len(whole) - 5000])
    refused(train(path), ModelFileError.exit_code, "cut.gguf", "truncated")


def test_no_disk_for_the_states(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=1_000_000))
    result = train(made(randoms.target))
    refused(result, StorageError.exit_code, "free", "--tokens")


def test_no_memory(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1_000_000))
    refused(train(made(randoms.target)), NotEnoughMemoryError.exit_code, "memory")


def test_nobody_to_ask(made: Made) -> None:
    result = CliRunner().invoke(app, ["train", "eagle3", "--target", str(made(randoms.target))])
    refused(result, 2, "--yes")


def test_a_question_that_is_not_answered_deletes_nothing(made: Made) -> None:
    """`--fresh` begins anew only once somebody has agreed."""
    request = Request(name=made(randoms.target).stem, target=made(randoms.target), minutes=1, threads=1)
    run = open_run(request, check(request))
    run.begin()
    kept = run.path("tokens-0000.npy")
    kept.write_bytes(b"work of hours")
    args = ["train", "eagle3", "--target", str(request.target), "--fresh"]
    assert CliRunner().invoke(app, args).exit_code == 2
    assert kept.read_bytes() == b"work of hours"


def test_chats_that_go_on_meanwhile_do_not_end_a_run(made: Made) -> None:
    target = made(randoms.target)

    def course(*questions: str) -> Course:
        request = Request(
            name="one", target=target, minutes=1.0, threads=1, questions=questions, from_history=True
        )
        header = check(request)
        run = open_run(request, header)
        assert run.replaces is False
        run.begin()
        return Course(request, header, run, lambda *_: None)

    assert course("What is rain?")._questions() == ("What is rain?",)
    assert course("What is rain?", "And snow?")._questions() == ("What is rain?",)


def settings(**changes: Any) -> dict[str, Any]:
    return {"target": "one.gguf", "bytes": 5, **changes}


def test_a_run_goes_on_only_with_the_same_target_and_questions(tmp_path: Path) -> None:
    first = Run(tmp_path, settings())
    first.begin()
    first.spent.texts = 7.0
    first.save()
    first.path("states-0000.npy").write_bytes(b"1")
    again = Run(tmp_path, settings())
    again.begin()
    assert again.goes_on
    assert again.spent.texts == 7.0
    assert again.path("states-0000.npy").exists()
    other = Run(tmp_path, settings(bytes=6))
    assert (other.goes_on, other.replaces) == (False, True)
    assert other.path("states-0000.npy").exists(), "nothing is deleted before it begins"
    other.begin()
    assert not other.path("states-0000.npy").exists()
    assert other.spent.texts == 0.0


@pytest.mark.parametrize("damage", ["", "{", "[]", json.dumps({"settings": {}})])
def test_a_damaged_run_is_begun_anew(tmp_path: Path, damage: str) -> None:
    (tmp_path / "run.json").write_text(damage, encoding="utf-8")
    run = Run(tmp_path, settings())
    assert not run.goes_on
    run.begin()
    assert Run(tmp_path, settings()).goes_on


def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "array.npy"
    write_whole(path, lambda part: np.save(part, np.ones(3)))

    def full(part: Path) -> None:
        part.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(StorageError, match=r"array\.npy cannot be written \(No space left"):
        write_whole(path, full)
    assert np.load(path).tolist() == [1, 1, 1]
    assert [one.name for one in tmp_path.iterdir()] == ["array.npy"]
