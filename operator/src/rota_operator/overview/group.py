"""
Merges a group's description and offsets, as its engine reports them, with the reports of its members' sidecars.

State, generation, members, owners, committed and end offsets are the engine's. Reports add what only sidecars know: the
member's own state, position, records in flight, rates, last error. Where the operator cannot ask the engine (`EngineAccess`),
reports and the sidecars' answers to queries stand in for it.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from rota_operator.overview.assignment import Partition
from rota_operator.overview.description import (
    STABLE,
    UNKNOWN,
    DescribedGroup,
    Description,
    names_of,
    owners_in,
    users_of,
    with_names,
)
from rota_operator.overview.history import History
from rota_operator.overview.offsets import UNKNOWN_OFFSETS, KnownOffsets, OffsetChange, PartitionOffsets
from rota_operator.overview.reported_group import LastReport, described_by, offsets_of
from rota_operator.overview.reports import SidecarReports, problems_of
from rota_operator.overview.view import GroupView, MemberView, OwnedPartitions, PartitionView
from rota_proto.fleet.v1 import fleet_pb2 as pb

Number = TypeVar("Number", int, float)
# Maximum number of partitions shown; the rest is counted.
PARTITIONS_SHOWN = 2_000
# A sidecar that has been silent for longer is forgotten when another one reports for the first time.
REPORTER_KEPT_MS = 600_000
# State of a member without one of our sidecars, which reports nothing.
OTHER_CLIENT = "Other client"
MEMBER_STATE = "MEMBER_STATE_"


@dataclass(frozen=True, slots=True)
class EngineAccess:
    """Questions that the group's engine answers to the operator; the rest is known from sidecars only."""

    # State, members, owners.
    describes: bool = True
    # Committed and end offsets of all partitions.
    has_offsets: bool = True


FULL_ACCESS = EngineAccess()


