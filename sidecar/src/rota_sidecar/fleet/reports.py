"""Builds the reports for Fleet. Unknown values are left out."""

from collections.abc import Callable, Iterable, Sequence

from rota_proto.fleet.v1 import fleet_pb2 as pb
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.delivery.driver import DeliveryDriver
from rota_sidecar.lifecycle.member import MemberLifecycle
from rota_sidecar.observability.counters import Counters
from rota_sidecar.observability.partition_status import PartitionStatus

STATES = {name.removeprefix("MEMBER_STATE_").capitalize(): number for name, number in pb.MemberState.items()}


class ReportBuilder:
    """Report builder of one sidecar."""

    def __init__(
        self,
        sidecar: str,
        driver: DeliveryDriver,
        members: MemberLifecycle,
        counters: Counters,
        problems: Callable[[], Sequence[str]],
        draining: Callable[[], str],
    ) -> None:
        """`draining` gives state, reason and end of a drain; empty: the sidecar does not drain."""
        self._sidecar = sidecar
        self._driver = driver
        self._members = members
        self._counters = counters
        self._problems = problems
        self._draining = draining

    def made(
        self, statuses: Iterable[tuple[Partition, PartitionStatus]], answers: Sequence[pb.OrderAnswer]
    ) -> pb.SidecarReport:
        """Build a report of the present state."""
        return pb.SidecarReport(
            group_id=self._driver.config.group_id,
            member=self._member(),
            partitions=[partition_report(partition, each) for partition, each in statuses],
            answers=answers,
            sidecar=self._sidecar,
        )

    def _member(self) -> pb.MemberReport:
        counters = self._counters
        identity = self._members.current.member.identity
        draining = self._draining()
        return pb.MemberReport(
            member_id=identity.member_id,
            group_instance_id=self._members.instance_name or None,
            state=STATES[counters.state],
            generation_id=identity.generation,
            incarnation=identity.incarnation,
            busy_seconds=counters.in_flight.busy_s(self._driver.now_ms()),
            records_done=counters.records_done,
            last_revoke_seconds=counters.last_revoke_s,
            suspended=self._driver.config.suspended,
            last_error=counters.last_problem,
            problems=[*([draining] if draining else []), *self._problems()],
            draining=bool(draining),
        )


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
    )
