"""Taking fetched models from the disk: what goes, what stays, and what is said."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from huggingface_hub import constants, hf_hub_download

from localspec.errors import StorageError, UsageError
from localspec.models import sources, store
from localspec.models.entries import FileSource, HubSource, ModelEntry
from localspec.models.progress import PullProgress
from tests.models.conftest import gguf_bytes
from tests.models.hub_server import Hub
from tests.models.split_files import split_bytes, split_name

REPO = "owner/tiny-GGUF"
MODEL = gguf_bytes(tensors=(("w", (256, 512), 0), ("v", (256, 512), 0)))
PARTS = dict(zip([split_name("big", n, 2) for n in (1, 2)], split_bytes(MODEL, 2), strict=True))


def entry(name: str = "tiny", file: str = "tiny.gguf") -> ModelEntry:
    return ModelEntry(name=name, sources=(HubSource(REPO, file),))


@pytest.fixture(autouse=True)
def published(hub: Hub) -> None:
    hub.publish(REPO, {"tiny.gguf": MODEL, **PARTS})


def test_a_fetched_model_goes_with_its_folder() -> None:
    other = sources.pull(entry("other"))
    path = sources.pull(entry())
    there = store.size_on_disk(entry())
    assert there >= len(MODEL)
    assert store.remove(entry()) == there
    assert not path.parent.exists()
    assert store.fetched(entry()) is None
    assert store.fetched(entry("other")) == other
    assert store.size_on_disk(entry()) == store.remove(entry()) == 0
    assert sources.pull(entry()) == path


def test_all_parts_go() -> None:
    first = next(iter(PARTS))
    path = sources.pull(entry(file=first))
    assert store.remove(entry(file=first)) >= sum(map(len, PARTS.values()))
    assert not path.parent.exists()


def test_a_quantization_has_a_folder_of_its_own() -> None:
    path = sources.pull(entry("tiny:Q8_0"))
    assert ":" not in str(path.relative_to(store.models_dir()))
    sources.pull(entry())
    store.remove(entry())
    assert store.fetched(entry("tiny:Q8_0")) == path


def test_what_an_unfinished_download_left_goes_too(hub: Hub) -> None:
    hub.holds = {"tiny.gguf": 300_000}

    def stop(progress: PullProgress) -> None:
        if progress.done_bytes >= 300_000:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        sources.pull(entry(), stop)
    assert store.remove(entry()) >= 300_000
    assert not store.entry_dir(entry()).exists()


def test_a_file_of_the_users_own_stays(tmp_path: Path) -> None:
    file = tmp_path / "own.gguf"
    file.write_bytes(MODEL)
    own = ModelEntry(name="own", sources=(FileSource(file),))
    assert store.size_on_disk(own) == 0
    with pytest.raises(UsageError, match=r"own\.gguf is a file of your own and stays"):
        store.remove(own)
    assert file.exists()


@pytest.mark.skipif(os.name != "posix", reason="needs symbolic links")
def test_of_a_file_in_the_hub_librarys_cache_only_the_link_goes(hub: Hub) -> None:
    cached = hf_hub_download(REPO, "tiny.gguf", endpoint=hub.url, cache_dir=constants.HF_HUB_CACHE)
    sources.pull(entry())
    shared = store.shared_file(entry())
    assert shared == Path(cached).resolve()
    assert store.remove(entry()) < 1000
    assert shared.read_bytes() == MODEL
    assert store.fetched(entry()) is None
    assert store.shared_file(entry()) is None


@pytest.mark.skipif(os.name != "posix", reason="needs symbolic links")
def test_links_lead_the_removal_nowhere(tmp_path: Path) -> None:
    path = sources.pull(entry())
    keep = tmp_path / "keep"
    keep.mkdir()
    (keep / "file").write_bytes(b"precious")
    (path.parent / "link").symlink_to(keep)
    store.remove(entry())
    assert (keep / "file").exists()
    path.parent.symlink_to(keep)
    assert store.size_on_disk(entry()) == 0
    with pytest.raises(StorageError, match=r"is a link to .*keep; remove both by hand"):
        store.remove(entry())
    assert (keep / "file").exists()


def test_a_model_that_is_being_fetched_is_not_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_LOCK_POLL_S", 0.01)
    path = sources.pull(entry())
    with store.locked(entry(), lambda: None), pytest.raises(StorageError, match="is fetching tiny; wait"):
        store.remove(entry())
    assert path.exists()
