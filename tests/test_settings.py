from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from localspec.errors import StorageError, UsageError
from localspec.settings import (
    NOT_SETTINGS,
    PREFIX,
    EngineSettings,
    SamplingSettings,
    Settings,
    config_file,
    engine_options,
    fresh_seed,
    load_settings,
    merge,
    sampling_params,
)
from localspec.types import DraftOptions, EngineOptions, SamplingParams


@pytest.fixture(autouse=True)
def no_settings_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith(PREFIX) and name not in NOT_SETTINGS:
            monkeypatch.delenv(name)


def write(text: str) -> Path:
    file = config_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def test_without_any_source_the_defaults_are_those_of_the_values_they_become() -> None:
    settings = load_settings()
    assert settings.model == "smollm2"
    assert engine_options(settings) == EngineOptions()
    assert sampling_params(settings, seed=0) == SamplingParams()


def test_every_setting_has_a_description_and_every_option_a_setting() -> None:
    for group in (
        Settings,
        *(type(getattr(Settings(), name)) for name in ("draft", "sampling", "memory", "ui")),
    ):
        assert all(field.description for field in group.model_fields.values())
    assert set(SamplingSettings.model_fields) == {field.name for field in dataclasses.fields(SamplingParams)}
    options = {field.name for field in dataclasses.fields(EngineOptions)}
    elsewhere = {
        "draft",
        "needs_draft",
        "speculation",
        "chat_template",
        "verify",
        "memory",
        "memory_capacity",
    }
    assert set(EngineSettings.model_fields) == options - elsewhere


def test_the_file_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    write(
        'model = "qwen3"\n[draft]\nspec = "none"\nlength = 4\n[sampling]\ntemperature = 0\ntop_k = 20\n'
        '[engine]\ncontext = 2048\nflash_attention = false\nkv_type = "q8_0"\n'
        '[chat]\nsystem_prompt = "Grüß dich."\n[ui]\npanel = false\ntheme = "nord"\n'
    )
    settings = load_settings()
    assert settings.model == "qwen3"
    assert settings.chat.system_prompt == "Grüß dich."
    assert settings.ui.panel is False
    assert settings.ui.theme == "nord"
    assert engine_options(settings) == EngineOptions(
        context=2048, flash_attention=False, kv_type="q8_0", draft=DraftOptions(spec="none", length=4)
    )
    params = sampling_params(settings)
    assert (params.temperature, params.top_k) == (0.0, 20)


def test_the_short_form_of_draft(monkeypatch: pytest.MonkeyPatch) -> None:
    write('draft = "none"\n')
    assert load_settings().draft.spec == "none"
    write("[draft]\nlength = 3\n")
    monkeypatch.setenv("LOCALSPEC_DRAFT", "none")
    monkeypatch.setenv("LOCALSPEC_DRAFT__NGRAM_MAX", "7")
    draft = load_settings().draft
    assert (draft.spec, draft.length, draft.ngram_max) == ("none", 3, 7)


def test_flags_beat_the_environment_and_the_environment_beats_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write('model = "file"\n[sampling]\ntemperature = 0.1\ntop_k = 1\nmin_p = 0.5\n[chat]\nmax_tokens = 10\n')
    monkeypatch.setenv("LOCALSPEC_MODEL", "environment")
    monkeypatch.setenv("LOCALSPEC_SAMPLING__TEMPERATURE", "0.2")
    monkeypatch.setenv("LOCALSPEC_SAMPLING__TOP_K", "2")
    settings = load_settings()
    assert settings.model == "environment"
    params = sampling_params(settings, {"top_p": 0.7, "min_p": 0.9}, temperature=0.3, top_k=None)
    assert params.temperature == 0.3
    assert params.top_k == 2
    assert params.min_p == 0.5
    assert params.top_p == 0.7
    assert params.repeat_penalty == 1.0
    merged = merge(settings, model="flag", max_tokens=20, system="Be brief.")
    assert (merged.model, merged.chat.max_tokens, merged.chat.system_prompt) == ("flag", 20, "Be brief.")
    assert merged.sampling == settings.sampling
    assert merge(settings, model=None) is settings


