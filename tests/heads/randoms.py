"""Models of random weights, in which everything matters: tokens, states, their order, and the cache.

After each byte a target says mostly the one that follows it in a fixed order, else one that all of the text
decides on. A prediction layer is right more often than not; other heads are right by chance only, and show
whether two programs draft the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.heads.writers import BYTES, VOCABULARY, Array, Shape, Value, Weights, write

_SHAPE = Shape(inner=96)
_HALF = _SHAPE.width // 2


def target(path: Path, *, layers: int = 3, seed: int = 0) -> Path:
    """An attention-only target (`llama`)."""
    weights = _vocabulary(seed)
    for number in range(layers):
        weights.block(number, _SHAPE, attention=0.3, feed=0.05, keep=_HALF)
    keys: dict[str, Value] = {**_SHAPE.keys(layers), "vocab_size": VOCABULARY}
    return write(path, "llama", keys, weights, template=True)


def target_mtp(
    path: Path, *, layers: int = 2, heads: int = 1, seed: int = 0, window: int = 4096, trained: bool = True
) -> Path:
    """A target with prediction layers (`mimo2`), which are untrained noise unless `trained`."""
    weights = _vocabulary(seed)
    blocks = layers + heads
    for number in range(blocks):
        is_head = number >= layers
        if is_head and not trained:
            weights.block(number, _SHAPE, attention=3.0, feed=1.0, fused=True)
        elif is_head:
            weights.block(number, _SHAPE, attention=0.1, feed=0.1, keep=_HALF, fused=True)
        else:
            weights.block(number, _SHAPE, attention=0.5, feed=0.05, keep=_HALF, fused=True)
        if is_head:
            name = f"blk.{number}.nextn"
            weights.put(f"{name}.eh_proj.weight", _joined() if trained else weights.normal(64, 128))
            weights.ones(f"{name}.enorm", f"{name}.shared_head_norm", width=_SHAPE.width)
            weights.put(f"{name}.hnorm.weight", np.full(_SHAPE.width, 1.4))
    keys: dict[str, Value] = {
        **_SHAPE.keys(blocks),
        "rope.freq_base_swa": 10_000.0,
        "expert_feed_forward_length": 0,
        "attention.sliding_window": window,
        "attention.sliding_window_pattern": [number % 2 == 1 or number >= layers for number in range(blocks)],
        "nextn_predict_layers": heads,
    }
    return write(path, "mimo2", keys, weights, template=True)


def eagle3(
    path: Path, *, layers: Sequence[int] = (0, 1, 2), width: int = 64, tokens: int = 0, seed: int = 5
) -> Path:
    """An EAGLE-3 head with embeddings of its own, so that its `width` need not be the target's.

    With `tokens`, its output has only so many tokens, spread over the vocabulary.
    """
    weights = Weights(seed)
    shape = Shape(width=width, inner=96)
    weights.put("fc.weight", weights.normal(width, len(layers) * _SHAPE.width))
    # Attention that is sharp, or all positions would look much the same.
    for name, rows, gain in (("q", shape.heads, 4), ("k", shape.kv_heads, 1), ("v", shape.kv_heads, 1)):
        weights.put(f"blk.0.attn_{name}.weight", gain * weights.normal(rows * shape.head, 2 * width))
    weights.put("blk.0.attn_output.weight", 4 * weights.normal(width, shape.heads * shape.head))
    weights.feed_forward(0, shape, gain=1.0)
    weights.ones("blk.0.attn_norm", "blk.0.attn_norm_2", "blk.0.ffn_norm", "output_norm", width=width)
    weights.put("token_embd.weight", weights.normal(VOCABULARY, width))
    if tokens:
        chosen = weights.noise.choice(BYTES, tokens, replace=False)
        weights.put("d2t", np.sort(chosen))
    weights.put("output.weight", 4 * weights.normal(tokens or VOCABULARY, width))
    keys: dict[str, Value] = {
        **shape.keys(1),
        "vocab_size": VOCABULARY,
        "target_layers": list(layers),
        "target_hidden_size": _SHAPE.width,
        "norm_before_residual": False,
        "norm_before_fc": False,
    }
    return write(path, "eagle3", keys, weights, mask=None)


def dflash(
    path: Path,
    *,
    block: int = 4,
    layers: Sequence[int] = (1, 2),
    blocks: int = 2,
    width: int = 64,
    causal: bool | None = None,
    seed: int = 5,
) -> Path:
    """A DFlash head that takes embeddings and output from the target."""
    weights, keys = _flash(block, layers, blocks, width, seed)
    if causal is not None:
        keys["attention.causal"] = causal
    return write(path, "dflash", keys, weights)


def dspark(
    path: Path,
    *,
    block: int = 4,
    layers: Sequence[int] = (1, 2),
    blocks: int = 2,
    rank: int = 32,
    anchor: bool = True,
    confidence: bool = True,
    seed: int = 5,
) -> Path:
    """A DSpark head: the same with a Markov head, and one for confidence if wanted."""
    weights, keys = _flash(block, layers, blocks, _SHAPE.width, seed)
    weights.put("markov_w1.weight", np.sqrt(rank) * weights.normal(VOCABULARY, rank))
    weights.put("markov_w2.weight", 2 * weights.normal(VOCABULARY, rank))
    if confidence:
        weights.put("conf_proj.weight", weights.normal(1, _SHAPE.width + rank))
    keys["sample_from_anchor"] = anchor
    keys["has_confidence_head"] = confidence
    return write(path, "dflash", keys, weights)


def _flash(
    block: int, layers: Sequence[int], blocks: int, width: int, seed: int
) -> tuple[Weights, dict[str, Value]]:
    weights = Weights(seed)
    shape = Shape(width=width, inner=96)
    weights.put("fc.weight", weights.normal(width, len(layers) * width))
    weights.ones("enc.output_norm", "output_norm", width=width)
    for number in range(blocks):
        weights.block(number, shape, attention=3.0, feed=1.0)
        weights.put(f"blk.{number}.attn_q_norm.weight", np.full(shape.head, 4.0))
        weights.ones(f"blk.{number}.attn_k_norm", width=shape.head)
    keys: dict[str, Value] = {**shape.keys(blocks), "block_size": block, "target_layers": list(layers)}
    return weights, keys


def _vocabulary(seed: int) -> Weights:
    """The first half of a state is the byte, which names the byte after it; the other half is the text's.

    Only printable bytes are said: llama-server refuses to answer in bytes that are no text.
    """
    said = np.random.default_rng(seed).permutation(np.arange(ord(" "), ord("~") + 1))
    after = np.roll(said, -1)
    weights = Weights(seed + 1)
    embeddings = np.zeros((VOCABULARY, _SHAPE.width), np.float32)
    bytes_part = weights.noise.normal(size=(VOCABULARY, _HALF))
    embeddings[:, :_HALF] = bytes_part / np.linalg.norm(bytes_part, axis=1, keepdims=True)
    output = np.zeros((VOCABULARY, _SHAPE.width), np.float32)
    output[after] = 4 * embeddings[said]
    output[after, _HALF:] = 4 * weights.normal(len(said), _HALF)
    weights.put("token_embd.weight", embeddings)
    weights.put("output.weight", output)
    weights.ones("output_norm", width=_SHAPE.width)
    return weights


def _joined() -> Array:
    """The byte from the token's embedding, the text's half from the hidden state."""
    joined = np.zeros((_SHAPE.width, 2 * _SHAPE.width), np.float32)
    joined[:_HALF, :_HALF] = np.eye(_HALF)
    joined[_HALF:, _SHAPE.width + _HALF :] = np.eye(_HALF)
    return joined
