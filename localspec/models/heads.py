"""Heads that draft from a target's hidden states: what a file is, and whether it fits a target.

llama.cpp ends the process over most of what does not fit, so all that a header tells is checked here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from localspec.errors import IncompatibleError, ModelFileError
from localspec.models.compat import check_draft_file
from localspec.models.entries import HEADS
from localspec.models.gguf import GGUFHeader

Kind = Literal["eagle3", "mtp", "dflash", "dspark"]

_KINDS: tuple[Kind, ...] = ("eagle3", "mtp", "dflash", "dspark")
_TAPPED = frozenset(
    {
        "bailingmoe3", "deepseek4", "gemma4", "hunyuan_vl", "lfm2", "lfm2moe", "llama", "mimo2",
        "minimax-01", "minimax-m2", "muse-glimmer", "nanbeige", "nemotron_h", "nemotron_h_moe", "gpt-oss",
        "qwen3", "qwen3moe", "qwen3next", "qwen35", "qwen35moe", "qwen4exp",
    }
)  # fmt: skip
"""Architectures whose graphs hand out the inputs of their layers."""
_TAPPED_AT_THE_END = frozenset({"deepseek4", "mimo2", "nemotron_h", "nemotron_h_moe"})
"""Those that hand out what comes after the last layer too."""
_MTP_GRAPHS = frozenset(
    {
        "bailingmoe3", "cohere2moe", "deepseek2", "deepseek32", "deepseek4", "glm-dsa", "glm4moe",
        "glm5-next", "hy_v3", "mimo2", "nemotron_h_moe", "qwen3next", "qwen35", "qwen35moe", "step35",
    }
)  # fmt: skip
"""Architectures whose prediction layers llama.cpp can run."""
_EAGLE3_LAYERS = 3
_MOST_EXTRA = 128

FILE_KEY, TYPE_KEY, FINGERPRINT_KEY = (
    "localspec.target.file",
    "localspec.target.file_type",
    "localspec.target.fingerprint",
)
"""Metadata of heads that `localspec train` has made: the target's file, its quantization, its tokenizer."""


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


def highest_tap(architecture: str, layers: int) -> int | None:
    """The highest layer whose input llama.cpp hands out; None for an architecture without taps."""
    if architecture not in _TAPPED:
        return None
    return layers if architecture in _TAPPED_AT_THE_END else layers - 1


def kind_named(member: str) -> Kind | None:
    """The kind that a member of `--draft` says, as "mtp" and "eagle3:my-head" do; None for others."""
    said = member.partition(":")[0].lower()
    return next((kind for kind in _KINDS if kind == said), None)


def head_facts(header: GGUFHeader) -> HeadFacts | None:
    """What a file says of the head in it; None for a model without one.

    A whole model with prediction layers of its own counts as one too, see `HeadFacts.in_model`.

    Raises:
        ModelFileError: a head whose file lacks what every head of its kind has.
    """
    if header.architecture == "eagle3":
        return _eagle3(header)
    if header.architecture == "dflash":
        return _block(header)
    return _mtp(header)


def head_of(member: str, header: GGUFHeader) -> HeadFacts | None:
    """The head that a member of `--draft` stands for; None where it is a draft model.

    Args:
        member: its name. It may say the kind, as "eagle3:my-head" does, or "mtp" of the target's own layers.
        header: of its file.

    Raises:
        IncompatibleError: the file is a head of another kind than the name says, or none.
        ModelFileError: a damaged head.
    """
    wanted, facts = kind_named(member), head_facts(header)
    if wanted is None:
        # A whole model that has prediction layers too is a draft model where nobody says otherwise.
        return None if facts is None or facts.in_model else facts
    if facts is None or facts.kind != wanted:
        what = "no head" if facts is None or facts.in_model else f"an {HEADS[facts.kind]} head"
        raise IncompatibleError(
            f"{header.path.name} cannot draft as {HEADS[wanted]}: it is {what}; choose another --draft."
        )
    return facts


def check_draft(member: str, header: GGUFHeader, target: GGUFHeader) -> None:
    """Raise `IncompatibleError` where headers tell that a draft model or head cannot draft for `target`."""
    head = head_of(member, header)
    if head is None:
        check_draft_file(header, target=target)
    else:
        check_head(head, target)


def check_head(facts: HeadFacts, target: GGUFHeader) -> None:
    """Whether a head can draft for a target, as far as headers tell.

    Raises:
        IncompatibleError: it cannot; says why.
    """
    name, there = facts.path.name, target.path.name
    if facts.kind == "mtp":
        _check_prediction(facts, target)
    else:
        layers = target.block_count - target.extra_layers
        highest = highest_tap(target.architecture, layers)
        if highest is None:
            raise IncompatibleError(
                f"{name} cannot draft for {there}: llama.cpp hands out no hidden states of models of the "
                f"architecture '{target.architecture}'; choose another --draft."
            )
        beyond = [layer for layer in facts.target_layers if not 0 <= layer <= highest]
        if beyond:
            raise IncompatibleError(
                f"{name} was made for another model than {there}: it reads layer {beyond[0]}, and this one "
                f"has layers 0 to {highest}."
            )
    if facts.target_width != target.embedding_length:
        raise IncompatibleError(
            f"{name} was made for another model than {there}: it reads states of {facts.target_width} "
            f"values, and this one's have {target.embedding_length}."
        )
    if facts.vocabulary and target.vocabulary:
        same = facts.fingerprint == target.fingerprint
        if not same and abs(facts.vocabulary - target.vocabulary) > _MOST_EXTRA:
            raise IncompatibleError(
                f"{name} was made for another model than {there}: it has {facts.vocabulary} tokens, and this "
                f"one has {target.vocabulary}."
            )


