"""Controllers: how much to draft, decided anew before every step. One policy a file, and a line below."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from localspec.control import ema, throughput
from localspec.control.adaspec import ConfidenceGoodput
from localspec.control.base import Controller, FixedLength, Off
from localspec.control.cost import CostController
from localspec.control.ema import EmaTiers
from localspec.control.estimates import AcceptanceEstimates
from localspec.control.heuristic import Heuristic
from localspec.control.live_cost import LiveCost
from localspec.control.throughput import ThroughputTiers
from localspec.control.tiers import parse_tiers
from localspec.control.turbospec import Goodput
from localspec.errors import UsageError

__all__ = [
    "DEFAULT_POLICY",
    "POLICIES",
    "Controller",
    "CostController",
    "FixedLength",
    "LiveCost",
    "Off",
    "check_policy",
    "make_controller",
]


@dataclass(frozen=True, slots=True)
class Means:
    """What a controller is made of.

    Attributes:
        argument: what stands behind the policy's colon, "" for nothing.
        cost: what passes cost; the controller keeps it up to date.
        estimates: how often draft tokens were accepted; likewise.
        longest: draft tokens a step at most.
        leaves: branches of a draft at most.
    """

    argument: str
    cost: LiveCost
    estimates: AcceptanceEstimates
    longest: int
    leaves: int


POLICIES: dict[str, Callable[[Means], Controller]] = {
    "cost": lambda m: CostController(m.cost, m.estimates, longest=m.longest, leaves=m.leaves),
    "fixed": lambda m: _fixed(m.argument or str(m.longest), m.leaves),
    "ema": lambda m: EmaTiers(
        parse_tiers("ema", m.argument) if m.argument else ema.TIERS, longest=m.longest, leaves=m.leaves
    ),
    "throughput": lambda m: ThroughputTiers(
        m.cost,
        parse_tiers("throughput", m.argument, least=1) if m.argument else throughput.TIERS,
        longest=m.longest,
        leaves=m.leaves,
    ),
    "adaspec": lambda m: ConfidenceGoodput(m.cost, longest=m.longest, leaves=m.leaves),
    "turbospec": lambda m: Goodput(m.cost, longest=m.longest, leaves=m.leaves),
    "heuristic": lambda m: Heuristic(longest=m.longest, leaves=m.leaves),
    "off": lambda m: Off("switched off by its policy"),  # noqa: ARG005 - every maker takes the means
}
"""Values of --policy; a length may follow "fixed" (fixed:8), tiers "ema" and "throughput" (ema:0/1/3)."""

_ARGUMENTS: dict[str, Callable[[str], object]] = {
    "fixed": lambda argument: _length(argument),
    "ema": lambda argument: parse_tiers("ema", argument),
    "throughput": lambda argument: parse_tiers("throughput", argument, least=1),
}
"""Policies that take something behind a colon, and what checks it."""

DEFAULT_POLICY = "cost"


def check_policy(policy: str) -> None:
    """Raise `UsageError` for a policy that there is not, or with an argument that it cannot use."""
    name, colon, argument = policy.partition(":")
    if name not in POLICIES:
        raise UsageError(f"There is no policy '{policy}'; use one of: {', '.join(POLICIES)}.")
    if not colon:
        return
    if name in _ARGUMENTS:
        _ARGUMENTS[name](argument)
    else:
        raise UsageError(f"The policy '{name}' takes no argument; leave out ':{argument}'.")


def make_controller(
    policy: str,
    cost: LiveCost,
    *,
    longest: int,
    leaves: int = 1,
    estimates: AcceptanceEstimates | None = None,
) -> Controller:
    """The controller that `policy` names.

    Args:
        policy: a name of `POLICIES`, with an argument behind a colon where it takes one.
        cost: what passes cost; the controller keeps it up to date.
        longest: draft tokens a step at most.
        leaves: branches of a draft at most.
        estimates: what was learnt of acceptance before; None begins anew.

    Raises:
        UsageError: an unknown policy or argument.
    """
    check_policy(policy)
    name, _, argument = policy.partition(":")
    learnt = AcceptanceEstimates() if estimates is None else estimates
    return POLICIES[name](Means(argument, cost, learnt, longest, leaves))


def _fixed(argument: str, leaves: int) -> FixedLength:
    length = _length(argument)
    branches = f" on {leaves} branches" if leaves > 1 else ""
    return FixedLength(length, f"on, up to {length} draft tokens a step{branches}", leaves=leaves)


def _length(argument: str) -> int:
    if not argument.isdecimal() or int(argument) < 1:
        raise UsageError(f"A fixed draft length is 1 or more, not '{argument}'; write for example fixed:8.")
    return int(argument)
