"""
Decides which assignment strategies the sidecars of a group offer while it changes from one to another: two rounds.

First all offer the new one and, after it, the former one, which stands in the group's ConfigMap; so does a pod that starts meanwhile.
Once the group has chosen the new one, and every sidecar offers it, the former one is dropped. The ConfigMap is the only memory of
this: the next operator goes on from there. A sidecar that cannot offer the new strategy keeps the group at the former one.
"""

import json
from collections.abc import Sequence
from typing import NamedTuple

from rota_operator.reconcile.observed import GroupStrategies, Object
from rota_operator.reconcile.settings import SETTINGS_FILE

# Between the names in the setting assignment.strategy.
SEPARATOR = ","
# Named in a message.
PODS_MAX = 10


class Offer(NamedTuple):
    """The strategies to offer, the preferred one first, and why they are not those of the spec alone; empty: they are."""

    names: tuple[str, ...]
    waits_for: str = ""

    @property
    def text(self) -> str:
        """The setting."""
        return SEPARATOR.join(self.names)


def names_in(text: str) -> tuple[str, ...]:
    """Return the strategies of a setting."""
    return tuple(each.strip() for each in text.split(SEPARATOR) if each.strip())


def offer(wanted: Sequence[str], written: Sequence[str], group: GroupStrategies, *, has_pods: bool) -> Offer:
    """
    Return the strategies that the ConfigMap is to have: the wanted ones, then those of `written` that are still in use.

    >>> offer(("range",), ("sticky",), GroupStrategies("sticky"), has_pods=True).names
    ('range', 'sticky')
    >>> offer(("range",), ("range", "sticky"), GroupStrategies("range"), has_pods=True).names
    ('range',)
    """
    wanted, written = tuple(wanted), tuple(written)
    former = _still_needed(wanted, written, group)
    if not former or not has_pods:
        return Offer(wanted)
    if written[: len(wanted)] != wanted:
        # No sidecar has its order yet.
        return Offer((*wanted, *former), "the sidecars to offer it")
    waits_for = _obstacle(wanted, group)
    return Offer((*wanted, *former), waits_for) if waits_for else Offer(wanted)


def _chosen(group: GroupStrategies) -> frozenset[str]:
    """Return the strategies of the group's generation; several while members differ about it."""
    return frozenset({group.chosen, *(each.chosen for each in group.sidecars.values())} - {""})


def _still_needed(
    wanted: tuple[str, ...], written: tuple[str, ...], group: GroupStrategies
) -> tuple[str, ...]:
    """
    Return those of the written strategies that a sidecar may have no other than.

    Every member offers the one that the group has chosen. Any other is left out: a sidecar that lacks it would refuse the order.
    """
    chosen = _chosen(group)
    needed = set(chosen) if chosen else set(written)
    for each in group.sidecars.values():
        if each.offered and not needed.union(wanted).intersection(each.offered):
            needed.update(each.offered)
    return tuple(name for name in written if name in needed and name not in wanted)


def _obstacle(wanted: Sequence[str], group: GroupStrategies) -> str:
    """Return what the second round waits for; empty: nothing."""
    late = sorted(
        pod for pod, each in group.sidecars.items() if each.offered and not set(wanted) <= set(each.offered)
    )
    if late:
        return f"{', '.join(late[:PODS_MAX])}{'…' if len(late) > PODS_MAX else ''} to offer it"
    chosen = _chosen(group)
    if not chosen <= set(wanted):
        return f"a rebalance of the group, which uses {', '.join(sorted(chosen - set(wanted)))}"
    return "" if chosen else "the group to have members"


def written_in(config_map: Object | None) -> tuple[str, ...]:
    """Return the strategies that the ConfigMap has; empty: it does not exist, or cannot be read."""
    text = "" if config_map is None else (config_map.get("data") or {}).get(SETTINGS_FILE, "")
    try:
        found = json.loads(text).get("assignment", {}).get("strategy", "")
    except (ValueError, AttributeError):
        return ()
    return names_in(found) if isinstance(found, str) else ()
