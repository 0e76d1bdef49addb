"""`localspec bench` as a command: sentences, exit codes, files, an interrupt and going on."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.bench.server_double import serving
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
    done = localspec("bench", "--model", str(smollm2_path), *TINY, "--passes", "1,2,4,9,16", *files)
    assert done.returncode == 0, done.stderr.decode()
    assert "explain" in done.stdout.decode()
    assert "story" in done.stdout.decode()
    document = json.loads(places["--json"].read_text())
    # The contract that other programs read.
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


@contextmanager
def a_bench(model: Path, target: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """`localspec bench` at work; it is gone afterwards."""
    command = [sys.executable, "-m", "localspec", "bench", "--model", str(model), *options]
    running = subprocess.Popen(
        [*command, "--json", str(target)], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with running:
        try:
            yield running
        finally:
            running.kill()


def wait_for(running: subprocess.Popen[bytes], what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not what():
        assert time.monotonic() < deadline
        assert running.poll() is None
        time.sleep(0.02)


@pytest.mark.model
def test_an_interrupt_is_told_and_resume_ends_with_the_whole_table(
    localspec: Command, smollm2_path: Path, tmp_path: Path
) -> None:
    target = tmp_path / "bench.json"
    with a_bench(smollm2_path, target, *TINY, "--passes", "1") as running:
        wait_for(running, lambda: target.exists() and bool(json.loads(target.read_text())["measurements"]))
        running.send_signal(signal.SIGINT)
        _, message = running.communicate(timeout=60)
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
@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGKILL", -9)])
def test_a_bench_that_was_ended_goes_on_with_the_rounds_that_it_made(
    localspec: Command, smollm2_path: Path, tmp_path: Path, name: str, code: int
) -> None:
    target, ledger = tmp_path / "bench.json", tmp_path / "bench.json.rounds.jsonl"
    options = (*TINY[2:], "--tasks", "explain", "--runs", "4", "--passes", "1,9")
    with a_bench(smollm2_path, target, *options) as running:
        # A line that says whose they are, and a round of both modes and one more.
        wait_for(running, lambda: ledger.exists() and ledger.read_bytes().count(b"\n") >= 4)
        running.send_signal(getattr(signal, name))
        running.communicate(timeout=60)
    assert running.returncode == code
    # What is after the last line end was cut off.
    made = [json.loads(line) for line in ledger.read_bytes().split(b"\n")[1:-1]]
    assert not json.loads(target.read_text())["complete"]
    done = localspec("bench", "--json", str(target), "--resume")
    assert done.returncode == 0, done.stderr.decode()
    assert not ledger.exists()
    finished = json.loads(target.read_text())
    assert finished["complete"]
    timings = {m["mode"]: m["timing"]["runs"] for m in finished["measurements"]}
    assert {len(runs) for runs in timings.values()} == {4}
    for one in made:
        assert timings[one["block"][3]][one["number"]] == one["runs"]["0"]["seconds"]


@pytest.mark.model
def test_an_interrupt_while_a_peer_answers(localspec: Command, smollm2_path: Path, tmp_path: Path) -> None:
    target = tmp_path / "bench.json"
    options = (*TINY, "--mode", "free", "--passes", "1")
    with serving() as server:
        with a_bench(smollm2_path, target, *options, "--peer-url", server.url) as running:
            # Warm-up, the first time and two rounds of a prompt: the third question is in its rounds.
            server.delay = 0.2
            wait_for(running, lambda: len(server.asked) >= 3)
            running.send_signal(signal.SIGINT)
            _, message = running.communicate(timeout=60)
        assert running.returncode == 130, message.decode()
        kept = json.loads(target.read_text())
        assert not kept["complete"]
        assert len(kept["measurements"]) == 2
        assert kept["peer_measurements"] == []
        server.delay = 0.005
        done = localspec("bench", "--json", str(target), "--resume")
    assert done.returncode == 0, done.stderr.decode()
    finished = json.loads(target.read_text())
    assert finished["complete"]
    assert finished["measurements"] == kept["measurements"]
    found = [(m["name"], m["config"], m["task"], m["memory"]) for m in finished["peer_measurements"]]
    assert found == [
        ("vLLM", server.url, task, memory) for task in ("explain", "story") for memory in ("cold", "warm")
    ]


@pytest.mark.model
def test_going_on_with_other_prompts_is_refused(
    localspec: Command, smollm2_path: Path, tmp_path: Path
) -> None:
    target, prompts = tmp_path / "bench.json", tmp_path / "mine.txt"
    prompts.write_text("Name three rivers.")
    options = (*TINY[2:], "--prompts", str(prompts), "--mode", "free", "--passes", "1")
    done = localspec("bench", "--model", str(smollm2_path), *options, "--json", str(target))
    assert done.returncode == 0, done.stderr.decode()
    prompts.write_text("Name three lakes.")
    done = localspec("bench", "--json", str(target), "--resume")
    assert done.returncode == 2
    assert "has changed since this bench began" in done.stderr.decode()


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
