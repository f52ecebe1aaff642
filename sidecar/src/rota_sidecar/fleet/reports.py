"""Builds the reports for Fleet. Unknown values are left out."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rota_proto.fleet.v1 import fleet_pb2 as pb
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.delivery.driver import DeliveryDriver
from rota_sidecar.lifecycle.member import MemberLifecycle
from rota_sidecar.lifecycle.succession import GivenUp
from rota_sidecar.observability.counters import Counters
from rota_sidecar.observability.partition_status import PartitionStatus

STATES = {name.removeprefix("MEMBER_STATE_").capitalize(): number for name, number in pb.MemberState.items()}


@dataclass(frozen=True, slots=True)
class Reporter:
    """The sidecar that reports: what stays the same in all its reports."""

    client_id: str
    version: str
    settings_hash: str


@dataclass(frozen=True, slots=True)
class Health:
    """Sources of a report that are read anew for each one; an empty text says that there is nothing to report."""

    # Problems that concern none of the member's partitions.
    problems: Callable[[], Sequence[str]]
    # State, reason and end of a drain.
    draining: Callable[[], str]
    # Why /readyz answers 503.
    readiness_problem: Callable[[], str]
    # Id of the Kafka cluster, once it is known.
    cluster_id: Callable[[], str]


class ReportBuilder:
    """Report builder of one sidecar."""

    def __init__(
        self,
        reporter: Reporter,
        driver: DeliveryDriver,
        members: MemberLifecycle,
        counters: Counters,
        health: Health,
        wall_ms: Callable[[], int],
    ) -> None:
        self._reporter = reporter
        self._driver = driver
        self._members = members
        self._counters = counters
        self._health = health
        self._wall_ms = wall_ms
        # By the driver's clock; None: an application is attached.
        self._unattached_since_ms: int | None = None

    def made(
        self, statuses: Iterable[tuple[Partition, PartitionStatus]], answers: Sequence[pb.OrderAnswer]
    ) -> pb.SidecarReport:
        """Build a report of the present state."""
        return pb.SidecarReport(
            group_id=self._driver.config.group_id,
            member=self._member(),
            partitions=[partition_report(partition, each) for partition, each in statuses],
            answers=answers,
            sidecar=self._reporter.client_id,
            version=self._reporter.version,
            cluster_id=self._health.cluster_id(),
            settings_hash=self._reporter.settings_hash,
            sent_ms=self._wall_ms(),
        )

    def _member(self) -> pb.MemberReport:
        counters = self._counters
        identity = self._members.current.member.identity
        draining = self._health.draining()
        readiness_problem = self._health.readiness_problem()
        return pb.MemberReport(
            member_id=identity.member_id,
            group_instance_id=self._members.instance_name or None,
            state=STATES[counters.state],
            generation_id=identity.generation,
            incarnation=identity.incarnation,
            busy_seconds=counters.in_flight.busy_s(self._driver.now_ms()),
            records_done=counters.records_done,
            dead_letters=counters.dead_letters,
            last_revoke_seconds=counters.last_revoke_s,
            suspended=self._driver.config.suspended,
            last_error=counters.last_problem,
            problems=[*([draining] if draining else []), *self._health.problems()],
            draining=bool(draining),
            ready=not readiness_problem,
            readiness_problem=readiness_problem,
            fenced_instance_id=self._members.fenced_instance,
            # Once the drain has expired the sidecar waits as any other that has none.
            given_up_instance_id=self._members.given_up_instance if draining else "",
            awaits_successor=self._driver.delivery.awaits_successor,
            awaits_join=self._members.awaits_order,
            successor=self._members.succession.successor,
            given_up_membership=given_up_report(self._members.succession.given_up),
            strategy=identity.strategy,
            offered_strategies=self._members.offered,
            unattached_seconds=self._unattached_s(),
            leads=identity.leads,
        )

    def _unattached_s(self) -> float | None:
        """Return how long no application has been attached, since the first report that says so; None: one is attached."""
        if self._driver.is_attached:
            self._unattached_since_ms = None
            return None
        now_ms = self._driver.now_ms()
        if self._unattached_since_ms is None:
            self._unattached_since_ms = now_ms
        return (now_ms - self._unattached_since_ms) / 1000


def given_up_report(given_up: GivenUp | None) -> pb.GivenUpMembership | None:
    """Build the report of a membership that was given up; None: there is none."""
    if given_up is None:
        return None
    saved = given_up.saved
    membership = pb.Membership(
        member_id=saved.member_id,
        generation_id=saved.generation,
        strategy=saved.strategy,
        leads=saved.leads,
        topics=saved.join_metadata.topics,
        offered_strategies=saved.join_metadata.strategies,
        group_topics=sorted(saved.group_topics),
    )
    return pb.GivenUpMembership(membership=membership, successor=given_up.successor)


def partition_report(partition: Partition, statuses: PartitionStatus) -> pb.PartitionReport:
    """Build the report of one partition."""
    return pb.PartitionReport(
        topic=partition.topic,
        partition=partition.number,
        position=statuses.position,
        committed=statuses.committed,
        start=statuses.start,
        end=statuses.end,
        first_unresolved_timestamp_ms=statuses.unresolved_ms,
        arrival_rate=statuses.rate,
        in_flight=statuses.in_flight,
        problem=statuses.problem,
        last_progress_ms=statuses.last_progress_ms,
    )
