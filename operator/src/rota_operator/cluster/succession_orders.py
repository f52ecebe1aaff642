"""
Orders pods of Deployments to become dynamic members, and passes memberships of pods that end on to those that replace them.

`reconcile.successions` decides from the pods and from the last reports of their sidecars; this module lists the pods, sends the orders, one at
a time to each pod, and remembers what cannot be asked again: memberships that a pod gave up before it ended. Nothing is stored: the
pod that gave a membership up reports it until it ends, to whichever operator leads. At rest nothing is read.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple

from rota_operator.cluster.api import Api
from rota_operator.cluster.errors import ApiError
from rota_operator.cluster.instance_orders import ENDED
from rota_operator.cluster.kinds import POD
from rota_operator.cluster.pod_orders import connected_by_group, holder_of, send_orders
from rota_operator.cluster.process_clocks import ProcessClocks
from rota_operator.cluster.queues import Key
from rota_operator.cluster.settings_orders import ANSWER_S, Fleet, key_of
from rota_operator.fleet.principal import Principal
from rota_operator.reconcile.actions import CLAIM_LABEL
from rota_operator.reconcile.instances import Holder
from rota_operator.reconcile.observed import Object
from rota_operator.reconcile.successions import (
    GivenUp,
    HandOver,
    Join,
    MemberPool,
    Order,
    PodState,
    RemoveMember,
    TakeOver,
    orders,
)
from rota_proto.fleet.v1 import fleet_pb2 as pb


class SuccessionPorts(NamedTuple):
    """Everything else that the successions of a group depend on."""

    fleet: Fleet
    clocks: ProcessClocks
    warn: Callable[[str], None]


class Wanted(NamedTuple):
    """The members that a group is to have, and the uid of its ConsumerGroup."""

    pool: MemberPool
    uid: str


class LastReport(NamedTuple):
    """Last report of a sidecar, and its time by the monotonic clock."""

    member: pb.MemberReport
    at_s: float
    # Time of the first of the reports that say that it awaits a successor.
    awaits_since_s: float
    # The same of those that say that it awaits an order to join.
    awaits_join_since_s: float


class Passed(NamedTuple):
    """A membership that was given up, the pod that may use it, and the time of the last report that says so."""

    given_up: pb.GivenUpMembership
    at_s: float


PodKey = tuple[Key, Holder]
# Group, member id and successor: a membership that was taken over may be given up again.
PassKey = tuple[Key, str, str]


class SuccessionOrders:
    """
    Successions by ConsumerGroup; thread-confined to one event loop.

    Invariant: a membership is sent to the pod that its report names, and to no other one.
    """

    def __init__(self, api: Api, ports: SuccessionPorts) -> None:
        self._api = api
        self._fleet = ports.fleet
        self._clocks = ports.clocks
        self._warn = ports.warn
        self._wanted: dict[Key, Wanted] = {}
        self._reported: dict[PodKey, LastReport] = {}
        # When a pod was seen first, of those that have not reported.
        self._seen_s: dict[PodKey, float] = {}
        self._passed: dict[PassKey, Passed] = {}
        # Those that their successors have answered.
        self._arrived: set[PassKey] = set()
        # Orders that are not answered yet.
        self._under_way: dict[PodKey, Order] = {}
        # The last problem of each group, which is logged once.
        self._problems: dict[Key, str] = {}
        self._news = asyncio.Event()

    def offer(self, key: Key, resource: Object, pool: MemberPool | None) -> None:
        """Order the members of a group to join; None: they join by themselves."""
        if pool is None:
            self.forget(key)
            return
        wanted = Wanted(pool, resource["metadata"]["uid"])
        if self._wanted.get(key) != wanted:
            self._wanted[key] = wanted
            self._news.set()

    def forget(self, key: Key) -> None:
        """Drop a group that is gone."""
        self._wanted.pop(key, None)
        self._problems.pop(key, None)

    def has(self, key: Key) -> bool:
        """Return whether the members of a group are ordered to join."""
        return key in self._wanted

    def reported(self, principal: Principal, member: pb.MemberReport) -> None:
        """Note what a sidecar reports; one that waits for an order is looked at now."""
        pod, now_s = (key_of(principal), holder_of(principal)), self._clocks.monotonic_s()
        known = self._reported.get(pod)
        since_s = known.awaits_since_s if known is not None and known.member.awaits_successor else now_s
        join_since_s = known.awaits_join_since_s if known is not None and known.member.awaits_join else now_s
        self._reported[pod] = LastReport(member, now_s, since_s, join_since_s)
        if member.HasField("given_up_membership"):
            given_up = member.given_up_membership
            self._passed[pod[0], given_up.membership.member_id, given_up.successor] = Passed(given_up, now_s)
        if (own := (pod[0], member.member_id, pod[1].pod)) in self._passed:
            self._arrived.add(own)
        if known is None or content_of(known.member) != content_of(member):
            self._news.set()

    async def run(self) -> None:
        """Send orders until cancelled."""
        await send_orders(self.look, self._news)

    async def look(self) -> Sequence[Coroutine[Any, Any, None]]:
        """Look once at each group in which a pod waits, or is to take a membership over; return the orders to send."""
        connected = connected_by_group(self._fleet, self._wanted)
        self._forget_reports(connected)
        looks = await asyncio.gather(*(self._look_at(key, found) for key, found in connected.items()))
        return [order for found in looks for order in found]

    async def _look_at(
        self, key: Key, connected: Mapping[Holder, Principal]
    ) -> Sequence[Coroutine[Any, Any, None]]:
        wanted = self._wanted.get(key)
        waits = any(self._waits(key, each) for each in connected)
        if wanted is None or not (waits or self._given_up(key)):
            return ()
        try:
            listed = await self._listed(key, wanted)
        except ApiError as error:
            if self._problems.get(key) != str(error):
                self._problems[key] = str(error)
                self._warn(f"members of {key.namespace}/{key.name} cannot be ordered to join: {error}")
            return ()
        if self._wanted.get(key) is not wanted:
            return ()
        self._problems.pop(key, None)
        # From reports of one moment: a membership that was given up while the pods were listed is in both or in neither.
        pods = self._pods(key, listed, connected.keys())
        return [
            self._order(key, connected[each.pod], each, self._message(key, each))
            for each in orders(wanted.pool, pods, self._given_up(key))
            if each.pod in connected and self._begin(key, each)
        ]

    def _waits(self, key: Key, holder: Holder) -> bool:
        """Return whether a sidecar waits for an order, or is to give its membership up."""
        last = self._reported.get((key, holder))
        return last is not None and (
            last.member.awaits_join or last.member.awaits_successor or bool(last.member.successor)
        )

    def _given_up(self, key: Key) -> Sequence[GivenUp]:
        """Return the memberships that have not arrived."""
        return [
            GivenUp(member_id, successor)
            for (of, member_id, successor) in self._passed
            if of == key and (of, member_id, successor) not in self._arrived
        ]

    async def _listed(self, key: Key, wanted: Wanted) -> Sequence[Object]:
        return [each async for each in self._api.list(POD, key.namespace, f"{CLAIM_LABEL}={wanted.uid}")]

    def _pods(self, key: Key, listed: Sequence[Object], connected: Collection[Holder]) -> Sequence[PodState]:
        found, now_s = [], self._clocks.monotonic_s()
        for each in listed:
            metadata = each["metadata"]
            holder = Holder(metadata["name"], metadata["uid"])
            phase = (each.get("status") or {}).get("phase")
            last = self._reported.get((key, holder))
            last_s = self._seen_s.setdefault((key, holder), now_s) if last is None else last.at_s
            member = pb.MemberReport() if last is None else last.member
            under_way = self._under_way.get((key, holder))
            successor = member.successor
            if isinstance(under_way, HandOver) and under_way.successor is not None:
                successor = under_way.successor.pod
            awaits_ms = 0 if last is None else int((now_s - last.awaits_since_s) * 1000)
            awaits_join_ms = 0 if last is None else int((now_s - last.awaits_join_since_s) * 1000)
            is_connected = holder in connected and last is not None
            found.append(
                PodState(
                    holder,
                    metadata["creationTimestamp"],
                    is_connected=is_connected,
                    silent_ms=int((now_s - last_s) * 1000),
                    is_leaving="deletionTimestamp" in metadata,
                    is_running=phase not in ENDED and (is_connected or phase != "Pending"),
                    awaits_join=member.awaits_join and not isinstance(under_way, Join),
                    awaits_join_ms=awaits_join_ms,
                    is_ready=member.ready,
                    is_draining=member.draining,
                    awaits_successor_ms=awaits_ms if member.awaits_successor and not successor else None,
                    successor=successor,
                    has_given_up=member.HasField("given_up_membership"),
                    member_id=member.member_id,
                )
            )
        present = {each.holder for each in found}
        for pod in [pod for pod in self._seen_s if pod[0] == key and pod[1] not in present]:
            del self._seen_s[pod]
        return found

    def _begin(self, key: Key, order: Order) -> bool:
        """Return whether an order may be sent: one at a time to each pod."""
        if (key, order.pod) in self._under_way:
            return False
        self._under_way[key, order.pod] = order
        return True

    async def _order(self, key: Key, principal: Principal, order: Order, message: pb.SidecarOrder) -> None:
        """Send an order. Without an answer the sidecar still says that it waits, and is ordered again."""
        try:
            answer = await self._fleet.order(principal.sidecar, message, ANSWER_S)
        finally:
            self._under_way.pop((key, order.pod), None)
        if not answer.order_id:
            return
        if answer.error:
            self._warn(f"{principal.sidecar.pod} of {principal.group} refuses an order: {answer.error}")
            return
        if isinstance(order, TakeOver):
            self._arrived.add((key, order.member_id, order.pod.pod))
        if isinstance(order, RemoveMember):
            self._arrived.update(each for each in self._passed if each[:2] == (key, order.member_id))
        self._news.set()

    def _message(self, key: Key, order: Order) -> pb.SidecarOrder:
        match order:
            case Join():
                return pb.SidecarOrder(join=pb.Join())
            case HandOver(successor=None):
                return pb.SidecarOrder(hand_over=pb.HandOver(no_successor=True))
            case HandOver(successor=successor):
                assert successor is not None
                return pb.SidecarOrder(hand_over=pb.HandOver(successor=successor.pod))
            case RemoveMember(member_id=member_id):
                return pb.SidecarOrder(remove_instances=pb.RemoveInstances(member_ids=[member_id]))
            case TakeOver(pod=pod, member_id=member_id):
                given_up = self._passed[key, member_id, pod.pod].given_up
                take_over = pb.TakeOver(membership=given_up.membership, successor=given_up.successor)
                return pb.SidecarOrder(take_over=take_over)

    def _forget_reports(self, connected: Mapping[Key, Mapping[Holder, Principal]]) -> None:
        """Forget sidecars and memberships of which the coordinator has forgotten the member by now."""
        now_s = self._clocks.monotonic_s()

        def is_over(key: Key, at_s: float) -> bool:
            wanted = self._wanted.get(key)
            return wanted is None or (now_s - at_s) * 1000 > wanted.pool.silence_ms_max

        for pod in [pod for pod, last in self._reported.items() if is_over(pod[0], last.at_s)]:
            if pod[1] not in connected.get(pod[0], {}):
                del self._reported[pod]
        for member in [each for each, passed in self._passed.items() if is_over(each[0], passed.at_s)]:
            del self._passed[member]
            self._arrived.discard(member)
        for pod in [pod for pod in self._seen_s if pod[0] not in self._wanted or pod in self._reported]:
            del self._seen_s[pod]


def content_of(member: pb.MemberReport) -> object:
    """Return what decides about a sidecar's orders."""
    return (
        member.member_id,
        member.awaits_join,
        member.ready,
        member.draining,
        member.awaits_successor,
        member.successor,
        member.HasField("given_up_membership"),
    )
