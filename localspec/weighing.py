"""How far apart a model finds two tokens at the place where two replies part."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from localspec.errors import EngineError, RollbackRefusedError
from localspec.logprobs import token_logprobs
from localspec.messages import Weigh, Weighed
from localspec.sampling import Sampler
from localspec.session import Session


def weighed(
    session: Session,
    sampler: Sampler,
    tokens: Sequence[int],
    request: Weigh,
    cancelled: Callable[[], bool],
) -> Weighed:
    """Read `tokens` and score both tokens of `request` after them, in one pass of a single token.

    Args:
        session: holds `tokens` afterwards; its drafter does not matter.
        sampler: of the replies.
        tokens: the prompt, and what both replies said.
        request: the two tokens.
        cancelled: asked before every piece of the prompt.

    Raises:
        EngineError: a pass failed; the cache has been cleared.
        PromptTooLongError: the tokens leave no room for another one.
    """
    session.prefill(tokens, cancelled=cancelled)
    if len(session.tokens) < len(tokens):
        return Weighed(request.id, (), None)
    context = session.context
    try:
        row = context.decode([tokens[-1]], "all")[0]
        first, second = request.tokens
        margin = sampler.margin(row, len(tokens), sampler.window(tokens), first, second)
        text = session.vocabulary.token_text
        scores = tuple(token_logprobs(row, token, 0, text) for token in request.tokens)
    except EngineError:
        context.clear()
        session.tokens = []
        raise
    try:
        context.keep(len(tokens) - 1)
    except RollbackRefusedError:
        # A state that cannot go back: the next prompt is read anew.
        context.clear()
        session.tokens = []
    # Logits, whatever the temperature.
    unit = 1.0 if sampler.greedy else sampler.params.temperature
    return Weighed(request.id, scores, margin * unit)
