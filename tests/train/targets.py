"""A target of Qwen3's kind: queries and keys are normed, and their halves are turned against each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.heads.writers import VOCABULARY, Shape, Value, Weights, write

_SHAPE = Shape(heads=4, kv_heads=2, head=32, inner=96)


def qwen3(path: Path, *, layers: int = 3, seed: int = 0) -> Path:
    """Random weights; the output layer is the embeddings."""
    weights = Weights(seed)
    weights.put("token_embd.weight", weights.normal(VOCABULARY, _SHAPE.width))
    weights.ones("output_norm", width=_SHAPE.width)
    for number in range(layers):
        weights.block(number, _SHAPE, attention=1.0, feed=1.0)
        for name in ("attn_q_norm", "attn_k_norm"):
            weights.put(f"blk.{number}.{name}.weight", np.full(_SHAPE.head, 2.0))
    keys: dict[str, Value] = {**_SHAPE.keys(layers), "vocab_size": VOCABULARY}
    return write(path, "qwen3", keys, weights, template=True)