def head_note(facts: HeadFacts, header: GGUFHeader, target: GGUFHeader) -> str:
    """What a user should know of a head that works with a target, in a sentence; "" for nothing."""
    made_for = str(header.metadata.get(TYPE_KEY, ""))
    if made_for and target.file_type and made_for != target.file_type:
        return (
            f"{facts.path.name} was made for a {made_for} file and the model is {target.file_type}, so less "
            "of what it drafts may be accepted."
        )
    print_of = str(header.metadata.get(FINGERPRINT_KEY, "")) or facts.fingerprint
    # A mask of its own is one token more.
    if facts.kind == "eagle3" and print_of and target.fingerprint and print_of != target.fingerprint:
        return f"{facts.path.name} has another tokenizer than the model: little it drafts may be accepted."
    return ""


# --- kinds


def _eagle3(header: GGUFHeader) -> HeadFacts:
    layers = _layers(header)
    if len(layers) != _EAGLE3_LAYERS:
        raise ModelFileError(
            f"{header.path.name} reads {len(layers)} layers of its target and not 3, as EAGLE-3 does; fetch "
            "or train the head again."
        )
    _need(header, "fc.weight", "output_norm.weight", "blk.0.attn_q.weight", "blk.0.ffn_down.weight")
    width = header.embedding_length
    target_width = _number(header, "target_hidden_size") or width
    return HeadFacts(
        "eagle3", header.path, header.architecture, width, len(layers) * target_width, layers, target_width,
        header.vocabulary, header.fingerprint,
    )  # fmt: skip


def _block(header: GGUFHeader) -> HeadFacts:
    name = header.path.name
    if _number(header, "selector_top_k"):
        raise IncompatibleError(
            f"{name} is a DFlash head of the second kind (with a selector), which this version cannot use; "
            "choose another --draft."
        )
    _need(header, "fc.weight", "output_norm.weight")
    layers, width = _layers(header), header.embedding_length
    if not layers:
        raise ModelFileError(f"{name} does not say which layers of its target it reads; fetch it again.")
    mask = header.metadata.get("tokenizer.ggml.mask_token_id", -1)
    if not isinstance(mask, int) or mask < 0:
        raise ModelFileError(f"{name} has no mask token, without which it cannot draft; fetch it again.")
    is_dspark = "markov_w1.weight" in header.tensor_sizes
    if is_dspark:
        _need(header, "markov_w2.weight")
    return HeadFacts(
        "dspark" if is_dspark else "dflash", header.path, header.architecture, width, len(layers) * width,
        layers, width, header.vocabulary, header.fingerprint,
        block=_number(header, "block_size") or 16,
        causal=_flag(header, "attention.causal", default=False),
        from_anchor=is_dspark and _flag(header, "sample_from_anchor", default=True),
        has_confidence=is_dspark
        and "conf_proj.weight" in header.tensor_sizes
        and _flag(header, "has_confidence_head", default=True),
        mask_token=mask,
    )  # fmt: skip


def _mtp(header: GGUFHeader) -> HeadFacts | None:
    count = header.extra_layers
    trunk = header.block_count - count
    has = any(".nextn." in tensor for tensor in header.tensor_sizes)
    if not has:
        # What only says that it has prediction layers goes without: llama.cpp loads it all the same.
        return None
    if count < 1 or trunk < 0:
        raise ModelFileError(
            f"{header.path.name} has prediction layers and says that it has {count}; fetch the file again."
        )
    for layer in range(trunk, header.block_count):
        _need(header, f"blk.{layer}.nextn.eh_proj.weight")
        if header.architecture == "mimo2" and f"blk.{layer}.attn_q.weight" in header.tensor_sizes:
            raise IncompatibleError(
                f"The prediction layers of {header.path.name} have separate queries, keys and values, which "
                "llama.cpp cannot run; convert the model anew."
            )
    width = header.embedding_length
    return HeadFacts(
        "mtp", header.path, header.architecture, width, width, (), width, header.vocabulary,
        header.fingerprint,
        prediction_layers=count,
        in_model="blk.0.attn_norm.weight" in header.tensor_sizes and trunk > 0,
    )  # fmt: skip


def _check_prediction(facts: HeadFacts, target: GGUFHeader) -> None:
    name, there = facts.path.name, target.path.name
    if facts.architecture != target.architecture:
        raise IncompatibleError(
            f"{name} was made for another model than {there}: its architecture is '{facts.architecture}', "
            f"and this one's is '{target.architecture}'."
        )
    if facts.architecture not in _MTP_GRAPHS:
        raise IncompatibleError(
            f"llama.cpp cannot run the prediction layers of the architecture '{facts.architecture}'; choose "
            "another --draft."
        )
    if facts.in_model and facts.path.resolve() != target.path.resolve():
        raise IncompatibleError(
            f"{name} is a whole model: its prediction layers draft for itself alone, with --draft mtp."
        )


# --- header


def _layers(header: GGUFHeader) -> tuple[int, ...]:
    value = header.metadata.get(f"{header.architecture}.target_layers", ())
    found = value if isinstance(value, tuple) else ()
    return tuple(layer for layer in found if isinstance(layer, int))


def _number(header: GGUFHeader, key: str) -> int:
    value = header.metadata.get(f"{header.architecture}.{key}", 0)
    return value if isinstance(value, int) and value > 0 else 0


def _flag(header: GGUFHeader, key: str, *, default: bool) -> bool:
    return bool(header.metadata.get(f"{header.architecture}.{key}", default))


def _need(header: GGUFHeader, *tensors: str) -> None:
    for tensor in tensors:
        if tensor not in header.tensor_sizes:
            raise ModelFileError(
                f"{header.path.name} lacks the tensor {tensor}, which every head of its kind has; fetch or "
                "make it again."
            )
