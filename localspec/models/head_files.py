"""Heads that draft from a target's hidden states: what a file says of the head in it.

llama.cpp ends the process over most of what is wrong in such a file, so all that a header tells is checked.
"""

from __future__ import annotations

import sys
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from localspec.errors import IncompatibleError, ModelFileError
from localspec.models.ggml_types import TENSOR_TYPES
from localspec.models.gguf import GGUFHeader

Kind = Literal["eagle3", "mtp", "dflash", "dspark"]

_EAGLE3_LAYERS = 3
_DEFAULT_BLOCK = 16
"""llama.cpp's, for DFlash heads that do not say theirs."""
_I64 = 27
_LONGEST_LIST = 2**24
"""Bytes of a list of drafted tokens."""
_BLOCK_TENSORS = (
    "attn_norm",
    "attn_q",
    "attn_k",
    "attn_output",
    "ffn_norm",
    "ffn_gate",
    "ffn_up",
    "ffn_down",
)
"""Of every block of a head; queries, keys and feed-forward part."""

_MTP_GRAPHS = frozenset(
    {
        "bailingmoe3", "cohere2moe", "deepseek2", "deepseek32", "glm-dsa", "glm4moe", "hy_v3", "mimo2",
        "nemotron_h_moe", "qwen3next", "qwen35", "qwen35moe", "step35",
    }
)  # fmt: skip
"""Architectures whose prediction layers can be run: llama.cpp refuses glm5-next's, and what deepseek4's hand
on is several states wide."""
_SEVERAL_LAYERS = frozenset({"hy_v3", "mimo2", "step35"})
"""Those whose graphs take more than one prediction layer."""
_MLA = frozenset({"deepseek2", "deepseek32", "glm-dsa"})
"""Those whose prediction layers are run only where keys and values are compressed."""
_MORE_TENSORS = {
    "bailingmoe3": ("nextn.shared_head_norm",),
    "cohere2moe": ("ffn_gate_inp",),
    "deepseek32": ("ffn_gate_inp",),
    "glm-dsa": ("ffn_gate_inp",),
    "glm4moe": ("ffn_gate_inp",),
    "mimo2": ("attn_qkv", "ffn_gate", "ffn_up", "ffn_down"),
    "nemotron_h_moe": ("nextn.shared_head_norm",),
    "qwen35moe": ("ffn_gate_inp",),
    "qwen3next": ("ffn_gate_inp",),
}
"""What a prediction layer needs beside `_PREDICTION`, by architecture."""
_PREDICTION = ("nextn.eh_proj", "nextn.enorm", "nextn.hnorm")


@dataclass(frozen=True, slots=True)
class HeadFacts:
    """What a file says of a head.

    Attributes:
        kind: the method.
        path: the file.
        architecture: of the file.
        width: values of the head's own states.
        features: values of a row of the target's states that it reads.
        target_layers: layers of the target whose inputs it reads; none for MTP.
        target_width: values of a state of the target.
        vocabulary: tokens of its tokenizer; 0 where it has none.
        fingerprint: of its tokenizer, "" where it has none.
        block: tokens of a block at most; 0 for heads that go token by token.
        prediction_layers: layers that predict one token each (MTP); 1 for the other kinds.
        causal: whether a token of a block sees only those before it.
        from_anchor: whether a block's first row drafts already (DSpark).
        has_confidence: whether it says how sure it is (DSpark).
        mask_token: stands for a token of a block that is to be drafted; -1 for none.
        in_model: whether it is a part of a whole model's file.
        own_embeddings: whether its file has the table of tokens; else the target's is used.
        own_output: the same of the output layer.
        trunk: layers of the model whose prediction layers they are (MTP); 0 for the other kinds.
        flaw: why prediction layers cannot be run, a sentence; "" where they can.
    """

    kind: Kind
    path: Path
    architecture: str
    width: int
    features: int
    target_layers: tuple[int, ...]
    target_width: int
    vocabulary: int
    fingerprint: str
    block: int = 0
    prediction_layers: int = 1
    causal: bool = True
    from_anchor: bool = False
    has_confidence: bool = False
    mask_token: int = -1
    in_model: bool = False
    own_embeddings: bool = True
    own_output: bool = True
    trunk: int = 0
    flaw: str = ""


def head_facts(header: GGUFHeader) -> HeadFacts | None:
    """What a file says of the head in it; None for a model without one.

    A whole model with prediction layers of its own counts as one too, see `HeadFacts.in_model`.

    Raises:
        ModelFileError: a head whose file lacks what every head of its kind has.
        IncompatibleError: a head of a kind that cannot be used here.
    """
    if header.architecture == "eagle3":
        return _eagle3(header)
    if header.architecture == "dflash":
        return _block(header)
    if header.architecture == "gemma4-assistant":
        raise IncompatibleError(
            f"{header.path.name} is an assistant of Gemma 4, which this version cannot use; choose another "
            "--draft."
        )
    return _mtp(header)


