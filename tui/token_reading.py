"""Looking at a reply's tokens: which reply, and what the engine is asked about it. No widgets here."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum, auto

from localspec.messages import (
    EngineExited,
    Event,
    Failed,
    PrefillProgress,
    Score,
    Scored,
    Spell,
    Spelling,
    TokenLogprobs,
)
from tui.chat import Chat
from tui.conversation import Message
from tui.figures import DASH
from tui.token_flow import label
from tui.tokens import Item, Record, key_of

ALTERNATIVES = 5
"""Most likely tokens at each place that are shown."""

AGAIN_S = 1.0
"""Seconds after which spellings that did not come are asked for again."""


HALF = "\ufffd"
"""In the text of a token that is not made of whole characters; its bytes say more."""


class Figures(Enum):
    """How far the log-probabilities of the reply are."""

    NONE = auto()
    READING = auto()
    SCORING = auto()
    KNOWN = auto()
    FAILED = auto()


class Reading:
    """The replies of the chat's conversation, one of which is looked at.

    The newest one is scored as soon as the engine is free: it is in the cache, or nearly. For an earlier one
    the engine has to go back, and to read on from there before it answers again; that waits for `score`.

    Args:
        chat: whose conversation and engine.
        clock: seconds.

    Attributes:
        prompt: how far the prompt is read before scoring, None outside of it.
        trouble: a sentence about why there are no figures, else "".
    """

    def __init__(self, chat: Chat, clock: Callable[[], float] = time.monotonic) -> None:
        self._chat, self._clock = chat, clock
        self._back = 0
        self._asked: set[int] = set()
        self._spelled = 0
        self._halves: set[int] = set()
        self._asked_at = 0.0
        self._asks = 0
        self._working: Record | None = None
        self._tried: Record | None = None
        self.prompt: PrefillProgress | None = None
        self.trouble = ""

    # --- which reply

    @property
    def replies(self) -> list[tuple[Message, Record | None]]:
        """The conversation's replies, oldest first, and how they came about where that is known."""
        conversation, book = self._chat.conversation, self._chat.tokens
        return [
            (message, book.find(key_of(conversation.id, message.row_id, index)))
            for index, message in enumerate(conversation.messages)
            if message.role == "assistant"
        ]

    @property
    def number(self) -> int:
        """Which reply is looked at, from 0; -1 where there is none."""
        return max(len(self.replies) - 1 - self._back, -1)

    @property
    def record(self) -> Record | None:
        """How it came about; None where that is not known."""
        replies = self.replies
        return replies[len(replies) - 1 - self._back][1] if self._back < len(replies) else None

    @property
    def model_is_here(self) -> bool:
        """Whether the model that wrote it is loaded."""
        info, record = self._chat.state.info, self.record
        return info is not None and record is not None and info.path == record.path

    @property
    def unanswered(self) -> bool:
        """Whether the engine was asked for spellings more than once, and gave none."""
        return self._asks > 0

    @property
    def newest(self) -> bool:
        """Whether it is the conversation's last one."""
        return self._back == 0

    def move(self, direction: int) -> bool:
        """Look at an earlier (-1) or a later (1) reply; False where there is none."""
        back = self._back - direction
        if not 0 <= back < len(self.replies):
            return False
        self._stop()
        self._back = back
        self._asked.clear()
        self._halves.clear()
        self._spelled = self._asks = 0
        self.trouble = ""
        return True

    # --- what the engine is asked

    @property
    def figures(self) -> Figures:
        """How far the log-probabilities are."""
        record = self.record
        if record is not None and record is self._working:
            return Figures.SCORING if record.scores else Figures.READING
        if self.trouble:
            return Figures.FAILED
        return Figures.KNOWN if record is not None and record.length and record.scored else Figures.NONE

    @property
    def can_score(self) -> bool:
        """Whether the engine could score the reply now."""
        record = self.record
        if record is None or not record.ended or record.scored or not self.model_is_here:
            return False
        return self._chat.ready

    def follow(self) -> None:
        """Ask for what is missing and can be had; called once a frame."""
        record = self.record
        if record is None or not self.model_is_here:
            return
        missing = self._chat.tokens.unspelled(record, self._spelled)
        missing |= {one for one in self._halves if self._chat.tokens.spelling(record.path, one) is None}
        if not missing:
            self._spelled, self._asks = len(record.passes), 0
        elif missing - self._asked or self._clock() - self._asked_at > AGAIN_S:
            self._asks += missing <= self._asked
            self._asked, self._asked_at = missing, self._clock()
            self._chat.desk.send(Spell(record.path, tuple(sorted(missing))))
        if self.newest and record is not self._tried and self.can_score:
            self.score()

    def score(self) -> None:
        """Have the reply scored, where that can be done now."""
        record = self.record
        if record is None or not self.can_score:
            return
        self._tried, self.trouble = record, ""
        record.scores.clear()
        number = self._chat.desk.new_id()
        request = Score(number, record.request, record.tokens, record.first_refused(), ALTERNATIVES)
        if self._chat.desk.lend(request, "the look at the reply's tokens", self.take):
            self._working, self.prompt = record, None

    def leave(self) -> None:
        """The user goes back to the chat: what runs ends, and nothing more is heard of it."""
        self._stop()

    def take(self, event: Event) -> None:
        """An event of the scoring."""
        record = self._working
        match event:
            case PrefillProgress():
                self.prompt = event
            case Scored() if record is not None:
                self.prompt = None
                self._halves |= {one.id for score in event.scores for one in score.top if HALF in one.text}
                self._chat.tokens.scored(record, event)
                if event.ended:
                    self._working = None
            case Failed(message=message) | EngineExited(message=message):
                self._working, self.trouble = None, message
            case _:
                pass

    # --- what is known of a token

    def score_of(self, item: Item) -> TokenLogprobs | None:
        """Figures of the place that a token is at, of the token that the reply has there."""
        record = self.record
        if record is None or not 0 <= item.place < len(record.scores):
            return None
        return record.scores[item.place]

    def label(self, token: int, text: str = "") -> str:
        """A token by itself; `text` is how it looks where it has not been spelled."""
        record = self.record
        found = self._chat.tokens.spelling(record.path, token) if record is not None else None
        return label(found or Spelling(text)) or DASH

    # --- inner steps

    def _stop(self) -> None:
        if self._working is not None:
            self._chat.desk.recall()
            # Half of the figures would be taken for all of them.
            self._working.scores.clear()
            self._working, self._tried, self.prompt = None, None, None
