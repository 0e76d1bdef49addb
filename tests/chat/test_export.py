"""Conversations out of the store as JSON and Markdown, and into it again from files of several kinds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.chat.export import as_json, as_markdown, file_name
from localspec.chat.imports import parsed, read_trees
from localspec.chat.parts import DamageError
from localspec.chat.rows import Tree
from localspec.chat.store import Store
from localspec.chat.thinking import kept_opening
from localspec.conversations import take_in
from localspec.errors import NotFoundError, StorageError, UsageError


@pytest.fixture
def store() -> Iterator[Store]:
    opened = Store(private=True)
    yield opened
    opened.close()


def branched(store: Store, title: str = "Bread \x1b[31m") -> Tree:
    row = store.create(model="smollm2", title=title, system_prompt="Be brief.\nVery.")
    store.add_message(row.id, "user", "How?")
    answer = store.add_message(row.id, "assistant", "With an oven.\x9b31m")
    store.update_message(answer.id, stats={"model": "qwen3-8b", "tokens_per_second": 3.5})
    store.add_message(row.id, "user", "And then?")
    store.add_sibling(answer.id, "Another way.", status="streaming")
    store.add_message(row.id, "user", "Hm.", status="failed")
    store.activate(answer.id)
    tree = store.tree(row.id)
    assert tree is not None
    return tree


def read(tmp_path: Path, data: Any) -> list[Tree]:
    file = tmp_path / "file.json"
    file.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return read_trees(file)


def test_json_brings_everything_back(store: Store, tmp_path: Path) -> None:
    tree = branched(store)
    text = as_json([tree])
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)
    store.delete(tree.row.id)
    imported = take_in(store, read(tmp_path, text))
    (row,) = imported.added
    again = store.tree(row.id)
    assert again is not None
    assert (row.title, row.uid, row.updated) == (tree.row.title, tree.row.uid, tree.row.updated)
    assert [one.content for one in again.path] == [one.content for one in tree.path]
    assert again.messages[1].stats == tree.messages[1].stats
    # Nobody writes the unfinished one any more.
    assert [one.status for one in again.messages] == ["complete"] * 3 + ["cancelled", "failed"]


def test_what_is_here_is_left_out_and_what_differs_is_added_beside_it(store: Store, tmp_path: Path) -> None:
    tree = branched(store)
    text = as_json([tree])
    assert take_in(store, read(tmp_path, text)).kept == (tree.row,)
    store.rename(tree.row.id, "Mine")
    assert take_in(store, read(tmp_path, text)).added == ()
    store.add_message(tree.row.id, "user", "more")
    (beside,) = take_in(store, read(tmp_path, text)).added
    assert beside.uid != tree.row.uid
    mine = store.get(tree.row.id)
    assert mine is not None
    assert (mine.title, mine.message_count) == ("Mine", 6)
    assert take_in(store, read(tmp_path, text)).kept == (beside,)
    twice = read(tmp_path, text)
    store.delete(beside.id)
    assert len(take_in(store, [*twice, *twice]).added) == 1


def test_markdown_has_the_branch_that_is_shown_and_what_stands_beside_it(store: Store) -> None:
    text = as_markdown([branched(store)])
    assert "\x1b" not in text
    assert "\x9b" not in text
    headings = [line for line in text.splitlines() if line.startswith("#")]
    assert headings == [
        "# Bread ␛[31m",
        "## 1. You",
        "## 2. qwen3-8b",
        "## 3. You",
        "## Other branches",
        "### Instead of 2: smollm2",
        "#### You",
    ]
    assert "> Be brief.\n> Very." in text
    assert "Another way.\n\n*(not finished)*" in text
    assert "Hm.\n\n*(failed)*" in text


def test_markdown_folds_reasoning_and_json_keeps_it(store: Store) -> None:
    row = store.create(model="m", title="Thinking")
    said = {
        "<think>\nIdea.\n\n```py\nopen\n</think>\n\nThe answer.": {},
        "Opened by the prompt.</think>Yes.": kept_opening("", "<think>"),
        "Cut": kept_opening("", "<think>"),
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Well.": {},
        "<think>\n\n</think>\n\nNothing thought.": {},
        "An answer about <think> marks.": {},
    }
    for text, stats in said.items():
        store.add_message(row.id, "user", "<think>mine</think>")
        answer = store.add_message(row.id, "assistant", text)
        store.update_message(answer.id, stats=stats, status="cancelled" if text == "Cut" else "complete")
    tree = store.tree(row.id)
    assert tree is not None
    told = as_markdown([tree])
    bodies = [part.partition("\n\n")[2].strip() for part in told.split("\n## ")[2::2]]
    assert bodies == [
        "<details>\n<summary>Reasoning</summary>\n\n> Idea.\n>\n> ```py\n> open\n\n</details>\n\nThe answer.",
        "<details>\n<summary>Reasoning</summary>\n\n> Opened by the prompt.\n\n</details>\n\nYes.",
        "<details>\n<summary>Reasoning, not to the end</summary>\n\n> Cut\n\n</details>\n\n*(not finished)*",
        "<details>\n<summary>Reasoning</summary>\n\n> hm\n\n</details>\n\nWell.",
        "Nothing thought.",
        "An answer about <think> marks.",
    ]
    # What the user wrote is no reasoning.
    assert told.count("<think>mine</think>") == len(said)
    kept = json.loads(as_json([tree]))["conversations"][0]["messages"]
    assert [one["content"] for one in kept if one["role"] == "assistant"] == list(said)


def test_a_long_branch_is_no_trouble(store: Store) -> None:
    row = store.create(model="m")
    first = store.add_message(row.id, "user", "0")
    last = first
    with store._transaction():
        for number in range(1, 3000):
            last = store._insert(row.id, last.id, "user", str(number), "complete", 0.0)
    store.add_sibling(first.id, "beside")
    tree = store.tree(row.id)
    assert tree is not None
    assert as_markdown([tree]).count("#### You") == 2999
    assert len(parsed(json.loads(as_json([tree]))) or []) == 1


@pytest.mark.parametrize(
    ("title", "name"),
    [("How to bake?", "1-how-to-bake.md"), ("../../x", "1-x.md"), ("", "1-chat.md"), ("小麦", "1-小麦.md")],
)
def test_names_of_files(store: Store, title: str, name: str) -> None:
    tree = store.tree(store.create(model="m", title=title).id)
    assert tree is not None
    assert file_name(tree, "md") == name
    assert len(file_name(tree, "md")) < 80


def node(parent: str | None, role: str | None, *parts: Any, **more: Any) -> dict[str, Any]:
    content = {"content_type": "text", "parts": list(parts)}
    message = {"author": {"role": role}, "content": content, "create_time": 1.7e9, **more} if role else None
    return {"message": message, "parent": parent, "children": []}


def chatgpt(**more: Any) -> dict[str, Any]:
    return {
        "title": "Their talk",
        "create_time": 1.7e9,
        "update_time": 1.7e9 + 5,
        "conversation_id": "abc",
        "current_node": "f",
        "mapping": {
            "f": node("e", "user", "Second question"),
            "root": node(None, None),
            "s": node("root", "system", ""),
            "a": node("s", "user", "Question"),
            "b": node("a", "assistant", "First answer", metadata={"model_slug": "gpt-4o"}),
            "c": node("a", "assistant", {"asset": "picture"}, "Second answer"),
            "t": node("c", "tool", "searching"),
            "e": node("t", "assistant", ""),
        },
        **more,
    }


def test_an_export_of_chatgpt_is_read_with_its_branches(store: Store, tmp_path: Path) -> None:
    (row,) = take_in(store, read(tmp_path, [chatgpt()])).added
    assert (row.title, row.model, row.updated) == ("Their talk", "gpt-4o", 1.7e9 + 5)
    assert [one.content for one in store.messages(row.id)] == ["Question", "Second answer", "Second question"]
    assert store.messages(row.id)[1].versions == 2
    assert take_in(store, read(tmp_path, chatgpt())).kept == (row,)


@pytest.mark.parametrize(
    "data",
    [
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": [{"type": "text", "text": "Yo"}, {"type": "image"}]},
            {"role": "tool", "content": "x"},
        ],
        {"messages": [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi"},
                      {"role": "assistant", "content": "Yo"}]},
    ],
)  # fmt: skip
def test_lists_of_messages_are_read(store: Store, tmp_path: Path, data: Any) -> None:
    (row,) = take_in(store, read(tmp_path, data)).added
    assert (row.title, row.system_prompt) == ("Hi", "Be brief.")
    said = [(one.role, one.content) for one in store.messages(row.id)]
    assert said == [("user", "Hi"), ("assistant", "Yo")]
    assert take_in(store, read(tmp_path, data)).kept == (row,)


def damaged() -> list[tuple[str, Any]]:
    def ours(**changes: Any) -> dict[str, Any]:
        message = {"id": 1, "parent": None, "role": "user", "content": "x", **changes}
        talk = {"title": "t", "messages": [message]}
        return {"format": "localspec-conversations", "version": 1, "conversations": [talk]}

    circle = chatgpt()
    circle["mapping"]["a"]["parent"] = "f"
    lost = chatgpt()
    lost["mapping"]["a"]["parent"] = "nowhere"
    return [
        ("not JSON", '{"format": "localspec-conv'),
        ("nested", "[" * 100_000),
        ("newer", {"format": "localspec-conversations", "version": 99, "conversations": []}),
        ("no list", {"format": "localspec-conversations", "version": 1}),
        ("no content", ours(content=None)),
        ("number as content", ours(content=3)),
        ("unknown role", ours(role="robot")),
        ("unknown status", ours(status="gone")),
        ("own parent", ours(parent=1)),
        ("no id", ours(id="x")),
        ("stats", ours(stats=[])),
        ("circle", circle),
        ("lost", lost),
        ("unknown role in a list", [{"role": "user", "content": "x"}, {"role": "robot", "content": "x"}]),
        ("something else", {"a": 1}),
        ("numbers", [1, 2]),
        ("empty list", []),
        ("text", '"hello"'),
    ]


@pytest.mark.parametrize(("what", "data"), damaged(), ids=[what for what, _ in damaged()])
def test_a_file_that_cannot_be_used_is_a_sentence(tmp_path: Path, what: str, data: Any) -> None:
    with pytest.raises(UsageError, match=r"file\.json"):
        read(tmp_path, data)


def test_files_that_are_no_text_or_not_there(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="UTF-8"):
        read_trees(tmp_path / "binary")
    with pytest.raises(UsageError, match="Cannot read"):
        read_trees(tmp_path)
    with pytest.raises(NotFoundError, match="no file"):
        read_trees(tmp_path / "missing")


def test_odd_values_are_made_fit_to_be_kept(store: Store, tmp_path: Path) -> None:
    text = '[{"role": "user", "content": "half \\ud83d and \\u0000"}]'
    (row,) = take_in(store, read(tmp_path, text)).added
    assert store.messages(row.id)[0].content == "half \ufffd and \0"
    times = chatgpt(create_time=1e400, update_time=-5, title=None, conversation_id=None)
    (row,) = take_in(store, read(tmp_path, times)).added
    assert row.created > 1.7e9
    assert row.title == ""


def test_nothing_is_half_imported(store: Store, tmp_path: Path) -> None:
    store._database.execute(
        "CREATE TRIGGER full BEFORE INSERT ON message WHEN new.content = 'Second question' "
        "BEGIN SELECT RAISE(ABORT, 'full'); END"
    )
    trees = read(tmp_path, [chatgpt(conversation_id="1")])
    with pytest.raises(StorageError):
        take_in(store, [*(parsed([{"role": "user", "content": "fine"}]) or []), *trees])
    assert store.conversations() == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    | st.sampled_from(["user", "assistant", "localspec-conversations", "a", "text"]),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(
        st.sampled_from(
            ["role", "content", "messages", "mapping", "parent", "message", "author", "parts", "format",
             "version", "conversations", "id", "title", "a", "created", "active", "content_type", "metadata"]
        ),
        inner,
        max_size=6,
    ),
    max_leaves=25,
)  # fmt: skip


@given(JSON)
def test_no_json_is_more_than_a_sentence(data: Any) -> None:
    try:
        trees = parsed(data)
    except DamageError:
        return
    store = Store(private=True)
    take_in(store, trees or [])
    store.close()
