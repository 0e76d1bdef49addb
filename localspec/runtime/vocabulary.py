"""A model's vocabulary and chat template without its weights: what text needs to become tokens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from localspec.models.compat import VocabularyFacts
from localspec.models.gguf import read_header
from localspec.runtime.library import lib
from localspec.runtime.model import LlamaModel

_KINDS = {1: "SPM", 2: "BPE", 3: "WPM", 4: "UGM", 5: "RWKV", 6: "PLaMo-2"}
"""llama.cpp's types of tokenizer, by number."""


def load_vocabulary(path: Path) -> LlamaModel:
    """Load only the vocabulary and the metadata of a GGUF file: a fraction of a second, whatever its size.

    Of what it returns the vocabulary, `meta`, `chat_template` and `architecture` are to be used: no context
    can be made of it. The caller closes it.

    Raises:
        NotFoundError: there is no such file.
        ModelFileError: it is damaged, no GGUF, or of an unknown architecture.
    """
    # Before native code reads the file: it reports a broken one badly.
    read_header(path)
    return LlamaModel(path, gpu_layers=0, vocabulary_only=True)


@contextmanager
def vocabulary(path: Path) -> Iterator[LlamaModel]:
    """`load_vocabulary` for a `with` block, closed at its end."""
    loaded = load_vocabulary(path)
    try:
        yield loaded
    finally:
        loaded.close()


def vocabulary_facts(model: LlamaModel) -> VocabularyFacts:
    """What decides whether the token ids of `model` mean the same as another's."""
    low, vocab = lib(), model.vocab
    code = low.llama_vocab_type(vocab)
    text = low.llama_vocab_get_text
    return VocabularyFacts(
        name=model.path.name,
        kind=_KINDS.get(code, f"type {code}") if code else "",
        pre_tokenizer=model.meta("tokenizer.ggml.pre") or "",
        size=model.vocabulary_size if code else 0,
        bos=model.bos,
        eos=model.eos,
        adds_bos=model.adds_bos,
        adds_eos=bool(low.llama_vocab_get_add_eos(vocab)),
        eog=tuple(sorted(model.eog_tokens)) if code else (),
        # A model without a vocabulary ends the process when it is asked for a text.
        texts=[text(vocab, token) or b"" for token in range(model.vocabulary_size)] if code else (),
        template=model.chat_template or "",
    )
