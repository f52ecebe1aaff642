"""
The quota usage of a group, and the growth that a request causes. Called by the router and the slot; changes nothing.
"""

from rota_coordinator.core.group.answers import Request
from rota_coordinator.core.group.members import instance_of, offered, protocol_bytes
from rota_coordinator.core.group.state import Group
from rota_coordinator.core.quotas import NOTHING, Usage
from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.coordinator.v1 import coordinator_pb2 as pb


def usage(group: Group) -> Usage:
    """Return the group's present quota usage."""
    return Usage(
        groups=1,
        members=len(group.members) + len(group.pending),
        group_bytes=group.members.sizes.offers + group.written_bytes,
    )


def growth(group: Group | None, request: Request) -> Usage:
    """
    Return an upper bound of the usage that the request adds to its group; NOTHING for a request that the group
    rejects.
    """
    match request:
        case pb.JoinGroupRequest():
            return join_growth(group, request)
        case pb.SyncGroupRequest() if group is not None and request.assignments:
            written = group.members.sizes.entries if request.member_id == group.members.leader else 0
            replaced = group.written_bytes if written else 0
            return Usage(group_bytes=written + assigned_bytes(request) - replaced)
        case pb.CommitOffsetsRequest() | pb.TxnCommitOffsetsRequest() if request.generation_id < 0:
            return Usage(groups=int(group is None))
        case admin.AlterOffsetsRequest():
            return Usage(groups=int(group is None))
        case _:
            return NOTHING


def assigned_bytes(request: pb.SyncGroupRequest) -> int:
    """Return the bytes of the assignments in a sync; the group stores those of its leader and ignores all others."""
    return sum([len(each.member_id.encode()) + len(each.assignment) for each in request.assignments])


def join_growth(group: Group | None, request: pb.JoinGroupRequest) -> Usage:
    """
    Return the growth by a join: a new member, or other metadata; an assigned but unused id already counts as a member.
    """
    offers = protocol_bytes(offered(request))
    if group is None:
        return NOTHING if request.member_id else Usage(groups=1, members=1, group_bytes=offers)
    instance_id = instance_of(request)
    holder = group.members.instances.get(instance_id, "") if instance_id is not None else ""
    replaced = group.members.by_id.get(request.member_id or holder)
    if replaced is not None:
        return Usage(group_bytes=offers - replaced.offer_bytes)
    if request.member_id and request.member_id not in group.pending:
        return NOTHING
    return Usage(members=int(not request.member_id), group_bytes=offers)
