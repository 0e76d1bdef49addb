"""Settings into a config file: comments and the rest stay, and what cannot be changed is left alone."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from localspec.config_file import Value, edited, write_settings
from localspec.errors import StorageError, UsageError
from localspec.settings import load_settings

TEXT = """\
# my settings
model = "smollm2"  # the small one

[engine]
# the laptop has four
threads = 4   # of them
context = 2048

[ui]
theme = "nord"
"""


@pytest.fixture
def file(private_home: Path) -> Path:
    path = private_home / "config" / "config.toml"
    path.parent.mkdir(parents=True)
    return path


def test_a_value_is_changed_and_all_else_stays(file: Path) -> None:
    file.write_text(TEXT)
    write_settings(file, {"engine.threads": 2})
    assert file.read_text() == TEXT.replace("threads = 4", "threads = 2")


def test_keys_and_groups_are_added(file: Path) -> None:
    file.write_text(TEXT)
    changes: dict[str, Value] = {
        "engine.flash_attention": False,
        "engine.batch": 1024,
        "draft.spec": "ngram",
        "draft.policy": "fixed:4",
    }
    write_settings(file, changes)
    text = file.read_text()
    for line in TEXT.splitlines():
        assert line in text
    settings = load_settings()
    assert (settings.engine.threads, settings.engine.batch) == (4, 1024)
    assert settings.engine.flash_attention is False
    assert (settings.draft.spec, settings.draft.policy) == ("ngram", "fixed:4")
    assert settings.ui.theme == "nord"


def test_a_file_is_made_where_there_is_none(file: Path) -> None:
    file.parent.rmdir()
    write_settings(file, {"draft.spec": "suffix", "engine.threads": None})
    assert load_settings().draft.spec == "suffix"


def test_a_key_is_taken_out(file: Path) -> None:
    file.write_text(TEXT)
    write_settings(file, {"engine.threads": None, "draft.length": None})
    assert load_settings().engine.threads is None
    assert "context = 2048" in file.read_text()
    assert "draft" not in file.read_text()


@pytest.mark.parametrize(
    ("text", "changes", "expected"),
    [
        ('draft = "ngram"  # short\n', {"draft.spec": "suffix"}, 'draft = "suffix"  # short\n'),
        ('draft.spec = "ngram"\n', {"draft.spec": "suffix"}, 'draft.spec = "suffix"\n'),
        ("engine = { threads = 4 }\n", {"engine.threads": 2}, "engine = { threads = 2 }\n"),
        ("[engine]\r\nthreads = 4\r\n", {"engine.threads": 2}, "[engine]\r\nthreads = 2\r\n"),
    ],
)
def test_every_way_to_write_it_is_kept(
    file: Path, text: str, changes: dict[str, Value], expected: str
) -> None:
    file.write_bytes(text.encode())
    write_settings(file, changes)
    assert file.read_bytes().decode() == expected


def test_the_short_form_becomes_a_group_where_more_is_said(file: Path) -> None:
    file.write_text('draft = "ngram"\nmodel = "smollm2"\n')
    write_settings(file, {"draft.spec": "suffix", "draft.policy": "fixed:2"})
    settings = load_settings()
    assert (settings.draft.spec, settings.draft.policy, settings.model) == ("suffix", "fixed:2", "smollm2")


@pytest.mark.parametrize(
    "text", ["[engine\n", "engine = 3\n", 'nonsense = "x"\n', "[engine]\nthreads = true\n"]
)
def test_what_cannot_be_changed_is_as_it_was(file: Path, text: str) -> None:
    file.write_text(text)
    with pytest.raises(UsageError, match="it is as it was"):
        write_settings(file, {"engine.batch": 256})
    assert file.read_text() == text
    assert [path.name for path in file.parent.iterdir()] == ["config.toml"]


def test_bytes_that_are_no_text_are_told(file: Path) -> None:
    file.write_bytes(b"model = '\xff'\n")
    with pytest.raises(UsageError, match="UTF-8"):
        write_settings(file, {"engine.batch": 256})


def test_a_folder_in_its_place_is_told(file: Path) -> None:
    file.mkdir()
    with pytest.raises(StorageError):
        write_settings(file, {"engine.batch": 256})


def test_a_link_is_followed(file: Path, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.toml"
    real.write_text(TEXT)
    file.symlink_to(real)
    write_settings(file, {"engine.threads": 2})
    assert file.is_symlink()
    assert "threads = 2" in real.read_text()


def test_who_may_read_it_stays(file: Path) -> None:
    file.write_text(TEXT)
    file.chmod(0o600)
    write_settings(file, {"engine.threads": 2})
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_edited_is_pure() -> None:
    assert edited(TEXT, {}) == TEXT
