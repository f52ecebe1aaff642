"""Changes of groups at Rota's coordinator, by the operator: initial offsets of a group without members, deletion of a group."""

from collections.abc import Mapping

from rota_operator.engines.coordinators import CALL_S, GroupCoordinator, ask_coordinator
from rota_operator.engines.port import Unavailable
from rota_operator.overview.assignment import Partition
from rota_proto.coordinator.v1 import admin_pb2 as pb
from rota_proto.coordinator.v1.admin_pb2_grpc import AdminStub
from rota_proto.coordinator.v1.coordinator_pb2 import (
    GROUP_ID_NOT_FOUND,
    NONE,
    ErrorCode,
    PartitionOffset,
    TopicOffsets,
)

# Of one request.
PARTITIONS_MAX = 10_000
# Time limit of a request with so many: a busy coordinator takes longer for it than for a question.
ALTER_S = 10.0


async def commit_initial_offsets(
    coordinator: GroupCoordinator, group_id: str, offsets: Mapping[Partition, int]
) -> None:
    """Commit offsets of a group without members. Raises Unavailable, also if a member has joined meanwhile."""
    await _alter_offsets(coordinator, group_id, offsets, "commit the initial offsets")


async def alter_offsets(
    coordinator: GroupCoordinator, group_id: str, offsets: Mapping[Partition, int]
) -> None:
    """Reset offsets of a group without members. Raises Unavailable, also if a member has joined meanwhile."""
    ordered = sorted(offsets.items())
    for first in range(0, len(ordered), PARTITIONS_MAX):
        some = dict(ordered[first : first + PARTITIONS_MAX])
        await _alter_offsets(coordinator, group_id, some, "reset the offsets")


async def _alter_offsets(
    coordinator: GroupCoordinator, group_id: str, offsets: Mapping[Partition, int], what: str
) -> None:
    by_topic: dict[str, list[PartitionOffset]] = {}
    for each, offset in offsets.items():
        committed = PartitionOffset(index=each.number, offset=offset, leader_epoch=-1)
        by_topic.setdefault(each.topic, []).append(committed)
    request = pb.AlterOffsetsRequest(
        group_id=group_id,
        topics=[TopicOffsets(name=name, partitions=found) for name, found in by_topic.items()],
    )
    answer = await ask_coordinator(
        coordinator,
        lambda channel, metadata: AdminStub(channel).AlterOffsets(
            request, timeout=ALTER_S, metadata=metadata
        ),
        lambda answer: answer.error_code,
    )
    codes = [
        answer.error_code,
        *(each.error_code for topic in answer.topics for each in topic.partitions),
    ]
    for code in codes:
        if code != NONE:
            raise Unavailable(f"cannot {what} of group {group_id} ({ErrorCode.Name(code)})")


async def delete_group(coordinator: GroupCoordinator, group_id: str) -> None:
    """Delete a group with its offsets; no error if it does not exist. Raises Unavailable, also if it has members."""
    request = pb.DeleteGroupsRequest(group_ids=[group_id])
    answer = await ask_coordinator(
        coordinator,
        lambda channel, metadata: AdminStub(channel).DeleteGroups(request, timeout=CALL_S, metadata=metadata),
        lambda answer: answer.groups[0].error_code,
    )
    for each in answer.groups:
        if each.error_code not in (NONE, GROUP_ID_NOT_FOUND):
            raise Unavailable(f"cannot delete group {group_id} ({ErrorCode.Name(each.error_code)})")
