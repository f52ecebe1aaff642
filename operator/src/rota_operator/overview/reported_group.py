"""
Describes a group by the reports of its sidecars alone, where the operator cannot ask the engine: groups on Kafka in a cluster.

`group` calls it with the last report of each sidecar. Clients without a sidecar of Rota are not seen.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rota_operator.overview.assignment import Partition
from rota_operator.overview.description import COMPLETING, PREPARING, STABLE, UNKNOWN, DescribedGroup
from rota_operator.overview.offsets import PartitionOffsets
from rota_proto.fleet.v1 import fleet_pb2 as pb

# States of a sidecar whose member takes part in the group.
MEMBER_STATES = frozenset(
    {pb.MEMBER_STATE_JOINING, pb.MEMBER_STATE_SYNCING, pb.MEMBER_STATE_STABLE, pb.MEMBER_STATE_REVOKING}
)
# A member that joins, or revokes before it joins again.
PREPARING_STATES = frozenset({pb.MEMBER_STATE_JOINING, pb.MEMBER_STATE_REVOKING})


@dataclass(frozen=True, slots=True)
class LastReport:
    """The last report of a sidecar, and whether it has not expired."""

    report: pb.SidecarReport
    partitions: Sequence[Partition]
    is_known: bool


def described_by(reports: Mapping[str, LastReport]) -> DescribedGroup:
    """
    Return what the reports, by sidecar, say about the group.

    Its state is that of the sidecars that report now; Unknown if none does. A silent sidecar keeps its partitions until others
    report a later generation: only its stream may be lost.
    """
    members = {name: each for name, each in reports.items() if each.report.member.state in MEMBER_STATES}
    newest = max((_epoch(each.report) for each in members.values()), default=(0, 0))
    current = {name: each for name, each in members.items() if each.is_known or _epoch(each.report) == newest}
    fresh = [each.report for each in current.values() if each.is_known]
    return DescribedGroup(
        state=_state(fresh),
        generation=newest[1] if fresh else None,
        member_ids={name: each.report.member.member_id for name, each in current.items()},
        owners=_owners(current),
    )


def offsets_of(report: pb.PartitionReport) -> PartitionOffsets:
    """Return a partition's offsets as its owner reports them. Records with a verdict count as lag until they are committed."""
    has = report.HasField
    first_ms = report.first_unresolved_timestamp_ms if has("first_unresolved_timestamp_ms") else None
    end = report.end if has("end") else None
    is_done = first_ms is None and end is not None and has("position") and report.position >= end
    return PartitionOffsets(
        committed=report.committed if has("committed") else None,
        start=report.start if has("start") else None,
        end=end,
        first_uncommitted_ms=first_ms,
        markers_only=is_done,
    )


def _epoch(report: pb.SidecarReport) -> tuple[int, int]:
    """Return what rises with each generation, also when the group is deleted and created again."""
    return report.member.incarnation, report.member.generation_id


def _state(fresh: list[pb.SidecarReport]) -> str:
    states = {each.member.state for each in fresh}
    if not states:
        return UNKNOWN
    if states & PREPARING_STATES:
        return PREPARING
    if pb.MEMBER_STATE_SYNCING in states:
        return COMPLETING
    # Some have heard of a generation that others have not.
    return STABLE if len({_epoch(each) for each in fresh}) == 1 else PREPARING


def _owners(reports: Mapping[str, LastReport]) -> Mapping[Partition, str]:
    """Return the owners by partition; of two, the one in the later generation: the other may not know of it yet."""
    found: dict[Partition, tuple[tuple[int, int], str]] = {}
    for name, each in sorted(reports.items()):
        claim = _epoch(each.report), name
        for partition in each.partitions:
            if partition not in found or found[partition][0] < claim[0]:
                found[partition] = claim
    return {partition: name for partition, (_, name) in found.items()}
