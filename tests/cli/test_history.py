"""`localspec history`: conversations from the shell."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from localspec.chat.store import Store
from localspec.cli import app
from localspec.memory.files import log_path
from localspec.memory.log import TokenLog
from localspec.memory.records import Record
from localspec.paths import data_dir, memory_dir
from tests.cli.conftest import Command, environment
from tests.cli.terminal import run_in_terminal

History = Callable[..., Result]


@pytest.fixture
def history() -> History:
    """Run `localspec history ARGS` in this process."""
    return lambda *args, **more: CliRunner().invoke(app, ["history", *args], **more)


@pytest.fixture
def filled() -> Iterator[Store]:
    """Three conversations; the first has a title that would colour a terminal."""
    with closing(Store()) as store:
        for title, text in (
            ("Bread \x1b[31m", "How to bake a sourdough?"),
            ("Talk", "sourdough \x1b]0;x\x07 and butter"),
            ("Third", "nothing"),
        ):
            row = store.create(model="smollm2", title=title)
            store.add_message(row.id, "user", text)
        yield store


def failed(done: Result, code: int) -> str:
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (code, "", 1), done.output
    return str(done.stderr)


def test_looking_makes_no_database(history: History, private_home: Path) -> None:
    for args in (("list",), ("search", "x"), ("export", "--all")):
        done = history(*args)
        assert (done.exit_code, done.stdout) == (0, "")
        assert "no conversations" in done.stderr or "Nothing" in done.stderr
    assert json.loads(history("list", "--json").stdout) == []
    assert history("path").stdout.strip() == str(private_home / "data" / "conversations.db")
    for args in (("show", "1"), ("export", "1"), ("rm", "1", "--yes")):
        assert "no conversation 1" in failed(history(*args), 3)
    assert not data_dir().exists()


def test_list_is_a_table_newest_first(history: History, filled: Store) -> None:
    done = history("list")
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["ID", "WRITTEN", "MESSAGES", "MODEL", "TITLE"]
    assert [line.split()[0] for line in lines[1:]] == ["3", "2", "1"]
    assert "␛[31m" in lines[3]
    assert "\x1b" not in done.output
    assert done.stderr == ""
    short = history("list", "-n", "2")
    assert len(short.stdout.splitlines()) == 3
    assert "-n 0" in short.stderr
    told = json.loads(history("list", "--json", "-n", "1").stdout)
    assert [(one["id"], one["title"], one["messages"]) for one in told] == [(3, "Third", 1)]
    assert len(json.loads(history("list", "--json", "-n", "0").stdout)) == 3


def test_search_shows_where_it_was_found(history: History, filled: Store) -> None:
    done = history("search", "sourdough", "butter")
    assert done.stdout.splitlines()[0].startswith("2  Talk")
    assert "    sourdough ␛]0;x␇ and butter" in done.stdout
    assert "\x1b" not in history("search", "bread").stdout
    (found,) = json.loads(history("search", "butter", "--json").stdout)
    assert (found["id"], found["found"]) == (2, 1)
    assert history("search", "unheard").stderr == "Nothing was found.\n"


def test_show_prints_markdown_or_everything(history: History, filled: Store) -> None:
    shown = history("show", "2").stdout
    assert shown.startswith("# Talk\n")
    assert "sourdough ␛]0;x␇ and butter" in shown
    told = history("show", "2", "--json").stdout
    assert "\x1b" not in told
    assert json.loads(told)["conversations"][0]["messages"][0]["content"].count("\x1b") == 1


def test_export_and_import_are_each_others_inverse(history: History, filled: Store, tmp_path: Path) -> None:
    file = tmp_path / "all.json"
    assert str(file) in history("export", "--all", "--format", "json", "-o", str(file)).stderr
    assert [one["id"] for one in json.loads(file.read_text())["conversations"]] == [1, 2, 3]
    filled.delete(2)
    done = history("import", str(file))
    assert "Added 4: Talk (1 message)" in done.stdout
    assert "Already here as 1: Bread ␛[31m" in done.stdout
    assert "\x1b" not in done.stdout


def test_export_into_a_folder_is_a_file_each(history: History, filled: Store, tmp_path: Path) -> None:
    history("export", "3", "1", "3", "-o", f"{tmp_path}/new/")
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["1-bread-31m.md", "3-third.md"]
    history("export", "2", "-o", str(tmp_path))
    assert (tmp_path / "2-talk.md").read_text().startswith("# Talk")
    assert history("export", "2", "1").stdout.count("\n---\n") == 1


def test_what_to_export_has_to_be_said(history: History, filled: Store, tmp_path: Path) -> None:
    for args in ((), ("1", "--all")):
        assert "--all" in failed(history("export", *args), 2)
    assert "no conversation 9" in failed(history("export", "1", "9", "-o", str(tmp_path / "x")), 3)
    assert not (tmp_path / "x").exists()
    assert "does not exist" in failed(history("export", "1", "-o", str(tmp_path / "a" / "b.md")), 1)
    assert history("show", "0").exit_code == 2
    assert history("show", "9" * 30).exit_code == 2


def test_a_damaged_file_imports_nothing(history: History, filled: Store, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text('[{"role": "user", "content": "new"}]')
    bad.write_text('{"format": "localspec-conversations", "version": 1, "conversations": [{}]}')
    assert "nothing was imported" in failed(history("import", str(good), str(bad)), 2)
    assert len(filled.conversations()) == 3


def remembered(name: str) -> TokenLog:
    log = TokenLog(log_path(memory_dir(), "1" * 32), "1" * 32)
    log.append([Record(np.arange(30, dtype=np.int32), name, 1.7e9)])
    return log


def test_rm_asks_and_forgets(history: History, filled: Store) -> None:
    row = filled.get(1)
    assert row is not None
    log = remembered(row.memory_name)
    remembered("run-other")
    asked = history("rm", "1", input="n\n")
    assert asked.exit_code == 1
    assert "1 “Bread ␛[31m”" in asked.stderr
    assert "no conversation 7" in failed(history("rm", "2", "7", "--yes"), 3)
    assert len(filled.conversations()) == 3
    done = history("rm", "1", "1", "2", input="y\n")
    assert "Deleted 1 “Bread ␛[31m”, and 1 remembered reply that drafts were made from." in done.stdout
    assert "Deleted 2 “Talk”." in done.stdout
    assert [one.id for one in filled.conversations()] == [3]
    assert [one.conversation for one in log.reread().records] == ["run-other"]


def test_a_memory_that_cannot_be_used_is_said_after_the_deletion(history: History, filled: Store) -> None:
    broken = log_path(memory_dir(), "0" * 32)
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"hello")
    done = history("rm", "1", "--yes")
    assert done.exit_code == 1
    assert "may still be there" in done.stderr
    assert filled.get(1) is None


def test_a_broken_database_is_set_aside_and_said(history: History) -> None:
    data_dir().mkdir(parents=True)
    (data_dir() / "conversations.db").write_bytes(b"garbage" * 1000)
    done = history("list")
    assert done.exit_code == 0
    assert "damaged file is kept" in done.stderr
    assert list(data_dir().glob("*.broken-*"))


def test_a_database_that_is_locked_is_a_sentence(
    history: History, filled: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localspec.chat.database.BUSY_SECONDS", 0.05)
    raw = sqlite3.connect(filled.path, isolation_level=None)
    raw.execute("BEGIN EXCLUSIVE")
    try:
        assert "locked by another program" in failed(history("rm", "1", "--yes"), 1)
    finally:
        raw.close()


def test_a_read_only_database_can_be_read(
    history: History, filled: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing is read-only to root.
    monkeypatch.setattr("localspec.cli.history.os.access", lambda place, mode: False)
    assert "Talk" in history("list").stdout
    assert "Talk" in history("search", "butter").stdout
    assert history("show", "2").stdout.startswith("# Talk")
    assert history("export", "--all").exit_code == 0
    assert "Cannot write" in failed(history("rm", "1", "--yes"), 1)


def test_in_a_terminal_what_was_found_is_bold_and_nothing_else_escapes(filled: Store) -> None:
    command = [sys.executable, "-m", "localspec", "history", "search", "sourdough"]
    code, written = run_in_terminal(command, environment())
    assert code == 0
    assert "\x1b[1msourdough\x1b[0m" in written
    assert "\x1b]0" not in written
    assert "\x1b[31m" not in written


def test_the_command_is_there(localspec: Command) -> None:
    done = localspec("history", "--help")
    assert done.returncode == 0
    for verb in (b"list", b"search", b"show", b"export", b"import", b"rm", b"path"):
        assert verb in done.stdout
