"""Metadata of a group's members: all of it goes to the leader in one message, so a join that makes it too large is refused."""

import asyncio
from collections.abc import Callable

import grpc
import pytest

from rota_coordinator.core.group.barrier import joined
from rota_coordinator.core.group.join_size import REST_BYTES, join_answer_bytes
from rota_coordinator.runtime.overload import MESSAGE_BYTES_MAX
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.conformance.core import CoreDriver
from tests.conformance.driver import DEFAULT
from tests.conformance.members import Member, form, subscription
from tests.coordinator.streams import Stream, streams
from tests.coordinator.virtual import Virtual

# Two members fit into a message, three do not.
LARGE = {"range": subscription(user_data=bytes(MESSAGE_BYTES_MAX * 2 // 5))}
SMALL = {"range": subscription()}
MESSAGE = (
    f"the leader of group g would be sent .* bytes of member metadata in one response, at most {MESSAGE_BYTES_MAX} can "
    "be sent; subscribe to fewer topics or by pattern, or split the group"
)


@pytest.mark.parametrize("instance", [None, "i"])
def test_a_join_that_makes_the_leaders_answer_too_large_is_refused_and_disturbs_nobody(
    instance: str | None,
) -> None:
    async def body(virtual: Virtual, stream: Callable[[], Stream]) -> None:
        one = stream()
        members = [Member(one, "g", protocols=LARGE) for _ in range(2)]
        await form(*members)
        late = Member(one, "g", instance=instance, protocols=LARGE)
        frame = await one.ask(late.join_request())
        assert frame.failure.grpc_code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
        with pytest.raises(AssertionError, match=MESSAGE):
            raise AssertionError(frame.failure.message)
        assert [await member.heartbeat() for member in members] == [pb.NONE, pb.NONE]
        await members[1].leave()
        await form_again(members[0], late)

    streams(body)


async def form_again(first: Member, late: Member) -> None:
    """The joiner that was refused finds room when another member has left."""
    joining = await late.send_second_join()
    await first.joined(first.send_join())
    await late.joined(joining)
    assert first.generation == late.generation


def test_a_member_whose_new_metadata_is_too_large_stays_with_what_it_had() -> None:
    async def body(virtual: Virtual, stream: Callable[[], Stream]) -> None:
        one = stream()
        members = [Member(one, "g", protocols=protocols) for protocols in (LARGE, LARGE, SMALL)]
        await form(*members)
        frame = await one.ask(members[2].with_changes(protocols=LARGE).join_request())
        assert frame.failure.grpc_code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
        assert [await member.heartbeat() for member in members] == [pb.NONE] * 3
        # The same metadata again is no more than before.
        again = await one.ask(members[2].join_request())
        assert again.join_group.error_code == pb.NONE

    streams(body)


@pytest.mark.parametrize("instances", [(None, None), ("é" * 100, "i"), (None, "𝔸" * 300)])
def test_the_answer_to_the_leader_is_never_larger_than_is_reckoned(instances: tuple[str | None, ...]) -> None:
    async def body() -> None:
        driver = CoreDriver(DEFAULT)
        protocols = {"range": subscription(user_data=bytes(300)), "other": subscription(user_data=bytes(200))}
        members = [Member(driver, "g", instance=each, protocols=protocols) for each in instances]
        await form(*members)
        group = driver.groups.groups["g"]
        answer = joined(group, group.members.by_id[group.members.leader])
        size = pb.SessionResponse(request_id=2**63 - 1, join_group=answer).ByteSize()
        reckoned = {join_answer_bytes(group, member.join_request()) for member in members}
        assert size <= min(reckoned) <= max(reckoned) <= size + REST_BYTES
        newcomer = Member(driver, "g", instance="new", protocols=protocols)
        assert join_answer_bytes(group, newcomer.join_request()) > max(reckoned) + 300

    asyncio.run(body())
