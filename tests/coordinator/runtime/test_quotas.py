"""Quotas per principal: the tables of what is charged and refused, and that a charge is never more than what was asked about."""

import asyncio

import grpc
import pytest

from rota_coordinator.core.group.growth import growth, usage
from rota_coordinator.core.group.state import Group
from rota_coordinator.core.quotas import MIB, NOTHING, QUOTAS, UNLIMITED, Quota, Quotas, Usage, exceeded
from rota_coordinator.options import option_error, quota_of
from rota_coordinator.options import parse as parse_options
from rota_coordinator.runtime.overload import Refusal
from rota_coordinator.security.errors import SecurityError
from rota_coordinator.security.principals import parse
from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.conformance.core import CoreDriver
from tests.conformance.driver import DEFAULT
from tests.conformance.members import Member, form, rebalance, subscription, topic_offsets
from tests.coordinator.virtual import Virtual, play

ONE_OF_EACH = Usage(*(1 for _ in Usage._fields))


@pytest.mark.parametrize("field", Usage._fields)
@pytest.mark.parametrize(
    ("limit", "used", "more", "fits"),
    [
        (5, 4, 1, True),
        (5, 5, 1, False),
        (5, 0, 6, False),
        (5, 9, 0, True),
        (5, 9, -1, True),
        (0, 0, 1, False),
        (UNLIMITED, 10**12, 10**12, True),
    ],
)
def test_what_exceeds_a_quota_is_refused_and_what_does_not_grow_never(
    field: str, limit: int, used: int, more: int, fits: bool
) -> None:
    quota = Quota()._replace(**{field: limit})
    said = exceeded("orders", quota, NOTHING._replace(**{field: used}), NOTHING._replace(**{field: more}))
    name, what = QUOTAS[field]
    expected = (
        f"principal orders has {used} {what} and would have {used + more}, but its quota is {limit}; free some, or raise the quota "
        f"with --quota-{name}, or for this principal with quota:{name}=N in the tokens file"
    )
    assert said == ("" if fits else expected)


def test_the_usage_of_a_principal_is_the_sum_of_its_charges() -> None:
    quotas = Quotas()
    quotas.charge("a", "orders", ONE_OF_EACH)
    quotas.charge("b", "orders", Usage(members=5))
    quotas.charge("c", "returns", Usage(members=7))
    assert quotas.used("orders") == ONE_OF_EACH.plus(Usage(members=5))
    quotas.charge("b", "orders", Usage(members=2))
    assert quotas.used("orders").members == 3
    quotas.charge("b", "returns", Usage(members=2))
    assert (quotas.used("orders").members, quotas.used("returns").members) == (1, 9)
    for key in ("a", "b", "c", "c", "unknown"):
        quotas.discharge(key)
    assert quotas.used("orders") == quotas.used("returns") == NOTHING


def test_what_has_no_principal_is_charged_to_none() -> None:
    quotas = Quotas(lambda principal: Quota(groups=0))
    quotas.charge("a", "", ONE_OF_EACH)
    assert quotas.used("") == NOTHING
    assert quotas.refusal("", Usage(groups=1)) == ""
    assert "has 0 groups" in quotas.refusal("orders", Usage(groups=1))


def test_a_line_of_the_tokens_file_replaces_the_quotas_that_it_names() -> None:
    known = parse("a plain:x quota:groups=3,group-bytes=-1 read:* quota:members=4\nb plain:y *", "tokens")
    assert known.quota_of("a", Quota()) == Quota()._replace(groups=3, members=4, group_bytes=UNLIMITED)
    assert known.quota_of("b", Quota()) == known.quota_of("unknown", Quota()) == Quota()


@pytest.mark.parametrize(
    "field", ["quota:", "quota:cats=1", "quota:groups", "quota:groups=many", "quota:groups=-2"]
)
def test_a_quota_that_is_wrong_refuses_the_tokens_file(field: str) -> None:
    with pytest.raises(SecurityError, match="tokens, line 1: quota:"):
        parse(f"a plain:x {field}", "tokens")


