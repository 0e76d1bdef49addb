"""The user's own prompts: files in every form and every way to get them wrong, and earlier conversations."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from localspec.bench.prompts import prompts_from_file, prompts_from_history
from localspec.chat.store import Store
from localspec.errors import LocalspecError, NotFoundError, StorageError, UsageError
from localspec.types import ChatMessage


def written(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def contents(path: Path) -> list[str]:
    return [prompt.messages[-1].content for prompt in prompts_from_file(path).prompts]


# --- text files


def test_a_text_file_is_one_prompt(tmp_path: Path) -> None:
    task = prompts_from_file(written(tmp_path, "mine.txt", "\nWhy?\n\n  --- not a line of its own\n"))
    (prompt,) = task.prompts
    assert (task.name, task.temperature, task.ask_again, task.stops) == ("prompts", 0.0, False, True)
    assert "mine.txt" in task.title
    assert prompt.name == "1"
    assert prompt.messages == (ChatMessage("user", "Why?\n\n  --- not a line of its own"),)
    assert prompt.reply is None


def test_lines_of_dashes_separate_prompts(tmp_path: Path) -> None:
    text = "one\n---\n  def two():\n      pass\n\n---  \nthree ----\n----\n"
    assert contents(written(tmp_path, "p.md", text)) == [
        "one",
        "  def two():\n      pass",
        "three ----\n----",
    ]


def test_a_byte_order_mark_and_other_line_ends_are_no_part_of_it(tmp_path: Path) -> None:
    assert contents(written(tmp_path, "p.txt", b"\xef\xbb\xbfeins\r\n---\r\nzwei \xc3\xbc\r\n")) == [
        "eins",
        "zwei ü",
    ]


# --- lines of JSON


def test_lines_of_json(tmp_path: Path) -> None:
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    lines = [
        {"prompt": "Why?\u2028Tell me."},
        {"prompt": "Copy: x", "reply": "x\n", "name": "short", "system": "Be brief."},
        {"messages": [*turns, {"role": "user", "content": "c"}], "reply": "d"},
        {"messages": turns, "system": "S"},
        {"messages": [{"role": "system", "content": "S"}, turns[0]]},
    ]
    text = "\n\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
    first, named, several, ending, own_system = prompts_from_file(written(tmp_path, "p.JSONL", text)).prompts
    assert first.messages == (ChatMessage("user", "Why?\u2028Tell me."),)
    assert (first.name, first.reply) == ("1", None)
    assert named.messages == (ChatMessage("system", "Be brief."), ChatMessage("user", "Copy: x"))
    assert (named.name, named.reply) == ("short", "x\n")
    assert [turn.role for turn in several.messages] == ["user", "assistant", "user"]
    assert (several.name, several.reply) == ("5", "d")
    # A conversation that was kept whole: its last turn is the reply.
    assert ending.messages == (ChatMessage("system", "S"), ChatMessage("user", "a"))
    assert ending.reply == "b"
    assert [turn.role for turn in own_system.messages] == ["system", "user"]


USER, ASSISTANT, SYSTEM = (
    json.dumps({"role": role, "content": "a"}) for role in ("user", "assistant", "system")
)
GOOD = '{"prompt": "fine"}\n'


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "line 2: this is not JSON"),
        ("[" * 5000, "line 2: this is not JSON"),
        ('["Why?"]', "line 2: this is not an object"),
        ('"Why?"', "line 2: this is not an object"),
        ("{}", 'line 2: it must have either "prompt" or "messages"'),
        ('{"prompt": "a", "messages": [{"role": "user", "content": "b"}]}', "line 2: it must have either"),
        ('{"prompt": " \\n"}', "line 2: the prompt is empty"),
        ('{"prompt": 3}', 'line 2: "prompt" should be a valid string'),
        ('{"promt": "a"}', 'line 2: "promt" is not known here; a prompt has name, prompt, messages'),
        ('{"prompt": "a", "reply": ""}', "line 2: the reply is empty"),
        ('{"prompt": "\\ud800"}', "line 2: "),
        ('{"prompt": "a", "name": ""}', 'line 2: "name" should have at least 1 char'),
        ('{"messages": []}', "line 2: it must have either"),
        ('{"messages": [{"role": "tool", "content": "a"}]}', 'line 2: "messages.0.role" should be'),
        ('{"messages": [{"role": "user"}]}', 'line 2: "messages.0.content" is missing'),
        (f'{{"messages": [{ASSISTANT}]}}', "line 2: the last turn, before the reply"),
        (f'{{"messages": [{SYSTEM}]}}', "line 2: the last turn, before the reply"),
        (f'{{"messages": [{USER}, {ASSISTANT}], "reply": "c"}}', "line 2: the reply is given twice"),
        (f'{{"messages": [{SYSTEM}, {USER}], "system": "c"}}', "line 2: the system turn is given twice"),
        ('{"prompt": "a", "name": "1"}', 'line 2: a prompt named "1" is there already'),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: str, says: str) -> None:
    path = written(tmp_path, "p.jsonl", GOOD + line + "\n")
    with pytest.raises(UsageError) as caught:
        prompts_from_file(path)
    message = str(caught.value)
    assert message.startswith(f"{path}, ")
    assert says in message
    assert "\n" not in message
    assert message.endswith(".")


# --- files that cannot be used


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"There is no file .*gone\.txt"):
        prompts_from_file(tmp_path / "gone.txt")


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("p.txt", "", "is empty"),
        ("p.jsonl", " \n\n", "is empty"),
        ("p.txt", b"fine\nnot \xff fine", r"is not UTF-8 text \(line 2\)"),
        ("p.txt", "one\n---\n \n---\ntwo", "line 3: prompt 2 is empty"),
        ("p.txt", "one\n---\n", "line 3: prompt 2 is empty"),
        ("p.txt", "---\none", "line 1: prompt 1 is empty"),
    ],
)
def test_files_that_hold_no_prompt(tmp_path: Path, name: str, content: str | bytes, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        prompts_from_file(written(tmp_path, name, content))


def test_a_folder_and_a_file_of_another_kind(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Cannot read"):
        prompts_from_file(tmp_path)
    large = tmp_path / "model.gguf"
    with large.open("wb") as file:
        file.truncate(100 * 1024 * 1024)
    with pytest.raises(UsageError, match="too large"):
        prompts_from_file(large)


# --- earlier conversations


def test_history_is_the_newest_answered_question_of_each_conversation(private_home: Path) -> None:
    store = Store()
    old = store.create(model="m", system_prompt="Be brief.")
    for role, text in (("user", "q1"), ("assistant", "a1"), ("user", "q2"), ("assistant", "a2")):
        store.add_message(old.id, role, text)
    time.sleep(0.01)
    new = store.create(model="m")
    store.add_message(new.id, "user", "too long a question", status="failed")
    store.add_message(new.id, "user", "q3")
    store.add_message(new.id, "assistant", "", status="cancelled")
    store.add_message(new.id, "user", "q4")
    store.add_message(new.id, "assistant", "a4")
    store.add_message(new.id, "user", "q5")
    store.add_message(new.id, "assistant", "a5, cut", status="cancelled")
    store.close()
    task = prompts_from_history(10)
    assert (task.name, task.stops) == ("history", True)
    newest, older, oldest = task.prompts
    # What the chat sent: without what failed, questions without an answer joined.
    assert newest.messages == (ChatMessage("user", "q3\n\nq4"),)
    assert newest.reply == "a4"
    assert [turn.content for turn in older.messages] == ["Be brief.", "q1", "a1", "q2"]
    assert older.messages[0].role == "system"
    assert older.reply == "a2"
    assert (oldest.messages[-1].content, oldest.reply) == ("q1", "a1")
    assert len({prompt.name for prompt in task.prompts}) == 3
    assert prompts_from_history(2).prompts == (newest, older)
    assert prompts_from_history(1, private_home / "data" / "conversations.db").prompts == (newest,)


def test_history_without_a_complete_reply(tmp_path: Path) -> None:
    path = tmp_path / "conversations.db"
    store = Store(path)
    row = store.create(model="m")
    store.add_message(row.id, "assistant", "an answer to nothing")
    store.add_message(row.id, "user", "q")
    store.add_message(row.id, "assistant", "cut", status="cancelled")
    store.close()
    with pytest.raises(UsageError, match="no conversation with a complete reply"):
        prompts_from_history(3, path)


def test_a_damaged_history(tmp_path: Path) -> None:
    path = written(tmp_path, "conversations.db", b"no database" * 1000)
    with pytest.raises(StorageError, match="could not be read"):
        prompts_from_history(3, path)


def test_errors_are_the_products_own(tmp_path: Path) -> None:
    with pytest.raises(LocalspecError):
        prompts_from_file(tmp_path / ("x" * 5000))
