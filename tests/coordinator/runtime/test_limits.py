"""Everything has a bound, and what goes beyond it is refused with a reason."""

import asyncio
from dataclasses import replace

import pytest

from rota_coordinator.core.group.config import (
    GROUP_ID_LENGTH_MAX,
    GROUPS_MAX,
    MEMBERS_MAX,
    PARTITIONS_MAX,
    GroupConfig,
)
from rota_coordinator.core.group.offsets import Offsets
from rota_coordinator.core.group.state import Group
from rota_coordinator.options import option_error, parse
from rota_coordinator.runtime.overload import MESSAGE_BYTES_MAX, Refusal
from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.conformance.core import CoreDriver
from tests.conformance.driver import DEFAULT
from tests.conformance.members import Member, answer, assignment, form, topic_offsets
from tests.coordinator.virtual import CONFIG, Virtual, play


def errors(reply: pb.CommitOffsetsResponse | admin.AlterOffsetsResponse) -> set[int]:
    return {each.error_code for topic in reply.topics for each in topic.partitions}


def test_the_limits_are_those_that_are_promised() -> None:
    assert (GROUPS_MAX, MEMBERS_MAX, PARTITIONS_MAX, GROUP_ID_LENGTH_MAX) == (10_000, 10_000, 200_000, 249)
    assert GroupConfig().members_max == MEMBERS_MAX
    assert GroupConfig().offset_metadata_length_max == 4_096
    assert MESSAGE_BYTES_MAX == 4 * 1024 * 1024


