"""A model's vocabulary and chat template without its weights: what text needs to become tokens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from localspec.models.gguf import read_header
from localspec.runtime.model import LlamaModel


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
