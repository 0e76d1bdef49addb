"""Controllers: how much to draft, decided anew before every step. One policy a file, and a line below."""

from __future__ import annotations

from collections.abc import Callable

from localspec.control import ema, throughput
from localspec.control.adaspec import ConfidenceGoodput
from localspec.control.base import Controller, FixedLength, Off
from localspec.control.cost import CostController
from localspec.control.ema import EmaTiers
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

Maker = Callable[[str, LiveCost, int, int], Controller]

POLICIES: dict[str, Maker] = {
    # Every maker takes what stands behind the colon, the costs, the longest draft and its branches.
    "cost": lambda argument, cost, longest, leaves: CostController(cost, longest=longest, leaves=leaves),  # noqa: ARG005
    "fixed": lambda argument, cost, longest, leaves: _fixed(argument or str(longest), leaves),  # noqa: ARG005
    "ema": lambda argument, cost, longest, leaves: EmaTiers(  # noqa: ARG005
        parse_tiers("ema", argument) if argument else ema.TIERS, longest=longest, leaves=leaves
    ),
    "throughput": lambda argument, cost, longest, leaves: ThroughputTiers(
        cost,
        parse_tiers("throughput", argument, least=1) if argument else throughput.TIERS,
        longest=longest,
        leaves=leaves,
    ),
    "adaspec": lambda argument, cost, longest, leaves: ConfidenceGoodput(  # noqa: ARG005
        cost, longest=longest, leaves=leaves
    ),
    "turbospec": lambda argument, cost, longest, leaves: Goodput(cost, longest=longest, leaves=leaves),  # noqa: ARG005
    "heuristic": lambda argument, cost, longest, leaves: Heuristic(longest=longest, leaves=leaves),  # noqa: ARG005
    "off": lambda argument, cost, longest, leaves: Off("switched off by its policy"),  # noqa: ARG005
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


def make_controller(policy: str, cost: LiveCost, *, longest: int, leaves: int = 1) -> Controller:
    """The controller that `policy` names.

    Args:
        policy: a name of `POLICIES`, with an argument behind a colon where it takes one.
        cost: what passes cost; the controller keeps it up to date.
        longest: draft tokens a step at most.
        leaves: branches of a draft at most.

    Raises:
        UsageError: an unknown policy or argument.
    """
    check_policy(policy)
    name, _, argument = policy.partition(":")
    return POLICIES[name](argument, cost, longest, leaves)


def _fixed(argument: str, leaves: int) -> FixedLength:
    length = _length(argument)
    branches = f" on {leaves} branches" if leaves > 1 else ""
    return FixedLength(length, f"on, up to {length} draft tokens a step{branches}", leaves=leaves)


def _length(argument: str) -> int:
    if not argument.isdecimal() or int(argument) < 1:
        raise UsageError(f"A fixed draft length is 1 or more, not '{argument}'; write for example fixed:8.")
    return int(argument)
