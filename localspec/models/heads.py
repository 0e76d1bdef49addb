"""Heads that draft from a target's hidden states: which one a name stands for, and whether it fits a target.

llama.cpp ends the process over most of what does not fit, so all that headers tell is checked here.
"""

from __future__ import annotations

from localspec.errors import IncompatibleError
from localspec.models.compat import check_draft_file
from localspec.models.entries import HEADS
from localspec.models.gguf import GGUFHeader
from localspec.models.head_files import HeadFacts, Kind, head_facts

__all__ = [
    "FILE_KEY",
    "FINGERPRINT_KEY",
    "TYPE_KEY",
    "HeadFacts",
    "Kind",
    "check_draft",
    "check_head",
    "head_facts",
    "head_note",
    "head_of",
    "highest_tap",
    "kind_named",
]

FILE_KEY, TYPE_KEY, FINGERPRINT_KEY = (
    "localspec.target.file",
    "localspec.target.file_type",
    "localspec.target.fingerprint",
)
"""Metadata of heads that `localspec train` has made: the target's file, its quantization, its tokenizer."""

_KINDS: tuple[Kind, ...] = ("eagle3", "mtp", "dflash", "dspark")
_TAPPED = frozenset(
    {
        "bailingmoe3", "deepseek4", "gemma4", "gpt-oss", "hunyuan-dense", "hunyuan_vl", "lfm2", "lfm2moe",
        "llama", "mimo2", "minimax-01", "minimax-m2", "muse-glimmer", "nanbeige", "nemotron_h",
        "nemotron_h_moe", "qwen3", "qwen35", "qwen35moe", "qwen3moe", "qwen3next",
    }
)  # fmt: skip
"""Architectures whose graphs hand out the inputs of their layers. qwen4exp's do too, but several states
wide, over which llama.cpp ends the process."""
_TAPPED_AT_THE_END = frozenset({"deepseek4", "mimo2", "nemotron_h", "nemotron_h_moe"})
"""Those that hand out what comes after the last layer too."""
_MOST_EXTRA = 128


def highest_tap(architecture: str, layers: int) -> int | None:
    """The highest layer whose input llama.cpp hands out; None for an architecture without taps."""
    if architecture not in _TAPPED:
        return None
    return layers if architecture in _TAPPED_AT_THE_END else layers - 1


def kind_named(member: str) -> Kind | None:
    """The kind that a member of `--draft` says, as "mtp" and "eagle3:my-head" do; None for others."""
    said = member.partition(":")[0].lower()
    return next((kind for kind in _KINDS if kind == said), None)


def head_of(member: str, header: GGUFHeader) -> HeadFacts | None:
    """The head that a member of `--draft` stands for; None where it is a draft model.

    Args:
        member: its name. It may say the kind, as "eagle3:my-head" does, or "mtp" of the target's own layers.
        header: of its file.

    Raises:
        IncompatibleError: the file is a head of another kind than the name says, or none, or of a kind that
            cannot be used.
        ModelFileError: a damaged head.
    """
    wanted, facts = kind_named(member), head_facts(header)
    if wanted is None:
        # A whole model that has prediction layers too is a draft model where nobody says otherwise.
        return None if facts is None or facts.in_model else facts
    if facts is not None and facts.kind == wanted:
        return facts
    if wanted == "mtp" and facts is None and header.extra_layers:
        raise IncompatibleError(
            f"{header.path.name} says that it has {header.extra_layers} prediction layers, and they are not "
            "in the file; fetch or convert one that has them, or choose another --draft."
        )
    what = "no head" if facts is None or facts.in_model else f"one of the kind {HEADS[facts.kind]}"
    raise IncompatibleError(
        f"{header.path.name} cannot draft as {HEADS[wanted]}: it is {what}; choose another --draft."
    )


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
    if facts.kind == "mtp":
        _check_prediction(facts, target)
    else:
        _check_taps(facts, target)
    other = f"{facts.path.name} was made for another model than {target.path.name}"
    if facts.target_width != target.embedding_length:
        raise IncompatibleError(
            f"{other}: it reads states of {facts.target_width} values, and this one's have "
            f"{target.embedding_length}."
        )
    if facts.in_model:
        return
    if not (facts.own_embeddings and facts.own_output) and facts.width != target.embedding_length:
        raise IncompatibleError(
            f"{other}: it takes embeddings or output from its target, whose states are {facts.width} values "
            f"wide, and this one's {target.embedding_length}."
        )
    # The output of a target goes with its own number of tokens alone.
    spare = _MOST_EXTRA if facts.own_output else 0
    if target.vocabulary and not 0 <= facts.vocabulary - target.vocabulary <= spare:
        raise IncompatibleError(
            f"{other}: it has {facts.vocabulary} tokens, and this one has {target.vocabulary}."
        )
    if not facts.own_embeddings and facts.mask_token >= target.vocabulary:
        raise IncompatibleError(
            f"{other}: its mask token is {facts.mask_token}, which this one does not have."
        )


def head_note(facts: HeadFacts, header: GGUFHeader, target: GGUFHeader) -> str:
    """What a user should know of a head that works with a target, in a sentence; "" for nothing."""
    name = facts.path.name
    made_for = str(header.metadata.get(TYPE_KEY, ""))
    if made_for and target.file_type and made_for != target.file_type:
        return (
            f"{name} was made for a {made_for} file and the model is {target.file_type}, so less of what it "
            "drafts may be accepted."
        )
    print_of = str(header.metadata.get(FINGERPRINT_KEY, "")) or facts.fingerprint
    # Block drafters may give a name of its own to the mask, which is an unused token of the target.
    is_known = print_of and target.fingerprint and not facts.block and not facts.in_model
    if is_known and print_of != target.fingerprint:
        return f"{name} has another tokenizer than the model: little it drafts may be accepted."
    return ""


def _check_taps(facts: HeadFacts, target: GGUFHeader) -> None:
    name, there = facts.path.name, target.path.name
    highest = highest_tap(target.architecture, target.block_count - target.extra_layers)
    if highest is None:
        raise IncompatibleError(
            f"{name} cannot draft for {there}: llama.cpp hands out no hidden states of models of the "
            f"architecture '{target.architecture}'; choose another --draft."
        )
    beyond = [layer for layer in facts.target_layers if not 0 <= layer <= highest]
    if beyond:
        raise IncompatibleError(
            f"{name} was made for another model than {there}: it reads layer {beyond[0]}, and this one has "
            f"layers 0 to {highest}."
        )


def _check_prediction(facts: HeadFacts, target: GGUFHeader) -> None:
    name, there = facts.path.name, target.path.name
    if facts.in_model and facts.path.resolve() != target.path.resolve():
        raise IncompatibleError(
            f"{name} is a whole model: its prediction layers draft for itself alone, with --draft mtp."
        )
    if facts.architecture != target.architecture:
        raise IncompatibleError(
            f"{name} was made for another model than {there}: its architecture is '{facts.architecture}', "
            f"and this one's is '{target.architecture}'."
        )
    if facts.flaw:
        raise IncompatibleError(facts.flaw)
    trunk = target.block_count - target.extra_layers
    if facts.trunk != trunk:
        raise IncompatibleError(
            f"{name} was made for another model than {there}: one of {facts.trunk} layers, and this one has "
            f"{trunk}."
        )
