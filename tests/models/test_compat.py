"""Which pairs of models can draft, and the reasons why others cannot: real files, read by llama.cpp."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localspec.errors import IncompatibleError
from localspec.models.compat import (
    SAME,
    Compatibility,
    Difference,
    VocabularyFacts,
    check_draft_file,
    check_target_file,
    compare_headers,
    compare_vocabularies,
    quoted,
)
from localspec.models.gguf import read_header
from localspec.models.lookalikes import purpose
from localspec.runtime.vocabulary import vocabulary, vocabulary_facts
from tests.models.vocabularies import SPECIAL, bpe_metadata, spm_metadata, write

CHATML = "{{ '<|im_start|>' }}{{ '<|im_end|>' }}"
LLAMA = "{{ '<|start_header_id|>' }}{{ '<|eot_id|>' }}"


def facts_of(path: Path) -> VocabularyFacts:
    with vocabulary(path) as model:
        return vocabulary_facts(model)


@pytest.fixture
def compared(tmp_path: Path) -> Callable[..., Compatibility]:
    """Compares a target of the usual tokenizer with a draft of the one given."""

    def compare(draft: dict[str, Any], target: dict[str, Any] | None = None) -> Compatibility:
        ours = write(tmp_path / "target.gguf", bpe_metadata() if target is None else target)
        theirs = write(tmp_path / "draft.gguf", draft)
        return compare_vocabularies(facts_of(ours), facts_of(theirs))

    return compare


def test_facts_of_a_file(tmp_path: Path) -> None:
    path = write(tmp_path / "one.gguf", bpe_metadata(words=("<|x|>",), adds_bos=True, template=CHATML))
    facts = facts_of(path)
    assert (facts.name, facts.kind, facts.pre_tokenizer, facts.size) == ("one.gguf", "BPE", "gpt-2", 271)
    assert (facts.bos, facts.eos, facts.adds_bos, facts.adds_eos, facts.eog) == (1, 0, True, False, (0,))
    assert [facts.text(token) for token in (0, 4, 270)] == ["<|end|>", "<|b|>", "<|x|>"]
    assert facts.text(-1) == facts.text(271) == ""
    assert facts.template == CHATML


def test_a_model_without_a_vocabulary(tmp_path: Path) -> None:
    path = tmp_path / "none.gguf"
    write(path, {"tokenizer.ggml.model": "no_vocab", "llama.vocab_size": 64})
    facts = facts_of(path)
    assert (facts.kind, facts.size, facts.texts) == ("", 0, ())
    whole = facts_of(write(tmp_path / "whole.gguf", bpe_metadata()))
    assert compare_vocabularies(whole, facts) == Compatibility(
        "none", ("the draft has no vocabulary of its own",)
    )
    assert compare_vocabularies(facts, whole).reasons == ("the target has no vocabulary of its own",)


# --- pairs


def test_the_same_vocabulary(compared: Callable[..., Compatibility]) -> None:
    assert compared(bpe_metadata()) == SAME


@pytest.mark.parametrize("padding", [1, 128])
def test_a_padded_vocabulary_is_the_same(compared: Callable[..., Compatibility], padding: int) -> None:
    assert compared(bpe_metadata(padding=padding)) == SAME
    assert compared(bpe_metadata(), bpe_metadata(padding=padding)) == SAME


def test_the_first_special_tokens_may_differ(compared: Callable[..., Compatibility]) -> None:
    others = ("<|stop|>", "<|begin|>", *SPECIAL[2:])
    assert compared(bpe_metadata(special=others)) == SAME


def test_a_different_family(compared: Callable[..., Compatibility]) -> None:
    found = compared(spm_metadata())
    assert found.verdict == "text"
    assert found.reasons == (
        "the draft's tokenizer is SPM, the target's BPE",
        'token 5 is "<0x02>" in the draft, "Ā" in the target',
        'texts of the draft begin with token 1 ("<s>"), of the target with no special token',
    )
    assert found.difference == Difference(5, "Ā", "<0x02>")
    assert found.note == (
        "draft.gguf has another vocabulary than the target (the draft's tokenizer is SPM, the target's BPE), "
        "so its drafts go through text, which is slower, and fewer are accepted."
    )


def test_extra_special_tokens_in_the_middle(compared: Callable[..., Compatibility]) -> None:
    found = compared(bpe_metadata(special=(*SPECIAL, "<|tool|>")))
    assert found.verdict == "text"
    assert found.reasons == ('token 5 is "<|tool|>" in the draft, "Ā" in the target',)


def test_extra_special_tokens_at_the_end(compared: Callable[..., Compatibility]) -> None:
    tools = bpe_metadata(words=("<|tool|>", "<|call|>"))
    assert compared(tools) == SAME
    other = bpe_metadata(words=("<|image|>",))
    assert compared(tools, other).reasons == (
        'token 270 is "<|tool|>" in the draft, "<|image|>" in the target',
    )


def test_a_truncated_vocabulary(compared: Callable[..., Compatibility]) -> None:
    whole = bpe_metadata(words=tuple(f"<|{number}|>" for number in range(200)))
    found = compared(bpe_metadata(), whole)
    assert found.verdict == "text"
    assert found.reasons == ("the draft has 270 tokens, the target 470",)
    assert found.difference is None


def test_a_vocabulary_that_is_padded_too_much(compared: Callable[..., Compatibility]) -> None:
    assert compared(bpe_metadata(padding=129)).reasons == ("the draft has 399 tokens, the target 270",)


def test_another_beginning(compared: Callable[..., Compatibility]) -> None:
    with_start = bpe_metadata(adds_bos=True)
    assert compared(bpe_metadata(adds_bos=True, bos=2), with_start).reasons == (
        'texts of the draft begin with token 2 ("<|turn|>"), of the target with token 1 ("<|start|>")',
    )
    assert compared(bpe_metadata(), with_start).reasons == (
        'texts of the draft begin with no special token, of the target with token 1 ("<|start|>")',
    )
    # A token that is never added does not matter.
    assert compared(bpe_metadata(bos=2)) == SAME


def test_another_end() -> None:
    target = VocabularyFacts("a", "BPE", "", 2, 0, 1, False, True, (1,), [b"x", b"y"])
    draft = replace(target, adds_eos=False)
    assert compare_vocabularies(target, draft).reasons == (
        'texts of the draft end with no special token, of the target with token 1 ("y")',
    )


@pytest.mark.parametrize("kind", ["WPM", "UGM"])
def test_tokenizers_that_change_the_text_cannot_draft_through_it(kind: str) -> None:
    target = VocabularyFacts("a", "BPE", "", 2, 0, 1, False, False, (1,), [b"x", b"y"])
    found = compare_vocabularies(target, replace(target, kind=kind))
    assert found.verdict == "none"
    assert found.reasons[0] == f"the draft's tokenizer ({kind}) does not keep text as it is"
    assert not found.note


# --- chat templates


@pytest.mark.parametrize(
    ("target", "draft", "said"),
    [
        (CHATML, CHATML, None),
        (CHATML, CHATML + " ", None),
        ("", LLAMA, None),
        (CHATML, LLAMA, "was made for another chat format (its template does not know <|im_end|> and"),
        (CHATML, "", "has no chat template: it may not have been trained to chat"),
    ],
)
def test_chat_templates(tmp_path: Path, target: str, draft: str, said: str | None) -> None:
    ours = write(tmp_path / "target.gguf", bpe_metadata(template=target))
    theirs = write(tmp_path / "draft.gguf", bpe_metadata(template=draft))
    compared = compare_vocabularies(facts_of(ours), facts_of(theirs))
    assert compared.verdict == "same"
    if said is None:
        assert compared == SAME
    else:
        assert compared.note.startswith(f"draft.gguf {said}")
        assert compared.note.endswith("less of what it drafts may be accepted.")
    assert compare_headers(read_header(ours), read_header(theirs)) == compared


def test_headers_that_differ_tell_nothing(tmp_path: Path) -> None:
    one = read_header(write(tmp_path / "one.gguf", bpe_metadata()))
    other = read_header(write(tmp_path / "other.gguf", bpe_metadata(padding=1)))
    assert compare_headers(one, other) is None
    nothing = replace(one, fingerprint="")
    assert compare_headers(nothing, nothing) is None


def test_texts_are_quoted() -> None:
    assert quoted('a"b\\\x1b[1m\n') == r'"a\"b\\\x1b[1m\n"'
    assert quoted("Ġé") == '"Ġé"'


# --- files


def test_the_target_itself_cannot_draft(tmp_path: Path) -> None:
    path = write(tmp_path / "one.gguf", bpe_metadata())
    link = tmp_path / "link.gguf"
    link.symlink_to(path)
    for same in (path, link, tmp_path / "." / "one.gguf"):
        with pytest.raises(IncompatibleError, match="is the target itself, and a model gains nothing"):
            check_draft_file(read_header(same), target=read_header(path))
    # A copy of it is another file: it drafts for itself where someone wants to see that.
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(path.read_bytes())
    check_draft_file(read_header(copy), target=read_header(path))


def test_a_part_of_the_target_cannot_draft(tmp_path: Path) -> None:
    parts = [
        write(
            tmp_path / f"big-0000{number + 1}-of-00002.gguf",
            bpe_metadata() | {"split.count": 2, "split.no": number},
        )
        for number in range(2)
    ]
    first, second = map(read_header, parts)
    with pytest.raises(IncompatibleError, match="is the target itself"):
        check_draft_file(second, target=first)
    (tmp_path / "elsewhere").mkdir()
    other = read_header(write(tmp_path / "elsewhere" / parts[1].name, bpe_metadata() | {"split.no": 1}))
    with pytest.raises(IncompatibleError, match="not the first part of a split model"):
        check_draft_file(other, target=first)


def test_a_larger_model_cannot_draft(tmp_path: Path) -> None:
    small = read_header(write(tmp_path / "small.gguf", bpe_metadata(), rows=64))
    large = read_header(write(tmp_path / "large.gguf", bpe_metadata(), rows=1280))
    check_draft_file(small, target=large)
    with pytest.raises(IncompatibleError) as caught:
        check_draft_file(large, target=small)
    assert str(caught.value) == (
        "large.gguf cannot draft for small.gguf: it is larger (10.2k parameters against 512); choose a "
        "smaller one for --draft."
    )


def test_a_copy_of_more_bits_cannot_draft(tmp_path: Path) -> None:
    few = read_header(write(tmp_path / "few.gguf", bpe_metadata()))
    many = read_header(
        write(tmp_path / "many.gguf", bpe_metadata(), tensors=(("token_embd.weight", (64, 8), 0),))
    )
    check_draft_file(few, target=many)
    with pytest.raises(IncompatibleError, match=r"it reads 2\.0 kB for every token, the target 544 bytes"):
        check_draft_file(many, target=few)


def test_split_models_are_compared_as_a_whole(tmp_path: Path) -> None:
    for number in range(2):
        values = bpe_metadata() | {"split.count": 2, "split.no": number}
        path = write(tmp_path / f"big-0000{number + 1}-of-00002.gguf", values)
        if number:
            # Each tensor is in one part only.
            path.write_bytes(path.read_bytes().replace(b"token_embd.weight", b"another___.weight"))
    first = read_header(tmp_path / "big-00001-of-00002.gguf")
    middle = read_header(write(tmp_path / "middle.gguf", bpe_metadata(), rows=320))
    assert first.file_bytes / 2 < middle.file_bytes < first.file_bytes
    check_draft_file(middle, target=first)
    with pytest.raises(IncompatibleError, match="it is larger"):
        check_draft_file(first, target=middle)


NOT_MODELS = [
    ({"general.architecture": "clip"}, "the part of a model that sees or hears"),
    ({"general.type": "mmproj"}, "the part of a model that sees or hears"),
    ({"general.type": "adapter"}, "an adapter"),
    ({"adapter.type": "lora"}, "an adapter"),
    ({"general.type": "imatrix"}, "of the type imatrix, not a model"),
    ({"general.architecture": "eagle3"}, "a draft head (eagle3)"),
    ({"general.architecture": "medusa"}, "a Medusa head, which llama.cpp cannot run"),
    ({"general.architecture": "gemma4-assistant"}, "a draft head"),
    ({"general.architecture": "nomic-bert"}, "an encoder (nomic-bert)"),
    ({"general.architecture": "t5"}, "an encoder (t5)"),
    ({"llama.pooling_type": 3}, "an embedding model"),
    ({"llama.attention.causal": False}, "a model that does not write token after token"),
]


@pytest.mark.parametrize(("values", "what"), NOT_MODELS)
def test_files_that_are_no_model_by_themselves(tmp_path: Path, values: dict[str, Any], what: str) -> None:
    target = read_header(write(tmp_path / "target.gguf", bpe_metadata()))
    other = read_header(write(tmp_path / "other.gguf", bpe_metadata() | values))
    assert purpose(other).startswith(what)
    with pytest.raises(IncompatibleError, match=r"other\.gguf cannot draft by itself: it is "):
        check_draft_file(other, target=target)
    with pytest.raises(IncompatibleError, match=r"other\.gguf cannot be a target: it is "):
        check_target_file(other)
    assert purpose(target) == ""


def test_files_without_all_of_their_tensors(tmp_path: Path) -> None:
    head = write(tmp_path / "head.gguf", bpe_metadata(), tensors=(("output.weight", (64, 8), 8),))
    assert purpose(read_header(head)).startswith("a part of a model")
    # A vocabulary alone can be compared.
    words = read_header(write(tmp_path / "words.gguf", bpe_metadata(), tensors=()))
    assert purpose(words) == ""
    check_draft_file(words, target=read_header(write(tmp_path / "target.gguf", bpe_metadata())))
    assert facts_of(words.path).size == 270


@pytest.mark.model
def test_the_real_model(smollm2_path: Path) -> None:
    facts = facts_of(smollm2_path)
    assert (facts.kind, facts.size, facts.adds_bos) == ("BPE", 49152, False)
    assert compare_vocabularies(facts, facts) == SAME
