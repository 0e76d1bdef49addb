"""`localspec bench` as a command: sentences, exit codes, files, an interrupt and going on."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.conftest import Command, environment
from tests.cli.terminal import run_in_terminal

TINY = (
    "--tasks",
    "explain,story",
    "-n",
    "16",
    "--runs",
    "1",
    "--threads",
    "1",
    "--no-startup",
    "--context",
    "512",
)


@pytest.mark.parametrize(
    ("options", "code", "word"),
    [
        (("--tasks", "nonsense"), 2, "nonsense"),
        (("--draft", "magic"), 2, "magic"),
        (("--synthetic", "nan"), 2, "finite"),
        (("--mode", "dream"), 2, "dream"),
        (("--model", "no-such-model"), 3, "no-such-model"),
        (("--prompts", "missing.txt"), 3, "missing.txt"),
        (("--json", "missing/bench.json"), 1, "missing"),
        (("--markdown", "."), 1, "folder"),
        pytest.param(
            *(("--csv", "/proc/bench.csv"), 1, "Cannot write"),
            marks=pytest.mark.skipif(
                not Path("/proc/self").exists(), reason="a folder that nobody can write to"
            ),
        ),
        (("--resume",), 3, "bench"),
        (("--resume", "--runs", "2"), 2, "--runs"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    localspec: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    code: int,
    word: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = localspec("bench", *options)
    message = done.stderr.decode()
    assert done.returncode == code, message
    assert message.startswith("localspec: ")
    assert word in message
    assert "Traceback" not in message
    assert done.stdout == b""


@pytest.mark.model
def test_a_bench_writes_what_was_asked_for(localspec: Command, smollm2_path: Path, tmp_path: Path) -> None:
    places = {
        "--json": tmp_path / "bench.json",
        "--csv": tmp_path / "bench.csv",
        "--markdown": tmp_path / "bench.md",
        "--plots": tmp_path / "pictures",
    }
    files = [part for option, path in places.items() for part in (option, str(path))]
    done = localspec("bench", "--model", str(smollm2_path), *TINY, *files)
    assert done.returncode == 0, done.stderr.decode()
    assert "explain" in done.stdout.decode()
    assert "story" in done.stdout.decode()
    document = json.loads(places["--json"].read_text())
    # The contract that other programs read (DESIGN section 5).
    for field in ("machine", "model", "cost_curve", "rows", "peers"):
        assert field in document
    assert document["cost_curve"]["1"] == 1.0
    assert len(document["rows"]) == 4
    for row in document["rows"]:
        for field in (
            *("task", "draft", "tokens_per_second", "baseline_tokens_per_second", "speedup"),
            *("acceptance_rate", "acceptance_length", "oracle_speedup", "identical", "first_divergence"),
        ):
            assert field in row
    with places["--csv"].open() as lines:
        assert len(list(csv.DictReader(lines))) == 4
    text = places["--markdown"].read_text()
    pictures = sorted(path.name for path in places["--plots"].glob("*.svg"))
    assert pictures
    assert all(f"pictures/{name}" in text for name in pictures)


@pytest.mark.model
def test_an_interrupt_is_told_and_resume_ends_with_the_whole_table(
    localspec: Command, smollm2_path: Path, tmp_path: Path
) -> None:
    target = tmp_path / "bench.json"
    command = [
        sys.executable,
        "-m",
        "localspec",
        "bench",
        "--model",
        str(smollm2_path),
        *TINY,
        "--json",
        str(target),
    ]
    running = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 60
        while not (target.exists() and json.loads(target.read_text())["measurements"]):
            assert time.monotonic() < deadline
            assert running.poll() is None
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        _, message = running.communicate(timeout=60)
    finally:
        running.kill()
    assert running.returncode == 130, message.decode()
    assert f"localspec bench --json {target} --resume" in message.decode()
    kept = json.loads(target.read_text())
    assert not kept["complete"]
    done = localspec("bench", "--json", str(target), "--resume")
    assert done.returncode == 0, done.stderr.decode()
    finished = json.loads(target.read_text())
    assert finished["complete"]
    assert len(finished["rows"]) == 4
    assert finished["measurements"][: len(kept["measurements"])] == kept["measurements"]


@pytest.mark.model
def test_a_prompt_may_have_any_name_on_a_terminal(smollm2_path: Path, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"name": "\x07closes [/bold]", "prompt": "Hi"}))
    options = ("--model", str(smollm2_path), "--prompts", str(prompts), *TINY[2:], "--mode", "free")
    command = [sys.executable, "-m", "localspec", "bench", *options, "--passes", "1"]
    code, written = run_in_terminal(command, environment() | {"LOCALSPEC_HOME": str(tmp_path)})
    assert code == 0, written
    assert "prompts, closes [/bold], free" in written
    assert "\x07" not in written
