"""How many layers go to the GPU when the user does not say."""

from __future__ import annotations

from dataclasses import dataclass

RESERVE = 512 * 2**20
"""Bytes of each GPU left free: compute buffers, the desktop, other programs' growth."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What a model wants: bytes of all weights, of the whole KV cache, and its number of layers."""

    weights_bytes: int
    kv_bytes: int
    layers: int


def layers_that_fit(demand: Demand, free_bytes: int, gpus: int = 1) -> int:
    """Layers to offload, the output layer counted as one; `layers + 1` means everything.

    A layer takes its share of weights and cache with it. The output matrix is about as large as a layer or
    larger, so it goes last, as llama.cpp does it.

    Args:
        demand: the model's sizes.
        free_bytes: free memory of all GPUs together.
        gpus: how many they are.
    """
    if gpus == 0 or demand.layers == 0:
        return 0
    room = free_bytes - gpus * RESERVE
    if room >= demand.weights_bytes + demand.kv_bytes:
        return demand.layers + 1
    per_layer = demand.weights_bytes / (demand.layers + 1) + demand.kv_bytes / demand.layers
    return max(0, min(int(room / per_layer), demand.layers))
