"""A scripted engine with tokens, and what tests look at in the token view."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from localspec.messages import (
    Cancel,
    Command,
    EmittedToken,
    Failed,
    Generate,
    PrefillProgress,
    Score,
    Scored,
    Spell,
    Spelled,
    Spelling,
    SpellingKind,
    TokenLogprob,
    TokenLogprobs,
)
from tests.tui.helpers import Running, running
from tests.tui.scripted import ScriptedEngine
from tui.screens.tokens import TokenScreen
from tui.token_reading import Figures, Reading
from tui.widgets.rows import Rows
from tui.widgets.token_text import TokenText

WORDS = [
    "The",
    " lamp",
    " of",
    " the",
    " house",
    " turns",
    " at",
    " night",
    ".",
    "\n",
    "<end>",
    " dawn",
    "\ufffd",
]
THE, LAMP, OF, THEE, HOUSE, TURNS, AT, NIGHT, DOT, LINE, END, DAWN, HALF = range(len(WORDS))


class TokenEngine(ScriptedEngine):
    """A manual engine whose steps have tokens, and which spells and scores them.

    With `holds` scores wait for `release`.
    """

    def __init__(self, *, holds: bool = False) -> None:
        super().__init__()
        self.holds, self.fails, self.mute = holds, "", False

    def say(self, accepted: Sequence[int], own: int, refused: Sequence[int] = ()) -> None:
        """A step that drafts `accepted` and `refused`."""
        assert self._reply_id is not None
        drafted = len(accepted) + len(refused)
        text = "".join(WORDS[token] for token in (*accepted, own))
        step = self._step(self._reply_id, text, drafted, len(accepted), 8.0)
        tokens = [EmittedToken(token, "accepted") for token in accepted]
        tokens.append(EmittedToken(own, "correction" if refused else "bonus"))
        confidence = tuple(0.9 - 0.1 * place for place in range(drafted))
        self.put(replace(step, tokens=tuple(tokens), refused=tuple(refused), confidence=confidence))

    def release(self, count: int | None = None) -> None:
        """The figures of the newest request for them, or the first `count` of them."""
        asked = self.of(Score)[-1]
        scores = [self._score(asked, place) for place in range(len(asked.tokens))][:count]
        cut = len(scores) // 2
        self.put(Scored(asked.id, 0, tuple(scores[:cut]), ended=False))
        self.put(Scored(asked.id, cut, tuple(scores[cut:]), ended=count is None))

    def _score(self, asked: Score, place: int) -> TokenLogprobs:
        token, other = asked.tokens[place], asked.also[place]
        top = [TokenLogprob(token, WORDS[token], -0.25), TokenLogprob(HALF, WORDS[HALF], -2.0)]
        top += [TokenLogprob(40 + rank, f" other{rank}", -3.0 - rank) for rank in range(3)]
        top += [TokenLogprob(other, WORDS[other], -9.0)] if other >= 0 else []
        return TokenLogprobs(WORDS[token], -0.25, tuple(top))

    def _take(self, command: Command) -> None:
        super()._take(command)
        match command:
            case Spell(path=path, tokens=tokens) if not self.mute:
                kinds: dict[int, SpellingKind] = {END: "control", HALF: "bytes"}
                texts = {HALF: "E2 82"}
                found = tuple(Spelling(texts.get(one, WORDS[one]), kinds.get(one, "text")) for one in tokens)
                self.put(Spelled(path, tokens, found))
            case Score(id=number):
                self.put(PrefillProgress(number, 10, 20, 0, 0.0))
                if self.fails:
                    self.put(Failed(number, "EngineError", self.fails, command="score"))
                elif not self.holds:
                    self.release()
            case Cancel() if self.running_score:
                self.put(Scored(self.of(Score)[-1].id, 0, (), ended=True))
            case _:
                pass

    @property
    def running_score(self) -> bool:
        return bool(self.of(Score)) and self.holds and self._reply_id is None


class Look:
    """What the token view shows."""

    def __init__(self, app: Running, engine: TokenEngine) -> None:
        self.app, self.engine = app, engine

    @property
    def screen(self) -> TokenScreen:
        screen = self.app.app.screen
        assert isinstance(screen, TokenScreen)
        return screen

    @property
    def reading(self) -> Reading:
        return self.screen.reading

    @property
    def tokens(self) -> TokenText:
        return self.screen.query_one(TokenText)

    @property
    def text(self) -> str:
        return self.tokens.text

    def rows(self, name: str) -> str:
        return " ".join(self.screen.query_one(f"#{name}", Rows).text.split())

    @property
    def details(self) -> str:
        return self.rows("details")

    async def press(self, *keys: str) -> None:
        await self.app.pilot.press(*keys)
        await self.app.pilot.pause()

    async def open(self) -> None:
        await self.app.pilot.press("f4")
        await self.app.until(lambda: isinstance(self.app.app.screen, TokenScreen))
        await self.app.pilot.pause()

    async def until_scored(self) -> None:
        await self.app.until(lambda: self.reading.figures is Figures.KNOWN)
        await self.app.pilot.pause()


async def asked(app: Running, text: str = "Tell me.") -> None:
    before = len(app.engine.of(Generate))
    await app.send(text)
    await app.until(lambda: len(app.engine.of(Generate)) == before + 1)


async def answered(app: Running, engine: TokenEngine) -> None:
    """One reply: an own token, a draft that is right, two that are not."""
    await asked(app)
    engine.say((), THE)
    engine.say((LAMP, OF, THEE), HOUSE)
    engine.say((TURNS,), NIGHT, refused=(AT, DAWN))
    engine.say((), DOT, refused=(LINE,))
    engine.say((), END)
    engine.finish()
    await app.until(lambda: not app.chat.busy)


FLOW = "The›·lamp›·of›·the»·house›·turns[×·at×·dawn]≠·night[×↵]≠.<end>"


@asynccontextmanager
async def looking(*, holds: bool = False, size: tuple[int, int] = (120, 36)) -> AsyncIterator[Look]:
    """A chat with one reply."""
    engine = TokenEngine(holds=holds)
    async with running(engine, size=size) as app:
        await app.ready()
        await answered(app, engine)
        yield Look(app, engine)
