"""What a member asks its coordinator, and what it is answered: the protocol's own messages, on every engine."""

from rota_proto.coordinator.v1 import coordinator_pb2 as pb

Request = (
    pb.JoinGroupRequest
    | pb.SyncGroupRequest
    | pb.HeartbeatRequest
    | pb.LeaveGroupRequest
    | pb.CommitOffsetsRequest
    | pb.FetchOffsetsRequest
)
Response = (
    pb.JoinGroupResponse
    | pb.SyncGroupResponse
    | pb.HeartbeatResponse
    | pb.LeaveGroupResponse
    | pb.CommitOffsetsResponse
    | pb.FetchOffsetsResponse
)
