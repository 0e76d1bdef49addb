"""What one target pass over one token must read: the memory traffic that no engine can avoid."""

from __future__ import annotations

import re

from localspec.models.gguf import GGUFHeader, estimate_memory

_LOOKED_UP = (
    "token_embd.weight",
    "per_layer_token_embd.weight",
    "position_embd.weight",
    "token_types.weight",
)
"""Tables of which a pass reads one row a token."""

_EXPERTS = re.compile(r"\.ffn_(gate|up|down|gate_up)(_(ch)?exps|\.\d+)\.")
"""Tensors of the routed experts: all of a layer in one, or, in old files, one each."""

_LAYER = re.compile(r"blk\.(\d+)\.")


def weight_bytes_of_a_pass(header: GGUFHeader) -> int:
    """Bytes of weights that a pass over one token reads.

    All tensors count but the embedding tables, of which one row is read; a token table that also serves as
    the output matrix (no `output.weight`) counts. Of routed experts the share that a token uses counts, and
    layers that only predict further tokens do not.
    """
    everyone, used = header.experts
    share = used / everyone if 0 < used < everyone else 1.0
    first_extra = header.block_count - header.extra_layers
    looked_up = _LOOKED_UP if "output.weight" in header.tensor_sizes else _LOOKED_UP[1:]
    total = 0.0
    for name, size in header.tensor_sizes.items():
        layer = _LAYER.match(name)
        if name in looked_up or (layer and int(layer[1]) >= first_extra > 0):
            continue
        total += size * share if _EXPERTS.search(name) else size
    return round(total)


def cache_bytes_of_a_pass(header: GGUFHeader, position: int, kv_type: str = "f16") -> int:
    """Bytes of keys and values that a pass over one token reads at least, with `position` tokens cached.

    A model with a sliding window reads no more than the window in some layers; which ones the header does not
    say, so all count as such and the result is a lower bound.

    Raises:
        UsageError: there is no such type of cache.
    """
    window = header.sliding_window
    return estimate_memory(header, min(position, window) if window else position, kv_type).kv_bytes
