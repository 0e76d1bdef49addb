"""The target writes texts: questions of its own and of `prompts`, and answers, many at once.

Its states are kept as it writes: a head learns from them, and a second pass would cost as much again.
"""

from __future__ import annotations

import random
import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from localspec import known_text
from localspec.chat.template import ChatTemplate
from localspec.runtime.context import Batch, LlamaContext
from localspec.runtime.cores import physical_cores
from localspec.runtime.features import LayerTap
from localspec.runtime.model import LlamaModel
from localspec.runtime.states import NormedStates
from localspec.train.prompts import first_question, follow_up, later_question, material, system_line
from localspec.train.sizes import AT_ONCE, LONGEST
from localspec.types import ChatMessage, Rows

_QUESTION, _SHORTEST_QUESTION = 160, 6
_ANSWER, _FREE_ANSWER = 320, 200
"""Tokens of an answer at most; of one to a question without material fewer: there is more of its kind."""
_ROOM = 64
"""Tokens that are left for an answer at least."""
_TOP = 64
_OWN = 0.35
"""Share of the questions that the target asks itself."""
_LATER = 0.7
"""Share of the others that are about what was written before."""
_FOLLOW_UP, _SYSTEM = 0.15, 0.15
"""Shares of these that go on with an answer as a chat does, and of questions with a system prompt."""
_GREEDY = 0.5
"""Share of the answers that are the likeliest ones; others are drawn at `_WARM`, as chats are."""
_WARM = 0.7
_LARGEST = 6e4
_NEW = 0.45
"""Share of new threes of tokens below which an answer loops."""
_WORD = re.compile(rb" [A-Za-z]{4,}")
_PLACE = "\ufdd0here\ufdd0"
"""In place of a question, to find where it stands in a rendered prompt."""


@dataclass(frozen=True, slots=True)
class Text:
    """A question and its answer, with the target's states.

    Attributes:
        tokens: of the whole prompt and the answer, shape [tokens].
        answer: where the answer begins.
        kind: who asked: "own", "first", "later" or "given".
        likeliest: the target's likeliest token after each, shape [tokens]. Of the last token it is 0, and so
            are the states: the target has not read it.
        states: inputs of the tapped layers, half precision, shape [tokens, layers x width].
        final: the target's last state, normed: its output layer makes logits of it; shape [tokens, width].
    """

    tokens: NDArray[np.int32]
    answer: int
    kind: str
    likeliest: NDArray[np.int32]
    states: NDArray[np.float16]
    final: NDArray[np.float16]


class _Kept:
    """What is kept of one text while it is written."""

    def __init__(self, wide: int, narrow: int) -> None:
        self.likeliest = np.zeros(LONGEST, np.int32)
        self.states = np.zeros((LONGEST, wide), np.float16)
        self.final = np.zeros((LONGEST, narrow), np.float16)

    def take(self, start: int, rows: Rows, states: Rows, final: Rows) -> None:
        """Rows of a pass, which stand at `start` and on."""
        there = slice(start, start + len(rows))
        self.likeliest[there] = rows.argmax(axis=1)
        # Of the first token some values are beyond half precision.
        self.states[there] = np.clip(states, -_LARGEST, _LARGEST)
        self.final[there] = final


@dataclass(slots=True)
class _Slot:
    kind: str
    tokens: list[int]
    waiting: list[int] = field(default_factory=list)
    messages: list[ChatMessage] = field(default_factory=list)
    asking: bool = False
    count: int = 0
    answer: int = 0
    temperature: float = 0.0


