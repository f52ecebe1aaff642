"""Requests of a member and responses of its coordinator: the messages of Rota's protocol, on every backend."""

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
