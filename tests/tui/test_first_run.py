"""The first run: no model was named, so a small one answers at once and a better one is offered."""

from __future__ import annotations

import threading
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.errors import DownloadError
from localspec.models import registry, store
from localspec.models.choose import Capacity
from localspec.settings import config_file, names_model
from tests.tui.helpers import OPTIONS, Running, running
from tests.tui.scripted import Scripted, ScriptedEngine
from tests.tui.shelves import MACHINE, REGISTRY, Fetching, opened, put_in_place, shipped
from tui.offer import find_offer, remember_model, setting_of

OFFER = "demo is a small demo model. f8 gets big-4b (2.40 GB to fetch, ~1"


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that big-4b suits; the registry knows that model, and the small one that is started with."""
    shipped(tmp_path, monkeypatch)
    for place in ("tui.library.capacity", "tui.offer.capacity"):
        monkeypatch.setattr(place, lambda: MACHINE)


@pytest.fixture
def fetching(monkeypatch: pytest.MonkeyPatch) -> Fetching:
    tap = Fetching()
    monkeypatch.setattr("localspec.model_files.pull", tap.pull)
    return tap


def demo() -> Scripted:
    put_in_place("demo")
    return Scripted(registry.resolve("demo"), OPTIONS)


def kept() -> object:
    return tomllib.loads(config_file().read_text())["model"]


async def offered(app: Running) -> None:
    await app.ready()
    await app.until(lambda: "demo is a small demo model" in app.transcript.text)


# --- what is offered --------------------------------------------------------------------------------


def test_the_best_model_for_this_machine_is_offered() -> None:
    found = find_offer("demo")
    assert found.sentence.startswith(OFFER)
    assert found.sentence.endswith("tok/s) · f9: no, thanks")
    assert not found.installed


def test_what_is_not_known_of_the_machine_is_not_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tui.offer.capacity", lambda: replace(MACHINE, ram_bandwidth=None))
    assert "(2.40 GB to fetch)" in find_offer("demo").sentence


def test_a_better_model_that_is_here_is_offered_without_download(tmp_path: Path) -> None:
    put_in_place("demo")
    put_in_place("single", rows=640, chats=False)
    assert not find_offer("demo").installed, "it continues text, and does not chat"
    put_in_place("big-1b", rows=128)
    assert not find_offer("demo").installed, "it is hardly larger than the demo model"
    put_in_place("big-1b", rows=640)
    own = put_in_place("big-4b:Q8_0", rows=1280).rename(tmp_path / "own.gguf")
    found = find_offer("demo")
    assert found.entry is not None
    assert (found.entry.name, found.installed) == ("big-1b", True)
    assert "f8 changes to big-1b (installed, ~" in found.sentence
    registry.user_file().parent.mkdir(parents=True, exist_ok=True)
    registry.user_file().write_text(f'[models.mine]\nsource = "{own.as_posix()}"\n')
    found = find_offer("demo")
    assert found.entry is not None
    assert (found.entry.name, found.installed) == ("mine", True)


def test_nothing_is_offered_that_the_disk_has_no_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tui.offer.free_bytes", lambda: 10**9)
    assert "f8 gets big-1b (600.0 MB to fetch" in find_offer("demo").sentence
    entry = registry.find_entry("big-1b")
    part = store.entry_dir(entry) / ".partial" / "big-1b.gguf.abc.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(bytes(2000))
    assert "to fetch, 2.0 kB of it here already" in find_offer("demo").sentence
    monkeypatch.setattr("tui.offer.free_bytes", lambda: 10**6)
    assert find_offer("demo").entry is None


def test_where_nothing_suits_nothing_is_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tui.offer.capacity", lambda: Capacity(ram=2**28))
    assert find_offer("demo").entry is None
    assert "f7 shows others" in find_offer("demo").sentence
    monkeypatch.setattr("tui.offer.capacity", lambda: MACHINE)
    shipped(tmp_path, monkeypatch, REGISTRY.replace("recommended = true", ""))
    assert find_offer("demo").entry is None
    registry.user_file().parent.mkdir(parents=True, exist_ok=True)
    registry.user_file().write_text("[models.x\n")
    assert find_offer("demo").entry is None


def test_what_is_remembered_finds_the_model_again(tmp_path: Path) -> None:
    for name in ("demo", "big-4b", "big-4b:Q8_0", "hf:o/typed/by-hand.gguf"):
        assert setting_of(registry.resolve(name)) == name
    file = tmp_path / "a model.gguf"
    file.write_bytes(b"")
    assert setting_of(registry.resolve(str(file))) == str(file)


def test_remembering_keeps_what_the_file_says_otherwise() -> None:
    assert not names_model()
    config_file().parent.mkdir(parents=True, exist_ok=True)
    config_file().write_text('# mine\ndraft = "suffix"  # quick\n\n[engine]\nthreads = 3\n')
    assert not names_model()
    remember_model("big-4b")
    assert names_model()
    text = config_file().read_text()
    assert tomllib.loads(text) == {"model": "big-4b", "draft": "suffix", "engine": {"threads": 3}}
    assert "# mine" in text
    assert "# quick" in text


def test_a_model_of_the_environment_is_a_named_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_MODEL", "smollm2")
    assert names_model()


# --- in the app -------------------------------------------------------------------------------------


async def test_the_better_model_is_fetched_while_the_small_one_answers(fetching: Fetching) -> None:
    engine = ScriptedEngine(["One.", "Two."])
    async with running(engine, files=demo(), demo=True, size=(120, 30)) as app:
        await offered(app)
        assert OFFER in " ".join(app.transcript.text.split())
        assert "f8 better model  f2" in app.keys
        assert "f9 no, thanks" in app.keys
        await app.pilot.press("f8")
        await app.until(lambda: "Downloading big-4b" in app.activity)
        await app.send("meanwhile")
        await app.until(lambda: "One." in app.transcript.text and not app.chat.busy)
        assert not config_file().exists()
        fetching.deliver.add("big-4b")
        await app.until(lambda: "From here on, big-4b answers." in app.transcript.text)
        await app.until(config_file().exists)
        await app.until(lambda: "starts with big-4b from now on" in app.transcript.text)
        assert kept() == "big-4b"
        assert "f8" not in app.keys
        assert names_model()


async def test_it_is_not_remembered_before_it_answers(fetching: Fetching) -> None:
    engine = ScriptedEngine(["One."])
    async with running(engine, files=demo(), demo=True) as app:
        await offered(app)
        await app.pilot.press("f8")
        await app.until(lambda: "Downloading big-4b" in app.activity)
        await app.pilot.press("escape")
        await app.until(lambda: "Downloading" not in app.activity)
        assert "f8 better model" in app.keys
        fetching.fail["big-4b"] = "No connection to huggingface.co; check the network."
        await app.pilot.press("f8")
        await app.until(lambda: "No connection" in app.transcript.text)
        assert "f8 better model" in app.keys
        fetching.fail.clear()
        fetching.deliver.add("big-4b")
        path = put_in_place("big-4b")
        engine.refuses[str(path)] = "big-4b needs 9 GiB; choose a smaller model."
        await app.pilot.press("f8")
        await app.until(lambda: "needs 9 GiB" in app.transcript.text and app.chat.ready)
        assert app.chat.setup.name == "demo"
        assert not config_file().exists()


async def test_no_thanks_is_remembered(fetching: Fetching) -> None:
    async with running(files=demo(), demo=True) as app:
        await offered(app)
        await app.pilot.press("f9")
        await app.until(lambda: "demo stays" in app.transcript.text)
        assert kept() == "demo"
        assert "f8" not in app.keys
        assert "f9" not in app.keys
        await app.pilot.press("f8")
        assert "nothing on offer" in app.activity
        await app.pilot.press("f9")
        assert "nothing on offer" in app.activity
    assert fetching.asked == []


async def test_another_model_than_the_offered_one_is_remembered_too(fetching: Fetching) -> None:
    fetching.deliver.add("single")
    async with running(files=demo(), demo=True) as app:
        await offered(app)
        await opened(app)
        await app.pilot.press(*"single", "enter")
        await app.until(lambda: "starts with single from now on" in app.transcript.text)
        assert kept() == "single"
        assert "f8" not in app.keys


async def test_nothing_is_offered_where_a_model_was_named() -> None:
    async with running(files=demo()) as app:
        await app.ready()
        await app.pilot.press("f8")
        assert "nothing on offer" in app.activity
        assert "demo model" not in app.transcript.text
        assert "f9" not in app.keys


async def test_looking_for_something_to_offer_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    proceed = threading.Event()

    def slow() -> Capacity:
        proceed.wait(5)
        return MACHINE

    monkeypatch.setattr("tui.offer.capacity", slow)
    async with running(ScriptedEngine(["One."]), files=demo(), demo=True) as app:
        await app.ready()
        await app.send("hello")
        await app.until(lambda: "One." in app.transcript.text and not app.chat.busy)
        assert "demo model" not in app.transcript.text
        proceed.set()
        await offered(app)


async def test_settings_that_cannot_be_written_are_said_to_be_so() -> None:
    config_file().parent.mkdir(parents=True, exist_ok=True)
    config_file().write_text("model = [broken\n")
    async with running(files=demo(), demo=True) as app:
        await offered(app)
        await app.pilot.press("f9")
        await app.until(lambda: "could not be changed" in " ".join(app.transcript.text.split()))
        assert config_file().read_text() == "model = [broken\n"


async def test_without_network_at_the_very_first_start() -> None:
    def offline(_report: object) -> Path:
        raise DownloadError("No connection; check the network.")

    files = Scripted(registry.resolve("demo"), OPTIONS, finding=offline)
    async with running(files=files, demo=True) as app:
        await app.until(lambda: "No connection" in app.transcript.text)
        await app.until(lambda: "demo is a small demo model" in app.transcript.text)