class Writer:
    """Writes texts with a target.

    Args:
        model: the target.
        layers: whose inputs are kept.
        threads: CPU threads; None: as many of the cores as other programs leave.
        seed: of all that is drawn.
        given: questions of the user's, which take the place of the target's own; empty for none.
    """

    def __init__(
        self,
        model: LlamaModel,
        layers: Sequence[int],
        threads: int | None,
        seed: int,
        given: Sequence[str] = (),
    ) -> None:
        self._model = model
        self._context = LlamaContext(
            model,
            capacity=LONGEST,
            batch=LONGEST,
            threads=threads,
            cores=physical_cores(),
            sequences=AT_ONCE,
            unified=False,
        )
        self._tap, self._final = LayerTap(self._context, layers), NormedStates(self._context)
        self._kept = [_Kept(self._tap.width, self._final.width) for _ in range(AT_ONCE)]
        self._rng = random.Random(seed)  # noqa: S311 - texts to learn from, no secrets
        self._draws = np.random.default_rng(seed)
        self._given = deque(given)
        self._template = ChatTemplate.of(model)
        before, after = self._render(_PLACE).split(_PLACE, 1)
        self._before, self._after = self._prompt(before), self._tokens(after)
        self._texts: deque[str] = deque(maxlen=200)
        self._codes: deque[str] = deque(maxlen=200)
        pieces = map(model.token_bytes, range(model.vocabulary_size))
        self._words = [piece.decode().strip() for piece in pieces if _WORD.fullmatch(piece)]
        self._chats: deque[list[ChatMessage]] = deque(maxlen=50)

    def close(self) -> None:
        """Free the cache."""
        self._final.close()
        self._tap.close()
        self._context.close()

    def texts(self) -> Iterator[Text]:
        """Texts without end, in the order in which they are finished."""
        slots = [self._new(number) for number in range(AT_ONCE)]
        rows = np.zeros((AT_ONCE, self._model.vocabulary_size), np.float32)
        for number, slot in enumerate(slots):
            self._read(number, slot, rows)
        while True:
            said = self._drawn(rows, slots)
            alive: list[int] = []
            for number, (slot, token) in enumerate(zip(slots, said, strict=True)):
                text = self._extend(number, slot, int(token))
                if text is not None or slot.count < 0:
                    if text is not None:
                        yield text
                    slots[number] = self._new(number)
                    self._read(number, slots[number], rows)
                elif slot.waiting:
                    self._read(number, slot, rows)
                else:
                    alive.append(number)
            if alive:
                batch = Batch(
                    tokens=[slots[number].tokens[-1] for number in alive],
                    positions=[len(slots[number].tokens) - 1 for number in alive],
                    sequences=[(number,) for number in alive],
                    outputs=[True] * len(alive),
                )
                found = self._context.decode_batch(batch)
                rows[alive] = found
                states, final = self._tap.rows(slice(0, len(alive))), self._final.rows(len(alive))
                for place, number in enumerate(alive):
                    one = slice(place, place + 1)
                    start = len(slots[number].tokens) - 1
                    self._kept[number].take(start, found[one], states[one], final[one])

    # --- inner steps

    def _new(self, number: int) -> _Slot:
        self._context.keep_sequence(number, 0)
        temperature = 0.0 if self._rng.random() < _GREEDY else _WARM
        if self._given:
            question = self._given[0]
            self._given.rotate(-1)
            return self._asked("given", self._question(question), temperature)
        if self._rng.random() < _OWN and self._before:
            return _Slot("own", [], list(self._before), asking=True, temperature=temperature)
        if (self._texts or self._codes) and self._rng.random() < _LATER:
            if self._chats and self._rng.random() < _FOLLOW_UP:
                chat = self._rng.choice(self._chats)
                return self._asked("later", [*chat, ChatMessage("user", follow_up(self._rng))], temperature)
            question = later_question(self._rng, self._texts, self._codes, self._words)
            return self._asked("later", self._question(question, system=True), temperature)
        question = first_question(self._rng)
        return self._asked("first", self._question(question, system=True), temperature)

    def _question(self, question: str, *, system: bool = False) -> list[ChatMessage]:
        messages = [ChatMessage("user", question)]
        if system and self._rng.random() < _SYSTEM:
            messages.insert(0, ChatMessage("system", system_line(self._rng)))
        return messages

    def _asked(self, kind: str, messages: list[ChatMessage], temperature: float) -> _Slot:
        tokens = self._prompt(self._template.render(messages))
        if len(tokens) > LONGEST - _ROOM:
            # What is cut is the middle: the end says that the answer begins.
            half = (LONGEST - _ROOM) // 2
            tokens = tokens[:half] + tokens[-half:]
        return _Slot(kind, [], tokens, messages=messages, answer=len(tokens), temperature=temperature)

    def _read(self, number: int, slot: _Slot, rows: NDArray[np.float32]) -> None:
        """Read what waits of a prompt; its last row is the next one to draw from."""
        tokens, slot.waiting = slot.waiting, []
        most = self._context.max_rows
        for first in range(0, len(tokens), most):
            piece, start = tokens[first : first + most], len(slot.tokens)
            slot.tokens += piece
            found = self._context.decode_batch(
                Batch(
                    tokens=piece,
                    positions=range(start, start + len(piece)),
                    sequences=[(number,)] * len(piece),
                    outputs=[True] * len(piece),
                )
            )
            count = len(piece)
            states, final = self._tap.rows(slice(0, count)), self._final.rows(count)
            self._kept[number].take(start, found, states, final)
            rows[number] = found[-1]

    def _extend(self, number: int, slot: _Slot, token: int) -> Text | None:
        """Take in a token that was drawn; returns the text once it is finished. A bad one has `count` -1."""
        slot.count += 1
        ends = token in self._model.eog_tokens
        if slot.asking:
            if not ends and slot.count < _QUESTION:
                slot.tokens.append(token)
                return None
            if slot.count < _SHORTEST_QUESTION:
                slot.count = -1
                return None
            slot.asking, slot.count = False, 0
            slot.waiting = list(self._after)
            slot.answer = len(slot.tokens) + len(slot.waiting)
            return None
        slot.tokens.append(token)
        most = _FREE_ANSWER if slot.kind in ("own", "first") else _ANSWER
        full = len(slot.tokens) >= LONGEST - 1 or slot.count >= most
        loops = slot.count % 16 == 0 and _loops(slot.tokens[slot.answer :])
        if not (ends or full or loops):
            return None
        if slot.count < 4:
            slot.count = -1
            return None
        if not loops:
            self._keep_material(slot)
        kept, count = self._kept[number], len(slot.tokens)
        for array in (kept.likeliest, kept.states, kept.final):
            # Of the text before.
            array[count - 1] = 0
        return Text(
            np.array(slot.tokens, np.int32),
            slot.answer,
            slot.kind,
            kept.likeliest[:count].copy(),
            kept.states[:count].copy(),
            kept.final[:count].copy(),
        )

    def _keep_material(self, slot: _Slot) -> None:
        if slot.kind == "later":
            return
        pieces = b"".join(self._model.token_bytes(token) for token in slot.tokens[slot.answer :])
        answer = pieces.decode("utf-8", "replace")
        if slot.messages:
            self._chats.append([*slot.messages, ChatMessage("assistant", answer)])
        found = material(answer)
        if found is not None:
            (self._codes if found[1] else self._texts).append(found[0])

    def _drawn(self, rows: NDArray[np.float32], slots: Sequence[_Slot]) -> NDArray[np.int64]:
        """A token a row: the likeliest, or drawn from the likeliest ones."""
        import torch

        values, tokens = torch.topk(torch.from_numpy(rows), _TOP, dim=1)
        temperatures = np.array([1.0 if slot.asking else slot.temperature for slot in slots])
        logits = values.numpy().astype(np.float64)
        noise = self._draws.gumbel(size=logits.shape)
        warm = temperatures > 0
        logits[warm] = logits[warm] / temperatures[warm, None] + noise[warm]
        chosen: NDArray[np.int64] = tokens.numpy()[np.arange(len(slots)), logits.argmax(axis=1)]
        return chosen

    def _render(self, question: str) -> str:
        return self._template.render([ChatMessage("user", question)])

    def _prompt(self, text: str) -> list[int]:
        return known_text.prompt_tokens(text, self._model)

    def _tokens(self, text: str) -> list[int]:
        return self._model.tokenize(text, add_special=False, parse_special=True)


def _loops(tokens: Sequence[int], window: int = 64) -> bool:
    """Whether an answer says much the same again and again: of its last places most are no new ones."""
    tail = tokens[-window:]
    if len(tail) < window:
        return False
    return len({tuple(tail[at : at + 3]) for at in range(window - 2)}) < window * _NEW
