"""`localspec audit`: the verb with a scripted model in its place, what it refuses, and the real model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from localspec.audit.records import Report
from localspec.audit.report import WIDTH
from localspec.cli import app
from localspec.testing import ScriptedModel
from tests.audit.models import StaleModel
from tests.cli.conftest import gguf_text


class Vocabulary(ScriptedModel):
    """What a loaded model has beside tokens."""

    bos = eos = -1
    chat_template = "{% for message in messages %}{{ message.content }}{% endfor %}"

    def token_text(self, token: int) -> str:
        return "" if token < 0 else self.token_bytes(token).decode("utf-8", errors="replace")


@dataclass
class Loaded:
    context: ScriptedModel
    model: Vocabulary = field(default_factory=Vocabulary)
    backend: str = "CPU"
    closed: bool = False

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A file that passes for a model."""
    path = tmp_path / "tiny.gguf"
    key = gguf_text("general.architecture") + (8).to_bytes(4, "little") + gguf_text("llama")
    path.write_bytes(b"GGUF" + (3).to_bytes(4, "little") + bytes(8) + (1).to_bytes(8, "little") + key)
    return path


def call(*args: str) -> Result:
    return CliRunner().invoke(app, ["audit", *args])


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch, tiny: Path) -> Loaded:
    """A sound model in place of the file; its `context` may be replaced."""
    standing = Loaded(ScriptedModel(order=2, spread=3.0))
    monkeypatch.setattr("localspec.bench.files.load_file", lambda path, settings, own: (standing, 0.0))
    return standing


def test_twelve_prompts_are_asked_greedily_and_with_a_seed(loaded: Loaded, tiny: Path) -> None:
    done = call("--model", str(tiny), "--json", "--max-tokens", "20")
    assert (done.exit_code, done.stderr) == (0, "")
    report = Report.model_validate_json(done.stdout)
    assert loaded.closed
    assert (report.file, report.seed, report.max_tokens) == ("tiny", 1, 20)
    assert len(report.plain) == len(report.comparisons) == 24
    tasks = [one.task for one in report.plain if one.temperature == 0]
    assert {task: tasks.count(task) for task in tasks} == {"copy": 6, "explain": 2, "story": 2, "chat": 2}
    assert {one.temperature for one in report.plain} == {0, 0.8}
    assert all(0 < len(one.token_ids) <= 20 for one in report.plain)
    assert report.verdict.same_answer is True


def test_every_drafter_with_every_rule_on_own_prompts(loaded: Loaded, tiny: Path, tmp_path: Path) -> None:
    prompts = tmp_path / "mine.txt"
    prompts.write_text("abcabcabcab\n---\nxyzxyzxyz\n---\nthe same once more\n")
    done = call(
        "--model", str(tiny), "--prompts", str(prompts), "--draft", "none,ngram", "--verify",
        "coupled,rejection", "--draft-length", "3", "--temperature", "0", "--seed", "9", "--json",
    )  # fmt: skip
    report = Report.model_validate_json(done.stdout)
    assert (done.exit_code, report.seed) == (0, 9)
    assert len(report.plain) == 3
    made = {(one.draft, one.verify, one.length) for one in report.comparisons}
    assert made == {(d, v, 3) for d in ("none", "ngram") for v in ("coupled", "rejection")}


def test_the_text_fits_a_terminal(loaded: Loaded, tiny: Path) -> None:
    done = call("--model", str(tiny), "--max-tokens", "20")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith("Same answer: all 24 replies are identical token for token.\n")
    assert all(len(line) <= WIDTH for line in done.stdout.splitlines())


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_fault_exits_1(loaded: Loaded, tiny: Path, form: list[str]) -> None:
    loaded.context = StaleModel(order=2, spread=3.0)
    done = call("--model", str(tiny), "--max-tokens", "40", *form)
    assert (done.exit_code, done.stderr) == (1, "")
    if form:
        assert json.loads(done.stdout)["verdict"]["same_answer"] is False
    else:
        assert done.stdout.startswith("NOT the same answer: ")


def test_a_context_too_small_for_a_prompt(loaded: Loaded, tiny: Path) -> None:
    loaded.context = ScriptedModel(capacity=256)
    done = call("--model", str(tiny), "--context", "256")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "copy reservoir needs" in done.stderr
    assert "raise --context or lower --max-tokens" in done.stderr
    assert done.stderr.count("\n") == 1
    assert loaded.closed


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--draft", "oracle"], 2, "no drafting method 'oracle'"),
        (["--draft", "ngram,"], 2, "--draft is a list"),
        (["--draft-length", "0"], 2, "--draft-length"),
        (["--draft-leaves", "0"], 2, "branches"),
        (["--verify", "hope"], 2, "no verification rule 'hope'"),
        (["--temperature", "-1"], 2, "temperature must be 0 or more"),
        (["--temperature", "nan"], 2, "--temperature"),
        (["--max-tokens", "1"], 2, "--max-tokens must be 2 or more"),
        (["--prompts", "EMPTY"], 2, "is empty"),
        (["--prompts", "missing.txt"], 3, "no file missing.txt"),
        (["--model", "nobody-knows-it"], 3, "nobody-knows-it"),
        (["--verify", "adasd"], 2, "no distribution"),
    ],
)
def test_bad_input_is_a_sentence(
    options: list[str], code: int, said: str, loaded: Loaded, tiny: Path, tmp_path: Path
) -> None:
    empty = tmp_path / "empty.txt"
    empty.write_text("\n")
    options = [str(empty) if option == "EMPTY" else option for option in options]
    if "--model" not in options:
        options += ["--model", str(tiny)]
    done = call(*options)
    assert (done.exit_code, done.stdout) == (code, "")
    assert done.stderr.startswith("localspec: ")
    assert done.stderr.count("\n") == 1
    assert said in done.stderr


@pytest.mark.model
@pytest.mark.parametrize("leaves", ["1", "3"])
def test_the_real_model_gets_a_verdict(smollm2_path: Path, tmp_path: Path, leaves: str) -> None:
    prompts = tmp_path / "two.txt"
    prompts.write_text(
        "Repeat this twice: the red boat, the blue boat, the red boat, the green boat.\n---\n"
        "Name three rivers and say where they end.\n"
    )
    command = [
        sys.executable, "-m", "localspec", "audit", "--model", str(smollm2_path), "--prompts", str(prompts),
        "--max-tokens", "32", "--draft-length", "4", "--draft-leaves", leaves, "--threads", "1", "--context",
        "512", "--json",
    ]  # fmt: skip
    # Warnings are no errors here: llama_cpp, which runs in this process, leaves files open when it ends.
    environment = {**os.environ, "PYTHONUTF8": "1"}
    done = subprocess.run(command, capture_output=True, env=environment, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    report = Report.model_validate_json(done.stdout)
    assert report.verdict.same_answer is True
    assert report.verdict.compared == 4
    assert sum(one.drafted for one in report.comparisons) > 0
    assert report.noise.is_rounding
    assert all(one.token_ids for one in report.plain)
