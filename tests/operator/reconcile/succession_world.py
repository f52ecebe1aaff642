"""A Deployment of dynamic members in memory: pods, sidecars, the coordinator's members, and an operator that may be killed."""

from dataclasses import dataclass, field, replace

from rota_operator.reconcile.instances import REPLACEMENT_MS, Holder
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

# Longer than any history: time-outs are steps of their own.
SILENCE_MS = 1_000_000


@dataclass
class Sidecar:
    """One pod with its sidecar."""

    name: str
    created: str
    is_ready: bool = False
    is_connected: bool = False
    # The operator has said on this stream that it orders members to join.
    is_configured: bool = False
    awaits_join: bool = False
    # Membership that it uses; empty: none.
    member_id: str = ""
    had_member: bool = False
    is_leaving: bool = False
    is_draining: bool = False
    awaits_successor_ms: int | None = None
    successor: str = ""
    given_up: GivenUp | None = None

    @property
    def serves(self) -> bool:
        return bool(self.member_id) and not self.is_draining


@dataclass
class World:
    """Invariant of its assertions: a member id has one user, and changes it only as its user has said."""

    size: int = 3
    sidecars: dict[str, Sidecar] = field(default_factory=dict)
    # Members that the coordinator knows, and the pod that uses each.
    members: dict[str, str] = field(default_factory=dict)
    # Every pod that ever used a member id, in order.
    users: dict[str, list[str]] = field(default_factory=dict)
    # Orders on their way.
    sent: list[tuple[str, Order, str]] = field(default_factory=list)
    # Memory of the operator that leads.
    reports: dict[str, PodState] = field(default_factory=dict)
    passed: dict[str, GivenUp] = field(default_factory=dict)
    arrived: set[str] = field(default_factory=set)
    number: int = 0
    is_led: bool = True

    # The controller of the Deployment

    def create(self) -> None:
        self.number += 1
        name = f"p{self.number:03}"
        self.sidecars[name] = Sidecar(name, name)

    def delete(self, name: str) -> None:
        sidecar = self.sidecars[name]
        sidecar.is_leaving = True
        if sidecar.serves and sidecar.is_connected:
            sidecar.awaits_successor_ms = 0
        else:
            self.drain(sidecar)

    # Sidecars

    def connect(self, name: str) -> None:
        """The sidecar's stream is opened: it reports, and does not know yet whether it is to wait."""
        sidecar = self.sidecars[name]
        if self.is_led and not sidecar.is_connected:
            sidecar.is_connected, sidecar.is_ready = True, True
            self.report(sidecar)

    def configure(self, name: str) -> None:
        """The operator says that it orders members to join."""
        sidecar = self.sidecars[name]
        if sidecar.is_connected and not sidecar.is_configured:
            sidecar.is_configured = True
            sidecar.awaits_join = not sidecar.member_id and not sidecar.is_draining
            self.report(sidecar)

    def disconnect(self, name: str) -> None:
        sidecar = self.sidecars[name]
        sidecar.is_connected = sidecar.is_configured = sidecar.awaits_join = False
        if sidecar.awaits_successor_ms is not None:
            self.drain(sidecar)

    def join_by_itself(self, name: str) -> None:
        """The time is over in which the operator might have said that the sidecar is to wait; it is heard of later."""
        sidecar = self.sidecars[name]
        if not sidecar.is_configured and not sidecar.member_id and not sidecar.is_leaving:
            self.become(sidecar, f"id-{name}")

    def become(self, sidecar: Sidecar, member_id: str) -> None:
        assert not sidecar.member_id
        sidecar.member_id, sidecar.had_member, sidecar.awaits_join = member_id, True, False
        self.users.setdefault(member_id, []).append(sidecar.name)
        if member_id in self.members:
            assert self.members[member_id] == "", f"{member_id} has a user"
        self.members[member_id] = sidecar.name

    def drain(self, sidecar: Sidecar) -> None:
        sidecar.is_draining, sidecar.awaits_successor_ms, sidecar.awaits_join = True, None, False

    def finish(self, name: str) -> None:
        """A drain ends: with a successor the membership is given up, else the member leaves."""
        sidecar = self.sidecars[name]
        if not sidecar.is_draining or not sidecar.member_id:
            return
        member_id, sidecar.member_id = sidecar.member_id, ""
        if sidecar.successor and sidecar.is_connected:
            sidecar.given_up = GivenUp(member_id, sidecar.successor)
            if member_id in self.members:
                self.members[member_id] = ""
            self.report(sidecar)
        else:
            self.members.pop(member_id, None)
        sidecar.successor = ""

    def end(self, name: str) -> None:
        """A pod that drains ends."""
        sidecar = self.sidecars[name]
        if sidecar.is_leaving and sidecar.is_draining:
            self.finish(name)
            del self.sidecars[name]

    def die(self, name: str) -> None:
        """A pod is gone without a word; its member stays until its session times out."""
        sidecar = self.sidecars.pop(name)
        if sidecar.member_id in self.members:
            self.members[sidecar.member_id] = "dead"

    def time_out(self) -> None:
        """Sessions of members without a user time out, and the operator forgets what it remembers for as long."""
        self.members = {each: pod for each, pod in self.members.items() if pod not in ("", "dead")}
        self.passed.clear()
        self.arrived.clear()

    # The operator

    def kill_operator(self) -> None:
        self.is_led = False
        self.reports.clear()
        self.passed.clear()
        self.arrived.clear()
        self.sent.clear()
        for name in self.sidecars:
            self.disconnect(name)

    def lead(self) -> None:
        self.is_led = True

    def report(self, sidecar: Sidecar) -> None:
        self.reports[sidecar.name] = self.state(sidecar)
        if sidecar.given_up is not None:
            self.passed[sidecar.given_up.member_id] = sidecar.given_up
        if (passed := self.passed.get(sidecar.member_id)) is not None and passed.successor == sidecar.name:
            self.arrived.add(sidecar.member_id)

    def state(self, sidecar: Sidecar) -> PodState:
        return PodState(
            Holder(sidecar.name, f"uid-{sidecar.name}"),
            sidecar.created,
            is_connected=sidecar.is_connected,
            is_leaving=sidecar.is_leaving,
            awaits_join=sidecar.awaits_join,
            is_ready=sidecar.is_ready,
            is_draining=sidecar.is_draining,
            awaits_successor_ms=sidecar.awaits_successor_ms,
            successor=sidecar.successor,
            has_given_up=sidecar.given_up is not None,
            member_id=sidecar.member_id,
        )

    def look(self) -> None:
        """Decide, and send orders: one at a time to each pod."""
        if not self.is_led:
            return
        pods = []
        for name, sidecar in self.sidecars.items():
            unknown = PodState(Holder(name, f"uid-{name}"), sidecar.created, is_connected=False)
            known = self.reports.get(name, unknown)
            for to, order, _ in self.sent:
                if to == name and isinstance(order, Join):
                    known = replace(known, awaits_join=False)
                if to == name and isinstance(order, HandOver) and order.successor is not None:
                    known = replace(known, successor=order.successor.pod, awaits_successor_ms=None)
            connected = sidecar.is_connected and name in self.reports
            pods.append(replace(known, is_connected=connected, is_leaving=sidecar.is_leaving))
        given_up = [each for each in self.passed.values() if each.member_id not in self.arrived]
        busy = {name for name, _, _ in self.sent}
        ordered = orders(MemberPool(self.size, SILENCE_MS), pods, given_up)
        members = sum(bool(each.member_id) and not each.is_leaving for each in self.sidecars.values())
        joining = sum(isinstance(each, Join) for each in ordered)
        assert joining <= max(0, self.size - members), "one joins too many, heard of or not"
        for order in ordered:
            if order.pod.pod in busy:
                continue
            successor = self.passed[order.member_id].successor if isinstance(order, TakeOver) else ""
            self.sent.append((order.pod.pod, order, successor))

    def deliver(self, index: int) -> None:
        """Deliver one of the orders under way."""
        name, order, successor = self.sent.pop(index % len(self.sent))
        sidecar = self.sidecars.get(name)
        if sidecar is None or not sidecar.is_connected:
            return
        match order:
            case Join():
                if sidecar.awaits_join:
                    self.become(sidecar, f"id-{name}")
            case HandOver():
                self.hand_over(sidecar, "" if order.successor is None else order.successor.pod)
            case RemoveMember():
                assert self.members.get(order.member_id, "") in ("", "dead"), "removed while a pod uses it"
                self.members.pop(order.member_id, None)
                self.arrived.add(order.member_id)
            case TakeOver():
                assert successor == name, "it was given up for another pod"
                self.take_over(sidecar, order.member_id)
        self.report(sidecar)

    def hand_over(self, sidecar: Sidecar, successor: str) -> None:
        if not successor or sidecar.awaits_successor_ms is not None or sidecar.successor:
            sidecar.successor = successor
        if sidecar.awaits_successor_ms is not None:
            self.drain(sidecar)

    def take_over(self, sidecar: Sidecar, member_id: str) -> None:
        if sidecar.member_id == member_id:
            return
        if sidecar.awaits_join:
            # A coordinator that has forgotten the member gives it another id.
            self.become(sidecar, member_id if member_id in self.members else f"id-{sidecar.name}")
        else:
            assert self.members.get(member_id, "") in ("", "dead"), "removed while a pod uses it"
            self.members.pop(member_id, None)
        self.arrived.add(member_id)

    def lose(self, index: int) -> None:
        """Lose one of the orders under way."""
        self.sent.pop(index % len(self.sent))

    def settle(self) -> None:
        """End all faults, and let everything go on until nothing changes."""
        self.lead()
        for _ in range(40):
            self.scale()
            for name in [*self.sidecars]:
                self.connect(name)
                self.configure(name)
            for sidecar in self.sidecars.values():
                if sidecar.awaits_successor_ms is not None:
                    sidecar.awaits_successor_ms += REPLACEMENT_MS
                self.report(sidecar)
            self.look()
            while self.sent:
                self.deliver(0)
            for name in [*self.sidecars]:
                self.end(name)
        self.time_out()

    def scale(self) -> None:
        """Create and delete pods until there are as many as are wanted."""
        living = [each for each in self.sidecars.values() if not each.is_leaving]
        for _ in range(self.size - len(living)):
            self.create()
        for each in sorted(living, key=lambda each: each.created)[self.size :]:
            self.delete(each.name)
