"""Moves the groups of a slot into a higher incarnation after their log was restored from a backup. Called by `runtime.restored`."""

from rota_coordinator.core.group.groups import Groups
from rota_coordinator.core.instants import WallMs
from rota_proto.coordinator.v1.records_pb2 import GroupRecord, Record


def begin_incarnation(groups: Groups, now_ms: WallMs) -> int:
    """
    Remove the members of all groups, raise the incarnation of each, and return it; committed offsets are kept.

    Generations and incarnations that were issued after the backup are unknown here, but databases of applications may fence by
    them. The wall clock in milliseconds exceeds every incarnation that was counted up from 1, and that of an earlier restore.
    """
    incarnation = max(now_ms, groups.incarnation + 1)
    for group_id, group in groups.groups.items():
        empty = GroupRecord(
            group_id=group_id,
            incarnation=incarnation,
            generation_id=group.reserved_generation,
            state_since_ms=now_ms,
            created_by=group.created_by,
        )
        if group.durable is not None:
            empty.protocol_type = group.durable.protocol_type
        groups.replay(Record(group=empty))
    groups.incarnation = incarnation
    return incarnation
