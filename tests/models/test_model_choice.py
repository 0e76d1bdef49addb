"""Families by name on this machine, what the machine has, and the commands that use it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from localspec import model_choice, paths
from localspec.errors import IncompatibleError, NotFoundError, UsageError
from localspec.model_files import resolve_drafts, with_files
from localspec.models import registry
from localspec.models.choose import Capacity
from localspec.runtime import bandwidth, devices, survey
from localspec.runtime.devices import Device, DeviceKind
from localspec.types import DraftOptions
from tests.models.registries import family_text, write_user_file

GIB = 2**30


@pytest.fixture
def eight(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a card of 8 GB, and one family on it."""
    monkeypatch.setattr(survey, "capacity", lambda: Capacity(16 * GIB, 8 * GIB, 1))
    write_user_file(family_text(sizes=("0.6b", "8b", "14b"), head="recommended = true"))


@pytest.mark.usefixtures("eight")
def test_a_familys_name_is_the_size_that_fits() -> None:
    found = model_choice.resolve(" tall ")
    assert found.name == "tall-8b"
    assert found.entry == model_choice.find_entry("tall") == registry.entries()["tall-8b"]
    assert found.path is None
    note = "tall: tall-8b Q4_K_M (5.03 GB) fits this machine's 8 GB of GPU memory."
    assert model_choice.chosen_note("tall") == note
    choice = model_choice.choice_of("tall")
    assert choice is not None
    assert choice.place == "gpu"


def test_other_names_ask_nothing_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "capacity", lambda: pytest.fail("the machine was looked at"))
    write_user_file(family_text())
    for name in ("tall-8b", "tall-8b:q6_k", "smollm2", "hf:o/r/f.gguf"):
        assert model_choice.resolve(name) == registry.resolve(name)
        assert model_choice.find_entry(name) == registry.find_entry(name)
        assert model_choice.chosen_note(name) == ""
    for find in (model_choice.resolve, model_choice.find_entry):
        with pytest.raises(NotFoundError, match="nearest: tall"):
            find("tal")


@pytest.mark.usefixtures("eight")
def test_draft_models_can_be_quantizations_and_families() -> None:
    spec = "suffix+tall-8b:Q6_K+tall"
    drafts = resolve_drafts(spec)
    assert [found.name for found in drafts.values()] == ["tall-8b:Q6_K", "tall-0.6b"], (
        "a draft model is quick"
    )
    files = with_files(DraftOptions(spec), drafts).files
    assert [Path(file).name for file in files.values()] == ["tall-8b-Q6_K.gguf", "tall-0.6b-Q8_0.gguf"]
    with pytest.raises(NotFoundError, match='no "Q9" of tall-8b'):
        resolve_drafts("suffix+tall-8b:Q9")
    with pytest.raises(UsageError, match="did you mean tall"):
        resolve_drafts("suffix+tell")
    (head,) = resolve_drafts("suffix+eagle3:hf:o/r/e.gguf").values()
    assert (head.name, head.path) == ("hf-o--r--e.gguf", None)
    with pytest.raises(
        IncompatibleError, match=r"No EAGLE-3 head is known for tall-8b; make one with `local"
    ):
        resolve_drafts("eagle3", model_choice.resolve("tall"))


@pytest.mark.usefixtures("eight")
def test_a_familys_name_is_known_in_any_case() -> None:
    assert model_choice.find_entry("TALL") == model_choice.find_entry("tall")
    assert resolve_drafts("Tall")["Tall"].name == "tall-0.6b"


@pytest.mark.usefixtures("eight")
def test_the_best_for_this_machine_is_of_a_recommended_family() -> None:
    recommended = {name for name, one in registry.catalogue().families.items() if one.recommended}
    choice = model_choice.best_choice()
    assert choice is not None
    assert choice.entry.family in recommended


@pytest.mark.usefixtures("eight")
def test_a_verb_loads_the_chosen_size_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from localspec.cli import common

    flags = common.Flags(**dict.fromkeys(common.Flags.__dataclass_fields__) | {"model": "tall"})
    plan = common.plan(flags)
    assert plan.model.name == "tall-8b"
    assert plan.files.notes == (model_choice.chosen_note("tall"),)


