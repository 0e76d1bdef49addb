"""A trained head as a GGUF file, which llama.cpp and its server load too."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.models.gguf import GGUFHeader
from localspec.models.heads import FILE_KEY, FINGERPRINT_KEY, TYPE_KEY
from localspec.train.network import Head
from localspec.train.target import TargetWeights

_CONTEXT = 8192
_MATRICES = {
    "q": "blk.0.attn_q", "k": "blk.0.attn_k", "v": "blk.0.attn_v", "o": "blk.0.attn_output",
    "gate": "blk.0.ffn_gate", "up": "blk.0.ffn_up", "down": "blk.0.ffn_down", "output": "output",
}  # fmt: skip
_NORMS = {
    "token_norm": "blk.0.attn_norm", "state_norm": "blk.0.attn_norm_2", "ffn_norm": "blk.0.ffn_norm",
    "norm": "output_norm",
}  # fmt: skip


def export(
    path: Path,
    head: Head,
    target: TargetWeights,
    *,
    layers: Sequence[int],
    scale: NDArray[np.float32],
    chosen: NDArray[np.int64],
) -> None:
    """Write a head.

    Args:
        path: where to.
        head: its weights; `scale` of the target's states is multiplied into them.
        target: what it was made for: sizes and tokenizer.
        layers: whose inputs it reads.
        scale: by which states were divided in training, shape [layers x width].
        chosen: ids of the tokens that it drafts, shape [drafted vocabulary].
    """
    import gguf

    kinds = gguf.GGMLQuantizationType
    writer = gguf.GGUFWriter(str(path), "eagle3")
    _describe(writer, head, target.header, layers)
    _copy_tokenizer(writer, target.fields)
    weights = head.arrays()

    def matrix(name: str, value: NDArray[np.float32], kind: Any) -> None:
        if value.shape[1] % 32:
            kind = kinds.F16
        data = gguf.quants.quantize(np.ascontiguousarray(value, np.float32), kind)
        writer.add_tensor(f"{name}.weight", data, raw_dtype=kind)

    # Values of a state differ by orders of magnitude, and so do these weights then: half precision is short.
    matrix("fc", weights["fc.weight"] / scale[None, :], kinds.BF16)
    for ours, theirs in _NORMS.items():
        writer.add_tensor(f"{theirs}.weight", np.ascontiguousarray(weights[f"{ours}.weight"], np.float32))
    for ours, theirs in _MATRICES.items():
        matrix(theirs, weights[f"{ours}.weight"], kinds.Q8_0)
    writer.add_tensor("d2t", chosen.astype(np.int64), raw_dtype=kinds.I64)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _describe(writer: Any, head: Head, target: GGUFHeader, layers: Sequence[int]) -> None:
    shape = head.shape
    writer.add_name(f"EAGLE-3 for {target.name or target.path.stem}")
    writer.add_context_length(max(target.context_length, _CONTEXT))
    writer.add_embedding_length(shape.width)
    writer.add_block_count(1)
    writer.add_feed_forward_length(shape.inner)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_width)
    writer.add_value_length(shape.head_width)
    writer.add_layer_norm_rms_eps(shape.epsilon)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_rope_dimension_count(shape.head_width)
    writer.add_vocab_size(target.vocabulary)
    writer.add_array("eagle3.target_layers", [int(layer) for layer in layers])
    writer.add_uint32("eagle3.target_hidden_size", shape.width)
    writer.add_bool("eagle3.norm_before_residual", False)
    writer.add_bool("eagle3.norm_before_fc", False)
    writer.add_string(FILE_KEY, target.path.name)
    writer.add_string(TYPE_KEY, target.file_type)
    writer.add_string(FINGERPRINT_KEY, target.fingerprint)


def _copy_tokenizer(writer: Any, fields: Any) -> None:
    """The target's tokenizer, without its chat template."""
    import gguf

    for key, field in fields.items():
        if not key.startswith("tokenizer.") or "chat_template" in key:
            continue
        value, kind = field.contents(), field.types[0]
        if kind == gguf.GGUFValueType.ARRAY:
            writer.add_array(key, value)
        else:
            writer.add_key_value(key, value, kind)
