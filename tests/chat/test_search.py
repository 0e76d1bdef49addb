"""Searching conversations."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from localspec.chat.search import snippet_of
from localspec.chat.store import ConversationRow, Store


@pytest.fixture
def store() -> Iterator[Store]:
    opened = Store(private=True)
    yield opened
    opened.close()


def told(store: Store, title: str, *messages: str) -> ConversationRow:
    row = store.create(model="m", title=title)
    for number, text in enumerate(messages):
        store.add_message(row.id, "assistant" if number % 2 else "user", text)
    return row


def found(store: Store, text: str) -> list[str]:
    return [one.row.title for one in store.search(text)]


def test_titles_come_first_then_what_was_written_to_last(store: Store) -> None:
    told(store, "Bread", "how to bake")
    told(store, "Older", "I like bread")
    told(store, "Newer", "bread, and butter", "Bread!")
    told(store, "Other", "nothing")
    assert found(store, "bread") == ["Bread", "Newer", "Older"]
    by_title, newer, _ = store.search("bread")
    assert (by_title.messages, by_title.snippet) == (0, None)
    assert newer.messages == 2
    assert newer.message_id == store.messages(newer.row.id)[1].id
    assert newer.snippet is not None
    assert (newer.snippet.text, newer.snippet.marks) == ("Bread!", ((0, 5),))
    assert [one.row.title for one in store.search("bread", limit=1)] == ["Bread"]


def test_all_words_have_to_be_in_one_message_in_any_order(store: Store) -> None:
    told(store, "a", "the quick brown fox")
    told(store, "b", "quick", "fox")
    assert found(store, "fox quick") == ["a"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("sourdo", True),
        ("SOURDOUGH", True),
        ("dough", True),
        ("cafe", True),
        ("->", True),
        ('"quoted', True),
        ("parse_fi", True),
        ("小麦", True),
        ("面粉", True),
        ("straße", True),
        ("STRASSE", True),
        ("NEAR(a b)", False),
        ("sourdough OR x", False),
        ("-", True),
        ("nothing", False),
        ("\0", False),
        ("  ", False),
    ],
)
def test_what_is_found(store: Store, text: str, wanted: bool) -> None:
    told(store, "x", 'Sourdough café: parse_file() -> int, "quoted", 用小麦面粉做面包, Straße')
    assert (found(store, text) == ["x"]) is wanted


def test_every_branch_is_searched_and_what_changes_is_followed(store: Store) -> None:
    row = told(store, "x", "first words")
    (question,) = store.messages(row.id)
    store.add_sibling(question.id, "second words")
    assert store.search("words")[0].messages == 2
    reply = store.add_message(row.id, "assistant", "growing", status="streaming")
    store.update_message(reply.id, content="growing tall")
    store.update_message(reply.id, content="grown up", status="complete")
    assert found(store, "growing") == []
    assert found(store, "grown") == ["x"]
    store.update_message(reply.id, content="changed")
    assert found(store, "grown") == []
    assert found(store, "changed") == ["x"]
    store.delete(row.id)
    assert found(store, "words") == []
    query = "SELECT count(*) FROM message_index WHERE message_index MATCH 'words'"
    assert store._database.execute(query).fetchone() == (0,)
    store._database.execute("INSERT INTO message_index (message_index) VALUES ('integrity-check')")


def test_a_growing_reply_is_found_where_the_index_has_nothing(store: Store) -> None:
    row = store.create(model="m", title="x")
    store.add_message(row.id, "assistant", "unfinished", status="streaming")
    assert found(store, "unfin") == ["x"]


def test_a_snippet_shows_what_was_found_on_one_line() -> None:
    text = "Well.\n\n" + "filler " * 50 + "the\tneedle \n is here " + "and so on " * 50
    snippet = snippet_of(text, ["NEEDLE", "here"])
    assert "\n" not in snippet.text
    assert snippet.text.startswith("…")
    assert snippet.text.endswith("…")
    assert [snippet.text[start:end] for start, end in snippet.marks] == ["needle", "here"]
    assert snippet.marks[0][0] < 40
    assert snippet_of("short", ["none"]).text == "short"
    assert snippet_of("", ["x"]).text == ""


def test_a_message_of_100_megabytes_is_kept_and_found(store: Store) -> None:
    row = told(store, "x", "beginning " + "ab " * 35_000_000 + "the needle")
    assert len(store.messages(row.id)[0].content) > 100_000_000
    assert found(store, "beginning") == ["x"]
    assert found(store, "needle") == ["x"]
    tree = store.tree(row.id)
    assert tree is not None
    store.delete(row.id)
    store.restore(tree)
    assert found(store, "beginning") == ["x"]


def filled() -> Store:
    """200 conversations of 100 messages."""
    store = Store()
    store._database.execute("BEGIN")
    words = [f"word{number * number % 977}" for number in range(2000)]
    for conversation in range(1, 201):
        store._database.execute(
            "INSERT INTO conversation VALUES (NULL, ?, 'm', '', ?, ?, '', NULL, '{}')",
            (f"title {conversation}", conversation, conversation),
        )
        parent = None
        for number in range(100):
            start = (conversation * 37 + number * 11) % 1900
            text = " ".join(words[start : start + 100])
            parent = store._database.execute(
                "INSERT INTO message (conversation_id, parent_id, role, content, status, created)"
                " VALUES (?, ?, 'user', ?, 'complete', 0)",
                (conversation, parent, text),
            ).lastrowid
    store._database.commit()
    return store


def test_many_conversations_are_searched() -> None:
    store = filled()
    for text, count in (("word1", 200), ("title 199", 1), ("ord14", 200), ("never said", 0)):
        assert len(store.search(text, limit=1000)) == count
    assert [one.row.title for one in store.search("word1", limit=2)] == ["title 200", "title 199"]
    store.close()