def test_a_group_has_offsets_of_so_many_partitions_and_may_change_those(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    most = 1_000
    monkeypatch.setattr("rota_coordinator.core.group.offsets.PARTITIONS_MAX", most)

    async def body(driver: CoreDriver) -> None:
        member = Member(driver, "g")
        full = member.commit_request(dict.fromkeys(range(most), 1))
        assert errors(await answer(driver.send(full), pb.CommitOffsetsResponse)) == {pb.NONE}
        exceeding = member.commit_request({0: 2, most: 1})
        reply = await answer(driver.send(exceeding), pb.CommitOffsetsResponse)
        assert [each.error_code for each in reply.topics[0].partitions] == [
            pb.NONE,
            pb.INVALID_COMMIT_OFFSET_SIZE,
        ]
        request = admin.AlterOffsetsRequest(group_id="g", topics=[topic_offsets({most: 1})])
        altered = await answer(driver.send(request), admin.AlterOffsetsResponse)
        assert errors(altered) == {pb.INVALID_COMMIT_OFFSET_SIZE}
        assert len(driver.groups.offsets["g"].committed) == most

    asyncio.run(body(CoreDriver(DEFAULT)))


def test_offsets_that_wait_for_a_transaction_count_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota_coordinator.core.group.offsets.PARTITIONS_MAX", 2)

    async def body(driver: CoreDriver) -> None:
        for partition, expected in ((0, pb.NONE), (1, pb.NONE), (2, pb.INVALID_COMMIT_OFFSET_SIZE)):
            request = pb.TxnCommitOffsetsRequest(
                group_id="g",
                generation_id=-1,
                transactional_id="t",
                producer_id=1,
                topics=[topic_offsets({partition: 1})],
            )
            reply = await answer(driver.send(request), pb.TxnCommitOffsetsResponse)
            assert reply.topics[0].partitions[0].error_code == expected

    asyncio.run(body(CoreDriver(DEFAULT)))


def test_metadata_is_bounded_whoever_sets_the_offset() -> None:
    async def body(driver: CoreDriver) -> None:
        for length, expected in ((4_096, pb.NONE), (4_097, pb.OFFSET_METADATA_TOO_LARGE)):
            offsets = topic_offsets({0: 1})
            offsets.partitions[0].metadata = "x" * length
            request = admin.AlterOffsetsRequest(group_id="g", topics=[offsets])
            assert errors(await answer(driver.send(request), admin.AlterOffsetsResponse)) == {expected}
            commit = Member(driver, "g").commit_request({0: 1})
            commit.topics[0].CopyFrom(offsets)
            assert errors(await answer(driver.send(commit), pb.CommitOffsetsResponse)) == {expected}

    asyncio.run(body(CoreDriver(DEFAULT)))


@pytest.mark.parametrize(
    ("partitions", "expected"),
    [(PARTITIONS_MAX, pb.NONE), (PARTITIONS_MAX + 1, pb.POLICY_VIOLATION)],
)
def test_a_leader_gives_out_so_many_partitions(partitions: int, expected: int) -> None:
    async def body(driver: CoreDriver) -> None:
        member = Member(driver, "g")
        await member.joined(await member.send_second_join())
        call = member.send_sync({member.member_id: assignment(*range(partitions))})
        reply = await answer(call, pb.SyncGroupResponse)
        assert reply.error_code == expected
        # Who was refused may try again with less.
        again = await answer(member.send_sync({member.member_id: assignment(1)}), pb.SyncGroupResponse)
        assert again.error_code == pb.NONE

    asyncio.run(body(CoreDriver(DEFAULT)))


def test_a_group_has_so_many_members() -> None:
    async def body(driver: CoreDriver) -> None:
        driver.groups.config = replace(driver.groups.config, members_max=3)
        members = [Member(driver, "g") for _ in range(3)]
        await form(*members)
        late = Member(driver, "g", instance="i")
        assert (await answer(late.send_join(), pb.JoinGroupResponse)).error_code == pb.GROUP_MAX_SIZE_REACHED

    asyncio.run(body(CoreDriver(DEFAULT)))


def test_the_limit_of_members_can_be_lowered_not_raised() -> None:
    assert option_error(parse([f"--group-max-size={MEMBERS_MAX}"])) == ""
    assert option_error(parse([f"--group-max-size={MEMBERS_MAX + 1}"])) == (
        f"--group-max-size must be at most {MEMBERS_MAX}, not {MEMBERS_MAX + 1}"
    )


def test_a_coordinator_has_so_many_groups_and_serves_those() -> None:
    async def run() -> None:
        virtual = await Virtual().start()
        member = Member(virtual, "old")
        await form(member)
        for number in range(GROUPS_MAX - 1):
            groups = virtual.service.slot(f"g-{number}").groups
            groups.groups[f"g-{number}"] = Group(f"g-{number}", CONFIG, incarnation=1)
            groups.offsets[f"g-{number}"] = Offsets()
        create = (
            pb.JoinGroupRequest(group_id="new", session_timeout_ms=10_000),
            Member(virtual, "new").commit_request({0: 1}),
            admin.AlterOffsetsRequest(group_id="new", topics=[topic_offsets({0: 1})]),
        )
        for request in create:
            with pytest.raises(
                Refusal, match="has 10000 groups, which is the limit; delete unused groups"
            ) as refused:
                await virtual.service.submit(request, "")
            assert refused.value.code == "RESOURCE_EXHAUSTED"
        assert await member.commit({0: 1}) == pb.NONE
        stranger = await Member(virtual, "new", member_id="who").heartbeat()
        assert stranger == pb.UNKNOWN_MEMBER_ID
        deleted = virtual.send(admin.DeleteGroupsRequest(group_ids=["g-7"]))
        await answer(deleted, admin.DeleteGroupsResponse)
        assert await Member(virtual, "new").commit({0: 1}) == pb.NONE

    play(run)


def test_groups_of_slots_that_went_elsewhere_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota_coordinator.runtime.overload.GROUPS_MAX", 1)

    async def run() -> None:
        virtual = await Virtual().start()
        await form(Member(virtual, "old"))
        virtual.service.slot("old").stop(pb.NOT_COORDINATOR)
        await form(Member(virtual, "new"))

    play(run)
