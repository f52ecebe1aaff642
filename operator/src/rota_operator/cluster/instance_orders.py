"""
Gives static members of Deployments their instances, as Fleet orders, beside the reconciles; `reconcile.instances` decides.

Who holds which instance is in the ConfigMap `rota-<name>-instances`, one key for each. It is written, in the version that was
read, before a sidecar gets its order, so two leaders cannot give one instance to two pods. At rest nothing is read or written.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rota_operator.cluster.abandoned_instances import AbandonedInstances
from rota_operator.cluster.api import Api
from rota_operator.cluster.errors import ApiError, Conflict
from rota_operator.cluster.kinds import CONFIG_MAP, POD
from rota_operator.cluster.perform import of_version, owned_by
from rota_operator.cluster.pod_orders import connected_by_group, holder_of, send_orders
from rota_operator.cluster.process_clocks import ProcessClocks
from rota_operator.cluster.queues import Key
from rota_operator.cluster.settings_orders import ANSWER_S, Fleet, key_of
from rota_operator.fleet.principal import Principal
from rota_operator.overview.description import Description
from rota_operator.reconcile.actions import CLAIM_LABEL
from rota_operator.reconcile.instances import (
    Holder,
    InstancePool,
    PodSeen,
    assigned,
    hand_overs,
    scaled_away,
)
from rota_operator.reconcile.observed import Object
from rota_proto.fleet.v1 import fleet_pb2 as pb

# A busy kubelet sees late that a pod is deleted, and counts its grace period from then.
KUBELET_DELAY_MS = 120_000
ENDED = ("Succeeded", "Failed")


class InstancePorts(NamedTuple):
    """Everything else that the instances of a group depend on."""

    fleet: Fleet
    # None: the group is not described now.
    description: Callable[[Key], Description | None]
    clocks: ProcessClocks
    warn: Callable[[str], None]


class Wanted(NamedTuple):
    """The instances of a group, and the metadata of what belongs to it."""

    pool: InstancePool
    resource: Object


class LastReport(NamedTuple):
    """Last report of a sidecar about itself, and its time by the monotonic clock."""

    instance: str
    is_draining: bool
    # The instance that another process has taken from it; empty: none.
    fenced: str
    # The instance that it has given up while it drains, for a successor; empty: none.
    given_up: str
    is_ready: bool
    # It serves its application, although its pod ends, until it is ordered to hand its instance over.
    awaits_successor: bool
    at_s: float
    # Time of the first of the reports that say so.
    awaits_since_s: float


class Ledger(NamedTuple):
    """The ConfigMap as it was read or written last."""

    holders: Mapping[str, Holder]
    # Empty: it does not exist yet.
    version: str


class InstanceOrders:
    """
    Instances by ConsumerGroup; thread-confined to one event loop.

    Invariant: a sidecar gets the order only after the ConfigMap names its pod as the holder.
    """

    def __init__(self, api: Api, ports: InstancePorts) -> None:
        self._api = api
        self._fleet = ports.fleet
        self._description = ports.description
        self._clocks = ports.clocks
        self._warn = ports.warn
        self._wanted: dict[Key, Wanted] = {}
        self._ledgers: dict[Key, Ledger] = {}
        # Of sidecars that have connected since this process leads.
        self._reported: dict[tuple[Key, Holder], LastReport] = {}
        # Sidecars with an order that is not answered yet.
        self._under_way: set[tuple[Key, Holder]] = set()
        # Sidecars that wait for a successor in groups whose pods get none from here.
        self._unwanted: dict[tuple[Key, Holder], Principal] = {}
        # Sidecars that have an order to leave the group.
        self._drained: set[tuple[Key, Holder]] = set()
        self._abandoned = AbandonedInstances(ports.fleet, ports.clocks, ports.warn)
        # The last problem of each group, which is logged once.
        self._problems: dict[Key, str] = {}
        self._since_s = ports.clocks.monotonic_s()
        self._news = asyncio.Event()

    def offer(self, key: Key, resource: Object, pool: InstancePool | None) -> None:
        """Give the sidecars of a group their instances from this pool; None: they need none."""
        if pool is None:
            self.forget(key)
        elif key not in self._wanted or self._wanted[key].pool != pool:
            self._wanted[key] = Wanted(pool, resource)
            self._news.set()

    def forget(self, key: Key) -> None:
        """Drop a group that is gone."""
        self._wanted.pop(key, None)
        self._ledgers.pop(key, None)
        self._problems.pop(key, None)
        self._abandoned.forget(key)

    def reported(self, principal: Principal, member: pb.MemberReport) -> None:
        """Note a sidecar's instance. One that begins to drain is looked at now: it may have no successor."""
        key, holder, now_s = key_of(principal), holder_of(principal), self._clocks.monotonic_s()
        if key not in self._wanted:
            if member.awaits_successor:
                self._unwanted[key, holder] = principal
                self._news.set()
            return
        known = self._reported.get((key, holder))
        last = LastReport(
            member.group_instance_id,
            member.draining,
            member.fenced_instance_id,
            member.given_up_instance_id,
            member.ready,
            member.awaits_successor,
            now_s,
            known.awaits_since_s if known is not None and known.awaits_successor else now_s,
        )
        if known is None or known[:6] != last[:6]:
            self._news.set()
        self._reported[key, holder] = last

    def is_holder(self, key: Key, name: str, holder: Holder) -> bool:
        """Return whether a pod has an instance. In a group whose pods get none from here each has its own."""
        if key not in self._wanted:
            return True
        ledger = self._ledgers.get(key)
        return ledger is not None and ledger.holders.get(name) == holder

    async def run(self) -> None:
        """Give out instances until cancelled."""
        await send_orders(self.look, self._news)

    async def look(self) -> Sequence[Coroutine[Any, Any, None]]:
        """Look once at each group whose holders are not exactly its connected sidecars, or change; return the orders to send."""
        connected = connected_by_group(self._fleet, self._wanted)
        self._forget_reports(connected)
        unwanted, self._unwanted = self._unwanted, {}
        ends = [
            self._hand_over(key, principal, has_successor=False)
            for (key, holder), principal in unwanted.items()
            if key not in self._wanted and self._begin(key, holder)
        ]
        looks = await asyncio.gather(*(self._look_at(key, found) for key, found in connected.items()))
        return [*ends, *(order for orders in looks for order in orders)]

    async def _look_at(
        self, key: Key, connected: Mapping[Holder, Principal]
    ) -> Sequence[Coroutine[Any, Any, None]]:
        if self._abandoned.is_under_way(key):
            return ()
        wanted = self._wanted[key]
        leaving: Sequence[PodSeen] = ()
        handed_over: Mapping[Holder, bool] = {}
        abandoned: Mapping[str, Holder] = {}
        try:
            ledger = self._ledgers.get(key) or await self._read(key)
            awaits = any(self._awaits_successor(key, each) for each in connected)
            if awaits or not is_at_rest(ledger, wanted.pool, connected.keys()):
                pods = await self._pods(key, wanted, connected.keys(), ledger)
                leaving = scaled_away(wanted.pool, ledger.holders, pods)
                holders = assigned(wanted.pool, ledger.holders, pods)
                handed_over = hand_overs(wanted.pool, holders, pods)
                abandoned = self._abandoned_by(key, wanted.pool, ledger, holders)
                ledger = await self._write(key, wanted, ledger, {**holders, **abandoned})
        except Conflict:
            # Another writer was first: read again in the next round.
            self._ledgers.pop(key, None)
            return ()
        except ApiError as error:
            if self._problems.get(key) != str(error):
                self._problems[key] = str(error)
                self._warn(f"instances of {key.namespace}/{key.name} cannot be given out: {error}")
            return ()
        if self._wanted.get(key) is not wanted:
            return ()
        self._problems.pop(key, None)
        self._ledgers[key] = ledger
        return [
            *(
                self._drain(key, connected[each.holder], wanted.pool.termination_ms)
                for each in leaving
                if self._begin(key, each.holder)
            ),
            *(
                self._hand_over(key, connected[holder], has_successor=has_successor)
                for holder, has_successor in handed_over.items()
                if self._begin(key, holder)
            ),
            *self._names(key, ledger, connected),
            *self._removals(key, ledger, connected, abandoned),
        ]

    def _abandoned_by(
        self, key: Key, pool: InstancePool, ledger: Ledger, holders: Mapping[str, Holder]
    ) -> Mapping[str, Holder]:
        """Return the instances that no pod of `holders` has or succeeds, and whose members are still to be removed from the group."""
        vacant = {name: holder for name, holder in ledger.holders.items() if name not in holders}
        return {name: vacant[name] for name in self._abandoned.left_of(key, pool, vacant)}

    def _removals(
        self, key: Key, ledger: Ledger, connected: Mapping[Holder, Principal], abandoned: Mapping[str, Holder]
    ) -> Iterator[Coroutine[Any, Any, None]]:
        """Yield the order to a member that stays to remove the abandoned instances; without one no member needs their partitions."""
        staying = (
            connected[holder]
            for name, holder in sorted(ledger.holders.items())
            if holder in connected
            and (last := self._reported.get((key, holder))) is not None
            and last.instance == name
            and not last.is_draining
        )
        if abandoned and (by := next(staying, None)) is not None:
            yield self._abandoned.remove(key, by, abandoned)

    async def _read(self, key: Key) -> Ledger:
        found = await self._api.find(CONFIG_MAP, key.namespace, name_of(key))
        return Ledger({}, "") if found is None else ledger_of(found)

    async def _write(self, key: Key, wanted: Wanted, ledger: Ledger, holders: Mapping[str, Holder]) -> Ledger:
        """Write the holders if they have changed, in the version that was read."""
        if holders == ledger.holders:
            return ledger
        data: dict[str, str | None] = {name: f"{each.pod} {each.uid}" for name, each in holders.items()}
        if ledger.version:
            gone = dict.fromkeys(ledger.holders.keys() - holders.keys())
            changes = of_version({"data": {**data, **gone}}, ledger.version)
            return ledger_of(await self._api.patch(CONFIG_MAP, key.namespace, name_of(key), changes))
        metadata = {**owned_by(wanted.resource)["metadata"], "name": name_of(key)}
        body = {"metadata": metadata, "data": data}
        return ledger_of(await self._api.create(CONFIG_MAP, key.namespace, body))

    async def _pods(
        self, key: Key, wanted: Wanted, connected: Collection[Holder], ledger: Ledger
    ) -> Sequence[PodSeen]:
        selector = f"{CLAIM_LABEL}={wanted.resource['metadata']['uid']}"
        found = []
        async for each in self._api.list(POD, key.namespace, selector):
            metadata = each["metadata"]
            holder = Holder(metadata["name"], metadata["uid"])
            is_connected, is_leaving = holder in connected, "deletionTimestamp" in metadata
            has_ended = (each.get("status") or {}).get("phase") in ENDED
            is_lost = (
                is_leaving
                and not is_connected
                and self._is_silent(key, holder, wanted.pool)
                and not self._is_member(key, holder, ledger)
            )
            last = self._reported.get((key, holder))
            awaits = is_connected and self._awaits_successor(key, holder)
            found.append(
                PodSeen(
                    holder,
                    metadata["creationTimestamp"],
                    is_connected,
                    is_leaving,
                    has_ended or is_lost or self._has_given_up(key, holder, ledger),
                    is_ready=last is not None and last.is_ready,
                    awaits_successor_ms=self._awaits_ms(last) if awaits else None,
                )
            )
        return found

    def _awaits_successor(self, key: Key, holder: Holder) -> bool:
        """Return whether the pod's sidecar serves its application until it is ordered to hand its instance over."""
        last = self._reported.get((key, holder))
        return last is not None and last.awaits_successor

    def _awaits_ms(self, last: LastReport | None) -> int:
        now_s = self._clocks.monotonic_s()
        return 0 if last is None else int((now_s - last.awaits_since_s) * 1000)

    def _has_given_up(self, key: Key, holder: Holder, ledger: Ledger) -> bool:
        """Return whether the pod's sidecar has ended its membership for a successor, before the pod itself ends."""
        last = self._reported.get((key, holder))
        return last is not None and bool(last.given_up) and ledger.holders.get(last.given_up) == holder

    def _is_silent(self, key: Key, holder: Holder, pool: InstancePool) -> bool:
        """Return whether the pod's sidecar has been silent for longer than its session lasts."""
        last = self._reported.get((key, holder))
        last_s = self._since_s if last is None else last.at_s
        return (self._clocks.monotonic_s() - last_s) * 1000 > pool.silence_ms_max

    def _is_member(self, key: Key, holder: Holder, ledger: Ledger) -> bool:
        """
        Return whether the coordinator describes a member of the pod's instance.

        A sidecar that Fleet does not hear, as after a change of leaders, may still work and commit: a successor would fence it.
        """
        described = self._description(key)
        members = () if described is None else described.members
        return any(ledger.holders.get(each.instance_id) == holder for each in members)

    def _names(
        self, key: Key, ledger: Ledger, connected: Mapping[Holder, Principal]
    ) -> Iterator[Coroutine[Any, Any, None]]:
        """
        Yield an order for each connected sidecar that has reported another instance than its own.

        One that has lost its own to another process gets it from `fenced_instances`.
        """
        for name, holder in ledger.holders.items():
            last = self._reported.get((key, holder))
            if (
                holder in connected
                and last is not None
                and name not in (last.instance, last.fenced, last.given_up)
                and self._begin(key, holder)
            ):
                yield self._name(key, connected[holder], name)

    def _begin(self, key: Key, holder: Holder) -> bool:
        """Return whether an order may be sent to a sidecar: one at a time, and none to one that has to leave."""
        if (key, holder) in self._under_way or (key, holder) in self._drained:
            return False
        self._under_way.add((key, holder))
        return True

    async def _drain(self, key: Key, principal: Principal, termination_ms: int) -> None:
        """
        Let a member without a successor leave the group: its partitions are needed elsewhere.

        The order is not renewed once it is answered, so it lasts until the pod has ended: a sidecar whose drain is over before would
        take records again, and keep its place in the group.
        """
        within_ms = KUBELET_DELAY_MS + termination_ms
        expires_ms = self._clocks.wall_ms() + within_ms
        order = pb.SidecarOrder(drain=pb.Drain(expires_ms=expires_ms, within_ms=within_ms))
        answer = await self._order(key, principal, order)
        if answer.order_id:
            self._drained.add((key, holder_of(principal)))

    async def _hand_over(self, key: Key, principal: Principal, *, has_successor: bool) -> None:
        """Let a sidecar that waits for its successor drain. Without an answer it still says that it waits, and is ordered again."""
        order = pb.SidecarOrder(hand_over=pb.HandOver(no_successor=not has_successor))
        await self._order(key, principal, order)

    async def _name(self, key: Key, principal: Principal, name: str) -> None:
        answer = await self._order(key, principal, pb.SidecarOrder(instance=pb.Instance(name=name)))
        if answer.order_id and answer.error:
            self._warn(
                f"{principal.sidecar.pod} of {principal.group} refuses the instance {name}: {answer.error}"
            )

    async def _order(self, key: Key, principal: Principal, order: pb.SidecarOrder) -> pb.OrderAnswer:
        try:
            return await self._fleet.order(principal.sidecar, order, ANSWER_S)
        finally:
            self._under_way.discard((key, holder_of(principal)))

    def _forget_reports(self, connected: Mapping[Key, Mapping[Holder, Principal]]) -> None:
        """Forget sidecars that are gone and hold no instance."""
        for key, holder in [*self._reported]:
            ledger = self._ledgers.get(key)
            is_held = ledger is not None and holder in ledger.holders.values()
            if not is_held and holder not in connected.get(key, {}):
                del self._reported[key, holder]
                self._drained.discard((key, holder))


def is_at_rest(ledger: Ledger, pool: InstancePool, connected: Collection[Holder]) -> bool:
    """Return whether all instances are held, by exactly the connected sidecars."""
    held = ledger.holders.values()
    return len(held) == len(connected) == pool.size and set(held) == set(connected)


def name_of(key: Key) -> str:
    """Return the name of the ConfigMap."""
    return f"rota-{key.name}-instances"


def ledger_of(config_map: Object) -> Ledger:
    """Read the ConfigMap. A value that is no pod and uid names no pod that exists: the instance is free."""
    holders = {
        name: Holder(*str(text).partition(" ")[::2]) for name, text in (config_map.get("data") or {}).items()
    }
    return Ledger(holders, config_map["metadata"]["resourceVersion"])
