"""What headers tell of heads and of the targets that they fit, before native code sees any of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localspec.errors import IncompatibleError, LocalspecError, ModelFileError
from localspec.models.gguf import GGUFHeader, read_header
from localspec.models.head_files import HeadFacts, head_facts
from localspec.models.heads import (
    FINGERPRINT_KEY,
    TYPE_KEY,
    check_draft,
    check_head,
    head_note,
    head_of,
    highest_tap,
)
from localspec.models.lookalikes import purpose
from tests.heads import alphabet, randoms
from tests.heads.making import Made


def facts_of(header: GGUFHeader) -> HeadFacts:
    found = head_facts(header)
    assert found is not None
    return found


def without(header: GGUFHeader, *tensors: str) -> GGUFHeader:
    return replace(header, tensor_sizes={k: v for k, v in header.tensor_sizes.items() if k not in tensors})


def saying(header: GGUFHeader, **values: Any) -> GGUFHeader:
    """The header with other values of its architecture's keys; None takes one out."""
    changed = {f"{header.architecture}.{key.replace('__', '.')}": value for key, value in values.items()}
    merged = {**header.metadata, **changed}
    return replace(header, metadata={key: value for key, value in merged.items() if value is not None})


@pytest.fixture
def target(made: Made) -> GGUFHeader:
    return read_header(made(alphabet.target))


@pytest.fixture
def eagle3(made: Made) -> GGUFHeader:
    return read_header(made(alphabet.eagle3))


@pytest.fixture
def dflash(made: Made) -> GGUFHeader:
    return read_header(made(alphabet.dflash))


# --- what a file is -----------------------------------------------------------------------------------


