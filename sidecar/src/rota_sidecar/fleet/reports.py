"""What is told to Fleet. Made for each report; what is not known is left out."""

from collections.abc import Callable, Iterable, Sequence

from rota_proto.fleet.v1 import fleet_pb2 as pb
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.delivery.driver import Delivering
from rota_sidecar.lifecycle.member import Members
from rota_sidecar.observability.counters import Counts
from rota_sidecar.observability.partition_status import Facts

STATES = {name.removeprefix("MEMBER_STATE_").capitalize(): number for name, number in pb.MemberState.items()}


class Reports:
    """Of one sidecar."""

    def __init__(
        self,
        sidecar: str,
        delivering: Delivering,
        members: Members,
        counts: Counts,
        problems: Callable[[], Sequence[str]],
        draining: Callable[[], str],
    ) -> None:
        """`draining` gives state, reason and end of a drain; empty: the sidecar does not drain."""
        self._sidecar = sidecar
        self._delivering = delivering
        self._members = members
        self._counts = counts
        self._problems = problems
        self._draining = draining

    def made(
        self, facts: Iterable[tuple[Partition, Facts]], answers: Sequence[pb.OrderAnswer]
    ) -> pb.SidecarReport:
        """One, as things are now."""
        return pb.SidecarReport(
            group_id=self._delivering.config.group_id,
            member=self._member(),
            partitions=[partition_report(partition, each) for partition, each in facts],
            answers=answers,
            sidecar=self._sidecar,
        )

    def _member(self) -> pb.MemberReport:
        counts = self._counts
        identity = self._members.now.member.identity
        draining = self._draining()
        return pb.MemberReport(
            member_id=identity.member_id,
            group_instance_id=self._members.instance_name or None,
            state=STATES[counts.state],
            generation_id=identity.generation,
            incarnation=identity.incarnation,
            busy_seconds=counts.hands.busy_s(self._delivering.now_ms()),
            records_done=counts.records_done,
            last_revoke_seconds=counts.last_revoke_s,
            suspended=self._delivering.config.suspended,
            last_error=counts.last_problem,
            problems=[*([draining] if draining else []), *self._problems()],
            draining=bool(draining),
        )


def partition_report(partition: Partition, facts: Facts) -> pb.PartitionReport:
    """One partition."""
    return pb.PartitionReport(
        topic=partition.topic,
        partition=partition.number,
        position=facts.position,
        committed=facts.committed,
        start=facts.start,
        end=facts.end,
        first_unresolved_timestamp_ms=facts.unresolved_ms,
        arrival_rate=facts.rate,
        in_flight=facts.in_hand,
        problem=facts.problem,
    )