class GroupState:
    """State of one group; inputs are applied in the order of the calls."""

    def __init__(self, group_id: str, name: str, engine: EngineAccess = FULL_ACCESS) -> None:
        self.group_id = group_id
        self._engine = engine
        self.history = History()
        self._name = name
        self._described = DescribedGroup()
        # The engine's last description; None: there is none.
        self._found: Description | None = None
        # Names of its members by id.
        self._described_names: Mapping[str, str] = {}
        # Member names by id, including members that have left since the last rebalance finished.
        self._names_by_id: dict[str, str] = {}
        self._reporters: dict[str, SidecarReports] = {}
        self._offsets = KnownOffsets()
        # Partitions that were seen while the engine lists none.
        self._seen: set[Partition] = set()
        # Owners in the last generation that was stable, by reports.
        self._reported_owners: Mapping[Partition, str] = {}

    def update_description(self, found: Description, at_ms: int) -> None:
        """Replace the engine's description."""
        self._found = found
        names = names_of(found.members, self._users())
        self._described_names = names
        member_ids = {name: member_id for member_id, name in names.items()}
        owners = self._described.owners
        self._names_by_id |= names
        reason = with_names(found.reason, self._names_by_id)
        self.history.members_changed(frozenset(member_ids), at_ms)
        if found.state == STABLE:
            owners = owners_in(found.members, names)
            self.history.group_stable(found.generation, owners, at_ms, reason)
            self._names_by_id = dict(names)
        elif not member_ids:
            owners = {}
            self.history.group_emptied()
        else:
            self.history.rebalance_started(at_ms, reason)
        self._seen |= owners.keys()
        members = {names[each.member_id]: each for each in found.members}
        self._described = DescribedGroup(
            found.state, found.generation, found.strategy, member_ids, members, owners
        )

    def update_offsets(self, found: Mapping[Partition, PartitionOffsets], now_ms: int) -> OffsetChange:
        """Replace the engine's offsets of all partitions of the group; partitions that are not in it are forgotten."""
        return self._offsets.update(found, now_ms)

    def update_queried(
        self, found: Mapping[Partition, PartitionOffsets], missing: Collection[Partition], now_ms: int
    ) -> None:
        """Add offsets that a sidecar has looked up, and forget the partitions that it says do not exist."""
        self._offsets.update_queried(found, now_ms)
        self._seen = (self._seen | found.keys()) - set(missing)

    @property
    def owned(self) -> frozenset[Partition]:
        """Partitions with an owner, by the engine's description."""
        return frozenset(self._described.owners)

    def unowned(self, now_ms: int) -> frozenset[Partition]:
        """Partitions without an owner whose offsets only a sidecar can look up; none where the engine reports offsets."""
        if self._engine.has_offsets:
            return frozenset()
        return frozenset(self._seen - self._owners(self._describe(now_ms), now_ms).keys())

    def coordinator_lost(self) -> None:
        """Discard the engine's description."""
        self._found, self._described, self._described_names = None, DescribedGroup(), {}

    def add_report(self, report: pb.SidecarReport, now_ms: int) -> bool:
        """
        Add a sidecar's report; returns whether it says anything new apart from numbers and times.

        The pods of a group are of one namespace: a pod's name identifies its sidecar.
        """
        if report.sidecar not in self._reporters:
            self._forget_silent(now_ms)
        reporter = self._reporters.setdefault(report.sidecar, SidecarReports())
        is_news = reporter.update(report, now_ms)
        self._seen.update(reporter.partitions)
        self._offsets.drop_queried(reporter.partitions)
        if is_news and not self._engine.describes:
            self._record_reported(now_ms)
        described = self._described_names.get(report.member.member_id, report.sidecar)
        if is_news and self._found is not None and described != report.sidecar:
            # It has taken the member over, which the engine does not know.
            self.update_description(self._found, now_ms)
        return is_news

    def _users(self) -> Mapping[str, str]:
        """Sidecars by the member that each reported last, also those that are not heard now."""
        reporters = sorted(self._reporters.items(), key=lambda each: each[1].at_ms)
        return users_of({name: each.last for name, each in reporters if each.last is not None})

    def remove_replica(self, replica: str) -> None:
        """Discard the reports of a replica."""
        self._reporters.pop(replica, None)

    def _forget_silent(self, now_ms: int) -> None:
        """Discard sidecars that have been silent for REPORTER_KEPT_MS: pods that are gone."""
        self._reporters = {
            name: each for name, each in self._reporters.items() if now_ms - each.at_ms <= REPORTER_KEPT_MS
        }

    def _record_reported(self, now_ms: int) -> None:
        """Record in the history what the reports say about members and rebalances."""
        described = self._described_by_reports(now_ms)
        self.history.members_changed(frozenset(described.member_ids), now_ms)
        if described.state == STABLE:
            self._reported_owners = described.owners
            self.history.group_stable(described.generation, described.owners, now_ms, "")
        elif described.state != UNKNOWN:
            self.history.rebalance_started(now_ms, "")

    def _described_by_reports(self, now_ms: int) -> DescribedGroup:
        described = described_by(
            {
                name: LastReport(each.last, each.partitions, each.known(now_ms) is not None)
                for name, each in self._reporters.items()
                if each.last is not None
            }
        )
        if described.state in (STABLE, UNKNOWN):
            return described
        # While members join, their partitions are still theirs, or about to be assigned.
        kept = {each: name for each, name in self._reported_owners.items() if name in described.member_ids}
        return replace(described, owners={**kept, **described.owners})

    def _describe(self, now_ms: int) -> DescribedGroup:
        if self._engine.describes:
            return self._described
        reported = self._described_by_reports(now_ms)
        # The operator may have credentials for a group whose sidecars do not report: then it asks the engine.
        is_asked = reported.state == UNKNOWN and self._described.state != UNKNOWN
        return self._described if is_asked else reported

    def live_reports(self, now_ms: int) -> Mapping[str, pb.SidecarReport]:
        """Reports that have not expired, by sidecar name."""
        return {
            name: report
            for name, reporter in self._reporters.items()
            if (report := reporter.known(now_ms)) is not None
        }

    @property
    def client_ids(self) -> frozenset[str] | None:
        """Client ids of the members that the engine describes, or of the pods that took them over; None: it describes none of the group."""
        if self._described.state == UNKNOWN:
            return None
        members = self._described.members.items()
        return frozenset(name if name in self._reporters else each.client_id for name, each in members)

    def owned_partitions(self, now_ms: int) -> Mapping[str, OwnedPartitions]:
        """Partitions and generation that each sidecar reports, by sidecar name; expired reports are omitted."""
        return {
            name: OwnedPartitions(report.member.generation_id, frozenset(reporter.partitions))
            for name, reporter in self._reporters.items()
            if (report := reporter.known(now_ms)) is not None
        }

    def view(self, now_ms: int, replicas: Sequence[str]) -> GroupView:
        """Snapshot at `now_ms`; `replicas` are those of the group's workloads."""
        described = self._describe(now_ms)
        owners = self._owners(described, now_ms)
        partitions = self._partitions(owners, now_ms)
        held: dict[str, list[str]] = defaultdict(list)
        for each in sorted(owners):
            held[owners[each]].append(each.text)
        members = tuple(
            self._member(name, described, tuple(held[name]), name in replicas, now_ms)
            for name in self._names(described, replicas, now_ms)
        )
        return GroupView(
            group_id=self.group_id,
            name=self._name,
            state=described.state,
            generation=self._generation(described, now_ms),
            strategy=described.strategy,
            members=members,
            partitions=tuple(partitions[:PARTITIONS_SHOWN]),
            partitions_left_out=max(0, len(partitions) - PARTITIONS_SHOWN),
            unowned=sum(each.owner is None for each in partitions),
            lag_records=_aggregate_known((each.lag_records for each in partitions), sum),
            lag_seconds=_aggregate_known((each.lag_seconds for each in partitions), max),
            arrival_rate=_aggregate_known((each.arrival_rate for each in partitions), sum),
            done_rate=_aggregate_known((each.done_rate for each in members if each.partitions), sum),
            rebalances=self.history.rebalances,
            history=tuple(self.history.events),
        )

    def _names(self, described: DescribedGroup, replicas: Sequence[str], now_ms: int) -> Sequence[str]:
        """Names of the replicas, followed by those of other members: of the description, else of the live reports too."""
        names = set(described.member_ids)
        if described.state == UNKNOWN:
            names |= {
                name for name, reporter in self._reporters.items() if reporter.known(now_ms) is not None
            }
        return [*replicas, *sorted(names - set(replicas))]

    def _generation(self, described: DescribedGroup, now_ms: int) -> int | None:
        """The described generation; if the engine reports none, as Kafka brokers, the newest that a sidecar reports."""
        if described.generation is not None or described.state == UNKNOWN:
            return described.generation
        reports = (reporter.known(now_ms) for reporter in self._reporters.values())
        return max((each.member.generation_id for each in reports if each is not None), default=None)

    def _owners(self, described: DescribedGroup, now_ms: int) -> Mapping[Partition, str]:
        """Owners by partition. Without an engine's description, from reports: the later generation wins."""
        if described.state != UNKNOWN or not self._engine.describes:
            return described.owners
        found: dict[Partition, tuple[int, str]] = {}
        for name, holding in self.owned_partitions(now_ms).items():
            for partition in holding.partitions:
                # A member that was replaced in a newer generation may not know it yet.
                if partition not in found or found[partition][0] < holding.generation:
                    found[partition] = holding.generation, name
        return {partition: name for partition, (_, name) in found.items()}

    def _member(
        self,
        name: str,
        described: DescribedGroup,
        held: tuple[str, ...],
        is_replica: bool,
        now_ms: int,
    ) -> MemberView:
        reporter = self._reporters.get(name)
        report = None if reporter is None else reporter.known(now_ms)
        member_id = described.member_ids.get(name)
        known = described.members.get(name)
        client_id, host = (None, None) if known is None else (known.client_id, known.host or None)
        if reporter is None or report is None:
            # One that has reported before is a sidecar too.
            is_sidecar = is_replica or reporter is not None
            state = UNKNOWN if is_sidecar else OTHER_CLIENT
            return MemberView(name, member_id, state, None, held, client_id=client_id, host=host)
        member = report.member
        return MemberView(
            name=name,
            member_id=member_id or member.member_id,
            state=_state_name(pb.MemberState.Name(member.state), MEMBER_STATE),
            generation=member.generation_id,
            partitions=held,
            records_done=member.records_done,
            done_rate=reporter.done_rate(now_ms),
            in_flight=sum(each.in_flight for each in report.partitions),
            suspended=member.suspended,
            draining=member.draining,
            last_error=member.last_error,
            problems=problems_of(report),
            client_id=report.sidecar,
            # Of the client that joined, which may have been another pod's.
            host=host if client_id == report.sidecar else None,
            dead_letters=member.dead_letters if member.HasField("dead_letters") else None,
            unattached_seconds=member.unattached_seconds if member.HasField("unattached_seconds") else None,
        )

    def _partitions(self, owners: Mapping[Partition, str], now_ms: int) -> list[PartitionView]:
        # By partition: the report of its owner's sidecar.
        reports: dict[Partition, pb.PartitionReport] = {}
        known = set(self._seen if self._offsets.listed is None else self._offsets.listed)
        known.update(owners)
        for name, reporter in self._reporters.items():
            if (report := reporter.known(now_ms)) is not None:
                known.update(reporter.partitions)
                for partition, each in zip(reporter.partitions, report.partitions, strict=True):
                    if owners.get(partition) == name:
                        reports[partition] = each
        found = self._offsets.known(now_ms) if self._engine.has_offsets else None
        return [
            _partition_view(
                each,
                owners.get(each),
                self._offsets_of(each, reports.get(each), now_ms)
                if found is None
                else found.get(each, UNKNOWN_OFFSETS),
                reports.get(each),
                now_ms,
            )
            for each in sorted(known)
        ]

    def _offsets_of(
        self, partition: Partition, report: pb.PartitionReport | None, now_ms: int
    ) -> PartitionOffsets:
        """Offsets where the engine cannot be asked: those of the owner's report, else those that a sidecar looked up."""
        if report is not None:
            return offsets_of(report)
        return self._offsets.queried(partition, now_ms)


