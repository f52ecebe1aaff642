"""
Removes static members without a successor whose pods have ended and did not leave the group. Part of `instance_orders`.

A pod that is scaled away is ordered to leave the group while it drains. One that drains sooner than the order arrives keeps its place, and
its partitions, until its session times out: then another member of the group is ordered to remove it. The name stays with its
holder meanwhile, so that no new pod is removed instead.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from rota_operator.cluster.process_clocks import ProcessClocks
from rota_operator.cluster.queues import Key
from rota_operator.cluster.settings_orders import ANSWER_S, Fleet
from rota_operator.fleet.principal import Principal
from rota_operator.reconcile.instances import Holder, InstancePool
from rota_proto.fleet.v1 import fleet_pb2 as pb


class Abandoned(NamedTuple):
    """An instance whose pod is over."""

    key: Key
    name: str
    holder: Holder


class AbandonedInstances:
    """Instances to remove; thread-confined to one event loop. Invariant: no instance is given out while its removal is under way."""

    def __init__(self, fleet: Fleet, clocks: ProcessClocks, warn: Callable[[str], None]) -> None:
        self._fleet = fleet
        self._clocks = clocks
        self._warn = warn
        # When each was first seen without a successor, by the monotonic clock.
        self._since_s: dict[Abandoned, float] = {}
        self._removed: set[Abandoned] = set()
        self._under_way: set[Key] = set()
        self._problems: dict[Key, str] = {}

    def is_under_way(self, key: Key) -> bool:
        """Return whether a member of the group has been ordered to remove others and has not answered."""
        return key in self._under_way

    def left_of(self, key: Key, pool: InstancePool, vacant: Mapping[str, Holder]) -> AbstractSet[str]:
        """
        Return those of the names without a successor that are still to be removed.

        After the session timeout the coordinator has removed them by itself.
        """
        found = {Abandoned(key, name, holder) for name, holder in vacant.items()}
        self._forget(each for each in self._since_s if each.key == key and each not in found)
        now_s = self._clocks.monotonic_s()
        for each in found:
            self._since_s.setdefault(each, now_s)
        return {
            each.name
            for each in found - self._removed
            if (now_s - self._since_s[each]) * 1000 <= pool.silence_ms_max
        }

    async def remove(self, key: Key, by: Principal, instances: Mapping[str, Holder]) -> None:
        """Order a connected member of the group to remove these instances."""
        self._under_way.add(key)
        try:
            order = pb.SidecarOrder(remove_instances=pb.RemoveInstances(names=sorted(instances)))
            answer = await self._fleet.order(by.sidecar, order, ANSWER_S)
        finally:
            self._under_way.discard(key)
        if answer.order_id and not answer.error:
            self._removed |= {Abandoned(key, name, holder) for name, holder in instances.items()}
            self._problems.pop(key, None)
        elif self._problems.get(key) != answer.error:
            self._problems[key] = answer.error
            self._warn(self._problem(key, by, instances, answer.error))

    def forget(self, key: Key) -> None:
        """Drop a group that is gone."""
        self._forget([each for each in self._since_s if each.key == key])
        self._problems.pop(key, None)

    def _forget(self, abandoned: Iterable[Abandoned]) -> None:
        for each in [*abandoned]:
            del self._since_s[each]
            self._removed.discard(each)

    def _problem(self, key: Key, by: Principal, names: Collection[str], error: str) -> str:
        return (
            f"{by.sidecar.pod} cannot remove {', '.join(sorted(names))} from the group of {key.namespace}/{key.name}, although no pod succeeds it: "
            f"{error}; until it can, or the session times out, partitions of it have no owner"
        )
