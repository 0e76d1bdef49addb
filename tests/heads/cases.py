"""Pairs of a target and a head, by name, and the prompts that they are tried with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.heads import alphabet, randoms
from tests.heads.making import Made, Writer


@dataclass(frozen=True)
class Case:
    """A target and a head.

    Attributes:
        name: for the test's report.
        kind: drafting method.
        target: writes the target, with `target_settings`.
        head: writes the head, with `head_settings`; None: it is in the target's file.
        length: draft tokens a step that the head is made for.
    """

    name: str
    kind: str
    target: Writer
    target_settings: Mapping[str, object] = field(default_factory=dict)
    head: Writer | None = None
    head_settings: Mapping[str, object] = field(default_factory=dict)
    length: int = 3

    def files(self, made: Made) -> tuple[Path, Path | None]:
        """The target's file and the head's."""
        head = made(self.head, **self.head_settings) if self.head else None
        return made(self.target, **self.target_settings), head

    def with_head(self, **settings: object) -> Case:
        """The same with other settings of what drafts."""
        if self.head is None:
            return replace(self, target_settings={**self.target_settings, **settings})
        return replace(self, head_settings={**self.head_settings, **settings})

    def with_target(self, **settings: object) -> Case:
        """The same with other settings of the target."""
        return replace(self, target_settings={**self.target_settings, **settings})

    def __str__(self) -> str:
        return self.name


_TRUNK, _SIDECAR = {"part": "trunk"}, {"part": "heads"}

ALPHABET = (
    Case("eagle3", "eagle3", alphabet.target, head=alphabet.eagle3),
    Case("eagle3-reduced", "eagle3", alphabet.target, head=alphabet.eagle3, head_settings={"reduced": True}),
    Case("mtp", "mtp", alphabet.target_mtp),
    Case("mtp-three", "mtp", alphabet.target_mtp, {"heads": 3}),
    Case("mtp-sidecar", "mtp", alphabet.target_mtp, _TRUNK, alphabet.target_mtp, _SIDECAR),
    Case("mtp-hybrid", "mtp", alphabet.target_hybrid),
    Case("dflash", "dflash", alphabet.target, head=alphabet.dflash),
    Case("dspark", "dspark", alphabet.target, head=alphabet.dspark, length=4),
)
"""Heads of which it is known when they are right."""

RANDOM = (
    Case("random-eagle3", "eagle3", randoms.target, head=randoms.eagle3),
    Case(
        "random-eagle3-wide",
        "eagle3",
        randoms.target,
        head=randoms.eagle3,
        head_settings={"width": 96, "tokens": 100},
    ),
    Case("random-mtp", "mtp", randoms.target_mtp),
    Case("random-mtp-three", "mtp", randoms.target_mtp, {"heads": 3}),
    Case("random-mtp-untrained", "mtp", randoms.target_mtp, {"trained": False}),
    Case("random-dflash", "dflash", randoms.target, head=randoms.dflash),
    Case(
        "random-dflash-causal", "dflash", randoms.target, head=randoms.dflash, head_settings={"causal": True}
    ),
    Case("random-dspark", "dspark", randoms.target, head=randoms.dspark, length=4),
    Case(
        "random-dspark-masks", "dspark", randoms.target, head=randoms.dspark, head_settings={"anchor": False}
    ),
)
"""Heads that show whether two programs draft the same, for anything would change what they draft."""

ALL = (*ALPHABET, *RANDOM)

PROMPTS = tuple(
    tuple(text.encode())
    for text in ("hello world: xyz", "qrs" * 20 + "mnop", "The quick brown fox, Hamlet; 1+1")
)
"""Token ids: the models' tokens are bytes."""
