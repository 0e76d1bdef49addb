"""A reply looked at again: its tokens spelled, and how likely the model finds each of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from localspec.errors import BadLogitsError, EngineError
from localspec.logprobs import check_logprobs, token_logprobs
from localspec.messages import (
    Event,
    PrefillProgress,
    Score,
    Scored,
    Spelling,
    TokenLogprob,
    TokenLogprobs,
)
from localspec.prompting import Prompting
from localspec.session import Session
from localspec.target import Vocabulary

PIECE = 32
"""Tokens of a pass at most: a cancel is obeyed after each."""


def reply_scores(
    session: Session,
    prompting: Prompting,
    request: Score,
    emit: Callable[[Event], None],
    cancelled: Callable[[], bool],
) -> Scored:
    """Score the reply of `request` in passes of some tokens each; returns the last part.

    Args:
        session: holds the prompt and what was scored of the reply afterwards, as after the reply itself; its
            drafter does not matter.
        prompting: writes the prompt.
        request: the reply.
        emit: takes the parts before the last one, and how far the prompt is read.
        cancelled: asked before every pass.

    Raises:
        BadLogitsError: the model returned logits that are not numbers.
        EngineError: a pass failed; the cache has been cleared.
        PromptTooLongError: the prompt does not fit.
        UsageError: alternatives out of range.
    """
    check_logprobs(request.alternatives)
    tokens = request.tokens
    prompt = prompting.prompt(request.request, ()).tokens
    shortened = len(prompt) + len(tokens) > session.context.capacity
    if shortened:
        # The context filled up in the middle of the reply: it ended without the oldest messages.
        prompt = prompting.prompt(request.request, tokens).tokens[: -len(tokens)]

    def progress(done: int) -> None:
        emit(PrefillProgress(request.id, done, len(prompt), 0, 0.0))

    session.prefill(prompt, progress=progress, cancelled=cancelled)
    place = 0
    part: tuple[TokenLogprobs, ...] = ()
    while len(session.tokens) >= len(prompt) and place < len(tokens) and not cancelled():
        if part:
            emit(Scored(request.id, place - len(part), part, ended=False, shortened=shortened))
        part = _pass(session, request, place)
        place += len(part)
    return Scored(request.id, place - len(part), part, ended=True, shortened=shortened)


def _pass(session: Session, request: Score, place: int) -> tuple[TokenLogprobs, ...]:
    """Read the token before `place` and those that follow, and score what comes after each."""
    context, text = session.context, session.vocabulary.token_text
    piece = request.tokens[place : place + min(PIECE, context.max_rows)]
    others = request.also[place : place + len(piece)] or (-1,) * len(piece)
    try:
        rows = context.decode([session.tokens[-1], *piece[:-1]], "all")
        scores = tuple(
            _score(row, token, other, request.alternatives, text)
            for row, token, other in zip(rows, piece, others, strict=True)
        )
    except EngineError:
        context.clear()
        session.tokens = []
        raise
    session.tokens += piece
    return scores


def _score(
    row: NDArray[np.float32], token: int, other: int, count: int, text: Callable[[int], str]
) -> TokenLogprobs:
    score = token_logprobs(row, token, count, text)
    if math.isnan(score.logprob):
        raise BadLogitsError("The model returned logits that are not numbers (NaN); fetch its file again.")
    # What the model rules out altogether has no logarithm.
    top = [one for one in score.top if math.isfinite(one.logprob)]
    if other >= 0 and all(one.id != other for one in top):
        logprob = score.logprob + float(row[other]) - float(row[token])
        top += [TokenLogprob(other, text(other), logprob)] if math.isfinite(logprob) else []
    return TokenLogprobs(score.text, max(score.logprob, -1e9), tuple(top))


def spelled(vocabulary: Vocabulary, tokens: Sequence[int]) -> tuple[Spelling, ...]:
    """Every token by itself."""
    return tuple(_spelling(vocabulary, token) for token in tokens)


def _spelling(vocabulary: Vocabulary, token: int) -> Spelling:
    data = vocabulary.token_bytes(token)
    if not data:
        return Spelling(vocabulary.token_text(token), "control")
    try:
        return Spelling(data.decode())
    except UnicodeDecodeError:
        return Spelling(data.hex(" ").upper(), "bytes")
