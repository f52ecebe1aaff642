"""A client of the group that is no sidecar: it takes an instance from a member, or joins and leaves again and again."""

import grpc

from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.admin_pb2_grpc import AdminStub
from rota_proto.coordinator.v1.coordinator_pb2_grpc import CoordinatorStub
from tests.conformance.members import OTHER_TOPIC, subscription

WITHIN_S = 60
SESSION_MS, REBALANCE_MS = 45_000, 60_000
STRATEGY = "cooperative-sticky"


def follower(channel: grpc.Channel, group: str) -> str:
    """Return the client id of a member that does not lead the group: without a leader the rival would have to assign partitions."""
    request = admin.DescribeGroupsRequest(group_ids=[group])
    found = AdminStub(channel).DescribeGroups(request, timeout=WITHIN_S).groups[0]
    return next(each.client_id for each in found.members if each.member_id != found.leader)


class Rival:
    """One client; it subscribes to a topic that does not exist, so that no partition moves to it."""

    def __init__(self, channel: grpc.Channel, group: str, instance: str | None) -> None:
        self._stub = CoordinatorStub(channel)
        self._group = group
        self._instance = instance
        self._member_id = ""

    def join(self) -> None:
        """Join the group; a dynamic member gets its id first."""
        answer = self._join()
        if answer.error_code == pb.MEMBER_ID_REQUIRED:
            self._member_id = answer.member_id
            answer = self._join()
        assert answer.error_code == pb.NONE, pb.ErrorCode.Name(answer.error_code)
        assert answer.leader != answer.member_id, "a sidecar leads"
        self._member_id = answer.member_id

    def leave(self) -> None:
        """Leave the group."""
        member = pb.LeavingMember(member_id=self._member_id, group_instance_id=self._instance)
        answer = self._stub.LeaveGroup(
            pb.LeaveGroupRequest(group_id=self._group, members=[member]), timeout=WITHIN_S
        )
        assert [each.error_code for each in answer.members] == [pb.NONE]
        self._member_id = ""

    def _join(self) -> pb.JoinGroupResponse:
        return self._stub.JoinGroup(
            pb.JoinGroupRequest(
                group_id=self._group,
                member_id=self._member_id,
                group_instance_id=self._instance,
                client_id="rival",
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                protocol_type="consumer",
                protocols=[pb.Protocol(name=STRATEGY, metadata=subscription(OTHER_TOPIC))],
            ),
            timeout=WITHIN_S,
        )
