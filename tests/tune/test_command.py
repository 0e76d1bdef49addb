"""`localspec tune` as a command: sentences and exit codes, what it prints and writes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from localspec.cli import app
from localspec.settings import load_settings
from localspec.tune.records import Advice, Fidelity, Trial, Tuning, Value
from localspec.tune.tuner import Tuner, Wanted
from tests.tune.ggufs import write_gguf

# The command shares its module's name.
command = sys.modules["localspec.cli.tune"]


@pytest.fixture
def tune(tmp_path: Path) -> Callable[..., Result]:
    """Run it on a file that is a model by its header."""
    model = write_gguf(tmp_path / "tiny.gguf", file_type=2)
    return lambda *options: CliRunner().invoke(app, ["tune", "--model", str(model), *map(str, options)])


@pytest.mark.parametrize(
    ("options", "code", "word"),
    [
        (("--minutes", "0"), 2, "--minutes must be above 0"),
        (("--minutes", "-3"), 2, "--minutes must be above 0"),
        (("--minutes", "nan"), 2, "--minutes must be above 0"),
        (("--minutes", "1e9"), 2, "--minutes must be above 0"),
        (("--prompts", "missing.txt"), 3, "missing.txt"),
        (("--prompts", "empty.txt"), 2, "empty.txt is empty"),
        (("--from-history", "0"), 2, "--from-history takes a number"),
        (("--from-history", "5"), 2, "There is no conversation"),
        (("--draft", "magic"), 2, "magic"),
        (("--draft", "ngram,,"), 2, "--draft is a list"),
        (("--draft", "missing.gguf"), 3, "missing.gguf"),
        (("--threads", "0"), 2, "--threads: 0 is out of range"),
        (("--threads", "many"), 2, "is not a number"),
        (("--json", "nowhere/tune.json"), 1, "nowhere"),
        (("--model", "no-such-model"), 3, "no-such-model"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    tune: Callable[..., Result],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    code: int,
    word: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.txt").write_text("\n")
    done = tune(*options)
    assert done.exit_code == code, done.output
    assert done.stderr.startswith("localspec: ")
    assert word in done.stderr
    assert done.stdout == ""


def found(settings: dict[str, Value], **more: object) -> Tuning:
    trials = (
        Trial(
            stage="engine",
            name="auto threads, flash auto (present)",
            present=True,
            speed=1.0,
            within=0.0,
            rounds=4,
            pass_ms={1: 5.0, 9: 25.0},
        ),
        Trial(stage="engine", name="1 thread, flash on", note="untried: no time"),
        Trial(
            stage="draft",
            name="ngram fixed:4",
            speed=1.31,
            within=0.03,
            rounds=6,
            prompts=6,
            of_plain=1.2,
            kinds={"copy": 2.0, "[bold]story\x1b[2J": 0.99},
        ),
        Trial(
            stage="file",
            name="Q8_0, ngram fixed:4",
            speed=1.4,
            within=0.02,
            rounds=3,
            bytes=145_000_000,
            fidelity=Fidelity(tokens=500, divergence=0.0123, agreement=0.97),
        ),
    )
    values: dict[str, object] = {
        "model": "tiny",
        "file": "tiny",
        "minutes": 5.0,
        "started": "2026-01-01T00:00:00+00:00",
        "complete": True,
        "trials": trials,
        "notes": ("A note with [bold]markup.",),
        "advice": Advice(settings=settings, speed=1.31, within=0.03, sentences=("Do this.",)),
    }
    return Tuning(**(values | more))


@pytest.fixture
def tuned(monkeypatch: pytest.MonkeyPatch) -> Callable[[Tuning], list[Wanted]]:
    """Have the measuring find this; what was wanted is told."""

    def use(result: Tuning) -> list[Wanted]:
        asked: list[Wanted] = []
        monkeypatch.setattr(command, "_tuned", lambda wanted: (asked.append(wanted), result)[1])
        return asked

    return use


def test_the_table_fits_and_says_it_all(
    tune: Callable[..., Result], tuned: Callable[[Tuning], list[Wanted]], tmp_path: Path
) -> None:
    asked = tuned(found({"draft.spec": "ngram", "draft.policy": "fixed:4", "draft.length": None}))
    target = tmp_path / "tune.json"
    done = tune("--json", target, "--threads", "1,2", "--no-quantize", "--minutes", "2", "--draft", "ngram")
    assert done.exit_code == 0, done.output
    text = done.stdout
    for words in (
        "ngram fixed:4",
        "1.31x",
        "3%",
        "0.99x [bold]story",
        "145.0 MB",
        "0.0123",
        "97.0%",
        "Untried (no time): 1 thread",
        "A note with [bold]markup.",
        'draft.policy = "fixed:4"',
        "# without draft.length",
    ):
        assert words in text
    assert "\x1b" not in text
    assert all(len(line) <= 80 for line in text.splitlines())
    assert Tuning.model_validate_json(target.read_text()) == found(
        {"draft.spec": "ngram", "draft.policy": "fixed:4", "draft.length": None}
    )
    wanted = asked[0]
    assert (wanted.threads, wanted.quantize, wanted.minutes, wanted.drafts) == (
        (1, 2),
        False,
        2.0,
        ("ngram",),
    )
    assert [task.name for task in wanted.tasks] == list(command._TASKS)
    # Nobody asked for it to be written.
    assert load_settings().draft.spec == "auto"


def test_write_puts_it_into_the_config_file(
    tune: Callable[..., Result], tuned: Callable[[Tuning], list[Wanted]], private_home: Path
) -> None:
    tuned(found({"draft.spec": "ngram", "engine.threads": 2}))
    file = private_home / "config" / "config.toml"
    file.parent.mkdir()
    file.write_text("# mine\n[engine]\nthreads = 4 # four\n")
    done = tune("--write")
    assert done.exit_code == 0, done.output
    assert "Written to" in done.stderr
    assert file.read_text().startswith("# mine\n[engine]\nthreads = 2 # four\n")
    assert load_settings().draft.spec == "ngram"


@pytest.mark.parametrize("yes", [True, False])
def test_a_terminal_is_asked_before(
    tune: Callable[..., Result],
    tuned: Callable[[Tuning], list[Wanted]],
    monkeypatch: pytest.MonkeyPatch,
    yes: bool,
) -> None:
    tuned(found({"draft.spec": "ngram"}))
    questions: list[str] = []
    monkeypatch.setattr(command, "_somebody_answers", lambda: True)
    monkeypatch.setattr(typer, "confirm", lambda text, **how: (questions.append(text), yes)[1])
    done = tune("--write")
    assert done.exit_code == 0
    assert len(questions) == 1
    assert load_settings().draft.spec == ("ngram" if yes else "auto")


def test_nothing_to_write_is_said(
    tune: Callable[..., Result], tuned: Callable[[Tuning], list[Wanted]], private_home: Path
) -> None:
    tuned(found({}))
    done = tune("--write")
    assert done.exit_code == 0
    assert "Nothing was written" in done.stderr
    assert not (private_home / "config").exists()


def test_the_environment_that_beats_the_file_is_named(
    tune: Callable[..., Result], tuned: Callable[[Tuning], list[Wanted]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_DRAFT", "suffix")
    tuned(found({"draft.spec": "ngram"}))
    assert "LOCALSPEC_DRAFT is set" in tune("--write").stderr


def test_an_interrupt_prints_what_is_known(
    tune: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(self: Tuner) -> Tuning:
        self.found = found({}, complete=False, advice=None)
        raise KeyboardInterrupt

    monkeypatch.setattr(Tuner, "run", run)
    target = tmp_path / "tune.json"
    done = tune("--json", target, "--write")
    assert done.exit_code == 130
    assert "ngram fixed:4" in done.stdout
    assert "Interrupted" in done.stdout
    assert json.loads(target.read_text())["complete"] is False
    assert load_settings().draft.spec == "auto"


@pytest.mark.model
def test_the_real_model_within_seconds(smollm2_path: Path, tmp_path: Path) -> None:
    target = tmp_path / "tune.json"
    prompts = tmp_path / "mine.txt"
    prompts.write_text("Say red, green, blue, and again red, green, blue.")
    options = ["--minutes", "0.08", "--threads", "1", "--draft", "ngram", "--context", "512"]
    files = ["--prompts", str(prompts), "--json", str(target)]
    done = CliRunner().invoke(app, ["tune", "--model", str(smollm2_path), *options, *files])
    assert done.exit_code == 0, done.output
    result = Tuning.model_validate_json(target.read_text())
    assert result.complete
    assert result.advice is not None
    # However slow the machine is: what was measured is there, and what was not says so.
    assert result.of("engine")[0].present
    assert all(trial.speed is not None or trial.note for trial in result.trials)
    assert "left" in done.stderr
