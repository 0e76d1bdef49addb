"""The memory's file: what is written comes back, whatever happens while it is written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import StorageError
from localspec.memory.files import file_status, logs
from localspec.memory.log import TokenLog, newest
from localspec.memory.records import HEADER_SIZE, VERSION, Record, encode, encode_all, scan

FINGERPRINT = "0123456789abcdef0123456789abcdef"


def record(tokens: Sequence[int], conversation: str = "chat-a", when: float = 1.0) -> Record:
    return Record(np.asarray(tokens, np.int32), conversation, when)


def plain(records: Sequence[Record]) -> list[tuple[list[int], str, float, int]]:
    return [(one.tokens.tolist(), one.conversation, one.time, one.kind) for one in records]


def log_in(folder: Path, capacity: int = 2_000_000) -> TokenLog:
    return TokenLog(folder / f"{FINGERPRINT}.tokens", FINGERPRINT, capacity)


def held(folder: Path) -> list[list[int]]:
    return [one.tokens.tolist() for one in log_in(folder).refresh().records]


def token_bytes(tokens: Sequence[int]) -> bytes:
    return np.asarray(tokens, "<i4").tobytes()


documents = st.tuples(
    st.lists(st.integers(0, 2**31 - 1), max_size=40), st.text(max_size=20), st.floats(allow_nan=False)
)


@given(st.lists(documents, max_size=6))
def test_records_come_back_as_they_were_written(given_documents: list[tuple[list[int], str, float]]) -> None:
    records = [record(*document) for document in given_documents]
    data = encode_all(records)
    found = scan(data)
    assert plain(found.records) == plain(records)
    assert (found.end, found.skipped) == (len(data), 0)


def test_nothing_is_made_before_something_is_written(tmp_path: Path) -> None:
    log = log_in(tmp_path / "memory")
    assert log.refresh().records == []
    assert log.refresh().reset is False
    assert not (tmp_path / "memory").exists()
    log.append([record([1, 2, 3])])
    assert held(tmp_path / "memory") == [[1, 2, 3]]
    assert log.path.stat().st_mode & 0o077 == 0


def test_each_look_brings_what_is_new(tmp_path: Path) -> None:
    ours, theirs = log_in(tmp_path), log_in(tmp_path)
    assert plain(ours.append([record([1])]).records) == plain([record([1])])
    assert len(theirs.refresh().records) == 1
    theirs.append([record([2], "run-b")])
    batch = ours.append([record([3])])
    assert (batch.reset, [one.tokens.tolist() for one in batch.records]) == (False, [[2], [3]])
    assert [one.tokens.tolist() for one in theirs.refresh().records] == [[3]]
    assert theirs.refresh().records == []


def test_a_torn_tail_is_left_out_and_cut_off_by_the_next_writer(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    log.append([record([1, 2, 3]), record([4, 5], "run-ü", 2.0)])
    whole = log.path.read_bytes()
    start = len(whole) - len(encode(record([4, 5], "run-ü", 2.0)))
    for end in range(start, len(whole)):
        log.path.write_bytes(whole[:end])
        reader = log_in(tmp_path)
        assert [one.tokens.tolist() for one in reader.refresh().records] == [[1, 2, 3]], end
        assert reader.skipped == 0
        reader.append([record([7])])
        assert held(tmp_path) == [[1, 2, 3], [7]], end
        assert log.path.stat().st_size == start + len(encode(record([7]))), end


def test_a_torn_header_is_an_empty_memory(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    log.append([record([1])])
    whole = log.path.read_bytes()
    for end in range(HEADER_SIZE):
        log.path.write_bytes(whole[:end])
        reader = log_in(tmp_path)
        assert reader.refresh().records == []
        reader.append([record([2])])
        assert held(tmp_path) == [[2]]


def test_damage_in_the_middle_costs_one_record(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    log.append([record([1, 1]), record([2, 2, 2, 2]), record([3, 3])])
    data = bytearray(log.path.read_bytes())
    start = HEADER_SIZE + len(encode(record([1, 1])))
    for place in range(start, start + len(encode(record([2, 2, 2, 2])))):
        data[place] ^= 0x55
        log.path.write_bytes(data)
        reader = log_in(tmp_path)
        assert [one.tokens.tolist() for one in reader.refresh().records] == [[1, 1], [3, 3]], place
        assert reader.skipped > 0
        data[place] ^= 0x55
    log.path.write_bytes(data[:start] + b"rubbish" + data[start:])
    damaged = log_in(tmp_path)
    assert "7 damaged bytes" in str(file_status(damaged).problem)
    assert damaged.compact() == 0
    assert held(tmp_path) == [[1, 1], [2, 2, 2, 2], [3, 3]]
    assert len(damaged.refresh().records) == 3
    assert file_status(damaged).problem is None


WRITER = """
import itertools, sys
from pathlib import Path
import numpy as np
from localspec.memory.log import TokenLog
from localspec.memory.records import Record
log = TokenLog(Path(sys.argv[1]), "0123456789abcdef0123456789abcdef")
number = int(sys.argv[2])
for count in itertools.count() if len(sys.argv) < 4 else range(int(sys.argv[3])):
    log.append([Record(np.full(500, number + count, np.int32), f"run-{number}", 1.0)])
    print(count, flush=True)
