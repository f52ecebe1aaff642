"""Descriptions of a group: its members as their latest joins have them."""

import pytest

from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.conformance.members import Member, answer, form, settle
from tests.coordinator.virtual import Virtual, play


@pytest.mark.parametrize("instance", [None, "i"])
def test_a_description_shows_client_id_and_host_of_a_members_latest_join(instance: str | None) -> None:
    async def body() -> None:
        virtual = await Virtual().start()
        member = Member(virtual, "g", instance=instance)
        await form(member)
        if instance is not None:
            member.member_id = ""
        member.client_id = "again"
        joined = await virtual.service.submit(member.join_request(), "/10.0.0.2")
        assert isinstance(joined, pb.JoinGroupResponse)
        member.accept(joined)
        await settle(member)
        request = admin.DescribeGroupsRequest(group_ids=["g"])
        reply = await answer(virtual.send(request), admin.DescribeGroupsResponse)
        shown = [(each.client_id, each.client_host) for each in reply.groups[0].members]
        assert shown == [("again", "/10.0.0.2")]

    play(body)