# --- kinds


def _eagle3(header: GGUFHeader) -> HeadFacts:
    layers, name = _layers(header), header.path.name
    if len(layers) != _EAGLE3_LAYERS:
        raise ModelFileError(
            f"{name} reads {len(layers)} layers of its target and not 3, as EAGLE-3 does; fetch or make the "
            "head again."
        )
    if header.block_count != 1:
        raise ModelFileError(
            f"{name} has {header.block_count} layers, and EAGLE-3 heads have 1; fetch another."
        )
    _need(header, *(f"blk.0.{tensor}.weight" for tensor in (*_BLOCK_TENSORS, "attn_v", "attn_norm_2")))
    target_width = _number(header, "target_hidden_size")
    if not target_width:
        raise ModelFileError(
            f"{name} does not say how wide its target's states are (eagle3.target_hidden_size); fetch or "
            "make the head again."
        )
    facts = HeadFacts(
        "eagle3", header.path, header.architecture, header.embedding_length, len(layers) * target_width,
        layers, target_width, _tokens(header), header.fingerprint,
        own_embeddings=_has(header, "token_embd.weight"), own_output=_has(header, "output.weight"),
    )  # fmt: skip
    _check_shared(facts, header)
    return facts


def _block(header: GGUFHeader) -> HeadFacts:
    name = header.path.name
    if _number(header, "selector_top_k") or _has(header, "selector_hidden.weight"):
        raise IncompatibleError(
            f"{name} is a DFlash head of the second kind (with a selector), which this version cannot use; "
            "choose another --draft."
        )
    if _number(header, "hyper_connection_count"):
        raise IncompatibleError(
            f"{name} has the layers of DeepSeek 4, which this version cannot use in a head; choose another "
            "--draft."
        )
    layers, width = _layers(header), header.embedding_length
    if not layers:
        raise ModelFileError(f"{name} does not say which layers of its target it reads; fetch it again.")
    mask = header.metadata.get("tokenizer.ggml.mask_token_id", -1)
    if not isinstance(mask, int) or not 0 <= mask < _tokens(header):
        raise ModelFileError(f"{name} has no mask token, without which it cannot draft; fetch it again.")
    norms = ("attn_q_norm", "attn_k_norm")
    for layer in range(header.block_count):
        _need(header, *(f"blk.{layer}.{tensor}.weight" for tensor in (*_BLOCK_TENSORS, *norms)))
    _need(header, "enc.output_norm.weight")
    block, is_dspark = _number(header, "block_size"), _has(header, "markov_w1.weight")
    if is_dspark:
        _need(header, "markov_w2.weight")
        if not block:
            raise ModelFileError(f"{name} does not say how long its blocks are; fetch it again.")
    has_table = _has(header, "token_embd.weight")
    facts = HeadFacts(
        "dspark" if is_dspark else "dflash", header.path, header.architecture, width, len(layers) * width,
        layers, width, _tokens(header), header.fingerprint,
        block=block or _DEFAULT_BLOCK,
        causal=_flag(header, "attention.causal", default=False),
        from_anchor=is_dspark and _flag(header, "sample_from_anchor", default=True),
        has_confidence=is_dspark
        and _has(header, "conf_proj.weight")
        and _flag(header, "has_confidence_head", default=True),
        mask_token=mask,
        own_embeddings=has_table, own_output=has_table or _has(header, "output.weight"),
    )  # fmt: skip
    _check_shared(facts, header)
    return facts


def _check_shared(facts: HeadFacts, header: GGUFHeader) -> None:
    """What EAGLE-3, DFlash and DSpark have in common: states that are joined, and perhaps fewer tokens."""
    name = facts.path.name
    _need(header, "fc.weight", "output_norm.weight")
    if header.key_length != header.value_length:
        raise ModelFileError(
            f"{name} has keys and values of different widths, which no head has; fetch another."
        )
    read, said = _elements(header, "fc.weight"), facts.width * facts.features
    if read != said:
        raise ModelFileError(
            f"{name} contradicts itself: it reads {len(facts.target_layers)} layers of "
            f"{facts.target_width} values, and its tensor fc is not of that size; fetch or make it again."
        )
    if "d2t" in header.tensor_sizes and (header.tensor_types.get("d2t") != _I64 or not facts.own_output):
        raise ModelFileError(
            f"{name} has a list of the tokens that it drafts (d2t) which llama.cpp cannot use; fetch or make "
            "it again."
        )
    if "d2t" in header.tensor_sizes:
        _check_drafted(header)
    if facts.own_embeddings and _elements(header, "token_embd.weight") < facts.vocabulary * facts.width:
        raise ModelFileError(f"{name} has a table of fewer tokens than its tokenizer has; fetch it again.")


