"""`localspec models scan`, `add` and `rm` as a shell sees them."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from localspec.errors import UsageError
from localspec.models import own, registry
from tests.models.commands import localspec
from tests.models.conftest import gguf_bytes


def put(path: Path, name: str, **metadata: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gguf_bytes(metadata={"general.name": name, **metadata}))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two models, a projector, and a file that is cut short."""
    folder = tmp_path / "models"
    put(folder / "One-Q8_0.gguf", "One")
    put(folder / "deep" / "two.gguf", "Two")
    put(folder / "mmproj.gguf", "Eye", **{"general.type": "mmproj"})
    (folder / "cut.gguf").write_bytes(gguf_bytes()[:200])
    return folder


def test_scan_adds_what_it_finds(folder: Path) -> None:
    done = localspec("models", "scan", str(folder))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["NAME", "SIZE", "FROM", "STATE", "FILE"]
    assert "one-q8_0" in done.stdout
    assert any("mmproj.gguf: " in line and "projector" in line for line in lines)
    assert any("cut.gguf: " in line and "damaged" in line for line in lines)
    assert "2 models added" in lines[-1]
    again = localspec("models", "scan", str(folder))
    assert "known already" in again.stdout
    path = localspec("models", "path", "one-q8_0")
    assert path.stdout == f"{folder / 'One-Q8_0.gguf'}\n"


def test_a_dry_run_changes_nothing(folder: Path, private_home: Path) -> None:
    done = localspec("models", "scan", "--dry-run", str(folder))
    assert "2 models would be added" in done.stdout
    assert list(private_home.rglob("*")) == []


def test_scan_as_json(folder: Path) -> None:
    done = localspec("models", "scan", "--json", str(folder))
    found = json.loads(done.stdout)
    assert [one["name"] for one in found["added"]] == ["one-q8_0", "two"]
    assert found["added"][0]["quantization"] == "Q8_0"
    assert [len(found[key]) for key in ("known", "other", "broken", "notes")] == [0, 1, 1, 0]
    assert registry.entries()["two"].is_local
    found = json.loads(localspec("models", "scan", "--json", str(folder)).stdout)
    assert [len(found[key]) for key in ("added", "known")] == [0, 2]


def test_scan_looks_into_the_home_folder(tmp_path: Path) -> None:
    put(tmp_path / ".lmstudio" / "models" / "ada" / "Alpha" / "alpha.gguf", "Alpha")
    unset = dict.fromkeys(("HF_HOME", "HF_HUB_CACHE", "OLLAMA_MODELS", "LLAMA_CACHE", "XDG_CACHE_HOME"), "")
    done = localspec("models", "scan", "--json", HOME=str(tmp_path), USERPROFILE=str(tmp_path), **unset)
    assert [one["title"] for one in json.loads(done.stdout)["added"]] == ["ada/Alpha"]


def test_scan_of_what_is_no_folder(folder: Path, tmp_path: Path) -> None:
    missing = localspec("models", "scan", str(tmp_path / "nowhere"))
    assert (missing.returncode, missing.stdout) == (3, "")
    file = localspec("models", "scan", str(folder / "deep" / "two.gguf"))
    assert (file.returncode, file.stdout) == (2, "")
    assert "models add" in file.stderr
    (tmp_path / "empty").mkdir()
    assert "No GGUF file in" in localspec("models", "scan", str(tmp_path / "empty")).stdout


def test_add_and_forget(folder: Path) -> None:
    file = folder / "One-Q8_0.gguf"
    done = localspec("models", "add", str(file), "--name", "mine")
    assert done.returncode == 0, done.stderr
    assert "localspec chat --model mine" in done.stdout
    assert registry.resolve("mine").path == file
    taken = localspec("models", "add", str(folder / "deep" / "two.gguf"), "--name", "MINE")
    assert (taken.returncode, taken.stdout) == (2, "")
    assert "known already, as mine" in localspec("models", "add", str(file)).stdout
    forgotten = localspec("models", "rm", "mine")
    assert forgotten.returncode == 0, forgotten.stderr
    assert "its file stays" in forgotten.stdout
    assert file.is_file()
    assert "mine" not in registry.entries()


def test_a_file_that_is_gone_is_told(folder: Path) -> None:
    file = folder / "One-Q8_0.gguf"
    assert localspec("models", "add", str(file), "--name", "mine").returncode == 0
    file.unlink()
    done = localspec("models", "scan", str(folder))
    assert "The file of mine is gone" in done.stderr
    assert "was gone already" in localspec("models", "rm", "mine").stdout
    assert localspec("models", "scan", str(folder)).stderr == ""


