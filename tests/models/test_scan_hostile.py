"""Folders in which somebody put what could be read for ever, or drawn as something else."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from localspec.models import own, registry
from localspec.models.places import Place, known_places
from localspec.models.scan import scan
from tests.models.commands import localspec
from tests.models.conftest import gguf_bytes

Plant = Callable[[Path], None]


def pipe(path: Path) -> None:
    """Opening it waits until somebody writes, which nobody does."""
    os.mkfifo(path)


def zeros(path: Path) -> None:
    """Reading it never ends."""
    path.symlink_to("/dev/zero")


@pytest.fixture(params=[pipe, zeros])
def plant(request: pytest.FixtureRequest) -> Plant:
    if not hasattr(os, "mkfifo") or not Path("/dev/zero").exists():
        pytest.skip("needs pipes and devices")
    chosen: Plant = request.param
    return chosen


def test_a_manifest_that_never_ends(plant: Plant, tmp_path: Path) -> None:
    library = tmp_path / "models" / "manifests" / "registry.ollama.ai" / "library" / "good"
    library.mkdir(parents=True)
    (tmp_path / "models" / "blobs").mkdir()
    (tmp_path / "models" / "blobs" / f"sha256-{'1' * 64}").write_bytes(gguf_bytes())
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:" + "1" * 64}
    (library / "1b").write_text(json.dumps({"layers": [layer]}))
    plant(library / "evil")
    found = scan([Place("Ollama", tmp_path / "models")])
    assert [one.name for one in found.models] == ["good-1b"]
    assert len(found.notes) == 1


def test_a_branch_that_never_ends(plant: Plant, tmp_path: Path) -> None:
    repo = tmp_path / "models--owner--repo"
    (repo / "snapshots" / "1").mkdir(parents=True)
    (repo / "snapshots" / "1" / "tiny.gguf").write_bytes(gguf_bytes())
    (repo / "refs").mkdir()
    plant(repo / "refs" / "main")
    assert [one.name for one in scan([Place("hub cache", tmp_path)]).models] == ["tiny"]


def test_a_pointer_that_never_ends(plant: Plant, tmp_path: Path) -> None:
    plant(tmp_path / ".lmstudio-home-pointer")
    (tmp_path / ".lmstudio" / "models").mkdir(parents=True)
    places = known_places({}, tmp_path, "linux")
    assert [place.program for place in places if place.folder.is_relative_to(tmp_path)] == ["LM Studio"]


@pytest.mark.skipif(os.name == "nt", reason="no such names there")
def test_a_name_stays_on_its_line(tmp_path: Path) -> None:
    (tmp_path / "two\nlines\x1b[31m.gguf").write_bytes(gguf_bytes())
    (tmp_path / "bad\nnews.gguf").write_bytes(b"GGUF")
    done = localspec("models", "scan", str(tmp_path))
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert any("two␊lines␛[31m.gguf" in line for line in done.stdout.splitlines())
    assert any("bad␊news.gguf: " in line for line in done.stdout.splitlines())


def test_only_a_name_of_ones_own_can_be_freed(tmp_path: Path) -> None:
    file = tmp_path / "tiny.gguf"
    file.write_bytes(gguf_bytes())
    assert localspec("models", "add", str(file), "--name", "mine").returncode == 0
    mine = localspec("models", "add", str(file), "--name", "Mine")
    assert "`localspec models rm mine` first" in mine.stderr
    shipped = localspec("models", "add", str(file), "--name", "smollm2")
    assert shipped.stderr.strip().endswith("give another --name.")


def test_what_several_add_at_once_is_all_there() -> None:
    """Each reads the file, and writes all of it."""

    def add(number: int) -> None:
        own.add_entry(f"tiny-{number}", {"source": f"/models/{number}.gguf"}, "By a test.")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(40)))
    assert {f"tiny-{number}" for number in range(40)} <= set(registry.entries())
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(own.remove_entry, [f"tiny-{number}" for number in range(1, 40)]))
    assert [name for name in registry.entries() if name.startswith("tiny-")] == ["tiny-0"]