def test_a_flag_of_zero_or_false_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    write("[sampling]\ntemperature = 0.5\ntop_k = 10\n[engine]\nflash_attention = true\n")
    settings = load_settings()
    params = sampling_params(settings, temperature=0.0, top_k=0)
    assert (params.temperature, params.top_k) == (0.0, 0)
    assert engine_options(settings, flash_attention=False).flash_attention is False
    assert engine_options(settings, gpu_layers=0).gpu_layers == 0


def test_engine_options_pass_on_what_is_no_setting() -> None:
    options = engine_options(Settings(), chat_template="{{ x }}", speculation=False, draft="none", threads=3)
    assert options.chat_template == "{{ x }}"
    assert options.speculation is False
    assert options.draft.spec == "none"
    assert options.threads == 3


def test_variables_that_are_no_settings_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_TEST_MODEL", "some.gguf")
    monkeypatch.setenv("LOCALSPEC_DEBUG", "1")
    monkeypatch.setenv("LOCALSPEC_MODEL", "")
    assert load_settings() == Settings()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model = = 1\n", ["config.toml is not valid TOML", "line"]),
        ('modle = "x"\n', ["modle in", "config.toml", "did you mean model in"]),
        ("[sampling]\ntemprature = 1\n", ["sampling.temprature in", "did you mean sampling.temperature in"]),
        ("[ui]\nzebra = 1\n", ["ui.zebra in", "known here: theme, panel"]),
        ("[sampling]\ntemperature = 'hot'\n", ["sampling.temperature in", "'hot'", "valid number"]),
        ("[sampling]\ntemperature = -1\n", ["sampling.temperature in", "-1", "greater than or equal to 0"]),
        ("[sampling]\ntemperature = nan\n", ["sampling.temperature in", "finite"]),
        ("[sampling]\ntop_p = 0\n", ["sampling.top_p in", "greater than 0"]),
        ("[engine]\nthreads = true\n", ["engine.threads in", "True", "valid integer"]),
        ("[engine]\ncontext = '4096'\n", ["engine.context in", "valid integer"]),
        ("[ui]\npanel = 1\n", ["ui.panel in", "valid boolean"]),
        ("sampling = 3\n", ["sampling in", "group of settings", "temperature, top_k"]),
        ("[model]\nx = 1\n", ["model in", "valid string"]),
        ('model = ""\n', ["model in", "cannot be '': it should have at least 1 character"]),
        ("[draft]\nngram_min = 6\n", ["draft in", "ngram_min (6) is greater than ngram_max (5)"]),
    ],
)
def test_a_bad_file_is_a_sentence_that_names_file_and_key(text: str, said: list[str]) -> None:
    file = write(text)
    with pytest.raises(UsageError) as caught:
        load_settings()
    message = str(caught.value)
    assert all(part in message for part in [str(file), *said]), message
    assert "\n" not in message


