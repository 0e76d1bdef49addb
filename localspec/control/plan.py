"""What a controller intends with a draft, and its words for it."""

from __future__ import annotations

from dataclasses import dataclass

from localspec.stats.theory import acceptance_for


@dataclass(frozen=True, slots=True)
class Plan:
    """The best length of a draft, the tokens that its pass is expected to emit, and how many would pay."""

    length: int
    expected: float
    needed: float
    settled: bool = False

    @property
    def pays(self) -> bool:
        """Whether that is enough, or not for this controller to say."""
        return self.settled or (self.length > 0 and self.expected > self.needed)

    @property
    def expectation(self) -> str:
        """Acceptance as expected and at break-even at that length, behind a comma; "" where there is none."""
        if not self.length:
            return ""
        alpha = acceptance_for(self.expected, self.length)
        least = acceptance_for(self.needed, self.length)
        even = "beyond 100 %" if least is None else f"{100 * least:.0f} %"
        tokens = f"{self.length} {'tokens' if self.length > 1 else 'token'}"
        return f", {tokens}: acceptance {100 * (alpha or 0.0):.0f} %, break-even {even}"
