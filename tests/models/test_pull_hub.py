"""Fetching from the hub, with its real client against a double of its resolve endpoint."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localspec.errors import DownloadError, ModelFileError
from localspec.models import hub as hub_client
from localspec.models import hub_errors, sources, store
from localspec.models.entries import HubSource, ModelEntry
from localspec.models.progress import PullProgress
from tests.models.conftest import gguf_bytes
from tests.models.hub_server import Hub

# Larger than one block of a transfer, so that progress and cuts fall inside.
MODEL = gguf_bytes(tensors=(("w", (1024, 1024), 0),), data=bytes(range(256)) * 16384)
SHA256 = hashlib.sha256(MODEL).hexdigest()
SOURCE = HubSource("owner/tiny-GGUF", "tiny.gguf")


def entry(source: HubSource = SOURCE, **values: Any) -> ModelEntry:
    return ModelEntry(name="tiny", sources=(source,), **values)


def partial_bytes() -> int:
    parts = list((store.entry_dir(entry()) / ".partial").glob("*.part"))
    return parts[0].stat().st_size if parts else 0


@pytest.fixture(autouse=True)
def published(hub: Hub) -> None:
    hub.publish("owner/tiny-GGUF", {"tiny.gguf": MODEL})


def test_a_file_is_fetched_and_checked(hub: Hub) -> None:
    seen: list[PullProgress] = []
    path = sources.pull(entry(sha256=SHA256, size=len(MODEL)), seen.append)
    assert path.read_bytes() == MODEL
    assert partial_bytes() == 0
    stages = list(dict.fromkeys(progress.stage for progress in seen))
    assert stages == ["connecting", "downloading", "verifying"]
    assert all(p.total_bytes == len(MODEL) for p in seen if p.stage == "downloading")
    before = len(hub.requests)
    assert sources.pull(entry(sha256=SHA256)) == path
    assert len(hub.requests) == before


def test_a_revision_and_a_folder(hub: Hub) -> None:
    hub.publish("owner/tiny-GGUF", {"sub/tiny.gguf": MODEL}, "v2")
    assert sources.pull(entry(HubSource("owner/tiny-GGUF", "sub/tiny.gguf", "v2"))).read_bytes() == MODEL


def test_without_a_known_hash_the_hubs_own_is_checked(hub: Hub) -> None:
    hub.damaged = {"tiny.gguf"}
    with pytest.raises(ModelFileError, match=f"where {SHA256} is expected; it was discarded"):
        sources.pull(entry())
    assert partial_bytes() == 0
    assert store.fetched(entry()) is None
    hub.damaged = set()
    assert sources.pull(entry()).read_bytes() == MODEL
    assert hub.ranges == [None, None]


def test_the_data_may_come_from_another_host_without_the_token(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", hub.token)
    hub.redirects = True
    assert sources.pull(entry(sha256=SHA256)).read_bytes() == MODEL
    asked = {path.startswith("/cdn"): token for method, path, _, token in hub.requests if method == "GET"}
    assert asked == {False: f"Bearer {hub.token}", True: None}


def test_a_broken_connection_is_continued_where_it_broke(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_errors, "_PAUSE_S", 0.1)
    hub.cuts = [len(MODEL) * 2 // 5, 1_000_000]
    seen: list[PullProgress] = []
    assert sources.pull(entry(sha256=SHA256), seen.append).read_bytes() == MODEL
    assert hub.ranges[0] is None
    starts = [int(wanted.removeprefix("bytes=")[:-1]) for wanted in hub.ranges[1:] if wanted]
    assert len(starts) == 2
    assert 0 < starts[0] < starts[1] < len(MODEL)
    assert "retrying" in {progress.stage for progress in seen}


def test_a_pull_is_stopped_at_once_where_nothing_comes_and_a_later_one_continues(hub: Hub) -> None:
    def stop(progress: PullProgress) -> None:
        if progress.stage == "downloading" and progress.done_bytes > 1_000_000:
            raise RuntimeError("enough")

    hub.holds = {"tiny.gguf": len(MODEL) * 2 // 5}
    with pytest.raises(RuntimeError, match="enough"):
        sources.pull(entry(sha256=SHA256), stop)
    kept = partial_bytes()
    assert 1_000_000 < kept < len(MODEL)
    hub.holds = {}
    assert store.fetched(entry(sha256=SHA256)) is None
    seen: list[PullProgress] = []
    assert sources.pull(entry(sha256=SHA256), seen.append).read_bytes() == MODEL
    assert hub.ranges[-1] == f"bytes={kept}-"
    first = next(progress for progress in seen if progress.stage == "downloading")
    assert first.done_bytes == kept


def test_a_server_without_ranges_starts_over(hub: Hub) -> None:
    hub.cuts = [1_500_000]
    hub.ignores_ranges = True
    assert sources.pull(entry(sha256=SHA256)).read_bytes() == MODEL


def test_a_part_of_an_older_file_is_not_continued(hub: Hub) -> None:
    partial = store.entry_dir(entry()) / ".partial"
    partial.mkdir(parents=True)
    (partial / "tiny.gguf.0123456789abcdef.part").write_bytes(b"old")
    assert sources.pull(entry(sha256=SHA256)).read_bytes() == MODEL
    assert hub.ranges == [None]


def test_a_connection_that_keeps_failing_keeps_what_it_has(hub: Hub) -> None:
    hub.cuts = [1_500_000, *[0] * 20]
    with pytest.raises(DownloadError, match=r"keeps failing .* are kept") as caught:
        sources.pull(entry(sha256=SHA256))
    assert "\n" not in str(caught.value)
    assert partial_bytes() > 0
    hub.cuts = []
    assert sources.pull(entry(sha256=SHA256)).read_bytes() == MODEL


def test_another_file_is_seen_before_it_is_fetched(hub: Hub) -> None:
    with pytest.raises(ModelFileError, match=f"{len(MODEL)} bytes where 7 are expected"):
        sources.pull(entry(size=7))
    with pytest.raises(ModelFileError, match=f"sha256 {SHA256} where {'0' * 64} is expected"):
        sources.pull(entry(sha256="0" * 64))
    assert hub.ranges == []


def test_more_than_was_announced_is_not_taken(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    real = hub_client.look_up
    monkeypatch.setattr(hub_client, "look_up", lambda *given: replace(real(*given), size=1_000_000))
    with pytest.raises(DownloadError, match=r"more of .* than the 1000000 bytes"):
        sources.pull(entry())
    assert partial_bytes() <= 1_000_000


def test_too_little_space(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(Path.cwd())._replace(free=1_000_000)
    monkeypatch.setattr("shutil.disk_usage", lambda folder: usage)
    with pytest.raises(DownloadError, match=r"4\.2 MB needed, 1\.0 MB free"):
        sources.pull(entry())
    assert hub.ranges == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_disk_that_fills_up(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    # Or the link would be taken away, and not be written through.
    monkeypatch.setattr(Path, "is_symlink", lambda _: False)
    part = store.entry_dir(entry()) / ".partial" / f"tiny.gguf.{SHA256[:16]}.part"
    part.parent.mkdir(parents=True)
    part.symlink_to("/dev/full")
    with pytest.raises(DownloadError, match=r"became full .*LOCALSPEC_HOME"):
        sources.pull(entry(size=len(MODEL)))
