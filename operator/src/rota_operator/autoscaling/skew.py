"""
Foresees what a rebalance moves away from the owner of a partition, with a strategy that balances loads.

Called by `measure` with the rates of one sample. It follows the strategy `load-aware-sticky`, whose plan the leader of the group computes
by its own rates; a test compares both.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from heapq import heapify, heapreplace

from rota_operator.overview.samples import name_of
from rota_operator.overview.view import GroupView

# Strategies that move partitions of an owner with more load than others.
BY_LOAD = ("load-aware-sticky",)
# Members whose loads differ by less than this share of the mean load are not balanced.
HYSTERESIS = 0.05


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The other partitions of a partition's owner, in records per second that arrive."""

    rate: float = 0.0
    # What a rebalance would move to members with less load.
    moving_rate: float = 0.0


NO_NEIGHBOURS = Neighbours()


def neighbours_of(
    names: Collection[str], view: GroupView, rates: Mapping[str, float | None]
) -> Mapping[str, Neighbours]:
    """Return the neighbours of these partitions, by TOPIC-NUMBER; empty if the strategy of the group looks at no load."""
    if view.strategy not in BY_LOAD:
        return {}
    owned: dict[str, dict[str, float]] = {
        each.name: {} for each in view.members if each.member_id is not None and not each.draining
    }
    owners: dict[str, str] = {}
    for each in view.partitions:
        name = name_of(each)
        if each.owner in owned:
            owned[each.owner][name] = rates.get(name) or 0.0
            owners[name] = each.owner
    loads = {owner: sum(partitions.values()) for owner, partitions in owned.items()}
    return {name: _neighbours(name, owners[name], owned, loads) for name in names if name in owners}


def _neighbours(
    name: str, owner: str, owned: Mapping[str, Mapping[str, float]], loads: Mapping[str, float]
) -> Neighbours:
    others = [rate for each, rate in owned[owner].items() if each != name]
    receivers = [load for each, load in loads.items() if each != owner]
    load, moving_rate = loads[owner], 0.0
    least_gap = HYSTERESIS * sum(loads.values()) / len(loads)
    heapify(receivers)
    for rate in sorted(others, reverse=True) if receivers else ():
        # Not if the receiver had more load than the owner then.
        if load - receivers[0] > max(rate, least_gap):
            heapreplace(receivers, receivers[0] + rate)
            load -= rate
            moving_rate += rate
    return Neighbours(sum(others), moving_rate)
