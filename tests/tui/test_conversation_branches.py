"""Branches of the conversation on screen: edited questions, replies made again, and the way between them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from localspec.chat.store import Store
from localspec.errors import StorageError
from tui.conversation import Conversation


@pytest.fixture(params=[False, True], ids=["kept", "private"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    opened = Store(private=request.param)
    yield opened
    opened.close()


class Talk:
    """A conversation, and what it complained of."""

    def __init__(self, store: Store) -> None:
        self.troubles: list[StorageError] = []
        self.company = 0
        self.now = Conversation(
            store,
            model="m",
            system_prompt=None,
            on_trouble=self.troubles.append,
            on_company=self._met,
        )

    def _met(self) -> None:
        self.company += 1

    def say(self, question: str, answer: str) -> None:
        self.now.ask(question)
        self.answer(answer)

    def answer(self, text: str) -> None:
        self.now.grow(text)
        self.now.end("complete")

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.now.messages]

    @property
    def places(self) -> list[tuple[int, int]]:
        return [(message.version, message.versions) for message in self.now.messages]


def reopened(store: Store, talk: Talk) -> Talk:
    again = Talk(store)
    assert talk.now.id is not None
    assert again.now.open(talk.now.id)
    return again


def test_an_edited_question_is_asked_without_what_followed_the_old_one(store: Store) -> None:
    talk = Talk(store)
    talk.say("Q1", "A1")
    talk.say("Q2", "A2")
    talk.now.edit(0, "Q1 better")
    assert [message.content for message in talk.now.history()] == ["Q1 better"]
    talk.answer("A1 better")
    assert talk.texts == ["Q1 better", "A1 better"]
    assert talk.places == [(2, 2), (1, 1)]
    assert reopened(store, talk).now.messages == talk.now.messages

    assert talk.now.switch(0, -1)
    assert talk.texts == ["Q1", "A1", "Q2", "A2"]
    assert reopened(store, talk).texts == talk.texts
    assert not talk.now.switch(0, -1)
    assert not talk.now.switch(2, 1)
    assert talk.now.switch(0, 1)
    assert talk.texts == ["Q1 better", "A1 better"]
    assert (talk.troubles, talk.company) == ([], 0)


def test_a_reply_made_again_stands_beside_the_old_one(store: Store) -> None:
    talk = Talk(store)
    talk.say("Q1", "A1")
    talk.say("Q2", "A2")
    talk.now.regenerate(1)
    assert [message.content for message in talk.now.history()] == ["Q1"]
    assert talk.places == [(1, 1), (2, 2)]
    talk.answer("A1 again")
    talk.say("Q3", "A3")
    assert reopened(store, talk).texts == ["Q1", "A1 again", "Q3", "A3"]
    assert talk.now.switch(1, -1)
    talk.say("Q4", "A4")
    assert talk.texts == ["Q1", "A1", "Q2", "A2", "Q4", "A4"]
    assert reopened(store, talk).texts == talk.texts
    assert talk.company == 0


def test_a_message_stays_in_its_branch_when_another_window_shows_another_one(store: Store) -> None:
    talk = Talk(store)
    talk.say("Q1", "A1")
    other = reopened(store, talk)
    other.now.edit(0, "Q1 theirs")
    other.answer("theirs")
    talk.say("Q2", "A2")
    assert talk.company == 0
    assert reopened(store, talk).texts == ["Q1", "A1", "Q2", "A2"]
    # In the same branch, what was written meanwhile comes first, and is said.
    later = reopened(store, talk)
    later.say("Q3", "A3")
    talk.say("Q4", "A4")
    assert talk.company == 1
    assert reopened(store, talk).texts == ["Q1", "A1", "Q2", "A2", "Q3", "A3", "Q4", "A4"]


def test_what_changes_elsewhere_is_taken_over(store: Store) -> None:
    talk = Talk(store)
    assert talk.now.refresh()
    talk.say("Q1", "A1")
    assert talk.now.id is not None
    store.rename(talk.now.id, "Renamed")
    assert talk.now.refresh()
    assert talk.now.title == "Renamed"
    store.delete(talk.now.id)
    assert not talk.now.refresh()


def test_a_store_that_fails_does_not_keep_anybody_from_editing(store: Store) -> None:
    talk = Talk(store)
    talk.say("Q1", "A1")
    assert talk.now.id is not None
    store.delete(talk.now.id)
    talk.now.edit(0, "Q1 better")
    talk.answer("A")
    assert talk.texts == ["Q1 better", "A"]
    assert len(talk.troubles) == 1
    assert not talk.now.switch(0, -1)
