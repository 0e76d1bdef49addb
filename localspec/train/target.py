"""Weights of a target that a head begins with, read from its file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from localspec.errors import IncompatibleError
from localspec.models.gguf import GGUFHeader

if TYPE_CHECKING:
    from torch import Tensor

    from localspec.train.network import Shape

_INTERLEAVED = frozenset({"llama"})
"""Architectures whose rotary embedding turns neighbouring pairs, as a head's does."""
_HALVES = frozenset({"qwen3", "nanbeige"})
"""Those that turn the two halves of a head against each other: their rows are put in another order."""
_LAYER = {
    "attn_norm": "attn_norm", "q": "attn_q", "k": "attn_k", "v": "attn_v", "o": "attn_output",
    "ffn_norm": "ffn_norm", "gate": "ffn_gate", "up": "ffn_up", "down": "ffn_down",
}  # fmt: skip


def check_trainable(header: GGUFHeader) -> None:
    """Raise `IncompatibleError` for a target that no head can be made for here; says why."""
    name = header.path.name
    if header.architecture not in _INTERLEAVED | _HALVES:
        raise IncompatibleError(
            f"No head can be trained for {name}: models of the architecture '{header.architecture}' are not "
            "supported yet; choose one of llama's or Qwen3's."
        )
    last = header.block_count - 1
    lacking = [name for name in _LAYER.values() if f"blk.{last}.{name}.weight" not in header.tensor_sizes]
    if header.split_count > 1 or lacking:
        what = "it is split into several files" if header.split_count > 1 else f"it has no {lacking[0]}"
        raise IncompatibleError(f"No head can be trained for {name}: {what}.")


class TargetWeights:
    """The tensors of a file, as single-precision numbers.

    Args:
        path: the target's file.
        header: its header, which `check_trainable` has passed.
    """

    def __init__(self, path: Path, header: GGUFHeader) -> None:
        import gguf

        self._reader: Any = gguf.GGUFReader(str(path))
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}
        self.header = header

    @property
    def fields(self) -> Any:
        """The file's metadata, as gguf-py reads it."""
        return self._reader.fields

    @property
    def shape(self) -> Shape:
        """Sizes of the target, which a head's are too."""
        from localspec.train.network import Shape

        header = self.header
        return Shape(
            width=header.embedding_length,
            heads=header.head_count[-1],
            kv_heads=header.head_count_kv[-1],
            head_width=header.key_length,
            inner=int(self._tensors[f"blk.{header.block_count - 1}.ffn_gate.weight"].shape[1]),
            epsilon=float(self._meta("attention.layer_norm_rms_epsilon", 1e-5)),
            rope_base=float(self._meta("rope.freq_base", 10000.0)),
        )

    def array(self, name: str) -> NDArray[np.float32]:
        """A tensor, shape [out, in]."""
        import gguf

        tensor = self._tensors[name]
        found: NDArray[np.float32] = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        # A copy: the file's own pages cannot be written to, which torch minds.
        return np.array(found, np.float32, order="C")

    def embeddings(self) -> NDArray[np.float32]:
        """Of all tokens, shape [vocabulary, width]."""
        return self.array("token_embd.weight")

    def output(self, chosen: NDArray[np.int64]) -> Tensor:
        """Rows of the output layer, shape [chosen, width]."""
        import torch

        name = "output.weight" if "output.weight" in self._tensors else "token_embd.weight"
        return torch.from_numpy(self.array(name)[chosen])

    def output_norm(self) -> Tensor:
        """Weight of the last norm, shape [width]."""
        import torch

        return torch.from_numpy(self.array("output_norm.weight"))

    def last_layer(self) -> dict[str, Tensor]:
        """Weights of the last layer, by the names of the head's modules."""
        import torch

        last = self.header.block_count - 1
        found = {key: self.array(f"blk.{last}.{name}.weight") for key, name in _LAYER.items()}
        if self.header.architecture in _HALVES:
            found["q"], found["k"] = (_paired(found[key], self.header.key_length) for key in ("q", "k"))
        return {key: torch.from_numpy(value) for key, value in found.items()}

    def _meta(self, key: str, default: float) -> Any:
        return self.header.metadata.get(f"{self.header.architecture}.{key}", default)


def _paired(weight: NDArray[np.float32], width: int) -> NDArray[np.float32]:
    """Rows of queries or keys whose halves are turned, in the order in which neighbours are."""
    rows, columns = weight.shape
    halves = weight.reshape(rows // width, 2, width // 2, columns)
    return np.ascontiguousarray(halves.transpose(0, 2, 1, 3).reshape(rows, columns))
