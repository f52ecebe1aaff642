"""
Administration of one group: describe, delete, and delete, alter or expire its offsets.

Called by `groups` with requests about one group; `rpc.admin_service` splits requests about several groups.
"""

from collections.abc import Callable

from rota_coordinator.core.group.commit import is_longer, room_error
from rota_coordinator.core.group.consumer_protocol import TopicPartition
from rota_coordinator.core.group.effects import Effects
from rota_coordinator.core.group.offsets import Offsets, removed
from rota_coordinator.core.group.state import Group, State
from rota_coordinator.core.instants import WallMs
from rota_proto.consumer_protocol import PROTOCOL_TYPE
from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.records_pb2 import GroupRemoved, OffsetCommitted, Record

STATES = {
    State.EMPTY: admin.GROUP_STATE_EMPTY,
    State.PREPARING: admin.GROUP_STATE_PREPARING_REBALANCE,
    State.COMPLETING: admin.GROUP_STATE_COMPLETING_REBALANCE,
    State.STABLE: admin.GROUP_STATE_STABLE,
}


def described(group: Group) -> admin.DescribedGroup:
    """Return the description of the group; as in Kafka, protocol and metadata are shown in state Stable only."""
    settled = group.state is State.STABLE
    return admin.DescribedGroup(
        group_id=group.group_id,
        state=STATES[group.state],
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name if settled else "",
        generation_id=group.generation,
        incarnation=group.incarnation,
        leader=group.members.leader,
        members=[
            admin.DescribedMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                metadata=member.metadata(group.protocol_name) if settled else b"",
                assignment=member.assignment,
            )
            for member in group.members
        ],
    )


def listed(group: Group) -> admin.ListedGroup:
    """Return the group's entry in ListGroups."""
    return admin.ListedGroup(
        group_id=group.group_id, protocol_type=group.protocol_type, state=STATES[group.state]
    )


def unknown(group_id: str) -> admin.DescribedGroup:
    """Return the description of a group that does not exist: state Dead, as in Kafka."""
    return admin.DescribedGroup(group_id=group_id, state=admin.GROUP_STATE_DEAD)


def deletion_error(group: Group | None) -> pb.ErrorCode.ValueType:
    """Return the error of a group that cannot be deleted; NONE if it can. Unused member ids do not prevent deletion."""
    if group is None:
        return pb.GROUP_ID_NOT_FOUND
    return pb.NONE if group.state is State.EMPTY else pb.NON_EMPTY_GROUP


def removal(group: Group) -> Record:
    """Return the record that removes a group with its offsets."""
    return Record(group_removed=GroupRemoved(group_id=group.group_id, incarnation=group.incarnation))


def delete_offsets(
    group: Group, offsets: Offsets, effects: Effects, request: admin.DeleteOffsetsRequest
) -> admin.DeleteOffsetsResponse:
    """Delete committed offsets, except of topics to which a member of the group subscribes."""
    if group.state is not State.EMPTY and group.protocol_type != PROTOCOL_TYPE:
        return admin.DeleteOffsetsResponse(error_code=pb.NON_EMPTY_GROUP)

    def delete(topic: str, index: int) -> pb.ErrorCode.ValueType:
        partition = TopicPartition(topic, index)
        if group.subscribed is None or topic in group.subscribed:
            return pb.GROUP_SUBSCRIBED_TO_TOPIC
        if partition in offsets.committed or offsets.is_pending(partition):
            offsets.write(removed(group.group_id, partition), effects)
        return pb.NONE

    named = [(topic.name, list(topic.partitions)) for topic in request.topics]
    return admin.DeleteOffsetsResponse(topics=each_partition(named, delete))


def alter_offsets(
    group: Group, offsets: Offsets, effects: Effects, request: admin.AlterOffsetsRequest, at_ms: WallMs
) -> admin.AlterOffsetsResponse:
    """Set offsets of an empty group; members would not notice the change and would overwrite it."""
    if group.state is not State.EMPTY:
        return admin.AlterOffsetsResponse(error_code=pb.NON_EMPTY_GROUP)

    def alter(topic: pb.TopicOffsets, partition: pb.PartitionOffset) -> pb.PartitionError:
        refused = room_error(offsets, TopicPartition(topic.name, partition.index))
        if is_longer(partition.metadata, group.config.offset_metadata_length_max):
            refused = pb.OFFSET_METADATA_TOO_LARGE
        if not refused:
            offset = OffsetCommitted(
                group_id=group.group_id,
                topic=topic.name,
                partition=partition.index,
                topic_id=topic.topic_id,
                offset=partition.offset,
                leader_epoch=partition.leader_epoch,
                metadata=partition.metadata,
                committed_at_ms=at_ms,
            )
            offsets.write(Record(offset_committed=offset), effects)
        return pb.PartitionError(index=partition.index, error_code=refused)

    return admin.AlterOffsetsResponse(
        topics=[
            pb.TopicErrors(name=topic.name, partitions=[alter(topic, each) for each in topic.partitions])
            for topic in request.topics
        ]
    )


def expire_offsets(group: Group, offsets: Offsets, effects: Effects, now_ms: WallMs) -> None:
    """
    Delete offsets beyond the retention time; a group with members keeps all its offsets.

    The time starts when the group becomes empty; without members ever, it starts at each commit.
    """
    if group.state is not State.EMPTY:
        return
    for partition, (_, offset) in list(offsets.committed.items()):
        since_ms = group.state_since_ms if group.protocol_type else offset.committed_at_ms
        if now_ms - since_ms >= group.config.offsets_retention_ms and not offsets.is_pending(partition):
            offsets.write(removed(group.group_id, partition), effects)


def each_partition(
    topics: list[tuple[str, list[int]]], act: Callable[[str, int], pb.ErrorCode.ValueType]
) -> list[pb.TopicErrors]:
    """Return the error of each partition, in the order of the request."""
    return [
        pb.TopicErrors(
            name=name,
            partitions=[pb.PartitionError(index=index, error_code=act(name, index)) for index in indexes],
        )
        for name, indexes in topics
    ]
