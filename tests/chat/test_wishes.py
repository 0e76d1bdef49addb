"""What a conversation has of its own: kept, changed, exported and imported."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.chat.export import as_json
from localspec.chat.imports import read_trees
from localspec.chat.rows import Wishes
from localspec.chat.store import Store

OWN = Wishes(temperature=0.5, seed=2**63 - 1, think=False)


@pytest.mark.parametrize(
    "text",
    [
        "", "x", "[]", "null", "{}", '{"temperature": -1}', '{"temperature": "1"}', '{"temperature": NaN}',
        '{"temperature": true}', '{"seed": -1}', '{"seed": 1.5}', '{"seed": 9223372036854775808}',
        '{"think": 1}', '{"other": 1}', "[" * 100_000,
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_left_out(text: str) -> None:
    assert Wishes.of(text) == Wishes()


def test_wishes_come_back_as_they_were() -> None:
    assert Wishes.of(OWN.kept) == OWN
    assert Wishes().kept == "{}"


def test_they_belong_to_the_conversation(tmp_path: Path) -> None:
    store = Store(tmp_path / "a.db")
    row = store.create(model="m", title="t", settings=OWN.kept)
    store.add_message(row.id, "user", "Q")
    assert store.get(row.id) is not None
    store.configure(row.id, system_prompt="Be brief.", settings=Wishes(seed=3).kept)
    found = store.get(row.id)
    assert found is not None
    assert (found.system_prompt, Wishes.of(found.settings)) == ("Be brief.", Wishes(seed=3))
    tree = store.tree(row.id)
    assert tree is not None
    file = tmp_path / "export.json"
    file.write_text(as_json([tree]))
    other = Store(tmp_path / "b.db")
    (added,) = other.add_trees(read_trees(file))
    again = other.get(added.id)
    assert again is not None
    assert Wishes.of(again.settings) == Wishes(seed=3)
    # A deleted one comes back with them.
    store.delete(row.id)
    assert store.restore(tree).settings == found.settings
    store.close()
    other.close()


def test_questions_are_the_newest_each_once() -> None:
    store = Store(private=True)
    row = store.create(model="m", title="t")
    for text in ("one", "two", "one", "x" * 50, "three"):
        store.add_message(row.id, "user", text)
        store.add_message(row.id, "assistant", "A")
    assert store.questions(10, 20) == ["two", "one", "three"]
    assert store.questions(2, 20) == ["one", "three"]
    store.close()
