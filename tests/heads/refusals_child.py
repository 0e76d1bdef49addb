"""What llama.cpp would end the process over, asked for one by one in a process of its own.

Each line printed is a case's name, the error's class and its sentence. A case over which the process ends has
no line, nor have those after it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from localspec.errors import LocalspecError
from localspec.runtime.context import LlamaContext
from localspec.runtime.features import FinalTap, LayerTap
from localspec.runtime.head import HeadShape, Kind, LlamaHead
from localspec.runtime.model import LlamaModel
from localspec.target import Outputs

CAPACITY = 256
WIDTH = 64
FEATURES = {"eagle3": 3 * WIDTH, "mtp": WIDTH, "dflash": 2 * WIDTH, "dspark": 2 * WIDTH}
BLOCK = 4
TOKENS = list(range(40, 60))


@dataclass
class World:
    """A target that has read some tokens, and a head that has read the states of ten of them."""

    kind: Kind
    target: LlamaModel
    context: LlamaContext
    model: LlamaModel
    head: LlamaHead

    def again(self) -> None:
        """As at the beginning."""
        self.context.clear()
        self.context.decode(TOKENS, "none")
        self.head.clear()
        if self.head.shape.block:
            self.head.decode(0, None, states(10, FEATURES[self.kind]), "none")
        else:
            self.head.decode(0, TOKENS[:10], states(10), "none")

    def opened(self, **changes: object) -> LlamaHead:
        """A further head on the same weights, of another shape or with other settings."""
        settings = {"capacity": CAPACITY, **{k: v for k, v in changes.items() if k in _SETTINGS}}
        shape = {k: v for k, v in changes.items() if k not in _SETTINGS}
        return LlamaHead(self.model, self.context, shape_of(self.kind, **shape), **settings)


_SETTINGS = ("capacity", "sequences")

Ask = Callable[[World], object]


def shape_of(kind: Kind, **changes: object) -> HeadShape:
    """What the heads of the tests are."""
    blocks = kind in ("dflash", "dspark")
    facts = {"width": WIDTH, "features": FEATURES[kind], "causal": not blocks, "block": BLOCK * blocks}
    return HeadShape(kind, **{**facts, **changes})


def states(rows: int, width: int = WIDTH) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Hidden states of some kind."""
    return np.full((rows, width), 0.1, np.float32)


def _closed(world: World) -> None:
    head = world.opened()
    head.close()
    head.close()
    _next(0)(World(world.kind, world.target, world.context, world.model, head))


def _freed(world: World) -> None:
    context = LlamaContext(world.target, capacity=CAPACITY, batch=64, threads=1)
    head = LlamaHead(world.model, context, world.head.shape, capacity=CAPACITY)
    context.close()
    head.clear()
    try:
        tokens, rows = ([1], None) if head.shape.block else ([1], states(1))
        head.decode(0, tokens, rows, "all")
    finally:
        head.close()


def _on_a_closed_target(world: World) -> None:
    context = LlamaContext(world.target, capacity=CAPACITY, batch=64, threads=1)
    context.close()
    LlamaHead(world.model, context, world.head.shape, capacity=CAPACITY)


def _without_its_layers(world: World) -> None:
    model = LlamaModel(world.model.path, gpu_layers=0)
    try:
        LlamaHead(model, world.context, world.head.shape, capacity=CAPACITY)
    finally:
        model.close()


def _full(world: World) -> None:
    head = world.opened(capacity=8)
    try:
        again = World(world.kind, world.target, world.context, world.model, head)
        _next(0, 8, "none")(again)
        _next(8)(again)
    finally:
        head.close()


def _tap_of_a_pass_before(world: World) -> None:
    tap = LayerTap(world.context, (1,))
    try:
        tap.rows([0])
    finally:
        tap.close()


def _closed_tap(world: World) -> None:
    tap = LayerTap(world.context, (1,))
    world.context.decode([1], "none")
    tap.close()
    tap.rows([0])


def _rows_beyond(rows: list[int] | slice) -> Ask:
    def ask(world: World) -> None:
        tap = FinalTap(world.context) if world.kind == "mtp" else LayerTap(world.context, (0, 1))
        world.context.decode([1, 2], "none")
        try:
            tap.rows(rows)
        finally:
            tap.close()

    return ask


def _tree_first(world: World) -> None:
    tree = world.opened(sequences=4)
    try:
        tree.decode(0, [1], states(1), "all")
        tree.decode_nodes([1, 2], states(2), [-1, -1])
        tree.decode(1, [3], states(1), "all")
    finally:
        tree.close()


def _tree(tokens: int, parents: list[int], sequences: int = 4) -> Ask:
    def ask(world: World) -> None:
        tree = world.opened(sequences=sequences)
        try:
            tree.decode(0, [1], states(1), "all")
            tree.decode_nodes([1] * tokens, states(tokens), parents)
        finally:
            tree.close()

    return ask


def _after_roll_back(world: World) -> None:
    _next(10)(world)
    world.head.keep(10)
    world.head.logits(0)


def _next(start: int, count: int = 1, outputs: Outputs = "all", width: int | None = None) -> Ask:
    """A pass over states, with tokens where the kind wants them."""

    def ask(world: World) -> None:
        blocks = world.head.shape.block > 0
        rows = states(count, width or (FEATURES[world.kind] if blocks else WIDTH))
        world.head.decode(start, None if blocks else [1] * count, rows, outputs)

    return ask


