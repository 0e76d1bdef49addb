"""The memory that drafters and engine see: index and file say the same, whoever writes."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import StorageError
from localspec.memory.files import import_name, log_path, pieces
from localspec.memory.index import SEPARATOR, TokenIndex
from localspec.memory.log import TokenLog
from localspec.memory.memory import Memory
from localspec.memory.records import Record
from tests.memory.test_log import FINGERPRINT, UNUSABLE, bent, held, token_bytes

PERSONS = ("chat-a", "chat-b", "run-c")


def texts(memory: Memory) -> list[list[int]]:
    """The documents in the index, in its order."""
    joined = memory.index.tokens[: len(memory.index)].tolist()
    documents: list[list[int]] = []
    for token in joined:
        if token == SEPARATOR:
            documents.append([])
        else:
            documents[-1].append(token)
    return documents


def opened(folder: Path, capacity: int = 2_000_000) -> Memory:
    return Memory.open(folder, FINGERPRINT, capacity)


said = st.lists(st.integers(0, 60_000), min_size=1, max_size=30)


@given(st.lists(st.tuples(said, st.sampled_from(PERSONS), st.booleans()), max_size=12))
def test_however_it_came_about_it_is_what_a_fresh_look_finds(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[list[int], str, bool]]
) -> None:
    folder = tmp_path_factory.mktemp("memory")
    memory, in_process = opened(folder), Memory()
    for tokens, person, forgotten in steps:
        for one in (memory, in_process):
            one.add(tokens, person)
            if forgotten:
                one.forget(PERSONS[len(tokens) % 3])
    assert texts(memory) == texts(opened(folder)) == texts(in_process) == held(folder)
    assert len(memory.index) == len(in_process.index)


def test_an_index_that_is_full_already_is_taken_as_it_is() -> None:
    index = TokenIndex(np.asarray([SEPARATOR, 1, 2, SEPARATOR, 3], np.int32))
    memory = Memory(index)
    memory.add([4, 5], "chat-a")
    assert memory.index is index
    assert texts(memory) == [[1, 2], [3], [4, 5]]
    assert memory.forget("chat-a") == 1
    assert texts(memory) == [[1, 2], [3]]


def test_what_others_write_and_forget_is_seen_by_the_next_reply(tmp_path: Path) -> None:
    ours, theirs = opened(tmp_path), opened(tmp_path)
    ours.add([1, 2, 3], "chat-a")
    theirs.add([4, 5], "chat-b")
    ours.begin("chat-x", [])
    assert texts(ours) == [[1, 2, 3], [4, 5]]
    assert theirs.forget("chat-a") == 1
    ours.begin("chat-x", [])
    assert texts(ours) == [[4, 5]]
    ours.add([6], "chat-c")
    theirs.compact()
    ours.begin("chat-x", [])
    assert texts(ours) == texts(theirs) == [[4, 5], [6]]
    theirs.forget_all()
    ours.begin("chat-x", [])
    assert texts(ours) == texts(theirs) == []
    assert ours.status == Memory().status


def test_the_present_conversation_is_hidden_and_an_abandoned_branch_is_not() -> None:
    memory = Memory()
    replies = [[10, 11, 12], [20, 21], [30, 31, 32]]
    for reply in replies:
        memory.add(reply, "chat-a")
    memory.add([10, 11, 12], "chat-b")

    def hidden(conversation: str, present: list[int]) -> list[list[int]]:
        memory.begin(conversation, present)
        tokens = memory.index.tokens
        return [tokens[start:end].tolist() for start, end in memory.index.hidden]

    present = [1, 10, 11, 12, 2, 20, 21, 3, 30, 31, 32, 4]
    assert hidden("chat-a", present) == replies
    assert len(hidden("chat-b", present)) == 1
    assert hidden("chat-c", present) == hidden("", present) == []
    # The second reply was regenerated, and what came after it goes another way.
    assert hidden("chat-a", [1, 10, 11, 12, 2, 20, 99]) == [[10, 11, 12]]
    assert hidden("chat-a", [1, 10, 11]) == []
    # Equal bytes across a token's border are no match: 2570 is 0x0a0a.
    memory.add([0x0B000000, 0x0A], "chat-d")
    assert hidden("chat-d", [0, 0x0000000B << 16, 0x000A0B00, 0]) == []
    # Said twice, standing there once: one of them still counts.
    memory.add([20, 21], "chat-a")
    assert hidden("chat-a", [5, 20, 21, 6]).count([20, 21]) == 1


def test_it_is_bounded_in_memory_as_on_disk(tmp_path: Path) -> None:
    for memory in (Memory(capacity=100), opened(tmp_path, 100)):
        for number in range(12):
            memory.add([number] * 10, "chat-a")
        assert texts(memory) == [[number] * 10 for number in range(2, 12)]
        assert memory.status.tokens == 100
    # A capacity that was lowered meanwhile.
    assert texts(opened(tmp_path, 35)) == [[number] * 10 for number in (9, 10, 11)]


def test_status_counts(tmp_path: Path) -> None:
    memory = opened(tmp_path)
    before = time.time()
    memory.add([1, 2], "chat-a")
    memory.add([3], "chat-a")
    memory.add([], "chat-a")
    memory.add([4, 5, 6], "run-b")
    status = memory.status
    assert (status.documents, status.tokens, status.conversations) == (3, 6, 2)
    assert status.bytes == log_path(tmp_path, FINGERPRINT).stat().st_size
    assert status.oldest is not None
    assert status.newest is not None
    assert before - 1 <= status.oldest <= status.newest <= time.time() + 1


@pytest.mark.parametrize(("how", "words"), UNUSABLE.items(), ids=UNUSABLE)
def test_without_a_usable_file_it_goes_on_in_memory_and_says_so_once(
    tmp_path: Path, how: str, words: str
) -> None:
    path = bent(tmp_path, how)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(StorageError, match=words):
        opened(tmp_path)
    for loaded in (True, False):
        memory = Memory.of_file(tmp_path, FINGERPRINT)
        if loaded:
            memory.load(background=False)
        memory.begin("chat-a", [1])
        memory.add([1, 2], "chat-a")
        memory.begin("chat-b", [1])
        memory.add([3], "chat-b")
        assert words in str(memory.take_problem())
        assert memory.take_problem() is None
        if loaded:
            assert texts(memory) == [[1, 2], [3]]
    assert (path.read_bytes() if path.is_file() else None) == before


def test_a_file_that_breaks_meanwhile_does_not_take_the_memory_with_it(tmp_path: Path) -> None:
    memory = opened(tmp_path)
    memory.add([1, 2], "chat-a")
    log_path(tmp_path, FINGERPRINT).write_bytes(b"hello")
    memory.begin("chat-b", [])
    memory.add([3], "chat-b")
    assert texts(memory) == [[1, 2], [3]]
    assert "not a memory file" in str(memory.take_problem())


def test_damage_is_told(tmp_path: Path) -> None:
    memory = opened(tmp_path)
    memory.add([1, 2], "chat-a")
    path = log_path(tmp_path, FINGERPRINT)
    path.write_bytes(path.read_bytes() + b"rubbish")
    TokenLog(path, FINGERPRINT).append([Record(np.asarray([3], np.int32), "chat-b", 1.0)])
    # A torn end is no damage: it was cut off.
    assert texts(opened(tmp_path)) == [[1, 2], [3]]
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    damaged = Memory.of_file(tmp_path, FINGERPRINT)
    damaged.load(background=False)
    assert "compact" in str(damaged.take_problem())
    damaged.compact()
    assert opened(tmp_path).take_problem() is None


def test_it_is_read_in_the_background(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(tmp_path).add([1, 2, 3], "chat-a")
    go_on = threading.Event()
    reread = TokenLog.reread

    def slow(log: TokenLog) -> object:
        go_on.wait(10)
        return reread(log)

    monkeypatch.setattr(TokenLog, "reread", slow)
    memory = Memory.of_file(tmp_path, FINGERPRINT)
    memory.load()
    memory.load()
    memory.begin("chat-b", [1])
    assert len(memory.index) == 0
    go_on.set()
    memory.add([4], "chat-b")
    assert texts(memory) == [[1, 2, 3], [4]]
    monkeypatch.undo()
    assert held(tmp_path) == [[1, 2, 3], [4]]


def test_what_no_drafter_asks_for_is_not_read_but_written(tmp_path: Path) -> None:
    opened(tmp_path).add([1], "chat-a")
    memory = Memory.of_file(tmp_path, FINGERPRINT)
    memory.begin("chat-a", [1])
    memory.add([2], "chat-a")
    assert len(memory.index) == 0
    memory.load(background=False)
    assert texts(memory) == [[1], [2]]
    assert memory.forget("chat-a") == 2
    assert token_bytes([2]) not in log_path(tmp_path, FINGERPRINT).read_bytes()


def test_pieces_of_a_text_are_moderate_and_add_up() -> None:
    paragraph = "word " * 500 + "\n\n"
    text = paragraph * 40
    found = list(pieces(text))
    assert "".join(found) == text
    assert all(len(piece) <= 16_000 and piece.endswith("\n\n") for piece in found)
    assert list(pieces("short\n\ntext")) == ["short\n\ntext"]
    assert "".join(pieces("x" * 50_000)) == "x" * 50_000
    assert list(pieces(" \n")) == []


def test_the_same_file_has_the_same_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert import_name(Path("a.py")) == import_name(tmp_path / "a.py")
    assert import_name(tmp_path / "b" / "a.py") != import_name(tmp_path / "a.py")
    assert len(import_name(Path("ü" * 300)).encode()) < 256
