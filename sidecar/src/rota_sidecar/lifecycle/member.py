"""
Runs the member of a sidecar, and replaces it by another one when Fleet renames the instance.

Run by `process.sidecar`; `fleet.orders` and `lifecycle.drain` post commands through it.
"""

from collections.abc import Mapping
from dataclasses import replace

from rota_sidecar import wiring
from rota_sidecar.config.sidecar_config import SidecarConfig
from rota_sidecar.core.member import events as on
from rota_sidecar.core.member.actions import Ended, GiveUpMembership, Joined, Problem
from rota_sidecar.core.member.identity import SavedMembership
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.delivery.driver import DeliveryDriver
from rota_sidecar.lifecycle.succession import Succession
from rota_sidecar.membership.driver import MemberEvent, Membership
from rota_sidecar.membership.fenced_file import FencedFile
from rota_sidecar.membership.state_file import StateFile
from rota_sidecar.observability.counters import CountedCoordination, Counters
from rota_sidecar.wiring import Strategies


def offers_meanwhile(wanted: tuple[str, ...], chosen: str, offered: tuple[str, ...]) -> tuple[str, ...]:
    """
    Return the strategies to offer until the group has chosen one of the wanted ones.

    The one that the group uses stays on offer, as the last one; before the group is known to use one, all that were offered.

    >>> offers_meanwhile(("range",), "sticky", ("sticky", "roundrobin"))
    ('range', 'sticky')
    >>> offers_meanwhile(("range",), "", ("sticky", "roundrobin"))
    ('range', 'sticky', 'roundrobin')
    >>> offers_meanwhile(("range",), "range", ("range", "sticky"))
    ('range',)
    """
    if chosen in wanted:
        return wanted
    former = (chosen,) if chosen else tuple(name for name in offered if name not in wanted)
    return (*wanted, *former)


