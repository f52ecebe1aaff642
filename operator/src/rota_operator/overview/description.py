"""A group's description by its coordinator or broker, in the form that the overview merges."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from rota_operator.overview.assignment import Partition, partitions_of
from rota_proto.consumer_protocol import Malformed
from rota_proto.coordinator.v1 import admin_pb2
from rota_proto.coordinator.v1.admin_pb2 import WatchGroupResponse
from rota_proto.fleet.v1 import fleet_pb2 as pb

# Kafka's names of a classic group's states.
UNKNOWN, EMPTY, STABLE = "Unknown", "Empty", "Stable"
PREPARING, COMPLETING = "PreparingRebalance", "CompletingRebalance"
STATES = {
    admin_pb2.GROUP_STATE_EMPTY: EMPTY,
    admin_pb2.GROUP_STATE_PREPARING_REBALANCE: PREPARING,
    admin_pb2.GROUP_STATE_COMPLETING_REBALANCE: COMPLETING,
    admin_pb2.GROUP_STATE_STABLE: STABLE,
    admin_pb2.GROUP_STATE_DEAD: "Dead",
}


@dataclass(frozen=True, slots=True)
class DescribedMember:
    """Member as the engine describes it. `partitions` is empty unless the group is stable and the assignment readable."""

    member_id: str
    client_id: str
    partitions: frozenset[Partition] = frozenset()
    # Of a static member; empty: a dynamic one.
    instance_id: str = ""
    host: str = ""


@dataclass(frozen=True, slots=True)
class Description:
    """A group's description at one moment."""

    group_id: str
    state: str
    # None: Kafka brokers do not report it.
    generation: int | None
    strategy: str
    members: Sequence[DescribedMember]
    # Trigger of the last rebalance; empty: the engine does not report it.
    reason: str = ""


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    """The last description of a group, with names instead of member ids; empty if it is unknown."""

    state: str = UNKNOWN
    generation: int | None = None
    strategy: str = ""
    # By member name.
    member_ids: Mapping[str, str] = field(default_factory=dict)
    # By member name; empty where only sidecars describe the group.
    members: Mapping[str, DescribedMember] = field(default_factory=dict)
    # Owners in the last generation that was stable.
    owners: Mapping[Partition, str] = field(default_factory=dict)


def description_of(response: WatchGroupResponse) -> Description:
    """Translate an answer of Rota's coordinator."""
    group = response.group
    return Description(
        group_id=group.group_id,
        state=STATES.get(group.state, UNKNOWN),
        generation=group.generation_id,
        strategy=group.protocol_name,
        members=[
            DescribedMember(
                each.member_id,
                each.client_id,
                _readable(each.assignment),
                each.group_instance_id,
                each.client_host,
            )
            for each in group.members
        ],
        reason=response.reason,
    )


def _readable(assignment: bytes) -> frozenset[Partition]:
    try:
        return partitions_of(assignment)
    except Malformed:
        # Another kind of client, with an assignment format of its own.
        return frozenset()


def users_of(reports: Mapping[str, pb.SidecarReport]) -> Mapping[str, str]:
    """
    Names of the sidecars that report to be members, by member id.

    The engine describes the client that joined, and goes on to do so when another pod has taken its membership over.
    """
    return {each.member.member_id: name for name, each in reports.items() if each.member.member_id}


def names_of(
    members: Iterable[DescribedMember], users: Mapping[str, str] = MappingProxyType({})
) -> Mapping[str, str]:
    """
    Names by member id: that of the sidecar that is the member, see `users_of`, else the client id, which sidecars set to their replica's
    name. A repeated one gets its member id added.
    """
    found: dict[str, str] = {}
    for member in members:
        name = users.get(member.member_id) or member.client_id or member.member_id
        found[member.member_id] = f"{name} ({member.member_id})" if name in found.values() else name
    return found


def with_names(reason: str, names: Mapping[str, str]) -> str:
    """Replace member ids in the coordinator's text by the members' names."""
    for member_id, name in names.items():
        reason = reason.replace(member_id, name)
    return reason


def owners_in(members: Iterable[DescribedMember], names: Mapping[str, str]) -> Mapping[Partition, str]:
    """Owners' names by partition."""
    return {partition: names[member.member_id] for member in members for partition in member.partitions}
