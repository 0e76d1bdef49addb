"""How far a head's logits are from what the target says, and the gradient of that, a few rows at a time.

The whole vocabulary beside every token of a batch is far larger than any cache: made in one piece, most of a
step goes into moving it. Here a chunk is made, used for loss and gradient at once, and dropped.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_ROWS = 256
"""Rows of a chunk: with 8,192 tokens 8 MB, which the allocator reuses."""
_KEPT = torch.bfloat16


def wanted_distribution(states: Tensor, output: Tensor, sharpness: float) -> Tensor:
    """What the target says of the drafted tokens.

    Args:
        states: its last states, normed, shape [rows, width].
        output: rows of its output layer, shape [drafted vocabulary, width].
        sharpness: its logits are multiplied by that.

    Returns:
        Probabilities in BF16, shape [rows, drafted vocabulary].
    """
    wanted = torch.empty(len(states), len(output), dtype=_KEPT)
    with torch.no_grad():
        for rows in _chunks(len(states)):
            logits = states[rows].to(_KEPT) @ output.to(_KEPT).T
            wanted[rows] = torch.softmax(logits.float() * sharpness, -1).to(_KEPT)
    return wanted


def distilled(normed: Tensor, output: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Mean cross-entropy of a head against the target, and the head's likeliest tokens.

    Args:
        normed: the head's states, shape [rows, width]; what the gradient is for.
        output: rows of the output layer, which stay as they are, shape [drafted vocabulary, width].
        wanted: see `wanted_distribution`, shape [rows, drafted vocabulary].

    Returns:
        A number, and places among the drafted tokens, shape [rows].
    """
    loss, likeliest = _Distilled.apply(normed, output, wanted)
    return loss, likeliest


class _Distilled(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, normed: Tensor, output: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        count = max(len(normed), 1)
        weight = output.to(_KEPT)
        total = torch.zeros(())
        likeliest = torch.empty(len(normed), dtype=torch.long)
        gradient = torch.empty_like(normed, dtype=torch.float32)
        for rows in _chunks(len(normed)):
            logits = (normed[rows].to(_KEPT) @ weight.T).float()
            likeliest[rows] = logits.argmax(1)
            goal = wanted[rows].float()
            level = torch.logsumexp(logits, 1, keepdim=True)
            total += (level.squeeze(1) * goal.sum(1)).sum() - (goal * logits).sum()
            logits.sub_(level).exp_().sub_(goal)
            gradient[rows] = (logits.to(_KEPT) @ weight).float() / count
        ctx.save_for_backward(gradient)
        ctx.mark_non_differentiable(likeliest)
        return total / count, likeliest

    @staticmethod
    def backward(ctx: Any, of_loss: Tensor, _: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * of_loss, None, None


def _chunks(count: int) -> list[slice]:
    return [slice(first, min(first + _ROWS, count)) for first in range(0, count, _ROWS)]