class MemberLifecycle:
    """Lifecycle of a sidecar's members; create and use it on a running loop. Invariant: at most one member runs at a time."""

    def __init__(
        self, config: SidecarConfig, strategies: Strategies, driver: DeliveryDriver, counters: Counters
    ) -> None:
        self._config = config
        self._strategies = strategies
        self._driver = driver
        self._counters = counters
        self._membership: Membership | None = None
        self._is_wanted = config.has_subscription
        self._ending: on.End | None = None
        self._is_renamed = False
        # True for a static member with an instance of its own, as in a StatefulSet: no other pod succeeds it under that name.
        self._names_itself = config.member.instance_id is not None
        # Instance that the present member gives up, and the one that was given up; empty: none.
        self._giving_up = ""
        self._given_up = ""
        self._fenced_file = fenced_file_of(config)
        self._fenced = ""
        # Names of the strategies to offer once the group uses one of them, and the name of the one it uses; empty: none yet.
        self._wanted = config.assignors
        self._chosen = ""
        # Of dynamic members.
        self.succession = Succession(driver.participation.admit, self._report)

    @property
    def client_id(self) -> str:
        """Name of the pod."""
        return self._config.member.client_id

    @property
    def current(self) -> Membership:
        """The present membership."""
        assert self._membership is not None
        return self._membership

    @property
    def instance_name(self) -> str:
        """Instance name of a static member; empty for a dynamic member, or while Fleet has not assigned one."""
        return self._config.member.instance_id or ""

    @property
    def awaits_instance_name(self) -> bool:
        """True while a static member waits for Fleet to assign its instance name."""
        return bool(self._config.is_static or self._fenced) and not self.instance_name

    @property
    def awaits_order(self) -> bool:
        """True while a dynamic member waits until Fleet orders it to join, or to take another pod's membership over."""
        return self.succession.awaits_order

    @property
    def fenced_instance(self) -> str:
        """Instance that another process has taken from this sidecar, which therefore waits for Fleet; empty: none."""
        return self._fenced

    @property
    def given_up_instance(self) -> str:
        """Instance that this sidecar gave up, and that another pod may have: it waits for Fleet to assign one. Empty: none."""
        return self._given_up

    @property
    def has_instance_of_fleet(self) -> bool:
        """True for a static member whose instance Fleet has assigned."""
        return self._config.is_static and not self._names_itself and bool(self.instance_name)

    @property
    def offered(self) -> tuple[str, ...]:
        """Names of the strategies that the member offers, the preferred one first."""
        return self._config.assignors

    async def run(self) -> Ended:
        """Run members one after the other until the last one ends. Raises StateFileError and unexpected errors."""
        self._remember_fencing()
        while True:
            self._is_renamed = False
            ended = await self._be()
            if ended.is_fenced and self._fenced_file is not None:
                self._fenced_file.write(self.instance_name)
            if self.succession.is_giving_up:
                self.succession.member_ended(is_still_saved=self._is_saved())
            if self._giving_up and not ended.failed:
                # Only now: its membership is no longer on the disk, so no process of this sidecar resumes it.
                self._given_up, self._giving_up = self._giving_up, ""
                self._set_instance(None)
            if ended.failed or not self._is_renamed or self._ending is not None:
                return ended

    def end(self, reason: str, within_ms: int, *, leave_static: bool) -> None:
        """Revoke all partitions within `within_ms`, leave the group, and end."""
        # A process that ends while it gives its instance up goes on with that.
        is_succeeded = bool(self._giving_up) or self.succession.is_giving_up
        self._ending = on.End(within_ms, reason, leave_static=leave_static, is_succeeded=is_succeeded)
        self.current.post(self._ending)

    def rename_instance(self, name: str) -> None:
        """End the present member and continue as the static member of this name."""
        if name == self.instance_name:
            return
        self._set_instance(name)
        if self._fenced_file is not None:
            self._fenced_file.remove()
        self._fenced = self._giving_up = self._given_up = ""
        self._is_renamed = True
        # The member of the old name leaves the group, because it does not return.
        within_ms = self._config.process.leave_timeout_ms
        self.current.post(on.End(within_ms, f"renamed to {name}", leave_static=True))

    def give_up_instance(self, within_ms: int, *, leave_static: bool) -> None:
        """
        End the present member, and wait for Fleet to assign an instance again.

        Its place stays in the group, for the pod that succeeds it, unless it leaves as one that is scaled away. The application has
        ended, or gets its partitions revoked.
        """
        self._giving_up = self.instance_name
        self._is_renamed = True
        reason = f"gives up the instance {self._giving_up}: it is drained, and another pod may succeed it"
        self.current.post(on.End(within_ms, reason, leave_static=leave_static, is_succeeded=True))

    def give_up_membership(self, within_ms: int) -> None:
        """
        End the present dynamic member for the successor that Fleet has named, and wait until Fleet orders to join again.

        It leaves the group instead if it cannot end in good order.
        """
        self.succession.begin_giving_up()
        self._is_renamed = True
        reason = f"gives its membership up for {self.succession.successor}"
        self.current.post(on.End(within_ms, reason, is_succeeded=True))

    def _is_saved(self) -> bool:
        """Return whether a membership is on the disk."""
        state_file = wiring.open_state(self._config)
        if state_file is None:
            return False
        try:
            return state_file.read() != (None, "")
        finally:
            state_file.close()

    def heartbeat_now(self) -> None:
        """Send a heartbeat before it is due."""
        self.current.post(on.HeartbeatRequested())

    def rebalance(self, reason: str) -> None:
        """Let the group rebalance, if the member leads it."""
        self.current.post(on.Rebalance(reason))

    def _report(self) -> None:
        self._counters.on_change()

    def _remember_fencing(self) -> None:
        """Wait without the instance that the former process of this sidecar has lost to another one."""
        lost = "" if self._fenced_file is None else self._fenced_file.read()
        if lost and self.instance_name in ("", lost):
            self._fenced = lost
            self._counters.fenced_before()
            self._set_instance(None)

    def _set_instance(self, name: str | None) -> None:
        self._config = replace(self._config, member=replace(self._config.member, instance_id=name))

    def offer(self, names: tuple[str, ...]) -> None:
        """
        Change to other strategies, the preferred one first, in two rounds.

        A member that does not offer these, or not yet, shares a strategy with this one throughout: see `offers_meanwhile`.
        """
        self._wanted = names
        self._offer(offers_meanwhile(names, self._chosen, self._config.assignors))

    def _offer(self, names: tuple[str, ...]) -> None:
        self._config = replace(self._config, assignors=names)
        offers = wiring.offers_of(self._strategies)
        self.current.post(on.OfferStrategies(tuple(offers[name] for name in names)))

    def _on_member_event(self, event: MemberEvent) -> None:
        self._driver.on_member_event(event)
        if isinstance(event, GiveUpMembership):
            self.succession.member_gave_up(event.saved)
        if isinstance(event, Joined):
            self._chosen = event.strategy
            if self._chosen in self._wanted and self._config.assignors != self._wanted:
                self._offer(self._wanted)

    def measured(self, rates: Mapping[Partition, float]) -> None:
        """Post the arrival rates of owned partitions, in records per second."""
        by_topic: dict[str, dict[int, float]] = {}
        for partition, rate in rates.items():
            by_topic.setdefault(partition.topic, {})[partition.number] = rate
        self.current.post(on.RatesMeasured(by_topic))

    def _saved(self, state_file: StateFile | None) -> tuple[SavedMembership | None, str]:
        """Return the saved membership and a problem; a static member without a name takes the name of the file."""
        if state_file is None:
            return None, ""
        found = state_file.read()
        if state_file.instance_id != self._config.member.instance_id:
            self._set_instance(state_file.instance_id)
        return found

    async def _be(self) -> Ended:
        driver, state_file = self._driver, wiring.open_state(self._config)
        try:
            saved, forgotten = self._saved(state_file)
            config = self._config
            offers = wiring.offers_of(self._strategies)
            engine = wiring.engine_for(config, self._strategies, driver.on_coordinator_event, state_file)
            counted = replace(engine, coordination=CountedCoordination(engine.coordination, self._counters))
            subscription = driver.participation.subscription
            membership = Membership(
                wiring.member_for(config, offers, subscription), counted, self._on_member_event
            )
            first = self._membership is None
            self._membership = membership
            is_wanted = self._is_wanted if first else driver.participation.is_wanted
            if first:
                self.succession.begin(is_ordered=is_ordered(config), has_membership=saved is not None)
                if is_in_cluster(config) and saved is None and not driver.is_attached:
                    # The application starts beside this sidecar. A saved membership is resumed: its partitions are nobody else's.
                    driver.participation.await_application()
            is_held = self.awaits_instance_name or self.succession.is_held
            starts_now = driver.attach_member(membership, is_wanted=is_wanted, is_held=is_held)
            # Fleet learns at once that this is another member.
            self._counters.on_change()
            if forgotten:
                driver.on_member_event(Problem(forgotten))
            if self._ending is not None:
                membership.post(self._ending)
            return await membership.run(saved, starts_now=starts_now)
        finally:
            if state_file is not None:
                state_file.close()


def is_in_cluster(config: SidecarConfig) -> bool:
    """Return whether this sidecar is part of a pod of an operator in a cluster: only such an operator sets a hash of the settings."""
    return bool(config.fleet.address and config.fleet.settings_hash)


def is_ordered(config: SidecarConfig) -> bool:
    """Return whether an operator in a cluster may order when this dynamic member joins."""
    is_dynamic = config.member.instance_id is None and not config.is_static
    return is_dynamic and is_in_cluster(config)


def fenced_file_of(config: SidecarConfig) -> FencedFile | None:
    """Return the file of the lost instance; None: no Fleet server decides what a fenced sidecar does, or nothing is kept."""
    folder = config.process.state_folder
    return None if folder is None or not config.fleet.address else FencedFile(folder, config.member.group_id)
