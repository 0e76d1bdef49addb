"""`--draft` with models: names, paths, cascades, and what the engine is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from localspec.model_files import WantedFiles, draft_label, resolve_drafts, with_files, without
from localspec.models import registry
from localspec.types import DraftOptions, EngineOptions
from tests.cli.conftest import Command
from tests.models.conftest import gguf_bytes


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A target, and a smaller model known as "little" beside it."""
    for name, width in (("target", 640), ("little", 64)):
        tensors = (("token_embd.weight", (width, 8), 8),)
        (tmp_path / f"{name}.gguf").write_bytes(gguf_bytes(tensors=tensors))
    file = registry.user_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    little = (tmp_path / "little.gguf").as_posix()
    away = (tmp_path / "away.gguf").as_posix()
    file.write_text(f'[models.little]\nsource = "{little}"\n[models.away]\nsource = "{away}"\n')
    return tmp_path


def told(scripted: Command, models: Path, *arguments: str, **environment: str) -> dict[str, Any]:
    """What `run` tells the engine."""
    done = scripted("echo", "run", "Hi", "--model", str(models / "target.gguf"), *arguments)
    assert done.returncode == 0, done.stderr.decode()
    return dict(json.loads(done.stdout)["load"]["options"])


@pytest.mark.parametrize("spec", ["little", "suffix+little", "{}/little.gguf", "suffix+{}/little.gguf"])
def test_the_engine_is_told_the_files(scripted: Command, models: Path, spec: str) -> None:
    spec = spec.format(models)
    options = told(scripted, models, "--draft", spec, "--draft-context", "256", "--draft-gpu-layers", "3")
    draft = options["draft"]
    assert draft["spec"] == spec
    assert draft["files"] == {spec.removeprefix("suffix+"): str(models / "little.gguf")}
    assert (draft["window"], draft["gpu_layers"]) == (256, 3)
    assert options["needs_draft"] is True


def test_settings_have_the_same(
    scripted: Command, models: Path, private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = private_home / "config" / "config.toml"
    config.write_text('[draft]\nspec = "little"\ncontext = 128\ngpu_layers = 0\n', encoding="utf-8")
    draft = told(scripted, models)["draft"]
    assert (draft["spec"], draft["window"], draft["gpu_layers"]) == ("little", 128, 0)
    monkeypatch.setenv("LOCALSPEC_DRAFT__CONTEXT", "99")
    assert told(scripted, models)["draft"]["window"] == 99
    assert told(scripted, models, "--draft", "none", "--draft-context", "70")["draft"]["window"] == 70


def test_json_says_who_drafts(scripted: Command, models: Path) -> None:
    arguments = ("run", "Hi", "--model", str(models / "target.gguf"), "--draft", "suffix+little", "--json")
    assert json.loads(scripted("reply", *arguments).stdout)["draft"] == "suffix+little"


@pytest.mark.parametrize(
    ("spec", "code", "words"),
    [
        (
            "litle",
            2,
            "'litle' and no model of that name (did you mean little?); use one of: none, ngram,",
        ),
        ("suffix+ngramm", 2, "'ngramm' and no model of that name (did you mean ngram?)"),
        ("zzz", 2, "see `localspec models list`"),
        ("{}/missing.gguf", 3, "There is no file"),
        ("hf:nothing", 2, "not of the form hf:OWNER/REPO/file.gguf"),
        ("{}/target.gguf", 4, "is the target itself"),
        ("{}/larger.gguf", 4, "is larger"),
        ("{}/sentence.gguf", 4, "an encoder (bert), which cannot write text"),
        ("{}/text.gguf", 1, "is not a GGUF model"),
        ("little+little", 2, "cannot be combined"),
        ("none+little", 2, "cannot be combined"),
        ("away", 3, "The file of away is gone"),
    ],
)
def test_what_cannot_draft_is_said_in_a_sentence(
    scripted: Command, models: Path, spec: str, code: int, words: str
) -> None:
    (models / "larger.gguf").write_bytes(gguf_bytes(tensors=(("token_embd.weight", (6400, 8), 8),)))
    (models / "sentence.gguf").write_bytes(gguf_bytes({"general.architecture": "bert"}))
    (models / "text.gguf").write_text("no model")
    done = scripted(
        "reply", "run", "Hi", "--model", str(models / "target.gguf"), "--draft", spec.format(models)
    )
    assert done.returncode == code, done.stderr.decode()
    said = done.stderr.decode()
    assert words in said
    assert said.removeprefix("Fetching away.\n").count("\n") == 1
    assert done.stdout == b""


@pytest.mark.parametrize("option", [("--draft-context", "3"), ("--draft-gpu-layers", "-1")])
def test_values_out_of_range(scripted: Command, models: Path, option: tuple[str, str]) -> None:
    done = scripted("reply", "run", "Hi", "--model", str(models / "target.gguf"), *option)
    assert done.returncode == 2
    assert option[0] in done.stderr.decode()


def test_a_draft_model_that_cannot_be_fetched(models: Path) -> None:
    drafts = resolve_drafts("suffix+away")
    options = EngineOptions(draft=with_files(DraftOptions("suffix+away"), drafts), needs_draft=False)
    wanted = WantedFiles(registry.resolve(str(models / "target.gguf")), options, drafts)
    assert wanted.missing == ("away",)
    found = wanted.find()
    assert found.options.draft == DraftOptions("suffix")
    assert found.notes[0].endswith("The chat goes on with --draft suffix.")
    assert without(DraftOptions("away"), "away").spec == "none"


def test_names_for_people() -> None:
    assert draft_label("suffix+/a/b+c/Model.Q2_K.gguf") == "suffix+Model.Q2_K"
    assert draft_label("hf:owner/repo/x.gguf") == "x"
    assert draft_label("qwen3-0.6b") == "qwen3-0.6b"


@pytest.mark.model
def test_an_audit_of_a_draft_model(localspec: Command, smollm2_path: Path, tmp_path: Path) -> None:
    from localspec.runtime.quantize import requantize

    draft = tmp_path / "draft.Q2_K.gguf"
    requantize(smollm2_path, draft, "Q2_K", threads=1)
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "Say hello to the sea."}\n', encoding="utf-8")
    options = ("--prompts", str(prompts), "-n", "12", "--threads", "1", "--context", "256", "--json")
    done = localspec(
        "audit", "--model", str(smollm2_path), "--draft", f"{draft},suffix+{draft}", "--draft-length", "4",
        *options,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    report = json.loads(done.stdout)
    assert {one["draft"] for one in report["comparisons"]} == {str(draft), f"suffix+{draft}"}
    assert all(one["drafted"] > 0 for one in report["comparisons"] if one["draft"] == str(draft))
    refused = localspec("audit", "--model", str(smollm2_path), "--draft", str(smollm2_path), *options)
    assert refused.returncode == 4
    assert "is the target itself" in refused.stderr.decode()
