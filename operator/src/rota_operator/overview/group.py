"""One group: what its coordinator says of it, and what its members' sidecars report, put together."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from rota_operator.overview.assignment import Partition, Unreadable, partitions_of
from rota_operator.overview.history import History
from rota_operator.overview.problems import problems_of
from rota_operator.overview.reports import Reporter, key_of, partition_view
from rota_operator.overview.view import GroupView, Holding, MemberView, PartitionView
from rota_proto.coordinator.v1 import admin_pb2
from rota_proto.fleet.v1 import fleet_pb2 as pb

Number = TypeVar("Number", int, float)
# More than people look at; the rest is counted.
PARTITIONS_SHOWN = 2_000
UNKNOWN = "Unknown"
STATE = "GROUP_STATE_"
MEMBER_STATE = "MEMBER_STATE_"


@dataclass(frozen=True, slots=True)
class Described:
    """A group as its coordinator has described it last."""

    state: admin_pb2.GroupState.ValueType = admin_pb2.GROUP_STATE_UNSPECIFIED
    generation: int | None = None
    strategy: str = ""
    # By the names of the members.
    member_ids: Mapping[str, str] = field(default_factory=dict)
    # Of the last generation that everybody was in.
    owners: Mapping[Partition, str] = field(default_factory=dict)


class Group:
    """To be told what happens, in the order in which it does."""

    def __init__(self, group_id: str, name: str) -> None:
        self.group_id = group_id
        self.history = History()
        self._name = name
        self._described = Described()
        # The names of members by their ids, also of those that have gone since the last round was over.
        self._called: dict[str, str] = {}
        self._reporters: dict[str, Reporter] = {}
        self._seen: set[Partition] = set()

    def hear_description(self, told: admin_pb2.WatchGroupResponse, at_ms: int) -> None:
        """Its coordinator describes it."""
        group = told.group
        names = names_of(group.members)
        member_ids = {name: member_id for member_id, name in names.items()}
        owners = self._described.owners
        self._called |= names
        reason = with_names(told.reason, self._called)
        self.history.members(frozenset(member_ids), at_ms)
        if group.state == admin_pb2.GROUP_STATE_STABLE:
            owners = owners_in(group.members, names)
            self.history.stable(group.generation_id, owners, at_ms, reason)
            self._called = dict(names)
        elif not member_ids:
            owners = {}
            self.history.empty()
        else:
            self.history.rebalancing(at_ms, reason)
        self._seen |= owners.keys()
        self._described = Described(group.state, group.generation_id, group.protocol_name, member_ids, owners)

    def coordinator_is_away(self) -> None:
        """Nothing that it has said need be true any more."""
        self._described = Described()

    def hear_report(self, report: pb.SidecarReport, now_ms: int) -> None:
        """One of its sidecars reports."""
        self._reporters.setdefault(report.sidecar, Reporter()).hear(report, now_ms)
        self._seen |= {key_of(each) for each in report.partitions}

    def forget(self, replica: str) -> None:
        """It is gone."""
        self._reporters.pop(replica, None)

    def holdings(self, now_ms: int) -> Mapping[str, Holding]:
        """What each sidecar has, and in which generation, as far as it has said so lately."""
        reports = {name: reporter.known(now_ms) for name, reporter in self._reporters.items()}
        return {
            name: Holding(report.member.generation_id, frozenset(map(key_of, report.partitions)))
            for name, report in reports.items()
            if report is not None
        }

    def view(self, now_ms: int, replicas: Sequence[str]) -> GroupView:
        """Now; the replicas are those of its workload."""
        described = self._described
        partitions = self._partitions(now_ms)
        members = tuple(self._member(name, now_ms) for name in self._names(replicas))
        return GroupView(
            group_id=self.group_id,
            name=self._name,
            state=_word(admin_pb2.GroupState.Name(described.state), STATE),
            generation=described.generation,
            strategy=described.strategy,
            members=members,
            partitions=tuple(partitions[:PARTITIONS_SHOWN]),
            partitions_left_out=max(0, len(partitions) - PARTITIONS_SHOWN),
            unowned=sum(each.owner is None for each in partitions),
            lag_records=_if_all_known((each.lag_records for each in partitions), sum),
            lag_seconds=_if_all_known((each.lag_seconds for each in partitions), max),
            arrival_rate=_if_all_known((each.arrival_rate for each in partitions), sum),
            done_rate=_if_all_known((each.done_rate for each in members if each.partitions), sum),
            rebalances=self.history.rebalances,
            history=tuple(self.history.moments),
        )

    def _names(self, replicas: Sequence[str]) -> Sequence[str]:
        """Its replicas, and whoever else is a member."""
        return [*replicas, *sorted(self._described.member_ids.keys() - set(replicas))]

    def _member(self, name: str, now_ms: int) -> MemberView:
        reporter = self._reporters.get(name)
        report = None if reporter is None else reporter.known(now_ms)
        member_id = self._described.member_ids.get(name)
        if reporter is None or report is None:
            held = sorted(partition for partition, owner in self._described.owners.items() if owner == name)
            return MemberView(name, member_id, UNKNOWN, None, tuple(each.text for each in held))
        member = report.member
        return MemberView(
            name=name,
            member_id=member.member_id or member_id,
            state=_word(pb.MemberState.Name(member.state), MEMBER_STATE),
            generation=member.generation_id,
            partitions=tuple(key_of(each).text for each in report.partitions),
            records_done=member.records_done,
            done_rate=reporter.done_rate(now_ms),
            in_flight=sum(each.in_flight for each in report.partitions),
            suspended=member.suspended,
            last_error=member.last_error,
            problems=problems_of(report),
        )

    def _partitions(self, now_ms: int) -> list[PartitionView]:
        found: dict[Partition, tuple[int, PartitionView]] = {}
        for name, reporter in self._reporters.items():
            report = reporter.known(now_ms)
            for each in () if report is None else report.partitions:
                generation = 0 if report is None else report.member.generation_id
                key = key_of(each)
                # Who has been overtaken by a generation may not know it yet.
                if key not in found or found[key][0] < generation:
                    found[key] = generation, partition_view(name, each, now_ms)
        return [
            found[key][1]
            if key in found
            else PartitionView(key.topic, key.number, self._described.owners.get(key))
            for key in sorted(self._seen)
        ]


def names_of(members: Iterable[admin_pb2.DescribedMember]) -> Mapping[str, str]:
    """By the members' ids. Sidecars say the name of their replica; for a while there may be two that say the same."""
    found: dict[str, str] = {}
    for member in members:
        name = member.client_id or member.member_id
        found[member.member_id] = f"{name} ({member.member_id})" if name in found.values() else name
    return found


def with_names(reason: str, names: Mapping[str, str]) -> str:
    """As the coordinator says it, with the members' names for their ids: those are long, and shown nowhere else."""
    for member_id, name in names.items():
        reason = reason.replace(member_id, name)
    return reason


def owners_in(
    members: Iterable[admin_pb2.DescribedMember], names: Mapping[str, str]
) -> Mapping[Partition, str]:
    """Who has what; of what another kind of client was assigned nothing is known."""
    found = {}
    for member in members:
        try:
            found.update(dict.fromkeys(partitions_of(member.assignment), names[member.member_id]))
        except Unreadable:
            continue
    return found


def _word(name: str, prefix: str) -> str:
    """A state, as it is shown."""
    said = name.removeprefix(prefix).replace("_", " ").capitalize()
    return UNKNOWN if said == "Unspecified" else said


def _if_all_known(
    values: Iterable[Number | None], together: Callable[[list[Number]], Number]
) -> Number | None:
    """A sum in which something is missing would say that there is less."""
    known: list[Number] = []
    for value in values:
        if value is None:
            return None
        known.append(value)
    return together(known) if known else None
