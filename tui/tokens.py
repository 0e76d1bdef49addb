"""How replies came about, token by token: one fold over the engine's steps. No widgets here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from localspec.messages import Generate, ModelInfo, Scored, Spelled, Spelling, Step, TokenLogprobs
from tui.conversation import Conversation

MOST_TOKENS = 50_000
"""Tokens of all replies together that are kept; the oldest replies go first."""

MOST_SCORED = 20_000
"""Tokens whose figures are kept: they take a hundred times the room of the tokens."""

ItemKind = Literal["accepted", "correction", "bonus", "own", "ghost"]
"""What a token is: the verifier's word for it; *own* is the model's where nothing was drafted, a *ghost* was
drafted and refused."""

Key = tuple[int | None, int]
"""A reply: ids of its conversation and its message in the store."""


def key_of(conversation: int | None, message: int | None, index: int) -> Key:
    """The key of the message at `index` of a conversation; ids are None where the store failed."""
    return conversation, -1 - index if message is None else message


@dataclass(frozen=True, slots=True)
class Pass:
    """What one step said and refused; names as in `StepStats`."""

    tokens: tuple[int, ...]
    accepted: int
    last: Literal["accepted", "correction", "bonus"]
    source: str
    match_length: int
    drafted: int
    leaves: int
    refused: tuple[int, ...]
    confidence: tuple[float, ...]

    @classmethod
    def of(cls, step: Step) -> Pass:
        """The same of an event."""
        stats = step.stats
        return cls(
            tokens=tuple(token.id for token in step.tokens),
            accepted=sum(token.kind == "accepted" for token in step.tokens),
            last=step.tokens[-1].kind if step.tokens else "bonus",
            source=stats.source,
            match_length=stats.match_length,
            drafted=stats.drafted,
            leaves=stats.leaves,
            refused=step.refused,
            confidence=step.confidence,
        )

    @property
    def own_kind(self) -> ItemKind:
        """What the tokens are that follow the accepted ones: the model's own."""
        return "own" if not self.drafted and self.last == "bonus" else self.last


@dataclass(frozen=True, slots=True)
class Item:
    """One token to be shown.

    Attributes:
        id: the token.
        kind: what it is.
        place: its place in the reply, from 0; of a ghost the place that it was drafted for.
        number: of the pass, from 0.
        depth: its place in the draft, from 0; -1 for the model's own tokens.
    """

    id: int
    kind: ItemKind
    place: int
    number: int
    depth: int

    @property
    def ghost(self) -> bool:
        """Whether it is no part of the reply."""
        return self.kind == "ghost"


@dataclass
class Record:
    """How one reply came about.

    Attributes:
        key: which reply.
        request: what it answers.
        path: file of the model whose tokens these are.
        model: that model's name.
        passes: in order.
        length: tokens of the reply.
        counts: tokens of each kind.
        ended: whether it grows no more.
        cut: whether it was too long to be kept whole.
        scores: one a token from the first one on, as far as they are known.
        shortened: whether these were made with fewer of the oldest messages than the reply's beginning saw.
    """

    key: Key
    request: Generate
    path: str
    model: str
    passes: list[Pass] = field(default_factory=list)
    length: int = 0
    counts: dict[ItemKind, int] = field(default_factory=dict)
    ended: bool = False
    cut: bool = False
    scores: list[TokenLogprobs] = field(default_factory=list)
    shortened: bool = False

    @property
    def tokens(self) -> tuple[int, ...]:
        """The reply."""
        return tuple(token for one in self.passes for token in one.tokens)

    @property
    def scored(self) -> bool:
        """Whether all tokens have their figures."""
        return len(self.scores) >= self.length

    def add(self, one: Pass) -> None:
        """One more step."""
        self.passes.append(one)
        self.length += len(one.tokens)
        new: dict[ItemKind, int] = {"accepted": one.accepted, "ghost": len(one.refused)}
        new[one.own_kind] = new.get(one.own_kind, 0) + len(one.tokens) - one.accepted
        for kind, count in new.items():
            self.counts[kind] = self.counts.get(kind, 0) + count

    def first_refused(self) -> tuple[int, ...]:
        """For each token the one that was drafted in its place and refused, -1 for none."""
        found: list[int] = []
        for one in self.passes:
            found += [-1] * len(one.tokens)
            if one.refused:
                found[-1] = one.refused[0]
        return tuple(found)

    def items(self, number: int, place: int) -> Iterator[Item]:
        """What is to be shown of a pass, whose first token is the reply's token `place`."""
        one = self.passes[number]
        for depth, token in enumerate(one.tokens[: one.accepted]):
            yield Item(token, "accepted", place + depth, number, depth)
        place += one.accepted
        for offset, token in enumerate(one.refused):
            yield Item(token, "ghost", place + offset, number, one.accepted + offset)
        for token in one.tokens[one.accepted :]:
            yield Item(token, one.own_kind, place, number, -1)
            place += 1


class TokenBook:
    """Records of this session's replies."""

    def __init__(self, most: int = MOST_TOKENS, most_scored: int = MOST_SCORED) -> None:
        self._most, self._most_scored = most, most_scored
        self._spellings: dict[str, dict[int, Spelling]] = {}
        self._newest: Record | None = None
        self._total = 0
        self._records: dict[Key, Record] = {}

    @property
    def records(self) -> list[Record]:
        """Those that are kept, the newest last."""
        return list(self._records.values())

    def begin(self, request: Generate, conversation: Conversation, info: ModelInfo | None) -> None:
        """The last message of a conversation begins to be written by a model."""
        messages = conversation.messages
        key = key_of(conversation.id, messages[-1].row_id, len(messages) - 1)
        self._records.pop(key, None)
        path, name = (info.path, info.name) if info is not None else ("", "")
        self._newest = self._records[key] = Record(key, request, path, name)
        self._total = sum(one.length for one in self.records)

    def add(self, step: Step) -> None:
        """A step of the newest reply."""
        record = self._newest
        if record is None or record.ended or record.cut or record.request.id != step.id:
            return
        if record.length + len(step.tokens) > self._most:
            record.cut = True
            return
        record.add(Pass.of(step))
        self._total += len(step.tokens)
        while len(self._records) > 1 and self._total > self._most:
            oldest = next(iter(self._records))
            self._total -= self._records.pop(oldest).length

    def end(self) -> None:
        """The newest reply grows no more."""
        if self._newest is not None:
            self._newest.ended = True

    def find(self, key: Key) -> Record | None:
        """The record of a reply; None where there is none."""
        return self._records.get(key)

    # --- what the engine says of tokens

    def spelled(self, event: Spelled) -> None:
        """Take spellings."""
        known = self._spellings.setdefault(event.path, {})
        known.update(zip(event.tokens, event.spellings, strict=True))

    def spelling(self, path: str, token: int) -> Spelling | None:
        """How a token of the model `path` is spelled; None where that was not asked yet."""
        return self._spellings.get(path, {}).get(token)

    def unspelled(self, record: Record, start: int = 0) -> set[int]:
        """Tokens of a record, from pass `start` on, whose spelling is not known."""
        known = self._spellings.get(record.path, {})
        return {
            token
            for one in record.passes[start:]
            for token in (*one.tokens, *one.refused)
            if token not in known
        }

    def scored(self, record: Record, event: Scored) -> None:
        """Take a part of a reply's figures; those of others go where it gets too much."""
        if event.start != len(record.scores):
            return
        record.scores += event.scores
        record.shortened = event.shortened
        for other in self.records:
            if sum(len(one.scores) for one in self.records) <= self._most_scored:
                break
            if other is not record:
                other.scores.clear()