def test_a_file_that_is_no_text_is_a_sentence() -> None:
    file = write("")
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not UTF-8"):
        load_settings()
    file.unlink()
    file.mkdir()
    with pytest.raises(UsageError, match="Cannot read"):
        load_settings()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("LOCALSPEC_MODLE", "x", "no setting LOCALSPEC_MODLE; did you mean LOCALSPEC_MODEL?"),
        ("LOCALSPEC_SAMPLING__SED", "1", "did you mean LOCALSPEC_SAMPLING__SEED?"),
        ("LOCALSPEC_SAMPLING__TOP_K", "many", "LOCALSPEC_SAMPLING__TOP_K cannot be 'many'"),
        ("LOCALSPEC_SAMPLING", "0.5", "LOCALSPEC_SAMPLING is a group of settings"),
        ("LOCALSPEC_MODEL__NAME", "x", "LOCALSPEC_MODEL cannot be"),
        ("LOCALSPEC_UI__PANEL", "perhaps", "LOCALSPEC_UI__PANEL cannot be 'perhaps'"),
        ("LOCALSPEC_UI__PANEL__X", "1", "LOCALSPEC_UI__PANEL cannot be"),
    ],
)
def test_a_bad_variable_is_a_sentence_that_names_it(
    name: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("[sampling]\nseed = 1\n")
    monkeypatch.setenv(name, value)
    with pytest.raises(UsageError) as caught:
        load_settings()
    assert said in str(caught.value)
    assert "config.toml" not in str(caught.value)


def test_sources_that_contradict_each_other_name_both(monkeypatch: pytest.MonkeyPatch) -> None:
    write("[draft]\nngram_max = 3\n")
    monkeypatch.setenv("LOCALSPEC_DRAFT__NGRAM_MIN", "3")
    assert load_settings().draft.ngram_min == 3
    write("[draft]\nngram_max = 4\n")
    monkeypatch.setenv("LOCALSPEC_DRAFT__NGRAM_MIN", "5")
    with pytest.raises(UsageError, match=r"config.toml or LOCALSPEC_DRAFT: ngram_min \(5\) is greater than"):
        load_settings()


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("temperature", -0.1),
        ("temperature", float("inf")),
        ("temperature", float("nan")),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("top_k", -1),
        ("repeat_penalty", 0.0),
        ("presence_penalty", float("nan")),
        ("seed", -1),
    ],
)
def test_a_bad_flag_is_a_sentence_that_names_it(flag: str, value: float) -> None:
    with pytest.raises(UsageError, match=f"^--{flag.replace('_', '-')} cannot be {value}: it "):
        sampling_params(Settings(), **{flag: value})


def test_bad_flags_of_other_groups() -> None:
    with pytest.raises(UsageError, match=r"^--draft-length cannot be 0"):
        engine_options(Settings(), draft_length=0)
    with pytest.raises(UsageError, match=r"^--max-tokens cannot be 0"):
        merge(Settings(), max_tokens=0)
    with pytest.raises(TypeError, match="no flag zebra"):
        merge(Settings(), zebra=1)


def test_a_bad_recommendation_of_a_model_is_a_sentence() -> None:
    with pytest.raises(UsageError, match=r"sampling\.top_p of the model in models\.toml cannot be 2"):
        sampling_params(Settings(), {"top_p": 2})


def test_a_seed_that_is_not_set_is_fresh_every_time() -> None:
    seeds = {sampling_params(Settings()).seed for _ in range(20)}
    # Twenty draws of 31 bits collide with a probability of 1e-7.
    assert len(seeds) == 20
    assert all(0 <= fresh_seed() < 2**31 for _ in range(100))
    assert sampling_params(Settings(), seed=7).seed == 7
    assert sampling_params(Settings(), seed=0).seed == 0


def test_settings_are_read_without_the_engine_or_the_app() -> None:
    code = (
        "import sys; from localspec.settings import load_settings; load_settings();"
        "assert not {'llama_cpp', 'textual', 'rich', 'huggingface_hub', 'psutil'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("text", ["a = " + "[" * 20_000, "a = " + "1" * 5000])
def test_a_file_that_python_itself_cannot_read_is_a_usage_error(text: str) -> None:
    file = write(text)
    with pytest.raises(UsageError, match="is not valid TOML") as caught:
        load_settings()
    assert str(file) in str(caught.value)


@pytest.mark.parametrize(("flag", "value"), [("threads", 513), ("context", 2**31)])
def test_sizes_that_native_code_cannot_hold_are_refused(flag: str, value: int) -> None:
    with pytest.raises(UsageError, match=f"--{flag} cannot be"):
        engine_options(Settings(), **{flag: value})


def test_a_home_of_nobody_is_a_storage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", "~nobody-of-this-name/x")
    with pytest.raises(StorageError, match="no such user"):
        config_file()
