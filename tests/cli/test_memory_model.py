"""The memory on the real model: replies are kept as they were said, and go when they are to go."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from localspec.memory.files import log_path
from localspec.memory.log import TokenLog
from localspec.models.gguf import read_header
from localspec.paths import data_dir, memory_dir
from tests.cli.conftest import Command
from tests.memory.test_log import token_bytes

pytestmark = pytest.mark.model


def reply_of(done: subprocess.CompletedProcess[bytes]) -> dict[str, Any]:
    assert (done.returncode, done.stderr) == (0, b"")
    reply: dict[str, Any] = json.loads(done.stdout)
    return reply


def test_a_reply_is_remembered_and_forgotten(localspec: Command, smollm2_path: Path, tmp_path: Path) -> None:
    options = ["--model", str(smollm2_path), "--threads", "1", "--temperature", "0", "--max-tokens", "12"]
    asked = ["run", "Name three rivers.", *options, "--json"]
    plain = reply_of(localspec(*asked, "--no-memory"))
    assert not memory_dir().exists()
    first = reply_of(localspec(*asked))
    assert first["token_ids"] == plain["token_ids"]
    fingerprint = read_header(smollm2_path).fingerprint
    log = TokenLog(log_path(memory_dir(), fingerprint), fingerprint)
    (record,) = log.refresh().records
    assert record.tokens.tolist() == first["token_ids"]
    size = log.path.stat().st_size
    reply_of(localspec(*asked))
    assert log.path.stat().st_size > size
    (again,) = log.refresh().records
    assert again.conversation != record.conversation

    text = tmp_path / "notes.txt"
    text.write_text("The Rhine, the Elbe and the Danube.")
    for _ in range(2):
        # llama_cpp leaves files open, about which Python is silent unless told otherwise.
        told = localspec("memory", "import", str(text), "--model", str(smollm2_path), PYTHONWARNINGS="")
        assert (told.returncode, told.stderr) == (0, b"")
    assert len(log.refresh().records) == 3
    for name in (record.conversation, again.conversation):
        assert localspec("memory", "forget", "--conversation", name).returncode == 0
    assert token_bytes(first["token_ids"][:4]) not in log.path.read_bytes()
    assert len(log.refresh().records) == 1


def test_a_memory_that_cannot_be_used_is_told_and_the_reply_comes(
    localspec: Command, smollm2_path: Path
) -> None:
    data_dir().mkdir(parents=True)
    memory_dir().write_text("in the way")
    options = ["--model", str(smollm2_path), "--threads", "1", "--max-tokens", "4", "--json"]
    done = localspec("run", "Hi", *options)
    assert (done.returncode, len(json.loads(done.stdout)["token_ids"])) == (0, 4)
    assert done.stderr.count(b"note: ") == done.stderr.count(b"\n") == 1
    assert b"goes on without it" in done.stderr
    assert memory_dir().read_text() == "in the way"