@pytest.mark.parametrize(
    ("file", "code", "reason"),
    [
        ("mmproj.gguf", 2, "projector"),
        ("cut.gguf", 1, "damaged"),
        ("nothing.gguf", 3, "There is no file"),
        ("deep", 1, "is a folder"),
    ],
)
def test_add_of_what_is_no_model(file: str, code: int, reason: str, folder: Path) -> None:
    done = localspec("models", "add", str(folder / file))
    assert (done.returncode, done.stdout) == (code, "")
    assert reason in done.stderr
    assert done.stderr.count("\n") == 1
    assert not registry.user_file().exists()


@pytest.mark.parametrize("name", ["", "a/b", "-x", "a b", "x:y"])
def test_add_under_a_name_that_cannot_be(name: str, folder: Path) -> None:
    done = localspec("models", "add", str(folder / "One-Q8_0.gguf"), "--name", name)
    assert (done.returncode, done.stdout) == (2, "")
    assert "not a usable name" in done.stderr


def test_rm_takes_a_fetched_model_away(private_home: Path, tmp_path: Path) -> None:
    from localspec.models import store
    from localspec.models.entries import ModelEntry

    source = tmp_path / "source.gguf"
    source.write_bytes(gguf_bytes())
    entry: ModelEntry = registry.find_entry("hf:ada/Alpha/alpha.gguf")
    folder = store.entry_dir(entry)
    folder.mkdir(parents=True)
    file = folder / entry.filename
    source.rename(file)
    size = file.stat().st_size
    refused = localspec("models", "rm", "hf:ada/Alpha/alpha.gguf")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--yes" in refused.stderr
    assert file.exists()
    done = localspec("models", "rm", "--yes", "hf:ada/Alpha/alpha.gguf")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("freed.\n")
    assert f"{size / 1000:.1f} kB" in done.stdout or f"{size} bytes" in done.stdout
    assert not file.exists()
    again = localspec("models", "rm", "--yes", "hf:ada/Alpha/alpha.gguf")
    assert (again.returncode, again.stdout) == (3, "")
    assert "nothing to remove" in again.stderr


def test_rm_of_a_copy_removes_its_file(private_home: Path) -> None:
    copy = put(private_home / "data" / "models" / "copy-Q4_0.gguf", "Copy")
    own.add_entry("copy-Q4_0", {"source": str(copy)}, "Made by `localspec models quantize`.")
    assert localspec("models", "rm", "copy-Q4_0").returncode == 2
    assert copy.exists()
    done = localspec("models", "rm", "-y", "copy-Q4_0")
    assert done.returncode == 0, done.stderr
    assert not copy.exists()
    assert "copy-Q4_0" not in registry.entries()


def test_rm_of_what_is_not_known() -> None:
    done = localspec("models", "rm", "smollm")
    assert (done.returncode, done.stdout) == (3, "")
    assert "nearest" in done.stderr


WRITTEN = """# My models.

[models.first]
source = "first.gguf"
description = \"\"\"
[models.second]
\"\"\"

# Found by `localspec models scan`.
[models.second]
source = "second.gguf"
# about it
[models.second.sampling]
top_k = 3

# About the third.
[models.'third.x']  # quoted
source = "third.gguf"

# The end.
"""


@pytest.mark.parametrize(
    ("name", "gone"),
    [
        ("second", ("Found by", "second.gguf", "top_k", "about it")),
        ("third.x", ("third.gguf", "# quoted")),
        ("first", ("first.gguf",)),
    ],
)
def test_what_is_taken_out_leaves_the_rest(name: str, gone: tuple[str, ...]) -> None:
    file = registry.user_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(WRITTEN, encoding="utf-8")
    before = tomllib.loads(WRITTEN)["models"]
    own.remove_entry(name)
    text = file.read_text(encoding="utf-8")
    assert tomllib.loads(text)["models"] == {key: value for key, value in before.items() if key != name}
    for line in WRITTEN.splitlines():
        if line.startswith("# ") and not any(part in line for part in gone) and name != "first":
            assert line in text
    assert not any(part in text for part in gone)
    assert "# My models." in text


@pytest.mark.parametrize(
    "text",
    [
        'models = { a = { source = "a.gguf" }, b = { source = "b.gguf" } }\n',
        '[models]\na.source = "a.gguf" # one\nb.source = "b.gguf" # two\n',
        '[models]\na = { source = "a.gguf" }\n[models.b]\nsource = "b.gguf"\n',
    ],
)
def test_other_ways_of_writing_an_entry(text: str) -> None:
    file = registry.user_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    own.remove_entry("a")
    after = file.read_text(encoding="utf-8")
    assert tomllib.loads(after) == {"models": {"b": {"source": "b.gguf"}}}
    assert ("# two" in text) == ("# two" in after)
    with pytest.raises(UsageError, match=r"no \[models.a\]"):
        own.remove_entry("a")