"""


def writer(folder: Path, *arguments: int) -> subprocess.Popen[str]:
    path = folder / f"{FINGERPRINT}.tokens"
    command = [sys.executable, "-c", WRITER, str(path), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_killed_writers_lose_at_most_the_record_in_flight(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    kept: list[int] = []
    for round_ in range(10):
        child = writer(tmp_path, round_ * 100_000)
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(float(random.uniform(0, 0.03)))
        child.send_signal(signal.SIGKILL)
        said = 1 + len([line for line in child.stdout.read().split("\n") if line])
        child.wait()
        child.stdout.close()
        found = held(tmp_path)
        assert all(len(tokens) == 500 and len(set(tokens)) == 1 for tokens in found)
        values = [tokens[0] for tokens in found]
        assert values[: len(kept)] == kept
        fresh = values[len(kept) :]
        assert fresh == [round_ * 100_000 + count for count in range(len(fresh))]
        # What a writer has told is there, and at most one more that it could not tell any more.
        assert said <= len(fresh) <= said + 1
        kept = values
    log_in(tmp_path).append([record([1])])
    assert len(held(tmp_path)) == len(kept) + 1


def test_two_processes_write_at_once(tmp_path: Path) -> None:
    children = [writer(tmp_path, number, 60) for number in (0, 1000)]
    reader = log_in(tmp_path)
    seen: list[int] = []
    while any(child.poll() is None for child in children):
        batch = reader.refresh()
        seen = ([] if batch.reset else seen) + [int(one.tokens[0]) for one in batch.records]
    for child in children:
        child.communicate()
        assert child.returncode == 0
    seen += [int(one.tokens[0]) for one in reader.refresh().records]
    assert [value for value in seen if value < 1000] == list(range(60))
    assert [value for value in seen if value >= 1000] == list(range(1000, 1060))


def test_what_is_forgotten_is_nowhere_in_the_folder(tmp_path: Path) -> None:
    secret, other = list(range(5000, 5040)), list(range(7000, 7040))
    log, reader = log_in(tmp_path), log_in(tmp_path)
    log.append([record(secret, "chat-s"), record(other, "chat-o"), record(secret[::-1], "chat-s")])
    # What a killed compaction and a killed writer may have left.
    (tmp_path / f"{log.path.name}.new").write_bytes(log.path.read_bytes())
    with log.path.open("ab") as file:
        file.write(encode(record(secret, "chat-s"))[:-5])
    reader.refresh()
    assert log.forget("chat-s") == 2
    everything = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    for tokens in (secret[:3], secret[::-1][:3]):
        assert token_bytes(tokens) not in everything
    assert b"chat-s" not in everything
    assert token_bytes(other) in everything
    batch = reader.refresh()
    assert (batch.reset, plain(batch.records)) == (True, plain([record(other, "chat-o")]))
    assert log.forget("chat-s") == 0


def test_behind_a_link_is_forgotten_too(tmp_path: Path) -> None:
    """A new file in the place of the link would leave the old one where it is, with all that it says."""
    away = tmp_path / "elsewhere"
    away.mkdir()
    (tmp_path / f"{FINGERPRINT}.tokens").symlink_to(away / "real")
    log = log_in(tmp_path)
    log.append([record([5001, 5002], "chat-s"), record([7001, 7002], "chat-o")])
    assert log.forget("chat-s") == 1
    assert log.path.is_symlink()
    assert token_bytes([5001]) not in (away / "real").read_bytes()
    assert held(tmp_path) == [[7001, 7002]]
    log.remove()
    assert not log.path.is_symlink()
    assert not (away / "real").exists()
    assert held(tmp_path) == []


def test_what_a_killed_compaction_left_goes_when_the_memory_is_opened(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    log.append([record([1])])
    left = tmp_path / f"{log.path.name}.new"
    left.write_bytes(b"half")
    log_in(tmp_path).sweep()
    assert not left.exists()
    assert held(tmp_path) == [[1]]


def test_the_oldest_go_when_there_are_too_many(tmp_path: Path) -> None:
    log, reader = log_in(tmp_path, 100), log_in(tmp_path, 100)
    log.refresh()
    for number in range(11):
        assert log.append([record([number] * 10)]).reset is False
    reader.refresh()
    batch = log.append([record([11] * 10)])
    assert batch.reset
    expected = [[number] * 10 for number in range(2, 12)]
    assert [one.tokens.tolist() for one in batch.records] == expected == held(tmp_path)
    again = reader.refresh()
    assert again.reset
    assert [one.tokens.tolist() for one in again.records] == expected
    assert newest([record([1] * 200)], 100) == []


def test_a_file_that_is_taken_away_is_an_empty_memory(tmp_path: Path) -> None:
    log, other = log_in(tmp_path), log_in(tmp_path)
    log.append([record([1])])
    other.refresh()
    log.remove()
    log.remove()
    assert (other.refresh().reset, held(tmp_path)) == (True, [])
    other.append([record([2])])
    assert [one.tokens.tolist() for one in log.refresh().records] == [[2]]


def bent(folder: Path, how: str) -> Path:
    """A memory that cannot be used."""
    path = folder / f"{FINGERPRINT}.tokens"
    if how == "folder":
        path.mkdir()
        return path
    if how == "pipe":
        # Whoever opened it as a file would wait for somebody to write into it.
        os.mkfifo(path)
        return path
    owner = "f" * 32 if how == "foreign" else FINGERPRINT
    TokenLog(path, owner).append([record([1, 2])])
    data = bytearray(path.read_bytes())
    if how == "newer":
        data[8] = VERSION + 1
    elif how == "damaged":
        data[30] ^= 1
    elif how == "something else":
        data[:5] = b"hello"
    path.write_bytes(data)
    return path


UNUSABLE = {
    "folder": "Is a directory",
    "pipe": "Not a regular file",
    "foreign": "another model's tokenizer",
    "newer": "A newer localspec",
    "damaged": "is damaged",
    "something else": "not a memory file",
}


@pytest.mark.parametrize(("how", "words"), UNUSABLE.items(), ids=UNUSABLE)
def test_a_file_that_cannot_be_used_is_left_as_it_is(tmp_path: Path, how: str, words: str) -> None:
    path = bent(tmp_path, how)
    before = path.read_bytes() if path.is_file() else None
    log = log_in(tmp_path)
    for call in (log.refresh, lambda: log.append([record([1])]), log.compact, lambda: log.forget("chat-a")):
        with pytest.raises(StorageError, match=words) as caught:
            call()
        assert str(path) in str(caught.value)
    assert (path.read_bytes() if path.is_file() else None) == before
    (status,) = (file_status(one) for one in logs(tmp_path))
    assert words in str(status.problem)


FULL = """
import resource, signal, sys
from pathlib import Path
import numpy as np
from localspec.errors import StorageError
from localspec.memory.log import TokenLog
from localspec.memory.records import Record
log = TokenLog(Path(sys.argv[1]), "0123456789abcdef0123456789abcdef")
log.append([Record(np.arange(100, dtype=np.int32), "chat-a", 1.0)])
before = log.path.read_bytes()
resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 50, resource.RLIM_INFINITY))
for write in (lambda: log.append([Record(np.arange(900, dtype=np.int32), "chat-a", 1.0)]), log.compact):
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, resource.RLIM_INFINITY)
                           if write == log.compact else (len(before) + 50, resource.RLIM_INFINITY))
        write()
    except StorageError as error:
        print(error)
    assert log.path.read_bytes() == before
    assert not list(log.path.parent.glob("*.new"))
