"""`localspec models check` on small files, as a shell sees it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Command
from tests.heads import alphabet
from tests.models.vocabularies import bpe_metadata, spm_metadata, write

CHATML = "{{ '<|im_start|>' }}"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return write(tmp_path / "target.gguf", bpe_metadata(template=CHATML), rows=640)


def test_a_pair_of_one_family(localspec: Command, target: Path, tmp_path: Path) -> None:
    draft = write(tmp_path / "draft.gguf", bpe_metadata(padding=2, adds_bos=False, template=CHATML))
    done = localspec("models", "check", str(target), str(draft))
    assert done.returncode == 0, done.stderr
    assert b"localspec: " not in done.stderr
    lines = [" ".join(line.split()) for line in done.stdout.decode().splitlines()]
    assert lines[:8] == [
        "TARGET DRAFT",
        "file target.gguf draft.gguf",
        "vocabulary BPE (gpt-2) BPE (gpt-2)",
        "tokens 270 272",
        'beginning of text 1 "<|start|>" 1 "<|start|>"',
        'end of text 0 "<|end|>" 0 "<|end|>"',
        'ends a reply 0 "<|end|>" 0 "<|end|>"',
        "chat template yes yes",
    ]
    assert lines[8] == "context 128 tokens 128 tokens"
    assert lines[9].startswith("memory, 128 tokens ")
    assert lines[10:] == ["Yes: token ids mean the same in both."]


def test_a_pair_that_drafts_through_text(localspec: Command, target: Path, tmp_path: Path) -> None:
    draft = write(tmp_path / "draft.gguf", spm_metadata())
    done = localspec("models", "check", str(target), str(draft))
    assert done.returncode == 0
    shown = done.stdout.decode()
    row = next(line for line in shown.splitlines() if line.startswith("first different token, 5 "))
    assert row.split()[-2:] == ['"Ā"', '"<0x02>"']
    assert shown.splitlines()[-1].startswith(
        "Yes, through text: draft.gguf has another vocabulary than the target (the draft's tokenizer is SPM, "
        "the target's BPE), "
    )
    found = check_json(localspec, target, draft)
    assert (found["verdict"], found["can_draft"]) == ("text", True)
    assert found["first_difference"] == {"id": 5, "target_text": "Ā", "draft_text": "<0x02>"}
    assert len(found["reasons"]) == 3
    assert found["note"] in found["sentence"]
    assert found["target"]["vocabulary"] == {
        "type": "BPE",
        "pre_tokenizer": "gpt-2",
        "size": 270,
        "bos": 1,
        "eos": 0,
        "adds_bos": False,
        "adds_eos": False,
        "ends_a_reply": [0],
    }
    assert found["draft"]["vocabulary"]["adds_bos"] is True
    assert found["draft"]["trained_context"] == 128
    memory = found["draft"]["memory"]
    assert memory["context"] == 128
    assert 0 < memory["weights"] < memory["total"]
    assert memory["kv_cache"] > 0


def test_a_pair_that_cannot_draft(localspec: Command, target: Path, tmp_path: Path) -> None:
    larger = write(tmp_path / "larger.gguf", bpe_metadata(adds_bos=True), rows=6400)
    done = localspec("models", "check", str(target), str(larger))
    assert done.returncode == 4, done.stderr
    assert b"localspec: " not in done.stderr
    shown = done.stdout.decode()
    assert "BPE (gpt-2)" in shown
    assert shown.splitlines()[-1] == (
        "No: larger.gguf cannot draft for target.gguf: it is larger (51.2k parameters against 5.12k); choose "
        "a smaller one for --draft."
    )
    found = check_json(localspec, target, larger, code=4)
    assert (found["verdict"], found["can_draft"], found["note"]) == ("none", False, None)
    assert [reason.split()[0] for reason in found["reasons"]] == ["larger.gguf", "texts"]


def test_files_that_are_no_models(localspec: Command, target: Path, tmp_path: Path) -> None:
    projector = write(tmp_path / "mmproj.gguf", {"general.architecture": "clip", "general.type": "mmproj"})
    done = localspec("models", "check", str(target), str(projector))
    assert done.returncode == 4, done.stderr
    assert b"localspec: " not in done.stderr
    assert done.stdout.decode().splitlines()[-1] == (
        "No: mmproj.gguf cannot draft by itself: it is the part of a model that sees or hears (a projector); "
        "choose another --draft."
    )
    found = check_json(localspec, projector, target, code=4)
    assert found["target"]["vocabulary"] is None
    assert found["sentence"].startswith("No: mmproj.gguf cannot be a target")


def test_a_head_is_checked_as_one(localspec: Command, tmp_path: Path) -> None:
    target, head = alphabet.target(tmp_path / "target.gguf"), alphabet.dflash(tmp_path / "head.gguf")
    done = localspec("models", "check", str(target), str(head))
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().splitlines()[-1] == (
        "Yes: head.gguf is a DFlash head, with blocks of 4 tokens, which drafts from the states of the "
        "model's layers 1, 2."
    )
    found = check_json(localspec, target, head)
    assert (found["can_draft"], found["head"], found["draft"]["vocabulary"]) == (True, "dflash", None)
    named = localspec("models", "check", str(target), f"dflash:{head}")
    assert named.stdout == done.stdout


def test_a_head_that_does_not_fit_is_refused_with_the_reason(localspec: Command, tmp_path: Path) -> None:
    target = alphabet.target(tmp_path / "target.gguf")
    far = alphabet.dflash(tmp_path / "far.gguf", layers=(1, 9))
    found = check_json(localspec, target, far, code=4)
    assert (found["verdict"], found["head"]) == ("none", "dflash")
    assert "it reads layer 9, and this one has layers 0 to " in found["sentence"]
    other = localspec("models", "check", str(target), f"eagle3:{far}")
    assert other.returncode == 4
    assert b"far.gguf cannot draft as EAGLE-3" in other.stdout


def test_a_models_own_prediction_layers(localspec: Command, tmp_path: Path) -> None:
    target, plain = alphabet.target_mtp(tmp_path / "own.gguf"), alphabet.target(tmp_path / "plain.gguf")
    done = localspec("models", "check", str(target), "mtp")
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().splitlines()[-1] == (
        "Yes: the model itself has an MTP head, which drafts from the states of the model's last layer."
    )
    none = localspec("models", "check", str(plain), "mtp")
    assert none.returncode == 4
    assert none.stderr.decode().strip() == (
        "localspec: No MTP head is known for plain; name one with --draft mtp:PATH."
    )


def test_what_is_not_there(localspec: Command, target: Path, tmp_path: Path) -> None:
    done = localspec("models", "check", str(target), str(tmp_path / "none.gguf"))
    assert done.returncode == 3
    assert b"There is no file" in done.stderr
    done = localspec("models", "check", "smollm2", str(target))
    assert done.returncode == 3
    assert b"smollm2 is not fetched yet; run `localspec models pull smollm2`." in done.stderr
    assert done.stdout == b""


def check_json(localspec: Command, target: Path, draft: Path, code: int = 0) -> dict[str, Any]:
    done = localspec("models", "check", str(target), str(draft), "--json")
    assert done.returncode == code, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found