def test_kinds_are_found_out_from_the_file(made: Made, eagle3: GGUFHeader, dflash: GGUFHeader) -> None:
    found = facts_of(eagle3)
    assert (found.kind, found.features, found.target_layers) == ("eagle3", 3 * 64, (0, 1, 2))
    assert not found.own_embeddings
    assert facts_of(read_header(made(alphabet.eagle3, reduced=True))).own_output
    found = facts_of(dflash)
    assert (found.kind, found.block, found.causal, found.mask_token) == ("dflash", 4, False, 258)
    found = facts_of(read_header(made(alphabet.dspark, anchor=False)))
    assert (found.kind, found.from_anchor, found.has_confidence) == ("dspark", False, True)
    found = facts_of(read_header(made(alphabet.target_mtp, heads=3)))
    assert (found.kind, found.prediction_layers, found.in_model, found.trunk) == ("mtp", 3, True, 2)
    sidecar = read_header(made(alphabet.target_mtp, part="heads"))
    assert not facts_of(sidecar).in_model
    assert "without the rest" in purpose(sidecar)
    assert head_facts(read_header(made(alphabet.target_mtp, part="trunk"))) is None
    assert purpose(read_header(made(alphabet.target_mtp))) == ""


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"target_layers": (0, 1)}, "reads 2 layers"),
        ({"target_layers": None}, "reads 0 layers"),
        ({"block_count": 2}, "has 2 layers"),
        ({"target_hidden_size": None}, "how wide its target's states are"),
        ({"target_hidden_size": 96}, "its tensor fc is not of that size"),
        ({"attention__value_length": 16}, "different widths"),
    ],
)
def test_an_eagle3_file_that_contradicts_itself(
    eagle3: GGUFHeader, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(ModelFileError, match=said):
        head_facts(saying(eagle3, **changes))


def test_missing_tensors_are_named(made: Made, eagle3: GGUFHeader, dflash: GGUFHeader) -> None:
    spark = read_header(made(alphabet.dspark))
    for header, tensor in (
        (eagle3, "fc.weight"),
        (eagle3, "blk.0.attn_norm_2.weight"),
        (dflash, "enc.output_norm.weight"),
        (dflash, "blk.0.attn_q_norm.weight"),
        (spark, "markov_w2.weight"),
    ):
        with pytest.raises(ModelFileError, match=tensor):
            head_facts(without(header, tensor))


def test_a_list_of_draft_tokens_that_native_code_would_end_over(made: Made) -> None:
    reduced = read_header(made(alphabet.eagle3, reduced=True))
    with pytest.raises(ModelFileError, match="d2t"):
        head_facts(without(reduced, "output.weight"))
    with pytest.raises(ModelFileError, match="d2t"):
        head_facts(replace(reduced, tensor_types={**reduced.tensor_types, "d2t": 26}))


def test_a_list_of_tokens_that_the_head_does_not_have(made: Made, tmp_path: Path) -> None:
    """llama.cpp puts logits where the list says, without looking."""
    whole = made(alphabet.eagle3, reduced=True)
    header = read_header(whole)
    last = header.tensor_offsets["d2t"] + header.tensor_sizes["d2t"] - 8

    def saying_last(token: int) -> GGUFHeader:
        data = bytearray(whole.read_bytes())
        data[last : last + 8] = token.to_bytes(8, "little", signed=True)
        changed = tmp_path / "changed.gguf"
        changed.write_bytes(data)
        return read_header(changed)

    tokens = facts_of(header).vocabulary
    assert facts_of(saying_last(tokens - 1)).kind == "eagle3"
    for token in (tokens, -1, 2**40):
        with pytest.raises(ModelFileError, match="d2t"):
            head_facts(saying_last(token))


def test_block_drafters_that_cannot_be_used(made: Made, dflash: GGUFHeader) -> None:
    with pytest.raises(IncompatibleError, match="second kind"):
        head_facts(saying(dflash, selector_top_k=4))
    with pytest.raises(IncompatibleError, match="DeepSeek 4"):
        head_facts(saying(dflash, hyper_connection_count=4))
    with pytest.raises(ModelFileError, match="no mask token"):
        head_facts(read_header(made(alphabet.dflash, mask=None)))
    with pytest.raises(ModelFileError, match="which layers"):
        head_facts(saying(dflash, target_layers=None))
    with pytest.raises(ModelFileError, match="how long its blocks"):
        head_facts(saying(read_header(made(alphabet.dspark)), block_size=None))
    with pytest.raises(IncompatibleError, match="Gemma 4"):
        head_facts(replace(dflash, metadata={"general.architecture": "gemma4-assistant"}))


def test_a_truncated_head(made: Made, tmp_path: Path) -> None:
    whole = made(alphabet.eagle3).read_bytes()
    for length in (len(whole) - 4096, len(whole) // 3, 40):
        path = tmp_path / "cut.gguf"
        path.write_bytes(whole[:length])
        with pytest.raises(ModelFileError, match=r"truncated|damaged"):
            read_header(path)


# --- whether it fits a target -------------------------------------------------------------------------


def test_heads_for_another_target(made: Made, target: GGUFHeader, eagle3: GGUFHeader) -> None:
    facts = facts_of(eagle3)
    check_head(facts, target)
    for other, said in (
        (saying(target, embedding_length=96), "states of 64 values, and this one's have 96"),
        (replace(target, vocabulary=265), "it has 264 tokens, and this one has 265"),
        (saying(target, block_count=2), "reads layer 2, and this one has layers 0 to 1"),
    ):
        with pytest.raises(IncompatibleError, match=said):
            check_head(facts, other)
    own = facts_of(read_header(made(randoms.eagle3, width=96, tokens=100)))
    check_head(own, replace(target, vocabulary=263))
    # It could not read a token that it does not have.
    for tokens in (265, 500, 100):
        with pytest.raises(IncompatibleError, match="tokens"):
            check_head(own, replace(target, vocabulary=tokens))
    with pytest.raises(IncompatibleError, match="takes embeddings or output"):
        check_head(replace(facts, width=32), target)


def test_a_target_without_taps(target: GGUFHeader, eagle3: GGUFHeader, dflash: GGUFHeader) -> None:
    for architecture in ("qwen2", "gemma3", "qwen4exp"):
        values = {key.replace("llama.", f"{architecture}."): one for key, one in target.metadata.items()}
        other = replace(target, metadata={**values, "general.architecture": architecture})
        for header in (eagle3, dflash):
            with pytest.raises(IncompatibleError, match=f"no hidden states .* '{architecture}'"):
                check_head(facts_of(header), other)
    assert highest_tap("llama", 30) == 29
    assert highest_tap("mimo2", 30) == 30
    assert highest_tap("qwen2", 30) is None


def test_a_wrong_layer_list(made: Made, target: GGUFHeader) -> None:
    for layers in ((0, 1, 3), (0, 1, 400)):
        facts = facts_of(read_header(made(alphabet.eagle3, layers=layers)))
        with pytest.raises(IncompatibleError, match=f"reads layer {layers[2]}"):
            check_head(facts, target)


def test_a_mask_that_the_target_does_not_have(target: GGUFHeader, dflash: GGUFHeader) -> None:
    facts = replace(facts_of(dflash), mask_token=264)
    with pytest.raises(IncompatibleError, match="mask token is 264"):
        check_head(facts, target)


def test_prediction_layers_that_cannot_run_leave_a_target(made: Made) -> None:
    whole = read_header(made(alphabet.target_mtp))
    check_head(facts_of(whole), whole)
    odd = [
        (without(whole, "blk.2.nextn.hnorm.weight"), "lacks the tensor blk.2.nextn.hnorm.weight"),
        (without(whole, "blk.2.ffn_gate.weight"), "ffn_gate"),
        (saying(whole, nextn_predict_layers=0), "says that it has 0"),
        (
            replace(whole, tensor_sizes={**whole.tensor_sizes, "blk.2.attn_q.weight": 1}),
            "separate queries, keys and values",
        ),
    ]
    hybrid = read_header(made(alphabet.target_hybrid))
    odd.append((saying(hybrid, nextn_predict_layers=2), "runs one prediction layer"))
    for header, said in odd:
        facts = facts_of(header)
        assert purpose(header) == ""
        assert head_of("some/model.gguf", header) is None
        with pytest.raises(IncompatibleError, match=said):
            check_head(facts, header)


def test_prediction_layers_of_another_model(made: Made, target: GGUFHeader) -> None:
    whole, sidecar = (read_header(made(alphabet.target_mtp, part=part)) for part in ("all", "heads"))
    trunk = read_header(made(alphabet.target_mtp, part="trunk"))
    check_head(facts_of(sidecar), trunk)
    for head, other, said in (
        (whole, trunk, "for itself alone"),
        (sidecar, target, "architecture is 'mimo2'"),
        (sidecar, saying(trunk, block_count=9), "one of 2 layers, and this one has 8"),
    ):
        with pytest.raises(IncompatibleError, match=said):
            check_head(facts_of(head), other)


# --- names --------------------------------------------------------------------------------------------


def test_a_member_says_the_kind_or_the_file_does(made: Made, target: GGUFHeader, eagle3: GGUFHeader) -> None:
    for member in ("eagle3", "eagle3:mine", "EAGLE3:mine", "a/head.gguf", "mine"):
        found = head_of(member, eagle3)
        assert found is not None
        assert found.kind == "eagle3"
        check_draft(member, eagle3, target)
    with pytest.raises(IncompatibleError, match="cannot draft as MTP: it is one of the kind EAGLE-3"):
        head_of("mtp:mine", eagle3)
    with pytest.raises(IncompatibleError, match="it is no head"):
        head_of("dspark:mine", target)
    trunk = read_header(made(alphabet.target_mtp, part="trunk"))
    with pytest.raises(IncompatibleError, match="says that it has 1 prediction layers, and they are not in"):
        head_of("mtp", trunk)


def test_every_refusal_is_one_sentence_that_names_the_file(target: GGUFHeader, eagle3: GGUFHeader) -> None:
    for broken in (saying(eagle3, target_layers=(1,)), without(eagle3, "fc.weight")):
        with pytest.raises(LocalspecError) as caught:
            check_draft("eagle3", broken, target)
        said = str(caught.value)
        assert said.startswith(eagle3.path.name)
        assert said.endswith(".")
        assert "\n" not in said


def test_a_head_made_for_another_quantization_works_and_says_so(
    target: GGUFHeader, eagle3: GGUFHeader
) -> None:
    facts, quantized = (
        facts_of(eagle3),
        replace(target, metadata={**target.metadata, "general.file_type": 2}),
    )
    trained = replace(
        eagle3, metadata={**eagle3.metadata, TYPE_KEY: "BF16", FINGERPRINT_KEY: target.fingerprint}
    )
    check_head(facts, quantized)
    assert "was made for a BF16 file and the model is Q4_0" in head_note(facts, trained, quantized)
    same = replace(trained, metadata={**trained.metadata, TYPE_KEY: "Q4_0"})
    assert head_note(facts, same, quantized) == ""
    foreign = replace(same, metadata={**same.metadata, FINGERPRINT_KEY: "0" * 32})
    assert "another tokenizer" in head_note(facts, foreign, quantized)
