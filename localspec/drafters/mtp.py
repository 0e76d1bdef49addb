"""MTP: a model's own layers that predict further tokens (nextn) draft for it.

Gloeckle et al., arXiv 2404.19737; DeepSeek-V3, arXiv 2412.19437, section 2.2, whose prediction layers go on
from the state after the model's last layer and the embedding of the token that was said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from localspec.drafters.growing import grown
from localspec.drafters.hidden import States
from localspec.drafters.hidden_chain import ChainDrafter
from localspec.target import HeadContext, Outputs, Tap
from localspec.types import Budget, Draft, Drawing, Rows


class MtpDrafter(ChainDrafter):
    """Drafts with prediction layers; the row of position p holds its token and the state of p - 1.

    One layer drafts any number of tokens, each from the state that it made itself. Several layers draft one
    token each, the second from what the first one made and so on, and all of them read the text.

    Args:
        head: the prediction layers.
        tap: the states after the target's last layer.
        vocabulary: tokens of the target.
        greedy: draws where the budget has no drawing.
        name: what telemetry calls it.
        prediction_layers: how many layers there are.
    """

    _shift = 1

    def __init__(
        self,
        head: HeadContext,
        tap: Tap,
        *,
        vocabulary: int,
        greedy: Drawing,
        name: str = "mtp",
        prediction_layers: int = 1,
    ) -> None:
        super().__init__(head, tap, vocabulary=vocabulary, greedy=greedy, name=name)
        self._layers = prediction_layers

    def _inputs(self, states: States) -> States:
        return states

    def _pass(self, start: int, tokens: Sequence[int], states: States, outputs: Outputs) -> None:
        self._read_first(start, states.shape[1])
        self._read(start + self._shift, tokens, states, outputs)

    def _read_first(self, start: int, width: int) -> None:
        """Before the states from 0 on comes the first token, which has no state before it."""
        if start == 0 and self._head.length == 0:
            self._read(0, self._tokens[:1], np.zeros((1, width), np.float32), "none")

    def _read(self, start: int, tokens: Sequence[int], states: States, outputs: Outputs) -> None:
        """A pass of every layer over the same rows; the last layer's outputs are those that stay."""
        if self._layers == 1:
            self._head.decode(start, tokens, states, outputs)
            return
        for layer in range(self._layers):
            # Each layer has keys and values of its own in the same cells.
            self._head.keep(start)
            self._head.use_layer(layer)
            self._head.decode(start, tokens, states, outputs)
        self._head.use_layer(0)

    def _drafted(self, tokens: Sequence[int], budget: Budget) -> Draft:
        if self._layers == 1:
            return super()._drafted(tokens, budget)
        # The newest state goes on waiting: the first layer alone reads it now, and all of them once it is
        # known what was said.
        self._catch_up(leave=1)
        root = len(tokens) - 1
        states = [self._newest()]
        self._read_first(self._fed, len(states[0]))
        said = [tokens[-1]]

        def row() -> Rows:
            self._head.keep(root)
            self._head.use_layer(len(said) - 1)
            self._head.decode(root, said, np.stack(states), "all")
            return self._row(len(said) - 1)

        def next_row(token: int) -> Rows:
            states.append(self._head.state(len(said) - 1))
            said.append(token)
            return row()

        self._drafting()
        try:
            return grown(
                tokens,
                replace(budget, tokens=min(budget.tokens, self._layers)),
                source=self.name,
                greedy=self._greedy,
                row=row(),
                following=next_row,
            )
        finally:
            self._head.use_layer(0)
