"""A loaded GGUF model: weights, vocabulary, metadata."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.chat.thinking import TOKEN_GROUPS
from localspec.errors import ModelFileError, NotEnoughMemoryError
from localspec.runtime.library import forget_errors, lib, recent_errors

_MEMORY_WORDS = ("alloc", "out of memory", "bad_alloc", "insufficient memory")


class LlamaModel:
    """Weights and vocabulary of one GGUF file; implements `localspec.target.Vocabulary`.

    Args:
        path: a file that has passed `localspec.models.gguf.read_header`.
        gpu_layers: layers to put on the GPU, the output layer counted as one; -1 means all.
        progress: called with the fraction read, 0 to 1.
        vocabulary_only: leave the weights on the disk; see `localspec.runtime.vocabulary`.
        with_prediction: read the layers too that predict further tokens (MTP), where the file has any.
        without_gpu: use no GPU at all. With no layers on them llama.cpp still computes long passes there, and
            takes memory for that.

    Raises:
        ModelFileError: llama.cpp cannot read the file or does not know its architecture.
        NotEnoughMemoryError: the weights do not fit.
    """

    def __init__(
        self,
        path: Path,
        *,
        gpu_layers: int = -1,
        progress: Callable[[float], None] | None = None,
        vocabulary_only: bool = False,
        with_prediction: bool = False,
        without_gpu: bool = False,
    ) -> None:
        low = lib()
        self.path = path
        self.with_prediction = with_prediction
        params = low.llama_model_default_params()
        params.n_gpu_layers = gpu_layers
        if without_gpu:
            # An empty list, which ends with a null pointer.
            self._devices = (ctypes.c_void_p * 1)()
            params.devices = ctypes.cast(self._devices, ctypes.c_void_p)
        params.vocab_only = vocabulary_only
        params.load_mtp = with_prediction

        def report(fraction: float, _user: object) -> bool:
            if progress:
                progress(fraction)
            return True

        params.progress_callback = low.llama_progress_callback(report)
        forget_errors()
        self._handle: Any = low.llama_model_load_from_file(str(path).encode(), params)
        if not self._handle:
            raise _load_error(path)
        self._vocab: Any = low.llama_model_get_vocab(self._handle)
        self.vocabulary_size: int = low.llama_vocab_n_tokens(self._vocab)
        self._pieces: dict[int, bytes] = {}

    # --- vocabulary

    @functools.cached_property
    def eog_tokens(self) -> frozenset[int]:
        """Tokens that end a reply."""
        is_eog = lib().llama_vocab_is_eog
        return frozenset(token for token in range(self.vocabulary_size) if is_eog(self._vocab, token))

    @functools.cached_property
    def visible_tokens(self) -> NDArray[np.bool_]:
        """For each token whether it is text or ends a reply; shape [vocabulary]."""
        low = lib()
        hidden = low.LLAMA_TOKEN_ATTR_UNKNOWN | low.LLAMA_TOKEN_ATTR_CONTROL
        attributes = (low.llama_vocab_get_attr(self._vocab, token) for token in range(self.vocabulary_size))
        visible = np.fromiter((not attribute & hidden for attribute in attributes), bool)
        visible[list(self.eog_tokens)] = True
        return visible

    def token_bytes(self, token: int) -> bytes:
        """The token's text; empty for control tokens, which are not shown, but for the marks of reasoning."""
        piece = self._pieces.get(token)
        if piece is None:
            piece = self._pieces[token] = self._piece(token, special=token in self._reasoning_marks)
        return piece

    @functools.cached_property
    def _reasoning_marks(self) -> frozenset[int]:
        """Control tokens without which a reply's reasoning could not be told from its answer."""
        marks: set[int] = set()
        for group in TOKEN_GROUPS:
            tokens = [self.tokenize(text, add_special=False, parse_special=True) for text in group]
            if all(len(found) == 1 for found in tokens):
                marks.update(token for (token,) in tokens)
        return frozenset(marks - self.eog_tokens)

    def token_text(self, token: int) -> str:
        """The token's text with control tokens spelled out, for templates and inspection."""
        return "" if token < 0 else self._piece(token, special=True).decode("utf-8", "replace")

    def _piece(self, token: int, *, special: bool) -> bytes:
        size = 64
        while True:
            buffer = ctypes.create_string_buffer(size)
            length: int = lib().llama_token_to_piece(self._vocab, token, buffer, size, 0, special)
            if length >= 0:
                return buffer.raw[:length]
            size = -length

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Token ids of `text`.

        Args:
            text: any text.
            add_special: put the tokens around it that the model wants (its beginning-of-text).
            parse_special: read control tokens written in the text, as chat templates write them.
        """
        data = text.encode("utf-8", "surrogatepass")
        size = len(data) + 16
        while True:
            buffer = (ctypes.c_int32 * size)()
            count: int = lib().llama_tokenize(
                self._vocab, data, len(data), buffer, size, add_special, parse_special
            )
            if count >= 0:
                return list(buffer[:count])
            size = -count

    @property
    def bos(self) -> int:
        """Beginning-of-text token, -1 where there is none."""
        return int(lib().llama_vocab_bos(self._vocab))

    @property
    def eos(self) -> int:
        """End-of-text token, -1 where there is none."""
        return int(lib().llama_vocab_eos(self._vocab))

    @property
    def adds_bos(self) -> bool:
        """Whether `tokenize(add_special=True)` begins with the beginning-of-text token."""
        return bool(lib().llama_vocab_get_add_bos(self._vocab))

    # --- facts

    def meta(self, key: str) -> str | None:
        """A metadata value as text."""
        size = 256
        while True:
            buffer = ctypes.create_string_buffer(size)
            length: int = lib().llama_model_meta_val_str(self._handle, key.encode(), buffer, size)
            if length < 0:
                return None
            if length < size:
                return buffer.value.decode("utf-8", "replace")
            size = length + 1

    @property
    def chat_template(self) -> str | None:
        """The file's own Jinja chat template."""
        return self.meta("tokenizer.chat_template")

    @property
    def architecture(self) -> str:
        """Such as "llama" or "qwen3"."""
        return self.meta("general.architecture") or "?"

    @property
    def description(self) -> str:
        """llama.cpp's own line, such as "llama 1B Q4_1"."""
        buffer = ctypes.create_string_buffer(256)
        lib().llama_model_desc(self._handle, buffer, 256)
        return buffer.value.decode("utf-8", "replace")

    @property
    def parameters(self) -> int:
        """Number of weights."""
        return int(lib().llama_model_n_params(self._handle))

    @property
    def weight_bytes(self) -> int:
        """Size of all tensors."""
        return int(lib().llama_model_size(self._handle))

    @property
    def layers(self) -> int:
        """Transformer blocks."""
        return int(lib().llama_model_n_layer(self._handle))

    @property
    def placed_layers(self) -> int:
        """Blocks that llama.cpp places: those that only predict further tokens (MTP) count too."""
        return self.layers + int(lib().llama_model_n_layer_nextn(self._handle))

    @property
    def trained_context(self) -> int:
        """Context length that the model was trained for."""
        return int(lib().llama_model_n_ctx_train(self._handle))

    @property
    def sliding_window(self) -> int:
        """Tokens of the sliding attention window, 0 without one."""
        return int(lib().llama_model_n_swa(self._handle))

    @property
    def is_recurrent(self) -> bool:
        """Whether its state is, at least in part, recurrent and so cannot simply be cut."""
        low = lib()
        return bool(low.llama_model_is_recurrent(self._handle) or low.llama_model_is_hybrid(self._handle))

    @property
    def vocab(self) -> Any:
        """The native pointer of the vocabulary, for grammars."""
        return self._vocab

    @property
    def handle(self) -> Any:
        """The native pointer, for contexts."""
        return self._handle

    def close(self) -> None:
        """Free the weights; every context must have been closed before."""
        if self._handle:
            lib().llama_model_free(self._handle)
            self._handle = None


def looks_like_memory(lines: list[str]) -> bool:
    """Whether llama.cpp's error lines speak of memory that could not be had."""
    return any(word in line.lower() for line in lines for word in _MEMORY_WORDS)


def _load_error(path: Path) -> Exception:
    lines = recent_errors()
    cause = next(
        (line for line in lines if "error loading" in line), lines[0] if lines else "no reason given"
    )
    cause = cause.rsplit("error loading model: ", 1)[-1]
    if "unknown model architecture" in cause:
        name = cause.rsplit(":", 1)[-1].strip(" '\"")
        return ModelFileError(
            f"{path.name} is of the architecture '{name}', which this build of llama.cpp does not know; "
            "update llama-cpp-python or choose another model."
        )
    if looks_like_memory(lines):
        return NotEnoughMemoryError(
            f"There is not enough memory to load {path.name} ({cause}); choose a smaller file or put fewer "
            "layers on the GPU with --gpu-layers."
        )
    return ModelFileError(
        f"llama.cpp cannot load {path.name}: {cause}. Fetch the file again or choose another."
    )
