"""Finding models that other programs have put on this machine."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localspec.models import registry
from localspec.models.places import Place, known_places
from localspec.models.scan import Found, Scan, inspect, register, scan
from tests.models.conftest import _text, _value, gguf_bytes

SPLIT = ("-00001-of-00002", "-00002-of-00002")


def model(name: str, **metadata: Any) -> bytes:
    """A file that differs from others by the model's name."""
    return gguf_bytes(metadata={"general.name": name, **metadata})


def split_model(name: str) -> tuple[bytes, bytes]:
    """Two files as llama.cpp's own splitter writes them: only the first says what the model is."""
    shared = {"split.count": 2, "split.tensors.count": 2}
    first = gguf_bytes(metadata={"general.name": name, "split.no": 0, **shared})
    values = {"split.no": 1, **shared}
    second = b"GGUF" + struct.pack("<IQQ", 3, 1, len(values))
    second += b"".join(_text(key) + _value(value) for key, value in values.items())
    second += _text("output.weight") + struct.pack("<I2QIQ", 2, 64, 8, 8, 0)
    second += bytes(-len(second) % 32 + 16 * 34)
    return first, second


def put(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def put_in_hub(cache: Path, repo: str, revision: str, file: str, data: bytes) -> Path:
    """A file as the hub's library stores it."""
    folder = cache / f"models--{repo.replace('/', '--')}"
    blob = put(folder / "blobs" / hashlib.sha256(data).hexdigest(), data)
    link = folder / "snapshots" / revision / file
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(os.path.relpath(blob, link.parent))
    put(folder / "refs" / "main", revision.encode())
    return link


def put_in_ollama(models: Path, name: str, tag: str, *layers: tuple[str, bytes]) -> None:
    """A model as Ollama stores it."""
    listed = [{"mediaType": "application/vnd.ollama.image.license", "digest": "sha256:" + "0" * 64}]
    for kind, data in layers:
        digest = hashlib.sha256(data).hexdigest()
        put(models / "blobs" / f"sha256-{digest}", data)
        listed.append({"mediaType": f"application/vnd.ollama.image.{kind}", "digest": f"sha256:{digest}"})
    manifest = models / "manifests" / "registry.ollama.ai" / "library" / name / tag
    put(manifest, json.dumps({"schemaVersion": 2, "layers": listed}).encode())


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home folder with something of every program in it."""
    home = tmp_path / "somebody"
    hub = home / ".cache" / "huggingface" / "hub"
    put_in_hub(hub, "ada/Alpha-GGUF", "aaa", "alpha-Q8_0.gguf", model("Alpha"))
    put_in_hub(hub, "ada/Alpha-GGUF", "aaa", "sub/mmproj.gguf", model("Eye", **{"general.type": "mmproj"}))
    put(home / ".lmstudio" / "models" / "bob" / "Beta-GGUF" / "Beta-Q8_0.gguf", model("Beta"))
    put(home / ".cache" / "lm-studio" / "models" / "bob" / "Old" / "model.gguf", model("Old"))
    put_in_ollama(
        home / ".ollama" / "models",
        "gamma",
        "4b",
        ("model", model("Gamma")),
        ("projector", model("Sees", **{"general.architecture": "clip"})),
    )
    cache = home / ".cache" / "llama.cpp"
    put(cache / "manifest=cleo=Delta-GGUF=latest.json", b"{}")
    put(cache / "cleo_Delta-GGUF_delta-q8_0.gguf", model("Delta"))
    put_in_hub(cache, "cleo/Epsilon-GGUF", "bbb", "epsilon.gguf", model("Epsilon"))
    put(home / ".local/share/Jan/data/llamacpp/models/Zeta-8B/model.gguf", model("Zeta"))
    put(home / ".local/share/nomic.ai/GPT4All/Eta.Q4_0.gguf", model("Eta"))
    return home


def names(found: Scan) -> dict[str, str]:
    return {one.name: one.found.candidate.program for one in found.models}


def of_folder(folder: Path) -> Scan:
    return scan([Place("", folder)])


def reasons(found: tuple[Found, ...]) -> dict[str, str]:
    return {one.path.name: one.reason for one in found}


def test_every_program_is_looked_into(home: Path) -> None:
    places = known_places({}, home, "linux")
    found = scan(places)
    assert names(found) == {
        "alpha-q8_0": "hub cache",
        "beta-q8_0": "LM Studio",
        "old": "LM Studio",
        "gamma-4b": "Ollama",
        "delta-q8_0": "llama.cpp",
        "epsilon": "llama.cpp",
        "zeta-8b": "Jan",
        "eta.q4_0": "GPT4All",
    }
    titles = {one.name: one.found.candidate.title for one in found.models}
    assert titles["alpha-q8_0"] == "ada/Alpha-GGUF"
    assert titles["beta-q8_0"] == "bob/Beta-GGUF"
    assert titles["gamma-4b"] == "gamma:4b"
    assert titles["delta-q8_0"] == "cleo/Delta-GGUF"
    assert sorted(one.candidate.program for one in found.others) == ["Ollama", "hub cache"]
    assert all("projector" in one.reason for one in found.others)
    assert (found.broken, found.notes) == ((), ())


def test_registered_models_are_found_by_name_and_nothing_is_copied(home: Path) -> None:
    places = known_places({}, home, "linux")
    before = sorted(home.rglob("*"))
    assert len(register(scan(places).models)) == 8
    resolved = registry.resolve("gamma-4b")
    assert resolved.path is not None
    assert resolved.path.read_bytes() == model("Gamma")
    assert resolved.entry is not None
    assert (resolved.entry.quantization, resolved.entry.context) == ("Q8_0", 128)
    assert resolved.entry.description == "Gamma, from Ollama."
    assert sorted(home.rglob("*")) == before


def test_a_second_scan_adds_nothing(home: Path) -> None:
    places = known_places({}, home, "linux")
    register(scan(places).models)
    text = registry.user_file().read_text()
    again = scan(places)
    assert len(again.models) == 8
    assert not any(one.new for one in again.models)
    assert register(again.models) == []
    assert registry.user_file().read_text() == text


def test_the_environment_says_where(tmp_path: Path) -> None:
    variables = {
        "HF_HUB_CACHE": "a",
        "HF_HOME": "b",
        "OLLAMA_MODELS": "c",
        "LLAMA_CACHE": "d",
        "XDG_CACHE_HOME": "e",
    }
    for folder in ("a", "b/hub", "c", "d", "e/huggingface/hub", "e/llama.cpp", "home/moved/models"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "home" / ".lmstudio-home-pointer").write_text("~/moved\n")
    environment = {name: str(tmp_path / folder) for name, folder in variables.items()}
    found = {
        (place.program, place.folder.relative_to(tmp_path).as_posix())
        for place in known_places(environment, tmp_path / "home", "linux")
        if place.folder.is_relative_to(tmp_path)
    }
    assert found == {
        ("hub cache", "a"),
        ("hub cache", "b/hub"),
        ("hub cache", "e/huggingface/hub"),
        ("Ollama", "c"),
        ("llama.cpp", "d"),
        ("llama.cpp", "e/llama.cpp"),
        ("LM Studio", "home/moved/models"),
    }


@pytest.mark.parametrize(
    ("platform", "folder"),
    [
        ("darwin", "Library/Caches/llama.cpp"),
        ("darwin", "Library/Application Support/nomic.ai/GPT4All"),
        ("win32", "AppData/Local/llama.cpp"),
        ("win32", "AppData/Roaming/Jan/data"),
        ("linux", ".cache/llama.cpp"),
    ],
)
def test_places_of_other_systems(platform: str, folder: str, tmp_path: Path) -> None:
    (tmp_path / folder).mkdir(parents=True)
    assert tmp_path / folder in [place.folder for place in known_places({}, tmp_path, platform)]


def test_a_split_model_is_one(tmp_path: Path) -> None:
    for suffix, data in zip(SPLIT, split_model("Wide"), strict=True):
        put(tmp_path / f"Wide{suffix}.gguf", data)
    found = of_folder(tmp_path)
    (one,) = found.models
    assert (one.name, one.found.parts) == ("wide", 2)
    assert one.found.path.name == "Wide-00001-of-00002.gguf"
    assert one.found.header is not None
    assert (one.found.header.tensor_count, one.found.header.parameters) == (2, 1024)
    assert one.found.size == sum(file.stat().st_size for file in tmp_path.iterdir())
    assert inspect(one.found.path).size == one.found.size


@pytest.mark.parametrize("missing", [0, 1])
def test_a_split_model_with_a_part_missing_is_broken(missing: int, tmp_path: Path) -> None:
    for suffix, data in zip(SPLIT, split_model("Wide"), strict=True):
        put(tmp_path / f"Wide{suffix}.gguf", data)
    (tmp_path / f"Wide{SPLIT[missing]}.gguf").unlink()
    found = of_folder(tmp_path)
    assert found.models == ()
    assert f"1 of the 2 parts of a split model are missing ({missing + 1})" in found.broken[0].reason


def test_a_part_under_another_name_is_broken(tmp_path: Path) -> None:
    put(tmp_path / "wide.gguf", split_model("Wide")[0])
    assert "-00001-of-00002.gguf" in of_folder(tmp_path).broken[0].reason


def test_what_is_no_chat_model_is_told_apart(tmp_path: Path) -> None:
    put(tmp_path / "head.gguf", model("Head", **{"general.architecture": "eagle3"}))
    put(tmp_path / "lora.gguf", model("Lora", **{"general.type": "adapter"}))
    put(tmp_path / "embed.gguf", model("Embed", **{"general.architecture": "bert"}))
    put(tmp_path / "vocab.gguf", gguf_bytes(tensors=()))
    found = of_folder(tmp_path)
    assert found.models == ()
    told = reasons(found.others)
    assert "draft head" in told["head.gguf"]
    assert "adapter" in told["lora.gguf"]
    assert "encoder" in told["embed.gguf"]
    assert "without weights" in told["vocab.gguf"]


def test_broken_files_are_listed_with_the_reason(tmp_path: Path) -> None:
    put(tmp_path / "short.gguf", model("Short")[:-40])
    put(tmp_path / "empty.gguf", b"")
    put(tmp_path / "page.gguf", b"<!doctype html><html>")
    (tmp_path / "gone.gguf").symlink_to(tmp_path / "nowhere.gguf")
    put(tmp_path / "good.GGUF", model("Good"))
    put(tmp_path / "unfinished.gguf.part", model("Unfinished"))
    found = of_folder(tmp_path)
    assert list(names(found)) == ["good"]
    told = reasons(found.broken)
    assert told["short.gguf"].startswith("truncated: 40 bytes")
    assert told["empty.gguf"].startswith("empty")
    assert "web page" in told["page.gguf"]
    assert told["gone.gguf"].startswith("a link")


def test_one_file_is_found_once(home: Path, tmp_path: Path) -> None:
    data = model("Alpha")
    own = put(tmp_path / "own" / "a.gguf", data)
    os.link(own, tmp_path / "own" / "b.gguf")
    (tmp_path / "own" / "c.gguf").symlink_to(own)
    # The same bytes in the hub's cache and in Ollama's, told by the names of their blobs.
    put_in_ollama(home / ".ollama" / "models", "alpha", "latest", ("model", data))
    found = scan([Place("", tmp_path / "own"), *known_places({}, home, "linux")])
    assert [name for name, program in names(found).items() if not program] == ["a"]
    assert "alpha-q8_0" in names(found)
    assert "alpha-latest" not in names(found)


def test_links_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    put(tmp_path / "elsewhere" / "far.gguf", model("Far"))
    put(folder / "near.gguf", model("Near"))
    (folder / "away").symlink_to(tmp_path / "elsewhere")
    (folder / "loop").symlink_to(folder)
    (tmp_path / "elsewhere" / "back").symlink_to(folder)
    (folder / "itself").symlink_to(folder / "itself")
    found = of_folder(folder)
    assert set(names(found)) == {"near", "far"}
    assert found.broken == ()


def test_a_link_out_of_the_hub_cache_is_left_out(tmp_path: Path) -> None:
    cache = tmp_path / "hub"
    link = put_in_hub(cache, "ada/Alpha", "aaa", "alpha.gguf", model("Alpha"))
    link.unlink()
    link.symlink_to(put(tmp_path / "outside.gguf", model("Outside")))
    found = scan([Place("hub cache", cache)])
    assert found.models == ()
    assert "leads out of the cache" in found.notes[0]


def test_the_newest_revision_counts(tmp_path: Path) -> None:
    put_in_hub(tmp_path, "ada/Alpha", "old", "alpha.gguf", model("Old one"))
    put_in_hub(tmp_path, "ada/Alpha", "new", "alpha.gguf", model("New one"))
    (one,) = scan([Place("hub cache", tmp_path)]).models
    assert "new" in one.found.path.parts


def test_a_manifest_that_reaches_out_of_its_folder(tmp_path: Path) -> None:
    put(tmp_path / "secret.gguf", model("Secret"))
    layers = [
        {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:../../secret.gguf"},
        {"mediaType": "application/vnd.ollama.image.model", "digest": ["sha256"]},
        "text",
    ]
    library = tmp_path / "models" / "manifests" / "registry.ollama.ai" / "library"
    (tmp_path / "models" / "blobs").mkdir(parents=True)
    put(library / "evil" / "1b", json.dumps({"layers": layers}).encode())
    put(library / "odd" / "1b", b"[1, 2]")
    put(library / "worse" / "1b", b"\xff\xfe{")
    gone = {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:" + "1" * 64}
    put(library / "gone" / "1b", json.dumps({"layers": [gone]}).encode())
    found = scan([Place("Ollama", tmp_path / "models")])
    assert found.models == ()
    assert len(found.notes) == 2
    assert [one.candidate.title for one in found.broken] == ["gone:1b"]


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Path]:
    """A folder and a file that may not be read."""
    if os.name == "nt" or os.geteuid() == 0:
        pytest.skip("this user may read everything")
    folder = tmp_path / "locked"
    put(folder / "inner" / "hidden.gguf", model("Hidden"))
    put(folder / "secret.gguf", model("Secret")).chmod(0)
    (folder / "inner").chmod(0)
    yield folder
    (folder / "inner").chmod(0o700)


def test_what_may_not_be_read_is_noted(locked: Path) -> None:
    put(locked / "open.gguf", model("Open"))
    found = of_folder(locked)
    assert list(names(found)) == ["open"]
    assert found.broken == ()
    assert len(found.notes) == 2


def test_names_are_unique_and_usable(tmp_path: Path) -> None:
    put(tmp_path / "a" / "Modèle (1) [x].gguf", model("One"))
    put(tmp_path / "b" / "Modèle (1) [x].gguf", model("Two"))
    put(tmp_path / "c" / "smollm2.gguf", model("Three"))
    put(tmp_path / "d" / "--.gguf", model("Four"))
    put(tmp_path / "My Model" / "ggml-model-q4_0.gguf", model("Five"))
    found = of_folder(tmp_path)
    assert list(names(found)) == [
        "my-model-q4_0",
        "mod-le-1-x",
        "mod-le-1-x-local",
        "smollm2-local",
        "model",
    ]
    assert len(register(found.models)) == 5
    for name in names(found):
        assert registry.resolve(name).path is not None


def test_the_file_of_a_known_model_gets_its_name(tmp_path: Path) -> None:
    """A file that another program fetched of the very model that would be fetched for a name."""
    data = model("Theta")
    hash_of = hashlib.sha256(data).hexdigest()
    shipped = registry.shipped_file()
    theta = next(one for one in registry.entries().values() if one.sha256 and one.origin == shipped)
    folder = tmp_path / "models"
    put_in_ollama(folder, "theta", "8b", ("model", data))
    # No file of a few hundred bytes has the hash of a real model, so its name has to say so.
    assert theta.sha256 is not None
    for path in [*folder.rglob("*")]:
        if path.is_file() and path.name == "8b":
            path.write_text(path.read_text().replace(hash_of, theta.sha256))
        elif hash_of in path.name:
            shutil.move(path, path.with_name(f"sha256-{theta.sha256}"))
    (found,) = scan([Place("Ollama", folder)]).models
    assert (found.name, found.new) == (theta.name, True)
    register([found])
    entry = registry.resolve(theta.name).entry
    assert entry is not None
    assert entry.is_local
    assert (entry.license, entry.family, entry.sampling) == (theta.license, theta.family, theta.sampling)
    assert not scan([Place("Ollama", folder)]).models[0].new


def test_a_path_that_is_no_text(tmp_path: Path) -> None:
    try:
        put(tmp_path / os.fsdecode(b"bad\xff.gguf"), model("Bad"))
    except OSError:
        pytest.skip("the file system takes no such name")
    (one,) = of_folder(tmp_path).broken
    assert "UTF-8" in one.reason


def test_the_registry_stays_as_it_was_written(home: Path) -> None:
    own = registry.user_file()
    put(own, b'# mine\n[models.mine]\nsource = "mine.gguf"  # here\n')
    register(scan(known_places({}, home, "linux")).models)
    text = own.read_text()
    assert text.startswith('# mine\n[models.mine]\nsource = "mine.gguf"  # here\n\n# Found by')
    assert len(tomllib.loads(text)["models"]) == 9
