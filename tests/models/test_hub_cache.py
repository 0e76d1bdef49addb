"""What lies in the hub library's own cache, put there by the library itself, is used where it is."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants, hf_hub_download

from localspec.models import gguf, hub_cache, sources, store
from localspec.models.entries import HubSource, ModelEntry
from tests.models.conftest import gguf_bytes
from tests.models.hub_server import COMMIT, Hub
from tests.models.split_files import split_bytes, split_name

REPO = "owner/tiny-GGUF"
MODEL = gguf_bytes(tensors=(("w", (256, 64), 0), ("v", (256, 64), 0)))
SHA256 = hashlib.sha256(MODEL).hexdigest()
NAMES = [split_name("big", number, 2) for number in (1, 2)]
PARTS = split_bytes(MODEL, 2)

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs symbolic links")


def entry(file: str = "tiny.gguf", revision: str = "main", **values: Any) -> ModelEntry:
    return ModelEntry(name="tiny", sources=(HubSource(REPO, file, revision),), **values)


@pytest.fixture
def cached(hub: Hub) -> Path:
    """The file as the hub library knows it; the hub itself has been told to answer nothing more."""
    hub.publish(REPO, {"tiny.gguf": MODEL, **dict(zip(NAMES, PARTS, strict=True))})
    for name in NAMES:
        hf_hub_download(REPO, name, endpoint=hub.url, cache_dir=constants.HF_HUB_CACHE)
    path = hf_hub_download(REPO, "tiny.gguf", endpoint=hub.url, cache_dir=constants.HF_HUB_CACHE)
    hub.requests.clear()
    return Path(path)


@pytest.mark.parametrize("known", [{}, {"sha256": SHA256, "size": len(MODEL)}])
def test_it_is_neither_fetched_nor_copied_nor_read(
    hub: Hub, cached: Path, monkeypatch: pytest.MonkeyPatch, known: dict[str, Any]
) -> None:
    monkeypatch.setattr(sources, "_sha256", None)
    path = sources.pull(entry(**known))
    assert hub.requests == []
    assert path == store.final_path(entry())
    assert path.resolve() == cached.resolve()
    assert path.read_bytes() == MODEL
    assert store.fetched(entry(**known)) == path
    assert store.shared_file(entry()) == cached.resolve()
    receipt = store.read_receipt(path)
    assert receipt is not None
    assert receipt.sha256 == SHA256


def test_a_revision_is_a_branch_or_a_commit(hub: Hub, cached: Path) -> None:
    assert sources.pull(entry(revision=COMMIT)).resolve() == cached.resolve()
    assert hub.requests == []
    hub.publish(REPO, {"tiny.gguf": MODEL}, "v2")
    assert not sources.pull(entry(revision="v2")).is_symlink()
    assert hub.asked("tiny.gguf") == [None]


@pytest.mark.usefixtures("cached")
def test_all_parts_of_a_split_model(hub: Hub) -> None:
    path = sources.pull(entry(NAMES[0]))
    assert hub.requests == []
    assert gguf.read_header(path).tensor_count == 2
    assert all(file.is_symlink() for file in store.files(entry(NAMES[0])))


def test_a_part_that_is_not_there_makes_the_hub_be_asked(hub: Hub, cached: Path) -> None:
    cached.with_name(NAMES[1]).resolve().unlink()
    path = sources.pull(entry(NAMES[0]))
    assert not path.is_symlink()
    assert hub.asked(NAMES[1]) == [None]


@pytest.mark.usefixtures("cached")
def test_offline_it_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert sources.pull(entry()).read_bytes() == MODEL


def test_another_file_than_the_registrys_is_not_used(hub: Hub, cached: Path) -> None:
    newer = gguf_bytes(tensors=(("w", (256, 65), 0),))
    hub.publish(REPO, {"tiny.gguf": newer})
    path = sources.pull(entry(sha256=hashlib.sha256(newer).hexdigest()))
    assert path.read_bytes() == newer
    assert cached.read_bytes() == MODEL


def test_a_link_that_leads_out_of_the_cache_is_not_followed(hub: Hub, cached: Path, tmp_path: Path) -> None:
    outside = tmp_path / "blobs" / SHA256
    outside.parent.mkdir()
    outside.write_bytes(MODEL)
    cached.unlink()
    cached.symlink_to(outside)
    path = sources.pull(entry(sha256=SHA256))
    assert not path.is_symlink()
    assert hub.asked("tiny.gguf") == [None]


def test_a_branch_that_leads_out_of_the_cache_is_not_followed(hub: Hub, cached: Path, tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf").write_bytes(MODEL)
    repository = cached.parents[2]
    (repository / "refs" / "main").write_text(os.path.relpath(tmp_path, repository / "snapshots"))
    assert not sources.pull(entry()).is_symlink()
    assert hub.asked("tiny.gguf") == [None]


@pytest.mark.parametrize("content", [b"", MODEL[:-64], b"<html>not a model</html>" * 9])
def test_what_is_no_whole_model_is_not_used(hub: Hub, cached: Path, content: bytes) -> None:
    cached.resolve().write_bytes(content)
    path = sources.pull(entry())
    assert path.read_bytes() == MODEL
    assert not path.is_symlink()
    assert store.fetched(entry()) == path


def test_without_the_links_of_the_cache_the_file_is_hashed(hub: Hub, cached: Path) -> None:
    data = cached.read_bytes()
    cached.unlink()
    cached.write_bytes(data)
    hub.files.clear()
    assert sources.pull(entry(sha256=SHA256)).resolve() == cached.resolve()
    assert hub.requests == []
    cached.write_bytes(data[:-1] + b"\1")
    assert store.fetched(entry(sha256=SHA256)) is None
    hub.publish(REPO, {"tiny.gguf": MODEL})
    assert sources.pull(entry(sha256=SHA256)).read_bytes() == MODEL
    assert cached.read_bytes()[-1] == 1


def test_where_links_cannot_be_made(hub: Hub, cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise OSError("a privilege is missing")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    path = sources.pull(entry())
    assert path.samefile(cached)
    assert store.size_on_disk(entry()) < len(MODEL)
    assert hub.requests == []
    store.remove(entry())
    monkeypatch.setattr(os, "link", refuse)
    assert not sources.pull(entry()).samefile(cached)
    assert hub.asked("tiny.gguf") == [None]


def test_when_the_cache_is_cleared_it_is_fetched(hub: Hub, cached: Path) -> None:
    sources.pull(entry())
    cached.resolve().unlink()
    assert store.fetched(entry()) is None
    path = sources.pull(entry())
    assert not path.is_symlink()
    assert path.read_bytes() == MODEL


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("file", ["../tiny.gguf", "/etc/passwd", "a\0b", "x" * 5000])
def test_names_that_lead_elsewhere_find_nothing(file: str) -> None:
    assert hub_cache.find(entry(), [HubSource(REPO, file)]) == []


def test_a_cache_that_cannot_be_searched(hub: Hub, cached: Path) -> None:
    snapshots = cached.parents[1]
    commit = snapshots / COMMIT
    commit.rename(commit.with_name("elsewhere"))
    commit.write_text("a file where a folder should be")
    assert sources.pull(entry()).read_bytes() == MODEL
    assert hub.asked("tiny.gguf") == [None]


def test_the_environment_says_where_the_cache_is(hub: Hub, cached: Path) -> None:
    """In a process of its own: the hub library reads it when it is imported."""
    find = (
        "from localspec.models import hub_cache\n"
        "from localspec.models.entries import HubSource, ModelEntry\n"
        f"source = HubSource({REPO!r}, 'tiny.gguf')\n"
        "print(*(file.path for file in hub_cache.find(ModelEntry('tiny', (source,)), [source])))\n"
    )
    home = Path(constants.HF_HUB_CACHE).parent / "hf-home"
    home.mkdir()
    (home / "hub").symlink_to(constants.HF_HUB_CACHE)
    for setting in ({"HF_HUB_CACHE": constants.HF_HUB_CACHE}, {"HF_HOME": str(home)}):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        done = subprocess.run(
            [sys.executable, "-c", find],
            env=environment | setting,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.stdout.strip() == str(cached.resolve()), done.stderr