def _partition_view(
    partition: Partition,
    owner: str | None,
    offsets: PartitionOffsets,
    report: pb.PartitionReport | None,
    now_ms: int,
) -> PartitionView:
    """Combine the engine's offsets with the report of the owner's sidecar."""
    position = arrival_rate = in_flight = None
    if report is not None:
        position = report.position if report.HasField("position") else None
        arrival_rate = report.arrival_rate if report.HasField("arrival_rate") else None
        in_flight = report.in_flight
    return PartitionView(
        topic=partition.topic,
        partition=partition.number,
        owner=owner,
        position=position,
        committed=offsets.committed,
        end=offsets.end,
        lag_records=offsets.lag_records,
        lag_seconds=offsets.lag_seconds(now_ms),
        arrival_rate=arrival_rate,
        in_flight=in_flight,
        start=offsets.start,
    )


def _state_name(name: str, prefix: str) -> str:
    """Convert an enum name of the Fleet API for display."""
    said = name.removeprefix(prefix).replace("_", " ").capitalize()
    return UNKNOWN if said == "Unspecified" else said


def _aggregate_known(
    values: Iterable[Number | None], together: Callable[[list[Number]], Number]
) -> Number | None:
    """Aggregate the values; None if any of them is unknown, because a partial sum would be too low."""
    known: list[Number] = []
    for value in values:
        if value is None:
            return None
        known.append(value)
    return together(known) if known else None
