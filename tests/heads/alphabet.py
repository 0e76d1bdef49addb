"""Models that say the alphabet: `a` is followed by `b`, ..., and `z` by `a`; any byte counts as some letter.

What a state holds, of 64 values: 26 for the letter (one of them is 1), one that is always 1, one for the
mask token, and from the 33rd on noise that nobody reads. All rows of logits have wide margins, so there are
no near ties, whatever the width of a batch.

The heads draft from the hidden states alone: what they are told of tokens does not help them. They are right
but for the letters in `wrong`, after which they skip one letter, so the draft tokens that are accepted can be
counted beforehand.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from tests.heads.writers import BYTES, MASK, VOCABULARY, Array, Shape, Value, Weights, write

LETTERS = 26
WRONG = (5, 17)
"""After these letters (f and r) a head is wrong unless told otherwise."""

_ONE = 26
_MASKED = 27
_SAID = 32
"""Values of a state that somebody reads; the rest is noise."""
_SHAPE = Shape()
_SINGLE = Shape(heads=1)
_FIRST = ord("a")
_NORMED = float(np.sqrt(_SHAPE.width / 2))
"""What a norm makes of the two ones of a state."""


def letter(token: int) -> int:
    """Which letter a token counts as, 0 to 25."""
    return (token - _FIRST) % LETTERS if token < BYTES else 0


def after(token: int) -> int:
    """The token that the target says after `token`."""
    return _FIRST + (letter(token) + 1) % LETTERS


def text_after(token: int, count: int) -> list[int]:
    """What the target says after `token`, greedily."""
    said: list[int] = []
    for _ in range(count):
        token = after(token)
        said.append(token)
    return said


# --- targets -------------------------------------------------------------------------------------------


def target(path: Path, *, layers: int = 3, sharpness: float = 20.0, seed: int = 0) -> Path:
    """An attention-only target (`llama`). A lower `sharpness` leaves other tokens a chance at T > 0."""
    weights = _vocabulary(seed, sharpness)
    for number in range(layers):
        weights.block(number, _SHAPE, attention=0.02, feed=0.02, keep=_SAID)
    keys: dict[str, Value] = {**_SHAPE.keys(layers), "vocab_size": VOCABULARY}
    return write(path, "llama", keys, weights, template=True)


def target_mtp(
    path: Path,
    *,
    layers: int = 2,
    heads: int = 1,
    wrong: Collection[int] = WRONG,
    part: Literal["all", "trunk", "heads"] = "all",
    sharpness: float = 20.0,
    window: int = 4096,
    declared: int | None = None,
    seed: int = 0,
) -> Path:
    """A target with prediction layers (`mimo2`), or a part of it.

    Args:
        path: where.
        layers: blocks of the target.
        heads: prediction layers, each of which predicts from the state of the one before.
        wrong: letters that they go wrong after.
        part: the file as a whole, without the prediction layers, or these alone (a sidecar).
        sharpness: see `target`.
        window: tokens that windowed layers look back on.
        declared: prediction layers that the keys speak of; None: those that there are.
        seed: of the noise.
    """
    weights = _vocabulary(seed, sharpness)
    blocks = layers + heads
    for number in range(blocks):
        is_head = number >= layers
        if (is_head and part == "trunk") or (not is_head and part == "heads"):
            continue
        weights.block(number, _SHAPE, attention=0.02, feed=0.02, keep=_SAID, fused=True)
        if is_head:
            _prediction_layer(weights, number, wrong)
    keys: dict[str, Value] = {
        **_SHAPE.keys(blocks),
        "rope.freq_base_swa": 10_000.0,
        "expert_feed_forward_length": 0,
        "attention.sliding_window": window,
        "attention.sliding_window_pattern": [number % 2 == 1 or number >= layers for number in range(blocks)],
        "nextn_predict_layers": heads if declared is None else declared,
    }
    return write(path, "mimo2", keys, weights, template=True)


def target_hybrid(
    path: Path,
    *,
    layers: int = 2,
    wrong: Collection[int] = WRONG,
    sharpness: float = 20.0,
    reads_noise: float = 0.0,
    seed: int = 0,
) -> Path:
    """A target with recurrent layers (`qwen35`: every second one) and a prediction layer.

    With `reads_noise` its logits depend on the recurrent state too, if only by so much.
    """
    state, groups, rank, kernel = 32, 1, 2, 4
    weights = _vocabulary(seed, sharpness)
    if reads_noise:
        head = weights.tensors["output.weight"]
        head[_FIRST : _FIRST + LETTERS, _SAID:] += reads_noise * weights.noise.normal(size=(LETTERS, 32))
    inner = state * rank
    mixed = 2 * state * groups + inner
    for number in range(layers + 1):
        name = f"blk.{number}"
        weights.ones(f"{name}.attn_norm", f"{name}.post_attention_norm", width=_SHAPE.width)
        if number < layers and number % 2 == 0:
            weights.put(f"{name}.attn_qkv.weight", weights.normal(mixed, _SHAPE.width))
            weights.put(f"{name}.attn_gate.weight", weights.normal(inner, _SHAPE.width))
            weights.put(f"{name}.ssm_conv1d.weight", weights.normal(mixed, kernel))
            weights.put(f"{name}.ssm_dt.bias", np.zeros(rank))
            weights.put(f"{name}.ssm_a", np.full(rank, -0.3))
            weights.put(f"{name}.ssm_beta.weight", weights.normal(rank, _SHAPE.width))
            weights.put(f"{name}.ssm_alpha.weight", weights.normal(rank, _SHAPE.width))
            weights.ones(f"{name}.ssm_norm", width=state)
            out = weights.below(_SAID, 0.3 * weights.normal(_SHAPE.width, inner))
            weights.put(f"{name}.ssm_out.weight", out)
        else:
            # Queries come with a gate of their own size.
            wide = _SHAPE.heads * _SHAPE.head
            narrow = _SHAPE.kv_heads * _SHAPE.head
            weights.put(f"{name}.attn_q.weight", weights.normal(2 * wide, _SHAPE.width))
            weights.put(f"{name}.attn_k.weight", weights.normal(narrow, _SHAPE.width))
            weights.put(f"{name}.attn_v.weight", weights.normal(narrow, _SHAPE.width))
            out = weights.below(_SAID, 0.3 * weights.normal(_SHAPE.width, wide))
            weights.put(f"{name}.attn_output.weight", out)
            weights.ones(f"{name}.attn_q_norm", f"{name}.attn_k_norm", width=_SHAPE.head)
        weights.feed_forward(number, _SHAPE, gain=0.3, keep=_SAID)
        if number == layers:
            _prediction_layer(weights, number, wrong)
    keys: dict[str, Value] = {
        **_SHAPE.keys(layers + 1),
        "ssm.conv_kernel": kernel,
        "ssm.inner_size": inner,
        "ssm.state_size": state,
        "ssm.time_step_rank": rank,
        "ssm.group_count": groups,
        "full_attention_interval": 2,
        "nextn_predict_layers": 1,
        "rope.dimension_sections": [8, 4, 4, 0],
    }
    return write(path, "qwen35", keys, weights, template=True)


# --- heads ---------------------------------------------------------------------------------------------


def eagle3(
    path: Path,
    *,
    layers: Sequence[int] = (0, 1, 2),
    wrong: Collection[int] = WRONG,
    reduced: bool = False,
    own_embeddings: bool = False,
    sharpness: float = 20.0,
) -> Path:
    """An EAGLE-3 head: attention, which sees its own position only, turns a letter's state into the next's.

    Args:
        path: where.
        layers: of the target, whose states it reads; the letter comes from the first one.
        wrong: letters that it goes wrong after.
        reduced: with an output of its own, for the letters only.
        own_embeddings: with embeddings of its own instead of the target's.
        sharpness: of its own output.
    """
    weights = Weights(seed=7)
    width, head = _SINGLE.width, _SINGLE.head
    fused = np.zeros((width, len(layers) * width))
    fused[: _ONE + 1, : _ONE + 1] = np.eye(_ONE + 1)
    weights.put("fc.weight", fused)
    key = np.zeros((head, 2 * width))
    key[0::2, _ONE] = 1
    value = np.zeros((head, 2 * width))
    change = (_successor(1, wrong) - np.eye(width)) / _NORMED
    value[:LETTERS, width : width + LETTERS] = change[:LETTERS, :LETTERS]
    back = np.zeros((width, head))
    back[:LETTERS, :LETTERS] = np.eye(LETTERS)
    # A query that equals the key of its own position, and not those that rotation has moved away.
    weights.put("blk.0.attn_q.weight", 10 * key)
    weights.put("blk.0.attn_k.weight", key)
    weights.put("blk.0.attn_v.weight", value)
    weights.put("blk.0.attn_output.weight", back)
    weights.feed_forward(0, _SINGLE, gain=0.0)
    weights.ones("blk.0.attn_norm", "blk.0.attn_norm_2", "blk.0.ffn_norm", "output_norm", width=width)
    embeddings, output = _letters(sharpness)
    if own_embeddings:
        weights.put("token_embd.weight", embeddings)
    if reduced:
        letters = np.arange(_FIRST, _FIRST + LETTERS)
        weights.put("output.weight", output[letters])
        weights.put("d2t", letters)
    keys: dict[str, Value] = {
        **_SINGLE.keys(1),
        "rope.freq_base": 100.0,
        "vocab_size": VOCABULARY,
        "target_layers": list(layers),
        "target_hidden_size": width,
        "norm_before_residual": False,
        "norm_before_fc": False,
    }
    return write(path, "eagle3", keys, weights, mask=None)


def dflash(
    path: Path,
    *,
    length: int = 3,
    block: int | None = None,
    layers: Sequence[int] = (1, 2),
    wrong: Collection[int] = WRONG,
    mask: int | None = MASK,
    causal: bool | None = None,
    own_embeddings: bool = False,
) -> Path:
    """A DFlash head: each mask attends to the injected state at the distance `length` + 1.

    Args:
        path: where.
        length: tokens of a draft for which it is made; a shorter one is right too.
        block: `block_size`; None: what such a draft takes.
        layers: of the target, whose states it reads; the letter comes from the first one.
        wrong: letters that it goes wrong after: those at the distance.
        mask: the mask token; None: the file names none.
        causal: `attention.causal`; None: the file says nothing of it.
        own_embeddings: with embeddings and output of its own instead of the target's.
    """
    base = 100.0
    weights = Weights(seed=7)
    width, head = _SINGLE.width, _SINGLE.head
    distance, pairs = length + 1, head // 2
    angles = distance * base ** (-np.arange(pairs) / pairs)
    fused = np.zeros((width, len(layers) * width))
    fused[: _ONE + 1, : _ONE + 1] = np.eye(_ONE + 1)
    weights.put("fc.weight", fused)
    key = np.zeros((head, width))
    key[:pairs, _ONE] = 1
    query = np.zeros((head, width))
    query[:pairs, _MASKED] = np.cos(angles)
    query[pairs:, _MASKED] = -np.sin(angles)
    value = np.zeros((head, width))
    value[:LETTERS, :LETTERS] = _successor(length, wrong)[:LETTERS, :LETTERS]
    back = np.zeros((width, head))
    back[:LETTERS, :LETTERS] = 8 * np.eye(LETTERS)
    weights.put("blk.0.attn_q.weight", query)
    weights.put("blk.0.attn_k.weight", key)
    weights.put("blk.0.attn_v.weight", value)
    weights.put("blk.0.attn_output.weight", back)
    weights.put("blk.0.attn_q_norm.weight", np.full(head, 40.0))
    weights.ones("blk.0.attn_k_norm", width=head)
    weights.feed_forward(0, _SINGLE, gain=0.0)
    weights.ones("blk.0.attn_norm", "blk.0.ffn_norm", "enc.output_norm", "output_norm", width=width)
    if own_embeddings:
        embeddings, output = _letters(20.0)
        weights.put("token_embd.weight", embeddings)
        weights.put("output.weight", output)
    keys: dict[str, Value] = {
        **_SINGLE.keys(1),
        "rope.freq_base": base,
        "block_size": block or length + 1,
        "target_layers": list(layers),
    }
    if causal is not None:
        keys["attention.causal"] = causal
    return write(path, "dflash", keys, weights, mask=mask)


def dspark(
    path: Path,
    *,
    block: int = 4,
    layers: Sequence[int] = (1, 2),
    wrong: Collection[int] = WRONG,
    confidence: bool = True,
    anchor: bool = True,
) -> Path:
    """A DSpark head, of which only the Markov head says something: the letter after the one before.

    Its confidence is 0.98, and 0.02 where the letter before is one of `wrong`.
    """
    rank = 32
    weights = Weights(seed=3)
    weights.block(0, _SINGLE, attention=0.0, feed=0.0)
    weights.ones("blk.0.attn_q_norm", "blk.0.attn_k_norm", width=_SINGLE.head)
    weights.ones("enc.output_norm", width=_SINGLE.width)
    weights.put("output_norm.weight", np.full(_SINGLE.width, 1e-3))
    weights.put("fc.weight", weights.normal(_SINGLE.width, len(layers) * _SINGLE.width))
    embeddings, _ = _letters(20.0)
    said = np.zeros((VOCABULARY, rank))
    for before in range(LETTERS):
        said[_FIRST + (before + 1 + (before in wrong)) % LETTERS, before] = 20
    weights.put("markov_w1.weight", embeddings[:, :rank])
    weights.put("markov_w2.weight", said)
    if confidence:
        sure = np.zeros((1, _SINGLE.width + rank))
        sure[0, _SINGLE.width + _ONE] = 4
        sure[0, [_SINGLE.width + before for before in wrong]] = -8
        weights.put("conf_proj.weight", sure)
        weights.put("conf_proj.bias", np.zeros(1))
    keys: dict[str, Value] = {
        **_SINGLE.keys(1),
        "block_size": block,
        "target_layers": list(layers),
        "sample_from_anchor": anchor,
        "has_confidence_head": confidence,
    }
    return write(path, "dflash", keys, weights)


# --- what they share -----------------------------------------------------------------------------------


def _letters(sharpness: float) -> tuple[Array, Array]:
    """Embeddings, which hold the letter, and the output, which says the letter after it."""
    embeddings = np.zeros((VOCABULARY, _SHAPE.width), np.float32)
    output = np.zeros((VOCABULARY, _SHAPE.width), np.float32)
    embeddings[:, _ONE] = 1
    for token in range(VOCABULARY):
        embeddings[token, letter(token)] = 1
    embeddings[MASK] = 0
    embeddings[MASK, _MASKED] = 1
    for said in range(LETTERS):
        output[_FIRST + (said + 1) % LETTERS, said] = sharpness / 8
    return embeddings, output


def _vocabulary(seed: int, sharpness: float) -> Weights:
    """Weights of a target, without its blocks."""
    weights = Weights(seed)
    embeddings, output = _letters(sharpness)
    weights.put("token_embd.weight", embeddings)
    weights.put("output.weight", output)
    weights.ones("output_norm", width=_SHAPE.width)
    return weights


def _successor(steps: int, wrong: Collection[int]) -> Array:
    """The map from a letter's state to that of `steps` letters on, one more for letters in `wrong`."""
    moved = np.zeros((_SHAPE.width, _SHAPE.width), np.float32)
    moved[_ONE, _ONE] = 1
    for said in range(LETTERS):
        moved[(said + steps + (said in wrong)) % LETTERS, said] = 1
    return moved


def _prediction_layer(weights: Weights, number: int, wrong: Collection[int]) -> None:
    """What a prediction layer has beside its block: it moves the state on, and does not look at the token."""
    name = f"blk.{number}.nextn"
    ignored = np.zeros((_SHAPE.width, _SHAPE.width))
    weights.put(f"{name}.eh_proj.weight", np.hstack([ignored, _successor(1, wrong)]))
    weights.ones(f"{name}.enorm", f"{name}.hnorm", width=_SHAPE.width)
