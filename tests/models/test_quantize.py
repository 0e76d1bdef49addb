"""`localspec models quantize`: a copy that is whole or not there, and the name that it gets."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from localspec.errors import StorageError, UsageError
from localspec.model_copies import plan_copy
from localspec.models import own, registry
from localspec.models.gguf import read_header
from localspec.runtime.copying import bytes_needed, partial_of
from tests.models.conftest import gguf_bytes

BY_HAND = '# My models.\n[models.own]  # the best\nsource = "{}"\n'


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "localspec", "models", "quantize", *arguments]


def localspec(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=60)


@pytest.fixture
def by_hand(tmp_path: Path) -> Path:
    """A registry that a person wrote, with one small model."""
    model = tmp_path / "own.gguf"
    model.write_bytes(gguf_bytes())
    file = registry.user_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(BY_HAND.format(model.as_posix()), encoding="utf-8")
    return file


@pytest.mark.model
def test_a_copy_is_known_by_its_name(smollm2_path: Path, by_hand: Path) -> None:
    written = by_hand.read_text(encoding="utf-8")
    with by_hand.open("a", encoding="utf-8") as file:
        file.write(
            f'\n[models.small]\nsource = "{smollm2_path.as_posix()}"\nfamily = "f"\nlicense = "L"\n'
            "sampling = { temperature = 0.2, top_k = 7 } # no newline after this"
        )
    done = localspec("small", "q2_k", "--threads", "2")
    assert done.returncode == 0, done.stderr
    path = Path(done.stdout.strip())
    assert done.stdout == f"{path}\n"
    assert "Making small-Q2_K of small, about" in done.stderr
    assert read_header(path).file_type == "Q2_K"
    assert path.stat().st_size < bytes_needed(read_header(smollm2_path), "Q2_K")
    assert not partial_of(path).exists()

    assert by_hand.read_text(encoding="utf-8").startswith(written)
    assert "# no newline after this\n" in by_hand.read_text(encoding="utf-8")
    found = registry.resolve("small-Q2_K")
    assert found.path == path
    assert found.entry is not None
    assert (found.entry.family, found.entry.license, found.entry.quantization) == ("f", "L", "Q2_K")
    assert found.entry.sampling.given() == {"temperature": 0.2, "top_k": 7}
    assert found.entry.size == path.stat().st_size

    again = localspec("small", "Q2_K")
    assert again.returncode == 2
    assert "exists already" in again.stderr
    path.unlink()
    # What is gone can be made again, under the entry that there is.
    before = by_hand.read_text(encoding="utf-8")
    assert localspec("small", "Q2_K", "--threads", "2").returncode == 0
    assert by_hand.read_text(encoding="utf-8") == before


@pytest.mark.model
@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_what_is_interrupted_leaves_nothing(
    smollm2_path: Path, tmp_path: Path, number: signal.Signals
) -> None:
    target = tmp_path / "copy.gguf"
    process = subprocess.Popen(
        command(str(smollm2_path), "F32", "--threads", "1", "--output", str(target)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    deadline = time.monotonic() + 120
    while not partial_of(target).exists() or partial_of(target).stat().st_size < 1 << 20:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    expected = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -signal.SIGKILL}
    assert process.returncode == expected[number]
    assert out == b""
    while list(tmp_path.iterdir()):
        # The other process cleans up where this one could not.
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert not registry.user_file().exists()


def test_a_file_that_cannot_be_converted(by_hand: Path) -> None:
    done = localspec("own", "Q4_0", "--threads", "1")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "own.gguf" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list((registry.user_file().parents[1] / "data" / "models").iterdir())
    assert list(tomllib.loads(by_hand.read_text(encoding="utf-8"))["models"]) == ["own"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("own", "Q9"), 2, "F32, F16, BF16, Q8_0, Q6_K, Q5_K_M, Q4_1, Q4_K_M, Q4_K_S, Q4_0, Q3_K_M, Q2_K"),
        (("nothing", "Q4_0"), 3, 'No model is named "nothing"'),
        (("own", "Q4_0", "--output", "."), 2, "is a folder"),
        (("own", "Q4_0", "--output", "no/such/folder.gguf"), 3, "There is no folder"),
        (("own", "Q4_0", "--output", "pyproject.toml"), 2, "exists already"),
    ],
)
def test_what_cannot_be_made_is_said_in_a_sentence(
    by_hand: Path, arguments: tuple[str, ...], code: int, words: str
) -> None:
    done = localspec(*arguments)
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_a_name_that_is_taken(by_hand: Path) -> None:
    with by_hand.open("a", encoding="utf-8") as file:
        file.write('[models."own-Q4_0"]\nsource = "other.gguf"\n')
    with pytest.raises(UsageError, match="another model named own-Q4_0"):
        plan_copy(registry.resolve("own"), "Q4_0")


def test_no_room(by_hand: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        free = 10

    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Full)
    with pytest.raises(StorageError, match="and 10 bytes are free"):
        plan_copy(registry.resolve("own"), "Q4_0")


@pytest.mark.parametrize("text", ["", "# a comment alone", '[models.a]\nsource = "a.gguf"'])
def test_a_hand_written_registry_is_only_added_to(text: str) -> None:
    file = registry.user_file()
    file.parent.mkdir(parents=True)
    file.write_text(text, encoding="utf-8")
    source = '/a "strange" \\ näme\x7f.gguf'
    own.add_entry("b.c", {"source": source, "description": "", "sampling": {"top_p": 0.5}}, "Made here.")
    assert file.read_text(encoding="utf-8").startswith(text)
    assert str(registry.entries()["b.c"].sources[0]) == source


def test_a_registry_that_cannot_be_added_to(private_home: Path) -> None:
    file = registry.user_file()
    file.parent.mkdir(parents=True)
    text = 'models = { a = { source = "a.gguf" } }\n'
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=r'add a table \[models."b"\] with source = "b.gguf" by hand'):
        own.add_entry("b", {"source": "b.gguf"}, "Made here.")
    assert file.read_text(encoding="utf-8") == text
    assert list(file.parent.iterdir()) == [file]
