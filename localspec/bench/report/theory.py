"""Theory beside practice: what alpha and T(n) say that a fixed draft length gives, and what it gave."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.bench.pooling import clean
from localspec.bench.records import ModelFile, Results
from localspec.bench.report.cells import table
from localspec.bench.report.wording import DASH, number, percent, times
from localspec.bench.rows import Row
from localspec.cost import CostCurve
from localspec.cost_presets import CURVES
from localspec.errors import UsageError
from localspec.stats.theory import best_gamma, break_even, expected_tokens

_ABOUT = (
    "With one chance alpha for every draft token, drafts of k emit tau = (1 - alpha^(k+1)) / (1 - alpha) "
    "tokens a pass; steps without a draft, which are counted in both taus, emit one. Break-even is the "
    "smallest alpha at which drafts of k are no slower than plain decoding, the best k the one that promises "
    "most at the measured alpha; drafting itself is taken to cost nothing.\n"
)
_ON_GPU = (
    "What the same drafts would give where verifying costs what it does on a consumer GPU, where a pass over "
    "nine tokens takes {nine:.2g} times that over one: tau over the mean of T(1 + drafted)/T(1) and what "
    "drafting takes a step, which is taken to be the same part of T(1) as here. A prediction, no "
    "measurement.\n"
)


def theory_table(results: Results, found: Sequence[Row]) -> str:
    """Markdown: a row for each fixed length of which alpha was measured; "" without any.

    Args:
        results: for T(n) of the files.
        found: the rows of `results`.
    """
    curves = {file.name: curve for file in results.files if (curve := _curve(file)) is not None}
    lines = [
        line
        for row in found
        if row.parallel == 1 and row.file in curves and (line := _line(row, curves[row.file])) is not None
    ]
    head = ["file", "task", "mode", "draft", "alpha", "break-even"]
    head += ["tau", "tau in theory", "speed", "speed in theory", "best k"]
    return _ABOUT + "\n" + table(head, lines, words=4) if lines else ""


def gpu_table(found: Sequence[Row]) -> str:
    """Markdown: what is predicted for draft models and heads on a consumer GPU; "" without any."""
    lines = [
        [
            clean(row.file), row.task, row.mode, row.label, number(row.acceptance_length),
            number(row.pass_cost), times(row.speedup), times(row.gpu_speedup),
        ]
        for row in found
        if row.gpu_speedup is not None
    ]  # fmt: skip
    head = ["file", "task", "mode", "draft", "tau", "cost of a pass here", "speed here", "speed on a GPU"]
    return _ON_GPU.format(nine=CURVES["gpu"](9)) + "\n" + table(head, lines, words=4) if lines else ""


def _curve(file: ModelFile) -> CostCurve | None:
    try:
        return CostCurve(file.pass_ms)
    except UsageError:
        # No time of one token, or times that are none.
        return None


def _line(row: Row, curve: CostCurve) -> list[str] | None:
    alpha, length = row.conditional_acceptance, row.draft_length
    if alpha is None or not length or not 0 <= alpha <= 1 or not row.steps or row.drafts is None:
        return None
    if length + 1 > curve.longest:
        # Beyond what was measured nothing is promised.
        return None
    least, share = break_even(length, curve), row.drafts / row.steps
    return [
        clean(row.file), row.task, row.mode, row.label,
        percent(alpha), DASH if least is None else percent(least),
        number(row.acceptance_length), number(share * expected_tokens(alpha, length) + 1 - share),
        times(row.speedup), times(row.predicted_speedup),
        str(best_gamma(alpha, curve, curve.longest - 1)),
    ]  # fmt: skip
