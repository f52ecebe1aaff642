"""Error responses of rejected requests, in the response type of each request. Called by `groups` and the slots."""

from google.protobuf.message import Message

from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.coordinator.v1 import coordinator_pb2 as pb

# Requests of members and producers.
ProtocolRequest = (
    pb.JoinGroupRequest
    | pb.SyncGroupRequest
    | pb.HeartbeatRequest
    | pb.LeaveGroupRequest
    | pb.CommitOffsetsRequest
    | pb.TxnCommitOffsetsRequest
    | pb.FetchOffsetsRequest
)
# Requests of administrators about one group.
AdminRequest = (
    admin.DescribeGroupsRequest
    | admin.DeleteGroupsRequest
    | admin.DeleteOffsetsRequest
    | admin.AlterOffsetsRequest
)
Request = ProtocolRequest | AdminRequest


def group_of(request: Request) -> str:
    """Return the group id of a request; administrators' requests have been split into one per group."""
    if isinstance(request, (admin.DescribeGroupsRequest, admin.DeleteGroupsRequest)):
        (group_id,) = request.group_ids
        return group_id
    return request.group_id


def refused(request: Request, error: pb.ErrorCode.ValueType) -> Message:
    """Return the response that carries the error, where its type has the field."""
    match request:
        case pb.JoinGroupRequest():
            return pb.JoinGroupResponse(error_code=error, generation_id=-1)
        case pb.SyncGroupRequest():
            return pb.SyncGroupResponse(error_code=error)
        case pb.HeartbeatRequest():
            return pb.HeartbeatResponse(error_code=error)
        case pb.LeaveGroupRequest():
            return pb.LeaveGroupResponse(error_code=error)
        case pb.CommitOffsetsRequest():
            return pb.CommitOffsetsResponse(error_code=error, topics=copied(request, error))
        case pb.TxnCommitOffsetsRequest():
            return pb.TxnCommitOffsetsResponse(error_code=error, topics=copied(request, error))
        case pb.FetchOffsetsRequest():
            return pb.FetchOffsetsResponse(error_code=error)
        case _:
            return refused_administration(request, error)


def refused_administration(request: AdminRequest, error: pb.ErrorCode.ValueType) -> Message:
    """Return the response to an administrator's request that carries the error."""
    match request:
        case admin.DescribeGroupsRequest():
            group = admin.DescribedGroup(group_id=group_of(request), error_code=error)
            return admin.DescribeGroupsResponse(groups=[group])
        case admin.DeleteGroupsRequest():
            deleted = admin.DeletedGroup(group_id=group_of(request), error_code=error)
            return admin.DeleteGroupsResponse(groups=[deleted])
        case admin.DeleteOffsetsRequest():
            return admin.DeleteOffsetsResponse(error_code=error)
        case admin.AlterOffsetsRequest():
            return admin.AlterOffsetsResponse(error_code=error)


def copied(
    request: pb.CommitOffsetsRequest | pb.TxnCommitOffsetsRequest, error: pb.ErrorCode.ValueType
) -> list[pb.TopicErrors]:
    """Return the error for every partition of the request, because clients check each partition's error."""
    return [
        pb.TopicErrors(
            name=topic.name,
            partitions=[
                pb.PartitionError(index=partition.index, error_code=error) for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
