"""EAGLE-3: one layer drafts from the states of three layers of the target.

Li et al., arXiv 2503.01840, section 3. The states of a low, a middle and a high layer of the target are
turned into one (the head's encoder); that and the embedding of the token after it go into a decoder layer of
its own, whose result stands for the target's next state.
"""

from __future__ import annotations

from localspec.drafters.hidden import States
from localspec.drafters.hidden_chain import ChainDrafter


class Eagle3Drafter(ChainDrafter):
    """Drafts with an EAGLE-3 head; the row of position p holds the token of p + 1 and the state of p."""

    def _inputs(self, states: States) -> States:
        return self._head.encode(states)