def test_quotas_are_flags_and_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    assert quota_of(parse_options([])) == Quota()
    monkeypatch.setenv("ROTA_QUOTA_MEMBERS", "7")
    options = parse_options(["--quota-group-bytes=-1"])
    assert quota_of(options) == Quota()._replace(members=7, group_bytes=UNLIMITED)
    assert option_error(options) == ""
    assert "--quota-groups must be at least 0" in option_error(parse_options(["--quota-groups=-2"]))


def offers(size: int) -> dict[str, bytes]:
    """Protocols, of which the larger one counts for the leader's answer."""
    return {"range": subscription(user_data=bytes(size)), "sticky": subscription(user_data=bytes(size // 2))}


def sums(group: Group) -> tuple[int, int]:
    """The sizes of the members, added up."""
    entries = sum(member.entry_bytes for member in group.members)
    return entries, sum(member.offer_bytes for member in group.members)


def test_no_request_adds_more_than_was_asked_about() -> None:
    async def body() -> None:
        driver = CoreDriver(DEFAULT)
        groups = driver.groups.groups

        def adds(request: object) -> Usage:
            return growth(groups.get("g"), request)  # type: ignore[arg-type]

        def used() -> Usage:
            return usage(groups["g"]) if "g" in groups else NOTHING

        members = [Member(driver, "g", instance=each, protocols=offers(500)) for each in (None, "static")]
        for member in members:
            before, more = used(), adds(member.join_request())
            await member.send_join().is_parked()
            grown = used().minus(before)
            assert (grown.groups, grown.members) == (more.groups, more.members)
            # Besides the record of the empty group.
            assert grown.group_bytes <= more.group_bytes + 100
        await form(*members)
        group = groups["g"]
        assert usage(group).members == 2
        assert adds(members[0].join_request()).group_bytes == 0
        assert adds(members[0].with_changes(protocols=offers(700)).join_request()).group_bytes == 300
        assert adds(members[0].with_changes(protocols=offers(100)).join_request()).group_bytes == -600
        stranger = Member(driver, "g", protocols=offers(100))
        assert adds(stranger.join_request()).members == 1
        stranger.member_id = "unknown"
        assert adds(stranger.join_request()) == NOTHING
        assert (group.members.sizes.entries, group.members.sizes.offers) == sums(group)
        for member in members:
            await member.leave()
        assert usage(group).members == 0
        assert (group.members.sizes.entries, group.members.sizes.offers) == (0, 0)
        # What is written of an empty group.
        assert usage(group).group_bytes < 100

    asyncio.run(body())


def limited(**quota: int) -> Virtual:
    """A service of which the principals have these quotas, on behalf of one of them."""
    return Virtual(quotas=Quotas(lambda principal: Quota()._replace(**quota)), principal="orders")


async def refused(
    virtual: Virtual, request: pb.JoinGroupRequest | pb.SyncGroupRequest | admin.AlterOffsetsRequest
) -> str:
    """The sentence with which a quota refuses a request."""
    with pytest.raises(Refusal) as refusal:
        await virtual.service.submit(request, "", virtual.principal)
    assert refusal.value.code == grpc.StatusCode.RESOURCE_EXHAUSTED.name
    return str(refusal.value)


def test_groups_are_charged_to_who_creates_them_until_they_are_deleted() -> None:
    async def body() -> None:
        virtual = await limited(groups=2).start()
        alter = [
            admin.AlterOffsetsRequest(group_id=f"g{number}", topics=[topic_offsets({0: 1})])
            for number in range(3)
        ]
        for request in alter[:2]:
            await virtual.send(request).answer(1)
        assert "principal orders has 2 groups and would have 3, but its quota is 2" in await refused(
            virtual, alter[2]
        )
        assert "--quota-groups" in await refused(virtual, Member(virtual, "g3").join_request())
        # What is there goes on, and another principal has a quota of its own.
        await virtual.send(alter[1]).answer(1)
        virtual.principal = "returns"
        await virtual.send(alter[2]).answer(1)
        await virtual.send(admin.DeleteGroupsRequest(group_ids=["g0"])).answer(1)
        virtual.principal = "orders"
        await form(Member(virtual, "g3"))
        assert (virtual.quotas.used("orders").groups, virtual.quotas.used("returns").groups) == (2, 1)

    play(body)


def test_members_count_for_the_creator_of_their_group_and_so_do_ids_that_were_given_out() -> None:
    async def body() -> None:
        virtual = await limited(members=2).start()
        first = Member(virtual, "g")
        await form(first)
        virtual.principal = "returns"
        await Member(virtual, "g").take_id()
        late = Member(virtual, "g")
        assert "principal orders has 2 group members" in await refused(virtual, late.join_request())
        assert await first.heartbeat() == pb.NONE
        # An id with which no member joins is forgotten after a session.
        await virtual.pass_time(late.session_ms / 1000 + 1)
        assert virtual.quotas.used("orders").members == 0

    play(body)


def test_metadata_is_bounded_in_sum_over_all_groups_of_a_principal() -> None:
    async def body() -> None:
        virtual = await limited(group_bytes=3 * MIB).start()
        members = [
            Member(
                virtual, f"g{number}", instance="i", protocols={"range": subscription(user_data=bytes(MIB))}
            )
            for number in range(3)
        ]
        for member in members[:2]:
            await member.joined(member.send_join())
        assert "bytes of group metadata and assignments" in await refused(virtual, members[2].join_request())
        assert virtual.quotas.used("orders").group_bytes < 2 * MIB + 1000
        # The same again is no more than before.
        await members[0].joined(members[0].send_join())

    play(body)


def test_assignments_count_once_they_are_written_and_while_they_wait() -> None:
    async def body() -> None:
        virtual = await limited(group_bytes=MIB).start()
        members = [Member(virtual, "g") for _ in range(3)]
        await form(*members)
        await rebalance(*members)
        (leader,) = [member for member in members if member.leads]
        others = [member for member in members if not member.leads]
        before = virtual.quotas.used("orders").group_bytes
        # Of another member than the leader they are ignored, and held until the leader's arrives.
        waiting = others[0].send_sync({leader.member_id: bytes(MIB * 3 // 4)})
        assert await waiting.is_parked()
        assert virtual.quotas.used("orders").group_bytes > before + MIB * 3 // 4
        large = {each.member_id: bytes(MIB // 4) for each in members}
        for member in (leader, others[1]):
            message = await refused(virtual, sync_request(member, large))
            assert "bytes of group metadata and assignments" in message
        small = leader.send_sync({each.member_id: b"mine" for each in members})
        for call in (small, waiting):
            reply = await call.answer(1)
            assert isinstance(reply, pb.SyncGroupResponse)
            assert reply.assignment == b"mine"
        assert virtual.quotas.used("orders").group_bytes < before + 1000

    play(body)


def sync_request(member: Member, assignments: dict[str, bytes]) -> pb.SyncGroupRequest:
    """A SyncGroup of a member of the current generation."""
    return pb.SyncGroupRequest(
        group_id=member.group,
        generation_id=member.generation,
        member_id=member.member_id,
        protocol_type=member.protocol_type,
        protocol_name=member.protocol,
        assignments=[pb.Assignment(member_id=each, assignment=data) for each, data in assignments.items()],
    )


def test_usage_is_the_same_after_a_restart_and_none_once_the_slots_are_given_up() -> None:
    async def body() -> None:
        virtual = await limited().start()
        await form(*(Member(virtual, "g", instance=f"i{number}") for number in range(2)))
        before = virtual.quotas.used("orders")
        assert (before.groups, before.members) == (1, 2)
        again = Virtual(store=virtual.store)
        await again.start()
        assert again.quotas.used("orders") == before
        await again.service.leave()
        assert again.quotas.used("orders") == NOTHING

    play(body)
