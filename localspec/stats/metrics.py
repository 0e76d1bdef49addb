"""Folds over `StepStats`: every ratio and rate that localspec shows is derived here, and nowhere stored.

Names and definitions are those of the papers (Leviathan et al., arXiv 2211.17192; Sadhukhan et al.,
arXiv 2408.11049) and of vLLM's counters.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from localspec.messages import Speculation
from localspec.types import StepStats

NS = 1e-9


class Tally:
    """Running totals over any number of steps.

    Attributes:
        steps: target passes, with and without a draft.
        skipped_steps: steps whose budget was 0 (speculation off).
        drafts: steps that verified at least one draft token.
        drafted: draft tokens verified.
        accepted: draft tokens accepted.
        emitted: tokens emitted, the target's own included.
        reached: draft positions that the verifier got to (accepted ones and the first refused one).
        drafted_at: for each position, drafts that were at least that long (trees: that deep).
        accepted_at: for each position, drafts accepted at least that far.
    """

    def __init__(self, steps: Iterable[StepStats] = ()) -> None:
        self.steps = self.skipped_steps = self.drafts = 0
        self.drafted = self.accepted = self.emitted = self.reached = 0
        self.drafted_at: list[int] = []
        self.accepted_at: list[int] = []
        self.draft_ns = self.verify_ns = self.sample_ns = self.other_ns = 0
        for stats in steps:
            self.add(stats)

    def add(self, stats: StepStats) -> None:
        """Count one step."""
        self.steps += 1
        self.skipped_steps += stats.budget == 0
        self.drafts += stats.drafted > 0
        self.drafted += stats.drafted
        self.accepted += stats.accepted
        self.emitted += stats.emitted
        # A correction means that one more position was looked at and refused.
        self.reached += stats.accepted + (stats.kind == "correction")
        positions = stats.positions
        if positions > len(self.drafted_at):
            missing = positions - len(self.drafted_at)
            self.drafted_at += [0] * missing
            self.accepted_at += [0] * missing
        for position in range(positions):
            self.drafted_at[position] += 1
        for position in range(stats.accepted):
            self.accepted_at[position] += 1
        self.draft_ns += stats.draft_ns
        self.verify_ns += stats.verify_ns
        self.sample_ns += stats.sample_ns
        self.other_ns += stats.other_ns

    @property
    def total_ns(self) -> int:
        """Wall time of all steps."""
        return self.draft_ns + self.verify_ns + self.sample_ns + self.other_ns

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted / drafted; None when nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def conditional_acceptance(self) -> float | None:
        """Alpha: accepted / positions that the verifier reached; None when nothing was drafted."""
        return self.accepted / self.reached if self.reached else None

    @property
    def acceptance_length(self) -> float | None:
        """Tau: tokens emitted per target pass, the target's own included; None before the first step."""
        return self.emitted / self.steps if self.steps else None

    @property
    def seconds_per_token(self) -> float | None:
        """L = (T_draft + T_verify + everything else) / tau, in seconds."""
        return self.total_ns * NS / self.emitted if self.emitted else None

    @property
    def tokens_per_second(self) -> float | None:
        """The inverse of `seconds_per_token`."""
        return self.emitted / (self.total_ns * NS) if self.total_ns else None

    def acceptance_at(self) -> list[float]:
        """For each position, the share of drafts that long which were accepted up to it."""
        return [a / d for a, d in zip(self.accepted_at, self.drafted_at, strict=True)]

    def speculation(self) -> Speculation:
        """The totals as `run --json` prints them."""
        return Speculation(
            steps=self.steps,
            skipped_steps=self.skipped_steps,
            draft_tokens=self.drafted,
            accepted_tokens=self.accepted,
            acceptance_rate=self.acceptance_rate,
            acceptance_length=self.acceptance_length,
            accepted_at=tuple(self.accepted_at),
            draft_s=self.draft_ns * NS,
            verify_s=self.verify_ns * NS,
            sample_s=self.sample_ns * NS,
            other_s=self.other_ns * NS,
        )


class RateWindow:
    """Tokens per second over the last `seconds` of the engine's clock.

    Speculation emits tokens in bursts, so a rate needs a window; the engine's clock keeps the app's own
    pauses out of it. Steps of one reply only: a clock that runs backwards starts the window anew.
    """

    def __init__(self, seconds: float = 1.0) -> None:
        self._window_ns = int(seconds * 1e9)
        self._steps: deque[tuple[int, int, int]] = deque()
        self._tokens = 0

    def add(self, stats: StepStats) -> None:
        """Count one step."""
        if self._steps and stats.time_ns < self._steps[-1][0]:
            self._steps.clear()
            self._tokens = 0
        self._steps.append((stats.time_ns, stats.total_ns, stats.emitted))
        self._tokens += stats.emitted
        oldest = stats.time_ns - self._window_ns
        while len(self._steps) > 1 and self._steps[0][0] < oldest:
            self._tokens -= self._steps.popleft()[2]

    def rate(self) -> float | None:
        """Tokens per second; None before the first step."""
        if not self._steps:
            return None
        first_end, first_duration, _ = self._steps[0]
        span = self._steps[-1][0] - (first_end - first_duration)
        return self._tokens / (span * NS) if span > 0 else None