def _token(token: int) -> Ask:
    """A pass over a token, with a state where the kind wants one."""

    def ask(world: World) -> None:
        world.head.decode(10, [token], None if world.head.shape.block else states(1), "all")

    return ask


Case = tuple[Ask, str]
"""What is asked for, and some words of the sentence."""

SHARED: dict[str, Case] = {
    "nothing to read": (lambda one: one.head.decode(10, None, None, "all"), "needs tokens or states"),
    "no rows": (_next(10, 0), "at least one"),
    "a token that there is not": (_token(-1), "does not have"),
    "a token beyond the last": (_token(9999), "does not have"),
    "states of another width": (_next(10, width=63), "reads states of"),
    "a gap": (_next(12), "cannot go on at 12"),
    "a draft that was not dropped": (_next(8), "cannot go on at 8"),
    "before the beginning": (_next(-1), "cannot go on at -1"),
    "more rows than a pass has": (_next(10, 129, "none"), "too large"),
    "more rows wanted than a pass has": (_next(10, 65), "too large"),
    "a row that was not wanted": (lambda one: one.head.logits(0), "0 wanted rows"),
    "a state that was not wanted": (lambda one: one.head.state(0), "0 wanted rows"),
    "a row that was dropped": (_after_roll_back, "0 wanted rows"),
    "a closed head": (_closed, "has been closed"),
    "a target closed first": (_freed, "has been closed"),
    "on a closed target": (_on_a_closed_target, "has been closed"),
    "widths of another model": (lambda one: one.opened(width=96), "another model"),
    "a full cache": (_full, "no room"),
    "too many rows of the target": (lambda one: one.context.decode([1] * 129, "all"), "does not fit"),
    "rows beyond the pass": (_rows_beyond([0, 2]), "has 2 rows"),
    "rows before the pass": (_rows_beyond([-1]), "has 2 rows"),
    "a stretch beyond the pass": (_rows_beyond(slice(0, 3)), "has 2 rows"),
    "a layer that there is not": (lambda one: one.head.use_layer(1), "prediction layers"),
}
_PAIRS: dict[str, Case] = {
    "tokens alone": (lambda one: one.head.decode(10, [1], None, "all"), "beside every token"),
    "states alone": (lambda one: one.head.decode(10, None, states(1), "all"), "beside every token"),
    "more tokens than states": (lambda one: one.head.decode(10, [1, 2], states(1), "all"), "as many"),
}
_BLOCKS: dict[str, Case] = {
    "tokens and states": (lambda one: one.head.decode(10, [1], states(1, 2 * WIDTH), "all"), "not both"),
    "longer than a block": (lambda one: one.head.decode(10, [1] * 5, None, "all"), "blocks of at most 4"),
    "a block beyond a pass": (lambda one: one.opened(block=65), "blocks of 65"),
    "features of another width": (lambda one: one.opened(features=100), "another model"),
}
OF_KIND: dict[Kind, dict[str, Case]] = {
    "eagle3": {
        **_PAIRS,
        "encode another width": (lambda one: one.head.encode(states(3)), "cannot encode"),
        "a tap beyond the layers": (lambda one: LayerTap(one.context, (0, 4)), "up to 2"),
        "a tap after the last layer": (lambda one: LayerTap(one.context, (3,)), "up to 2"),
        "a tap before the first layer": (lambda one: LayerTap(one.context, (-1,)), "up to 2"),
        "a tap of a pass before it": (_tap_of_a_pass_before, "No pass has kept"),
        "a closed tap": (_closed_tap, "No pass has kept"),
        "a tree of one branch": (_tree(1, [-1], sequences=1), "cannot draft a tree"),
        "a tree that is too wide": (_tree(5, [-1] * 5), "up to 4 nodes"),
        "a tree without parents": (_tree(2, [0, 1]), "no parents"),
        "a tree with too few parents": (_tree(2, [-1]), "as many parents"),
        "text behind a tree": (_tree_first, "drop it first"),
    },
    "mtp": {
        **_PAIRS,
        "prediction layers that are not loaded": (_without_its_layers, "are not loaded"),
        "encode without an encoder": (lambda one: one.head.encode(states(3)), "cannot encode"),
    },
    "dflash": _BLOCKS,
    "dspark": _BLOCKS,
}


def cases(kind: Kind) -> dict[str, Case]:
    """All cases of a kind, by name."""
    return {**SHARED, **OF_KIND[kind]}


def main() -> None:
    """Arguments: the kind, the target's file, the head's."""
    kind: Kind = sys.argv[1]
    target = LlamaModel(Path(sys.argv[2]), gpu_layers=0, with_prediction=kind == "mtp")
    context = LlamaContext(target, capacity=CAPACITY, batch=192, threads=1)
    model = target if kind == "mtp" else LlamaModel(Path(sys.argv[3]), gpu_layers=0)
    head = LlamaHead(model, context, shape_of(kind), capacity=CAPACITY)
    world = World(kind, target, context, model, head)
    for name, (ask, _) in cases(kind).items():
        world.again()
        try:
            ask(world)
        except LocalspecError as error:
            print(f"{name}\t{type(error).__name__}\t{error}", flush=True)
        else:
            print(f"{name}\tdone\t", flush=True)
    # After all of it the head goes on.
    world.again()
    tokens, rows = ([1], None) if head.shape.block else ([1], states(1))
    head.decode(10, tokens, rows, "all")
    assert np.isfinite(head.logits(0)).all()
    head.close()
    context.close()


if __name__ == "__main__":
    main()
