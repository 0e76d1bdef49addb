"""The head as a network to be trained: EAGLE-3 (Li et al., arXiv 2503.01840) as llama.cpp runs it.

The inputs of three layers of the target become one state (`fc`). That and the embedding of the next token,
each normed, go side by side into a decoder layer; what comes out is the state that the next step goes on
from, and, normed, gives the logits of a part of the vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from localspec.train.target import TargetWeights


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a head, which are its target's.

    Attributes:
        width: of a state.
        heads: of attention.
        kv_heads: keys and values.
        head_width: of one of them.
        inner: of the feed-forward.
        epsilon: of the norms.
        rope_base: of the rotary embedding.
    """

    width: int
    heads: int
    kv_heads: int
    head_width: int
    inner: int
    epsilon: float
    rope_base: float


class Norm(nn.Module):  # type: ignore[misc]
    """Root mean square norm."""

    def __init__(self, weight: Tensor, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.clone())
        self._epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        """Normed, in single precision."""
        x = x.float()
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self._epsilon) * self.weight


def _linear(weight: Tensor) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    layer.weight = nn.Parameter(weight.clone())
    return layer


Cache = list[tuple[Tensor, Tensor]]
"""Keys and values of each step of an unrolled draft, shape [texts, heads, tokens, width]."""


class Head(nn.Module):  # type: ignore[misc]
    """The head.

    Its layer begins as the target's last one, which reads what the target's last layer reads; so it knows
    from the start what it has to learn.

    Args:
        target: weights to begin with.
        scale: of the target's states, by which they are divided, shape [3 x width].
        chosen: tokens that it can draft, ascending, shape [drafted vocabulary].

    Attributes:
        shape: sizes of its layer.
        chosen: see above.
    """

    def __init__(self, target: TargetWeights, scale: NDArray[np.float32], chosen: NDArray[np.int64]) -> None:
        super().__init__()
        shape = self.shape = target.shape
        self.chosen = chosen
        width = shape.width
        generator = torch.Generator().manual_seed(0)

        def noise(*size: int, spread: float) -> Tensor:
            return torch.randn(*size, generator=generator) * spread

        last = torch.from_numpy(scale[2 * width :])
        level = float(last.pow(2).mean().sqrt())
        mixed = noise(width, 3 * width, spread=0.01)
        mixed[:, 2 * width :] += torch.diag(last / level)
        self.fc = _linear(mixed)
        layer = target.last_layer()
        both = {
            name: torch.cat([noise(*layer[name].shape, spread=0.02), layer[name]], 1)
            for name in ("q", "k", "v")
        }
        self.token_norm = Norm(torch.ones(width), shape.epsilon)
        self.state_norm = Norm(layer["attn_norm"], shape.epsilon)
        self.q, self.k, self.v = (_linear(both[name]) for name in ("q", "k", "v"))
        self.o = _linear(layer["o"] / level)
        self.ffn_norm = Norm(layer["ffn_norm"], shape.epsilon)
        self.gate, self.up = _linear(layer["gate"]), _linear(layer["up"])
        self.down = _linear(layer["down"] / level)
        self.norm = Norm(target.output_norm(), shape.epsilon)
        self.output = _linear(target.output(chosen))
        # It is the target's, and stays so: the head learns states, not words.
        self.output.weight.requires_grad_(False)

    def step(self, embedded: Tensor, state: Tensor, cache: Cache, number: int) -> Tensor:
        """One step of a draft, for all positions of some texts at once.

        Args:
            embedded: of the tokens after each position, shape [texts, tokens, width].
            state: of step 0 the target's, then what the step before made; the same shape.
            cache: keys and values of the steps before, which grows by this one's.
            number: of the step, from 0. A position of a later step has seen the text as step 0 has, and its
                own earlier steps.

        Returns:
            The state after each position, not normed, the same shape.
        """
        shape = self.shape
        texts, tokens, _ = state.shape
        x = torch.cat([self.token_norm(embedded), self.state_norm(state)], -1)
        places = torch.arange(tokens) + number
        q = self._rotated(self.q(x).view(texts, tokens, shape.heads, shape.head_width), places)
        k = self._rotated(self.k(x).view(texts, tokens, shape.kv_heads, shape.head_width), places)
        v = self.v(x).view(texts, tokens, shape.kv_heads, shape.head_width).transpose(1, 2).float()
        group = shape.heads // shape.kv_heads
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        cache.append((k, v))
        attended = self._attended(q, cache, tokens)
        flat = attended.transpose(1, 2).reshape(texts, tokens, shape.heads * shape.head_width)
        state = state + self.o(flat)
        y = self.ffn_norm(state)
        return state + self.down(functional.silu(self.gate(y)) * self.up(y))

    def _attended(self, q: Tensor, cache: Cache, tokens: int) -> Tensor:
        first_k, first_v = cache[0]
        if len(cache) == 1:
            return functional.scaled_dot_product_attention(q, first_k, first_v, is_causal=True)
        scale = self.shape.head_width**-0.5
        scores = [(q @ first_k.transpose(-1, -2)) * scale + torch.full((tokens, tokens), -1e30).triu(1)]
        scores += [(q * k).sum(-1, keepdim=True) * scale for k, _ in cache[1:]]
        weights = torch.softmax(torch.cat(scores, -1), -1)
        attended: Tensor = weights[..., :tokens] @ first_v
        for place, (_, v) in enumerate(cache[1:]):
            attended = attended + weights[..., tokens + place : tokens + place + 1] * v
        return attended

    def _rotated(self, x: Tensor, places: Tensor) -> Tensor:
        """Rotary embedding of neighbouring pairs, shape [texts, heads, tokens, width]."""
        half = torch.arange(0, self.shape.head_width, 2).float() / self.shape.head_width
        angle = places[:, None].float() * self.shape.rope_base**-half
        cos, sin = angle.cos()[None, :, None], angle.sin()[None, :, None]
        even, odd = x[..., 0::2].float(), x[..., 1::2].float()
        return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2).transpose(1, 2)

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """The weights, by the names of the modules."""
        found: dict[str, Any] = self.state_dict()
        return {name: value.float().numpy() for name, value in found.items()}