def _mtp(header: GGUFHeader) -> HeadFacts | None:
    if not any(".nextn." in tensor for tensor in header.tensor_sizes):
        # What only says that it has prediction layers goes without: llama.cpp loads it all the same.
        return None
    count, width = header.extra_layers, header.embedding_length
    trunk = header.block_count - count
    return HeadFacts(
        "mtp", header.path, header.architecture, width, width, (), width, _tokens(header),
        header.fingerprint,
        prediction_layers=count,
        in_model=trunk > 0 and any(tensor.startswith("blk.0.") for tensor in header.tensor_sizes),
        trunk=trunk,
        flaw=_flaw(header, count, trunk),
    )  # fmt: skip


def _flaw(header: GGUFHeader, count: int, trunk: int) -> str:
    """Why prediction layers cannot be run; a model that has them is a target all the same."""
    name, architecture = header.path.name, header.architecture
    otherwise = "choose another --draft."
    if count < 1 or trunk < 0:
        return f"{name} has prediction layers and says that it has {count}; fetch the file again."
    if architecture not in _MTP_GRAPHS:
        return f"Prediction layers of the architecture '{architecture}' cannot be run here; {otherwise}"
    if count > 1 and architecture not in _SEVERAL_LAYERS:
        return f"llama.cpp runs one prediction layer of '{architecture}', and {name} has {count}; {otherwise}"
    if architecture in _MLA and not _number(header, "attention.key_length_mla"):
        return (
            f"llama.cpp runs prediction layers of '{architecture}' only with compressed keys and values, "
            f"which {name} does not have; {otherwise}"
        )
    if architecture == "deepseek2" and header.metadata.get(f"{architecture}.attention.temperature_scale"):
        return (
            f"The prediction layers of {name} scale their attention, which llama.cpp cannot do; {otherwise}"
        )
    for layer in range(trunk, header.block_count):
        if architecture == "mimo2" and _has(header, f"blk.{layer}.attn_q.weight"):
            return (
                f"The prediction layers of {name} have separate queries, keys and values, which llama.cpp "
                "cannot run; convert the model anew."
            )
        for tensor in (*_PREDICTION, *_MORE_TENSORS.get(architecture, ())):
            if not _has(header, f"blk.{layer}.{tensor}.weight"):
                return (
                    f"{name} says that it has {count} prediction layers and lacks the tensor "
                    f"blk.{layer}.{tensor}.weight of them; fetch or convert it again."
                )
    return ""


# --- header


def _layers(header: GGUFHeader) -> tuple[int, ...]:
    value = header.metadata.get(f"{header.architecture}.target_layers", ())
    found = value if isinstance(value, tuple) else ()
    return tuple(layer for layer in found if isinstance(layer, int))


def _number(header: GGUFHeader, key: str) -> int:
    value = header.metadata.get(f"{header.architecture}.{key}", 0)
    return value if isinstance(value, int) and value > 0 else 0


def _check_drafted(header: GGUFHeader) -> None:
    """Raise `ModelFileError` where a list of drafted tokens (d2t) names some that the head does not have.

    The list itself is read: llama.cpp puts logits where it says.
    """
    name, size = header.path.name, header.tensor_sizes["d2t"]
    again = "fetch or make it again."
    if size > _LONGEST_LIST:
        raise ModelFileError(f"{name} has an impossibly long list of drafted tokens (d2t); {again}")
    try:
        with header.path.open("rb") as file:
            file.seek(header.tensor_offsets["d2t"])
            listed = array("q", file.read(size)[: size // 8 * 8])
    except OSError as error:
        raise ModelFileError(f"Cannot read {header.path} ({error.strerror or error}).") from error
    if sys.byteorder == "big":
        listed.byteswap()
    if len(listed) * 8 != size or not all(0 <= token < _tokens(header) for token in listed):
        raise ModelFileError(
            f"{name} has a list of drafted tokens (d2t) that names some which it does not have; {again}"
        )


def _tokens(header: GGUFHeader) -> int:
    return header.vocabulary or _number(header, "vocab_size")


def _flag(header: GGUFHeader, key: str, *, default: bool) -> bool:
    return bool(header.metadata.get(f"{header.architecture}.{key}", default))


def _has(header: GGUFHeader, tensor: str) -> bool:
    return tensor in header.tensor_sizes


def _elements(header: GGUFHeader, tensor: str) -> int:
    """Numbers in a tensor; those of heads fill whole blocks of their format."""
    block, block_bytes = TENSOR_TYPES.get(header.tensor_types.get(tensor, -1), (1, 0))
    return header.tensor_sizes[tensor] // block_bytes * block if block_bytes else 0


def _need(header: GGUFHeader, *tensors: str) -> None:
    for tensor in tensors:
        if not _has(header, tensor):
            raise ModelFileError(
                f"{header.path.name} lacks the tensor {tensor}, which every head of its kind has; fetch or "
                "make it again."
            )
