"""The loss that is made in chunks, against the same one in a single piece."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from localspec.train import distilling
from localspec.train.distilling import distilled, wanted_distribution

ROWS, WIDTH, TOKENS = 37, 16, 50


@pytest.fixture
def tensors(monkeypatch: pytest.MonkeyPatch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The head's states, the output layer, and the target's states; chunks are small."""
    monkeypatch.setattr(distilling, "_ROWS", 8)
    random = torch.Generator().manual_seed(3)
    normed, goal = (torch.randn(ROWS, WIDTH, generator=random) for _ in range(2))
    output = torch.randn(TOKENS, WIDTH, generator=random).to(torch.bfloat16)
    return normed.requires_grad_(), output, goal


def test_what_the_target_says(tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> None:
    _, output, goal = tensors
    whole = torch.softmax(goal @ output.float().T * 1.3, -1)
    wanted = wanted_distribution(goal, output, 1.3)
    assert wanted.shape == (ROWS, TOKENS)
    assert torch.allclose(wanted.float(), whole, atol=0.03)
    assert (wanted.float().argmax(1) == whole.argmax(1)).float().mean() > 0.9


def test_loss_gradient_and_likeliest_tokens(
    tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
) -> None:
    normed, output, goal = tensors
    wanted = wanted_distribution(goal, output, 1.0)
    loss, likeliest = distilled(normed, output, wanted)
    (2.0 * loss).backward()
    ours = normed.grad
    assert ours is not None
    again = normed.detach().clone().requires_grad_()
    logits = again @ output.float().T
    reference = -(wanted.float() * functional.log_softmax(logits, 1)).sum(1).mean()
    (2.0 * reference).backward()
    theirs = again.grad
    assert theirs is not None
    # The products are rounded to 8 bits.
    assert loss.item() == pytest.approx(reference.item(), rel=0.02)
    cosine = functional.cosine_similarity(ours.flatten(), theirs.flatten(), dim=0)
    assert float(cosine) > 0.999
    assert float(ours.norm() / theirs.norm()) == pytest.approx(1.0, abs=0.01)
    assert (likeliest == logits.argmax(1)).float().mean() > 0.9


def test_no_rows_cost_nothing(tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> None:
    normed, output, goal = tensors
    loss, likeliest = distilled(normed[:0], output, wanted_distribution(goal[:0], output, 1.0))
    assert loss.item() == 0.0
    assert likeliest.shape == (0,)
