"""What a model keeps of the tokens it has read: keys and values of each layer, or a recurrent state."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from localspec.models.gguf import GGUFHeader

_WITH_SNAPSHOTS = frozenset(
    {
        "kimi-k3", "qwen35", "qwen35moe", "qwen4exp", "deepseek4", "glm5-next", "nemotron_h",
        "nemotron_h_moe", "lfm2", "lfm2moe", "bailingmoe3",
    }
)  # fmt: skip
"""Architectures whose recurrent states llama.cpp can keep for every token of a pass."""
_MOST_SNAPSHOTS = 8


def cache_widths(header: GGUFHeader) -> tuple[int, ...]:
    """Elements of keys and values that each layer keeps of a token, one number a layer.

    Zero for a recurrent layer, for one that shares the cache of an earlier layer, and for layers that only
    predict further tokens. A sliding window does not matter: llama.cpp keeps all tokens for such layers too,
    unless it is asked not to, because a window cannot be rolled back.
    """
    heads, sliding, recurrent = header.head_count_kv, _sliding_layers(header), _recurrent_layers(header)
    with_cache = header.block_count - header.extra_layers - _count(header, "attention.shared_kv_layers")
    keys, values = header.key_length, header.value_length
    # In latent attention values are read out of the keys.
    values = 0 if _count(header, "attention.key_length_mla") else values
    sliding_keys = _count(header, "attention.key_length_swa") or keys
    sliding_values = _count(header, "attention.value_length_swa") or values
    widths = []
    for layer in range(header.block_count):
        width = sliding_keys + sliding_values if sliding[layer] else keys + values
        own = layer < min(with_cache, len(heads)) and not recurrent[layer]
        widths.append(width * heads[layer] if own else 0)
    return tuple(widths)


def prediction_widths(header: GGUFHeader) -> tuple[int, ...]:
    """As `cache_widths`, for a context of the layers that only predict further tokens; zero for others."""
    trunk, heads = header.block_count - header.extra_layers, header.head_count_kv
    values = 0 if _count(header, "attention.key_length_mla") else header.value_length
    return tuple(
        (header.key_length + values) * heads[layer] if trunk <= layer < len(heads) else 0
        for layer in range(header.block_count)
    )


def state_bytes(header: GGUFHeader) -> tuple[int, ...]:
    """Bytes of the recurrent state of one sequence, one number a layer; zeros for a model without."""
    inner, size = _count(header, "ssm.inner_size"), _count(header, "ssm.state_size")
    convolution, groups = _count(header, "ssm.conv_kernel"), _count(header, "ssm.group_count")
    elements = max(0, convolution - 1) * (inner + 2 * groups * size) + size * inner
    width = header.embedding_length
    short, head = _count(header, "shortconv.l_cache"), _count(header, "wkv.head_size")
    if short:
        elements = width * (short - 1)
    elif head:
        elements = width * (head + (_count(header, "token_shift_count") or 2))
    recurrent = _recurrent_layers(header)
    # Where no layer is recurrent alone, each has a state beside its attention.
    everywhere = not any(recurrent)
    trunk = header.block_count - header.extra_layers
    return tuple(
        elements * 4 if here or (everywhere and layer < trunk) else 0 for layer, here in enumerate(recurrent)
    )


def is_recurrent(header: GGUFHeader) -> bool:
    """Whether the model keeps a state that belongs to a sequence as a whole."""
    return any(state_bytes(header))


def snapshots(header: GGUFHeader) -> int:
    """Earlier states that are kept beside the newest one, so that as many tokens of a pass can be dropped.

    0 for a model without a recurrent state, and where llama.cpp keeps none. As many as a draft is long, but
    not more than take a quarter of what the weights take.
    """
    state = sum(state_bytes(header))
    if not state or header.architecture not in _WITH_SNAPSHOTS:
        return 0
    return max(1, min(_MOST_SNAPSHOTS, header.tensor_bytes // 4 // state))


def _recurrent_layers(header: GGUFHeader) -> tuple[bool, ...]:
    """For each layer whether it has a state in place of attention; layers that only predict have none."""
    trunk = header.block_count - header.extra_layers
    named = header.metadata.get(f"{header.architecture}.attention.recurrent_layers")
    if isinstance(named, tuple) and len(named) >= trunk:
        return tuple(layer < trunk and bool(named[layer]) for layer in range(header.block_count))
    interval = _count(header, "full_attention_interval")
    if interval:
        return tuple(layer < trunk and (layer + 1) % interval != 0 for layer in range(header.block_count))
    heads = header.head_count_kv
    return tuple(layer < min(trunk, len(heads)) and heads[layer] == 0 for layer in range(header.block_count))


def _sliding_layers(header: GGUFHeader) -> tuple[bool, ...]:
    """For each layer whether it has the sliding window, where the file says so."""
    pattern = header.metadata.get(f"{header.architecture}.attention.sliding_window_pattern")
    if isinstance(pattern, tuple) and len(pattern) >= header.block_count:
        return tuple(bool(item) for item in pattern)
    return (False,) * header.block_count


def _count(header: GGUFHeader, key: str) -> int:
    value = header.metadata.get(f"{header.architecture}.{key}")
    return value if isinstance(value, int) else 0
