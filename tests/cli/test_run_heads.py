"""`localspec run` with heads: what drafts, and what a shell sees where a head cannot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.heads import alphabet, randoms

Pair = tuple[Path, str]
Write = Callable[[Path], Pair]


def run(localspec: Command, folder: Path, target: Path, draft: str) -> tuple[int, str, str]:
    done = localspec(
        "run", "--model", str(target), "--draft", draft, "--max-tokens", "8", "--threads", "1", "abc",
        LOCALSPEC_HOME=str(folder / "home"),
    )  # fmt: skip
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def near(folder: Path) -> Path:
    return alphabet.target(folder / "target.gguf")


@pytest.mark.parametrize("kind", ["eagle3", "dflash", "dspark", "mtp"])
def test_a_head_drafts(localspec: Command, tmp_path: Path, kind: str) -> None:
    if kind == "mtp":
        target, draft = alphabet.target_mtp(tmp_path / "target.gguf"), "mtp"
    else:
        head = getattr(alphabet, kind)(tmp_path / "head.gguf")
        target, draft = near(tmp_path), f"{kind}:{head}"
    code, said, errors = run(localspec, tmp_path, target, draft)
    assert (code, said) == (0, "defghijk\n"), errors


def torn(folder: Path) -> Pair:
    head = alphabet.eagle3(folder / "head.gguf")
    head.write_bytes(head.read_bytes()[:-4000])
    return near(folder), f"eagle3:{head}"


def empty(folder: Path) -> Pair:
    (folder / "head.gguf").write_bytes(b"")
    return near(folder), f"eagle3:{folder / 'head.gguf'}"


def absent(folder: Path) -> Pair:
    return near(folder), f"eagle3:{folder / 'head.gguf'}"


def another_kind(folder: Path) -> Pair:
    return near(folder), f"dflash:{alphabet.eagle3(folder / 'head.gguf')}"


def fewer_layers(folder: Path) -> Pair:
    target = randoms.target(folder / "target.gguf", layers=2)
    return target, f"eagle3:{alphabet.eagle3(folder / 'head.gguf')}"


def another_width(folder: Path) -> Pair:
    return near(folder), f"dflash:{randoms.dflash(folder / 'head.gguf', width=96)}"


def without_layers(folder: Path) -> Pair:
    return alphabet.target_mtp(folder / "target.gguf", part="trunk", declared=1), "mtp"


@pytest.mark.parametrize(
    ("write", "code", "sentence"),
    [
        (torn, 1, "is truncated"),
        (empty, 1, "is empty"),
        (absent, 3, "There is no file"),
        (another_kind, 4, "cannot draft as DFlash: it is one of the kind EAGLE-3"),
        (fewer_layers, 4, "it reads layer 2, and this one has layers 0 to 1"),
        (another_width, 4, "it reads states of 96 values, and this one's have 64"),
        (without_layers, 4, "they are not in the file"),
    ],
    ids=lambda one: one.__name__ if callable(one) else "",
)
def test_what_cannot_draft_is_refused_in_a_sentence(
    localspec: Command, tmp_path: Path, write: Write, code: int, sentence: str
) -> None:
    target, draft = write(tmp_path)
    found, said, errors = run(localspec, tmp_path, target, draft)
    assert (found, said) == (code, "")
    assert errors.startswith("localspec: ")
    assert sentence in errors
    assert errors.count("\n") == 1
