"""Verification: which draft tokens the target agrees with, and what it says next. One rule a file."""

from __future__ import annotations

from collections.abc import Callable

from localspec.errors import UsageError
from localspec.verify.adasd import AdaSDVerifier, EntropyStop
from localspec.verify.base import Verifier, drafting_seed, no_distribution, shares_noise
from localspec.verify.block import BlockVerifier
from localspec.verify.coupled import CoupledVerifier
from localspec.verify.drawing import GreedyDrawing, RuleDrawing
from localspec.verify.rejection import RejectionVerifier
from localspec.verify.typical import TypicalVerifier

__all__ = [
    "VERIFIERS",
    "AdaSDVerifier",
    "BlockVerifier",
    "CoupledVerifier",
    "EntropyStop",
    "GreedyDrawing",
    "RejectionVerifier",
    "RuleDrawing",
    "TypicalVerifier",
    "Verifier",
    "check_verify",
    "drafting_seed",
    "is_exact",
    "make_verifier",
    "shares_noise",
]

VERIFIERS: dict[str, Callable[[], Verifier]] = {
    CoupledVerifier.name: CoupledVerifier,
    RejectionVerifier.name: RejectionVerifier,
    BlockVerifier.name: BlockVerifier,
    TypicalVerifier.name: TypicalVerifier,
    AdaSDVerifier.name: AdaSDVerifier,
}


def is_exact(name: str) -> bool:
    """Whether the rule `name` keeps the target's own distribution; one that does not is labelled "lossy".

    Raises:
        UsageError: there is no such rule.
    """
    return make_verifier(name).exact


def check_verify(name: str, *, drafter: str = "", has_probs: bool = True) -> None:
    """Raise `UsageError` for a value of `--verify` that cannot be used.

    Args:
        name: the rule.
        drafter: name of the drafter, for the message.
        has_probs: whether that drafter hands out the distributions its tokens are drawn from.
    """
    if name not in VERIFIERS:
        raise UsageError(f"There is no verification rule '{name}'; use one of: {', '.join(VERIFIERS)}.")
    if name == AdaSDVerifier.name and not has_probs:
        raise no_distribution(name, drafter)


def make_verifier(name: str) -> Verifier:
    """A new verifier of the rule `name`; raises `UsageError` for an unknown one."""
    check_verify(name)
    return VERIFIERS[name]()
