"""Split models: fetched together, each part checked and continued by itself, and read as one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from localspec.errors import DownloadError, ModelFileError, UsageError
from localspec.models import gguf, sources, split, store
from localspec.models.entries import HubSource, ModelEntry
from localspec.models.progress import PullProgress
from tests.models.conftest import gguf_bytes
from tests.models.hub_server import Hub
from tests.models.split_files import split_bytes, split_name

REPO = "owner/big-GGUF"
COUNT = 5
TENSORS = tuple((f"blk.{number}.w", (256, 1024), 0) for number in range(9))
WHOLE = gguf_bytes(tensors=TENSORS, data=bytes(range(256)) * (9 * 4096))
PARTS = split_bytes(WHOLE, COUNT)
NAMES = [split_name("big-Q4", number + 1, COUNT) for number in range(COUNT)]
TOTAL = sum(map(len, PARTS))


def entry(file: str = NAMES[0], **values: Any) -> ModelEntry:
    return ModelEntry(name="big", sources=(HubSource(REPO, file),), **values)


def parts_there() -> dict[str, int]:
    """Bytes of each unfinished part."""
    partial = store.entry_dir(entry()) / ".partial"
    return {path.name[: len(NAMES[0])]: path.stat().st_size for path in partial.glob("*.part")}


@pytest.fixture(autouse=True)
def published(hub: Hub) -> None:
    hub.publish(REPO, dict(zip(NAMES, PARTS, strict=True)))


def test_all_parts_are_fetched_three_at_a_time_under_one_progress(hub: Hub) -> None:
    hub.holds = {NAMES[0]: 100_000, NAMES[1]: 100_000, NAMES[2]: 100_000}
    seen: list[PullProgress] = []

    def watch(progress: PullProgress) -> None:
        seen.append(progress)
        if progress.done_bytes >= 300_000:
            hub.released.set()

    known = entry(size=TOTAL)
    path = sources.pull(known, watch)
    assert path.name == NAMES[0]
    assert [file.read_bytes() for file in store.files(known)] == PARTS
    assert hub.most_at_once == 3
    loading = [progress for progress in seen if progress.stage == "downloading"]
    assert {progress.total_bytes for progress in loading} == {TOTAL}
    assert (seen[-1].stage, seen[-1].done_bytes) == ("verifying", TOTAL)
    assert sorted(file.name for file in path.parent.iterdir()) == sorted([*NAMES, f"{NAMES[0]}.json"])
    before = len(hub.requests)
    assert sources.pull(known) == path
    assert store.fetched(known) == path
    assert len(hub.requests) == before


def test_each_part_is_continued_by_itself(hub: Hub) -> None:
    hub.holds = {NAMES[0]: 400_000, NAMES[2]: 700_000, NAMES[1]: 0}

    def stop(progress: PullProgress) -> None:
        if progress.done_bytes >= 1_100_000:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        sources.pull(entry(), stop)
    kept = parts_there()
    assert kept[NAMES[0]] > 300_000
    assert kept[NAMES[2]] > 600_000
    assert store.fetched(entry()) is None
    hub.holds = {}
    hub.requests.clear()
    seen: list[PullProgress] = []
    sources.pull(entry(), seen.append)
    assert [file.read_bytes() for file in store.files(entry())] == PARTS
    assert hub.asked(NAMES[0]) == [f"bytes={kept[NAMES[0]]}-"]
    assert hub.asked(NAMES[2]) == [f"bytes={kept[NAMES[2]]}-"]
    assert hub.asked(NAMES[4]) == [None]
    first = next(progress for progress in seen if progress.stage == "downloading")
    assert first.done_bytes == sum(kept.values())


def test_connections_that_break_are_continued(hub: Hub) -> None:
    hub.cuts = [500_000, 100_000, 0, 700_000, 10_000]
    sources.pull(entry())
    assert [file.read_bytes() for file in store.files(entry())] == PARTS


def test_only_the_part_with_a_wrong_hash_is_fetched_again(hub: Hub) -> None:
    hub.damaged = {NAMES[3]}
    with pytest.raises(ModelFileError, match=r"Part 4 of big has sha256 .* it was discarded"):
        sources.pull(entry())
    assert sorted(parts_there()) == [name for name in NAMES if name != NAMES[3]]
    hub.damaged = set()
    hub.requests.clear()
    sources.pull(entry())
    assert [file.read_bytes() for file in store.files(entry())] == PARTS
    assert [path.rpartition("/")[2] for method, path, *_ in hub.requests if method == "GET"] == [NAMES[3]]


def test_a_part_that_the_repository_lacks(hub: Hub) -> None:
    del hub.files[REPO, "main", NAMES[2]]
    with pytest.raises(DownloadError, match=rf"no file {NAMES[2]}, one of the 5 parts of the model"):
        sources.pull(entry())
    assert hub.ranges == []


def test_a_part_that_is_gone_or_another_is_fetched_again(hub: Hub) -> None:
    path = sources.pull(entry())
    store.files(entry())[2].unlink()
    assert store.fetched(entry()) is None
    sources.pull(entry())
    assert store.fetched(entry()) == path
    store.files(entry())[4].write_bytes(PARTS[4][:-1])
    assert store.fetched(entry()) is None
    assert sources.pull(entry()) == path
    assert [file.read_bytes() for file in store.files(entry())] == PARTS


def test_space_is_checked_for_all_parts(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(Path.cwd())._replace(free=TOTAL - 1)
    monkeypatch.setattr("shutil.disk_usage", lambda folder: usage)
    with pytest.raises(DownloadError, match="Not enough space"):
        sources.pull(entry())
    assert hub.ranges == []


def test_a_size_and_a_hash_of_the_registry_are_of_all_and_of_the_first(hub: Hub) -> None:
    with pytest.raises(ModelFileError, match=f"has {TOTAL} bytes where 7 are expected"):
        sources.pull(entry(size=7))
    with pytest.raises(ModelFileError, match="is expected, so it was not fetched"):
        sources.pull(entry(sha256="0" * 64))
    assert hub.ranges == []


@pytest.mark.parametrize(
    "file",
    [NAMES[1], "big-00000-of-00003.gguf", "big-00004-of-00003.gguf", "big-00001-of-99999.gguf"],
)
def test_names_that_cannot_be_a_first_part(hub: Hub, file: str) -> None:
    with pytest.raises(UsageError, match=r"Cannot use the model source .*part") as caught:
        sources.pull(entry(file))
    assert hub.requests == []
    assert "\n" not in str(caught.value)
    assert store.fetched(entry(file)) is None


@pytest.mark.parametrize("content", ["[]", "{", '{"parts": 7}', '{"source": "x", "parts": [["a", 1]]}'])
def test_a_receipt_that_makes_no_sense_counts_for_nothing(content: str) -> None:
    path = sources.pull(entry())
    path.with_name(f"{path.name}.json").write_text(content)
    assert store.fetched(entry()) is None


def test_a_receipt_names_no_files() -> None:
    path = sources.pull(entry())
    receipt = json.loads(path.with_name(f"{path.name}.json").read_text())
    assert len(receipt["parts"]) == COUNT - 1
    assert all(len(part) == 3 for part in receipt["parts"])


def test_names_of_parts() -> None:
    assert split.part_names("tiny.gguf") == ("tiny.gguf",)
    assert split.part_names("a/b-00001-of-00002.gguf") == (
        "a/b-00001-of-00002.gguf",
        "a/b-00002-of-00002.gguf",
    )
    assert split.part_names("b-00001-of-00001.gguf") == ("b-00001-of-00001.gguf",)


def write_parts(folder: Path) -> list[Path]:
    folder.mkdir(exist_ok=True)
    files = [folder / name for name in NAMES]
    for file, data in zip(files, PARTS, strict=True):
        file.write_bytes(data)
    return files


def test_the_header_counts_every_part(tmp_path: Path) -> None:
    alone = tmp_path / "whole.gguf"
    alone.write_bytes(WHOLE)
    one, all_parts = gguf.read_header(alone), gguf.read_header(write_parts(tmp_path)[0])
    assert all_parts.tensor_sizes == one.tensor_sizes
    assert all_parts.tensor_types == one.tensor_types
    assert (all_parts.parameters, all_parts.tensor_bytes) == (one.parameters, one.tensor_bytes)
    assert all_parts.tensor_count == len(TENSORS)
    assert all_parts.file_bytes == TOTAL
    assert all_parts.fingerprint == one.fingerprint
    assert split.size_on_disk(all_parts.path) == TOTAL


def test_a_set_that_is_not_whole_is_said_to_be(tmp_path: Path) -> None:
    files = write_parts(tmp_path)
    files[3].unlink()
    with pytest.raises(ModelFileError, match=rf"{NAMES[3]} is missing beside .*split into 5 files"):
        gguf.read_header(files[0])
    files[3].symlink_to(tmp_path / "nowhere")
    with pytest.raises(ModelFileError, match=rf"{NAMES[3]} is missing beside"):
        gguf.read_header(files[0])
    files[3].unlink()
    files[3].write_bytes(PARTS[2])
    with pytest.raises(ModelFileError, match="is not part 4 of 5 of a model"):
        gguf.read_header(files[0])
    files[3].write_bytes(PARTS[3][:-40])
    with pytest.raises(ModelFileError, match=rf"{NAMES[3]} is truncated"):
        gguf.read_header(files[0])


def test_a_first_part_under_another_name(tmp_path: Path) -> None:
    renamed = write_parts(tmp_path)[0].rename(tmp_path / "big.gguf")
    with pytest.raises(ModelFileError, match=r"first of 5 files .*ends in -00001-of-00005\.gguf"):
        gguf.read_header(renamed)


def test_a_later_part_alone(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="part 2 of a split model; give the path of its first part"):
        gguf.read_header(write_parts(tmp_path)[1])
