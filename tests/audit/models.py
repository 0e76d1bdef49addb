"""Targets and rules for audits: one that rounds as real kernels do, and some that are broken on purpose."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from localspec.audit.compare import Audit, Findings, Question
from localspec.audit.records import Verdict
from localspec.audit.verdict import verdict_of
from localspec.bench.driver import Driver
from localspec.bench.records import Configuration
from localspec.sampling import Sampler
from localspec.target import Outputs
from localspec.testing import ScriptedModel
from localspec.types import Draft, Rows
from localspec.types import Verdict as Judgement
from localspec.verify import CoupledVerifier

PROMPTS = tuple(tuple(4 + (start * step + place) % 9 for place in range(12)) for start, step in
                ((0, 1), (2, 3), (5, 1), (1, 7)))  # fmt: skip


class RoundingModel(ScriptedModel):
    """Its logits depend a little on the width of the pass, as those of real kernels do."""

    def __init__(self, amplitude: float, *, spread: float = 1.5, seed: int = 0) -> None:
        super().__init__(order=2, spread=spread, seed=seed)
        self.amplitude = amplitude

    def decode(self, tokens: Sequence[int], outputs: Outputs) -> Rows:
        rows = super().decode(tokens, outputs)
        return self.rounded(rows, len(tokens))

    def decode_tree(self, root: int, draft: Draft) -> Rows:
        return self.rounded(super().decode_tree(root, draft), 1 + len(draft))

    def rounded(self, rows: Rows, width: int) -> Rows:
        if width == 1 or not len(rows):
            return rows
        return np.stack([row + self.amplitude * self._unevenness(row, width) for row in rows])

    @staticmethod
    def _unevenness(row: NDArray[np.float32], width: int) -> NDArray[np.float32]:
        generator = np.random.default_rng([width, zlib.crc32(row.tobytes())])
        return generator.uniform(-1, 1, len(row)).astype(np.float32)


class StaleModel(ScriptedModel):
    """Its cache does not roll back: the last token that it should keep is overwritten by a refused one."""

    def keep(self, length: int) -> None:
        refused = self._cache[length] if length < len(self._cache) else None
        super().keep(length)
        if refused is not None and length:
            self._cache[-1] = refused


class WideFaultModel(RoundingModel):
    """Passes of several tokens compute something else altogether."""

    def __init__(self) -> None:
        super().__init__(amplitude=8.0)


class TooMany(CoupledVerifier):
    """Accepts one token more than the model drew."""

    def verify(self, draft: Draft, rows: Rows, sampler: Sampler, history: Sequence[int]) -> Judgement:
        verdict = super().verify(draft, rows, sampler, history)
        last = verdict.path[-1] if verdict.path else -1
        further = next((node for node, parent in enumerate(draft.parents) if parent == last), None)
        if further is None:
            return verdict
        path = (*verdict.path, further)
        seen = [*history, *(draft.tokens[node] for node in path)]
        return Judgement(path, sampler.sample(rows[further + 1], len(seen), seen), "correction")


class WrongNoise(CoupledVerifier):
    """Draws with the noise of the position after; greedy, nobody notices."""

    def verify(self, draft: Draft, rows: Rows, sampler: Sampler, history: Sequence[int]) -> Judgement:
        shifted = [*history, 0] if len(draft) else history
        return super().verify(draft, rows, sampler, shifted)


class WrongRow(CoupledVerifier):
    """Reads the row of the token before, from the second token of a draft on."""

    def verify(self, draft: Draft, rows: Rows, sampler: Sampler, history: Sequence[int]) -> Judgement:
        moved = rows.copy()
        moved[2:] = rows[1:-1]
        return super().verify(draft, moved, sampler, history)


def questions(temperatures: Sequence[float] = (0.0, 0.8)) -> list[Question]:
    return [
        Question("letters", str(number), prompt, temperature)
        for number, prompt in enumerate(PROMPTS)
        for temperature in temperatures
    ]


def audited(
    model: ScriptedModel,
    *configurations: Configuration,
    temperatures: Sequence[float] = (0.0, 0.8),
    tokens: int = 60,
    driver: Driver | None = None,
) -> tuple[Findings, Verdict]:
    """What an audit of `model` finds, and its verdict."""
    chosen = configurations or (Configuration(draft="ngram", length=4),)
    driver = driver or Driver(model, model)
    findings = Audit(driver, chosen, questions(temperatures), tokens=tokens, seed=3).run()
    return findings, verdict_of(findings, chosen, temperatures)