# --- what the machine has


def test_this_machine_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = survey.capacity()
    assert first.ram == survey.system_memory()
    assert first.ram_bandwidth is None or first.ram_bandwidth > 1e8
    monkeypatch.setattr(survey, "_ask", lambda: pytest.fail("it was looked at again"))
    assert survey.capacity() == first
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    with pytest.raises(pytest.fail.Exception):
        survey.capacity()


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ((), (0, 0, False)),
        (("cpu",), (0, 0, False)),
        (("cpu", "gpu", "gpu"), (14, 2, False)),
        (("gpu", "igpu"), (7, 1, False)),
        (("igpu", "accel"), (7, 1, True)),
    ],
)
def test_which_gpus_count(
    kinds: tuple[DeviceKind, ...], expected: tuple[int, int, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [Device(f"D{i}", "", "", kind, 1, 7) for i, kind in enumerate(kinds)]
    monkeypatch.setattr(devices, "devices", lambda: found)
    assert sum(device.total_bytes for device in devices.used_gpus()) == expected[0]
    monkeypatch.setattr(survey.sys, "platform", "linux")
    monkeypatch.setattr(bandwidth, "measured_bandwidth", lambda name=None, **_: 3.0 if name else None)
    values = {key: value for facts in survey.look() for key, value in facts.items()}
    assert (values["vram"], values["gpus"], values["shared"]) == expected
    assert values["vram_bandwidth"] == (3.0 if expected[1] else None)
    assert values["ram_bandwidth"] is None


def test_a_broken_llama_cpp_leaves_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "libllama.so").write_bytes(b"no library")
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", str(tmp_path))
    assert survey.capacity() == Capacity(survey.system_memory())
    assert not (paths.cache_dir() / "survey.json").exists(), "it may be mended any time"


def _child(monkeypatch: pytest.MonkeyPatch, script: str) -> Capacity:
    """What comes of a child that runs `script` in place of the survey."""
    real = subprocess.Popen

    def popen(command: list[str], **given: object) -> object:
        return real([sys.executable, "-c", script], **given)

    monkeypatch.setattr(survey.subprocess, "Popen", popen)
    return survey.capacity()


def test_what_was_found_before_a_crash_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    script = """if True:
        import os, sys
        print("some driver's words")
        print('{"ram": 100, "vram": 50, "gpus": 1, "shared": false}', flush=True)
        os._exit(134)
    """
    assert _child(monkeypatch, script) == Capacity(100, 50, 1)


def test_a_hanging_driver_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "_LONGEST_S", 0.5)
    script = """if True:
        import time
        print('{"ram": 100}', flush=True)
        time.sleep(60)
    """
    assert _child(monkeypatch, script) == Capacity(100)


@pytest.mark.parametrize(
    "said",
    [
        "",
        "3",
        "[]",
        "null",
        '{"ram": "much"}',
        '{"ram": -1}',
        '{"ram": 1, "rom": 2}',
        '{"vram": 1}',
        "{" * 9999,
        "[" * 99999,
    ],
)
def test_nonsense_leaves_the_memory(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script = f"print({said!r})"
    assert _child(monkeypatch, script) == Capacity(survey.system_memory())


@pytest.mark.parametrize("damage", ["", "{}", "[]", '{"key": 1}', "\x00"])
def test_a_damaged_note_is_made_anew(damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "_ask", lambda: Capacity(5))
    assert survey.capacity() == Capacity(5)
    file = paths.cache_dir() / "survey.json"
    kept = json.loads(file.read_text())
    for text in (damage, json.dumps(kept | {"capacity": {"ram": "x"}}), json.dumps(kept | {"time": 0})):
        file.write_text(text)
        monkeypatch.setattr(survey, "_ask", lambda: Capacity(6))
        assert survey.capacity() == Capacity(6)


def test_a_cache_that_cannot_be_written_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    paths.cache_dir().parent.mkdir(parents=True, exist_ok=True)
    paths.cache_dir().write_text("a file where a folder should be")
    monkeypatch.setattr(survey, "_ask", lambda: Capacity(5))
    assert survey.capacity() == Capacity(5)
