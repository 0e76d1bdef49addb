"""Branches, whole trees, and databases of older versions."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace

import pytest

from localspec.chat import database, search_index
from localspec.chat.rows import ConversationRow, MessageRow, Tree, title_of
from localspec.chat.store import Store
from localspec.errors import StorageError
from localspec.paths import data_dir


@pytest.fixture
def store() -> Iterator[Store]:
    opened = Store()
    yield opened
    opened.close()


def texts(store: Store, row: ConversationRow) -> list[str]:
    return [message.content for message in store.messages(row.id)]


def test_an_edited_question_is_a_branch_beside_the_old_one(store: Store) -> None:
    row = store.create(model="m")
    question = store.add_message(row.id, "user", "Q1")
    store.add_message(row.id, "assistant", "A1")
    edited = store.add_sibling(question.id, "Q2")
    assert (edited.role, edited.parent_id, edited.status) == ("user", None, "complete")
    assert (edited.version, edited.versions) == (2, 2)
    store.add_message(row.id, "assistant", "A2")
    assert texts(store, row) == ["Q2", "A2"]
    assert [one.content for one in store.siblings(question.id)] == ["Q1", "Q2"]
    places = [(one.version, one.versions) for one in store.messages(row.id)]
    assert places == [(2, 2), (1, 1)]


def test_the_branch_that_was_chosen_stays_so_after_a_restart(store: Store) -> None:
    row = store.create(model="m")
    store.add_message(row.id, "user", "Q")
    first = store.add_message(row.id, "assistant", "first")
    store.add_message(row.id, "user", "go on")
    store.add_message(row.id, "assistant", "gone on")
    second = store.add_sibling(first.id, "second", status="streaming")
    store.update_message(second.id, content="second!", status="complete")
    store.activate(first.id)
    # Down to the end of the branch.
    assert texts(store, row) == ["Q", "first", "go on", "gone on"]
    again = Store()
    assert texts(again, row) == ["Q", "first", "go on", "gone on"]
    again.activate(second.id)
    again.close()
    assert texts(store, row) == ["Q", "second!"]
    added = store.add_message(row.id, "user", "and?")
    assert added.parent_id == second.id
    assert [one.version for one in store.siblings(second.id)] == [1, 2]


def test_a_message_after_another_one_follows_what_was_written_below_it_meanwhile(store: Store) -> None:
    row = store.create(model="m")
    mine = store.add_message(row.id, "user", "mine")
    other = Store()
    theirs = other.add_message(row.id, "user", "theirs")
    other.add_sibling(mine.id, "a branch of theirs")
    other.close()
    assert store.add_message(row.id, "assistant", "x", after=mine.id).parent_id == theirs.id
    assert texts(store, row) == ["mine", "theirs", "x"]


def test_what_is_gone_is_a_sentence(store: Store) -> None:
    row = store.create(model="m")
    message = store.add_message(row.id, "user", "x")
    store.delete(row.id)
    assert store.siblings(message.id) == []
    for act in (lambda: store.add_sibling(message.id, "y"), lambda: store.activate(message.id)):
        with pytest.raises(StorageError, match="was deleted"):
            act()


def test_an_active_message_that_is_not_there_gives_way_to_the_newest(store: Store) -> None:
    row, other = store.create(model="m"), store.create(model="m")
    store.add_message(row.id, "user", "x")
    foreign = store.add_message(other.id, "user", "y")
    store._database.execute("UPDATE conversation SET active_id = ? WHERE id = ?", (foreign.id, row.id))
    assert texts(store, row) == ["x"]


def branched(store: Store) -> ConversationRow:
    row = store.create(model="m", title="T", system_prompt="S")
    question = store.add_message(row.id, "user", "Q1")
    answer = store.add_message(row.id, "assistant", "A1")
    store.update_message(answer.id, stats={"tokens": 3})
    store.add_sibling(question.id, "Q2")
    store.activate(answer.id)
    found = store.get(row.id)
    assert found is not None
    return found


def test_a_deleted_tree_comes_back_as_it_was(store: Store) -> None:
    row = branched(store)
    tree = store.tree(row.id)
    assert tree is not None
    assert [one.content for one in tree.path] == ["Q1", "A1"]
    store.delete(row.id)
    assert store.tree(row.id) is None
    assert store.restore(tree) == row
    assert store.tree(row.id) == tree
    assert store.search("Q2")[0].row == row
    # The ids that were given away meanwhile are no trouble.
    assert store.create(model="m").id > row.id


def test_trees_are_added_under_new_ids_all_or_none(store: Store) -> None:
    row = branched(store)
    tree = store.tree(row.id)
    assert tree is not None
    copy = replace(tree, row=replace(row, uid="other"))
    (added,) = store.add_trees([copy])
    assert added.id != row.id
    assert texts(store, added) == ["Q1", "A1"]
    assert store.messages(added.id)[1].stats == {"tokens": 3}
    assert (added.created, added.updated, added.message_count) == (row.created, row.updated, 3)
    broken = Tree(row, (MessageRow(1, 1, None, "robot", "x", "complete", 0.0),), 1)
    with pytest.raises(StorageError):
        store.add_trees([copy, broken])
    assert len(store.conversations()) == 2


def version_two() -> None:
    path = data_dir() / "conversations.db"
    path.parent.mkdir(parents=True)
    raw = sqlite3.connect(path)
    for script in database.MIGRATIONS[:2]:
        raw.executescript(script)
    raw.execute("PRAGMA user_version = 2")
    raw.execute("INSERT INTO conversation VALUES (7, 'Old', 'm', '', 1, 2, 'abc')")
    adding = "INSERT INTO message (id, conversation_id, parent_id, role, content, status, created)"
    raw.execute(f"{adding} VALUES (1, 7, NULL, 'user', 'old question', 'complete', 1)")
    raw.execute(f"{adding} VALUES (2, 7, 1, 'assistant', 'branch', 'complete', 1)")
    raw.execute(f"{adding} VALUES (3, 7, 1, 'assistant', 'newest answer', 'complete', 1)")
    raw.commit()
    raw.close()


def test_version_two_is_taken_over_with_all_that_it_has() -> None:
    version_two()
    store = Store()
    row = store.get(7)
    assert row is not None
    assert (row.title, row.uid, row.updated, row.message_count) == ("Old", "abc", 2, 3)
    assert texts(store, row) == ["old question", "newest answer"]
    assert [one.row.id for one in store.search("quest")] == [7]
    (active,) = store._database.execute("SELECT active_id FROM conversation").fetchone()
    assert active == 3
    store.close()


def test_two_titles_are_never_longer_than_a_line() -> None:
    assert title_of("  a \n b ") == "a b"
    assert len(title_of("word " * 10_000_000)) <= 60


def damage(store: Store) -> None:
    store._database.execute("DELETE FROM message_index_data WHERE id > 10")
    store.close()


def test_a_damaged_index_is_made_anew(store: Store) -> None:
    row = store.create(model="m")
    message = store.add_message(row.id, "user", "needle")
    damage(store)
    # A fresh connection, which has nothing of it in memory.
    again = Store()
    try:
        assert [one.message_id for one in again.search("needle")] == [message.id]
        again._database.execute("INSERT INTO message_index (message_index) VALUES ('integrity-check')")
    finally:
        # Now so badly that SQLite cannot even delete it.
        again._database.execute("DELETE FROM message_index_data WHERE id = 10")
        again.close()
    third = Store()
    try:
        with pytest.raises(StorageError, match="try again"):
            third.add_message(row.id, "user", "y")
        third.add_message(row.id, "user", "haystack")
        assert third.search("haystack")[0].messages == 1
    finally:
        third.close()
    # It counts for less than what was said.
    fourth = Store()
    assert texts(fourth, row) == ["needle", "haystack"]
    assert fourth.notice is None
    fourth.close()


def test_without_full_text_search_all_is_written_and_found_and_the_index_comes_back(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = store.create(model="m")
    store.add_message(row.id, "user", "indexed words")
    store.close()
    with monkeypatch.context() as patch:
        patch.setattr(search_index, "has_fts5", lambda: False)
        plain = Store()
        plain.add_message(row.id, "user", "plain words")
        assert [one.messages for one in plain.search("WORDS")] == [2]
        assert plain.search("nothing") == []
        plain.close()
    again = Store()
    assert search_index.has_index(again._database)
    query = "SELECT count(*) FROM message_index WHERE message_index MATCH 'words'"
    assert again._database.execute(query).fetchone() == (2,)
    again.close()


def test_a_database_that_is_only_read_is_left_as_it_is(store: Store) -> None:
    row = branched(store)
    for kept_open in (True, False):
        if not kept_open:
            store.close()
        before = {path.name: path.read_bytes() for path in store.path.parent.iterdir()}
        reading = Store(read_only=True)
        assert reading.get(row.id) == row
        assert texts(reading, row) == ["Q1", "A1"]
        assert [one.messages for one in reading.search("Q2")] == [1]
        with pytest.raises(StorageError, match="Cannot write"):
            reading.rename(row.id, "x")
        with pytest.raises(StorageError, match="Cannot write"):
            reading.delete(row.id)
        reading.close()
        after = {path.name: path.read_bytes() for path in store.path.parent.iterdir()}
        assert after["conversations.db"] == before["conversations.db"]


def test_an_older_database_that_is_only_read_is_a_sentence() -> None:
    version_two()
    with pytest.raises(StorageError, match="make it writable"):
        Store(read_only=True)
    with pytest.raises(StorageError):
        Store(data_dir() / "nothing.db", read_only=True)
    assert not (data_dir() / "nothing.db").exists()
