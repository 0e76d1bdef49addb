"""Cost curves measured while localspec was designed: to begin with, until this machine's own is known."""

from __future__ import annotations

from localspec.cost import CostCurve

_SIZES = (1, 2, 3, 4, 5, 8, 9, 12, 16, 24, 32)


def _curve(*ratios: float) -> CostCurve:
    return CostCurve(dict(zip(_SIZES, ratios, strict=True)))


# Passes over n tokens of SmolLM2 135M on two CPU cores with AVX-512. The GPU's are two figures for a consumer
# card, 5.7 ms and 7.8 ms for nine tokens; what lies between and beyond is drawn straight.
CURVES: dict[str, CostCurve] = {
    "gpu": CostCurve({1: 1.0, 9: 1.4}),
    "cpu-bf16": _curve(1, 1.43, 1.54, 1.95, 1.88, 2.14, 2.11, 2.54, 2.85, 3.75, 4.66),
    "cpu-q4_0": _curve(1, 1.67, 2.19, 2.46, 2.63, 3.18, 3.95, 3.5, 3.91, 5.73, 7.31),
    "cpu-q4_1": _curve(1, 2.16, 2.69, 3.26, 4.02, 5.01, 5.91, 6.89, 9.28, 13.6, 17.5),
}
"""T(n)/T(1) by name."""

TOKEN_MS: dict[str, float] = {"gpu": 5.7, "cpu-bf16": 7.5, "cpu-q4_0": 4.7, "cpu-q4_1": 5.1}
"""T(1) of the same, in milliseconds."""

_REPACKED = ("Q4_0", "Q8_0", "Q4_K", "IQ4_NL")
"""Types that llama.cpp's CPU kernels rearrange for passes over several tokens."""


def likely_curve(file_type: str, *, on_gpu: bool) -> CostCurve:
    """The preset that is nearest to a model, in units of T(1).

    Args:
        file_type: of the file, such as "Q4_K_M"; "" where it is not known.
        on_gpu: whether every layer is on the GPU.
    """
    if on_gpu:
        return CURVES["gpu"]
    kind = file_type.upper()
    if kind in ("BF16", "F16", "F32"):
        return CURVES["cpu-bf16"]
    if kind.startswith(_REPACKED):
        return CURVES["cpu-q4_0"]
    # What is not known is taken for dear: too few drafts lose less than too many.
    return CURVES["cpu-q4_1"]