assert log.refresh().records == []
"""


def test_a_full_disk_leaves_the_memory_as_it_was(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FULL, str(tmp_path / f"{FINGERPRINT}.tokens")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.count("There is no space left") == 2, done.stdout
    assert held(tmp_path) == [list(range(100))]


READ_ONLY = """
import os, sys
from pathlib import Path
import numpy as np
from localspec.errors import StorageError
from localspec.memory.log import TokenLog
from localspec.memory.records import Record
log = TokenLog(Path(sys.argv[1]), "0123456789abcdef0123456789abcdef")
if os.geteuid() == 0:
    # Nothing is read-only to root; imports come first, since the interpreter may lie in root's own folder.
    import filelock
    os.seteuid(65534)
print(len(log.refresh().records))
try:
    log.append([Record(np.arange(3, dtype=np.int32), "chat-a", 1.0)])
except StorageError as error:
    print(error)
"""


def test_a_read_only_memory_is_read(tmp_path: Path) -> None:
    log = log_in(tmp_path / "memory")
    log.append([record([1])])
    log.path.chmod(0o444)
    (tmp_path / "memory").chmod(0o555)
    for above in (tmp_path, *list(tmp_path.parents)[:3]):
        above.chmod(above.stat().st_mode | 0o055)
    try:
        command = [sys.executable, "-c", READ_ONLY, str(log.path)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ})
    finally:
        (tmp_path / "memory").chmod(0o755)
    records, sentence = done.stdout.splitlines()
    assert records == "1"
    assert "Permission denied" in sentence
    assert "--no-memory" in sentence
