"""The coordinator as a process with something to guard: who is let in, to which groups, and over which connections."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import grpc
import grpc.aio
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from rota_coordinator.security.access_control import ACTIONS
from rota_coordinator.security.policy import Action
from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.admin_pb2_grpc import AdminStub
from tests.conformance.members import subscription, topic_offsets
from tests.coordinator.callers import METHODS, Stream, call, channel, error_of, refusal, run, session
from tests.support.coordinator import QUICK, Coordinator, bearer, serving
from tests.support.web import get

pytestmark = pytest.mark.process
TOKENS = {name: f"token-of-{name}-canary" for name in ("member", "reader", "admin", "stranger")}
FILE = f"""\
# Who may do what in these tests.
member   plain:{TOKENS["member"]}     shop.*
reader   plain:{TOKENS["reader"]}     read:shop.* read:bill
admin    plain:{TOKENS["admin"]}      admin:*
stranger plain:{TOKENS["stranger"]}   other.*
"""
MOST = {
    ("member", "shop."): Action.MEMBER,
    ("reader", "shop."): Action.READ,
    ("reader", "bill"): Action.READ,
    ("admin", "shop."): Action.ADMIN,
    ("admin", "bill"): Action.ADMIN,
}
NOBODY = "nobody"


def requests_about(group: str) -> list[Message]:
    """One request of every kind about a group."""
    offsets = [topic_offsets({0: 7})]
    return [
        pb.FindCoordinatorRequest(group_ids=[group]),
        pb.JoinGroupRequest(group_id=group, member_id=NOBODY, session_timeout_ms=10_000),
        pb.SyncGroupRequest(
            group_id=group, member_id=NOBODY, protocol_type="consumer", protocol_name="range"
        ),
        pb.HeartbeatRequest(group_id=group, member_id=NOBODY),
        pb.LeaveGroupRequest(group_id=group, members=[pb.LeavingMember(member_id=NOBODY)]),
        pb.CommitOffsetsRequest(group_id=group, generation_id=1, member_id=NOBODY, topics=offsets),
        pb.TxnCommitOffsetsRequest(group_id=group, generation_id=1, member_id=NOBODY, topics=offsets),
        pb.FetchOffsetsRequest(group_id=group, all=True),
        admin.DescribeGroupsRequest(group_ids=[group]),
        admin.DeleteGroupsRequest(group_ids=[group]),
        admin.DeleteOffsetsRequest(group_id=group, topics=[pb.TopicPartitions(name="t", partitions=[0])]),
        admin.AlterOffsetsRequest(group_id=group, topics=offsets),
    ]


@pytest.fixture(scope="module")
def tokens_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokens") / "tokens"
    path.touch(mode=0o600)
    path.write_text(FILE)
    return path


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, tokens_file: Path) -> Iterator[Coordinator]:
    # Without a log it takes offsets of any topic.
    flags = [*QUICK, "--no-log", f"--tokens-file={tokens_file}"]
    with serving(tmp_path_factory.mktemp("guarded"), flags) as coordinator:
        yield coordinator


async def joined(stream: Stream, group_id: str) -> pb.JoinGroupResponse:
    """A member of its own group, in its first generation, synced."""
    request = pb.JoinGroupRequest(
        group_id=group_id,
        client_id="c",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=[pb.Protocol(name="range", metadata=subscription())],
    )
    given = await stream.ask(request)
    assert isinstance(given, pb.JoinGroupResponse)
    request.member_id = given.member_id
    reply = await stream.ask(request)
    assert isinstance(reply, pb.JoinGroupResponse)
    assert reply.error_code == pb.NONE
    synced = await stream.ask(
        pb.SyncGroupRequest(
            group_id=group_id,
            generation_id=reply.generation_id,
            member_id=reply.member_id,
            protocol_type="consumer",
            protocol_name="range",
        )
    )
    assert error_of(synced) == pb.NONE
    return reply


async def heartbeat(stream: Stream, group_id: str, member: pb.JoinGroupResponse) -> int:
    request = pb.HeartbeatRequest(
        group_id=group_id, generation_id=member.generation_id, member_id=member.member_id
    )
    return error_of(await stream.ask(request))


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_no_call_is_answered_without_a_known_token(guarded: Coordinator, method: MethodDescriptor) -> None:
    shown = {
        "the call has no token": (),
        "unknown token": bearer("wrong"),
        "must have the form": (("authorization", TOKENS["admin"]),),
        "send exactly one": bearer(TOKENS["admin"]) * 2,
    }

    async def body() -> None:
        async with channel(guarded.address) as over:
            for message, metadata in shown.items():
                code, details = await refusal(over, method, metadata)
                assert code is grpc.StatusCode.UNAUTHENTICATED
                assert message in details

    run(body())


@pytest.mark.parametrize("principal", TOKENS)
@pytest.mark.parametrize("group_id", ["shop.matrix", "bill", "shop", "Shop.matrix", ""])
def test_everybody_may_do_what_was_granted_and_nothing_else(
    guarded: Coordinator, principal: str, group_id: str
) -> None:
    granted = next(
        (most for (name, start), most in MOST.items() if name == principal and group_id.startswith(start)),
        Action.ADMIN if principal == "admin" else None,
    )

    async def body() -> None:
        async with channel(guarded.address) as over, session(over, TOKENS[principal]) as stream:
            for request in requests_about(group_id):
                needed = ACTIONS.get(type(request), Action.READ)  # type: ignore[arg-type]
                answers = [await call(over, request, TOKENS[principal])]
                if request.DESCRIPTOR.file is pb.DESCRIPTOR:
                    answers.append(await stream.ask(request))
                for answer in answers:
                    refused = error_of(answer) == pb.GROUP_AUTHORIZATION_FAILED
                    assert refused == (granted is None or granted < needed), (type(request), answer)

    run(body())


def test_a_refused_request_changes_nothing_and_tells_nothing(guarded: Coordinator) -> None:
    async def body() -> None:
        async with (
            channel(guarded.address) as over,
            session(over, TOKENS["member"]) as own,
            session(over, TOKENS["stranger"]) as foreign,
        ):
            member = await joined(own, "shop.there")
            commit = pb.CommitOffsetsRequest(
                group_id="shop.there",
                generation_id=member.generation_id,
                member_id=member.member_id,
                topics=[topic_offsets({0: 41})],
            )
            assert error_of(await own.ask(commit)) == pb.NONE

            async def state() -> list[bytes]:
                looks = (
                    admin.DescribeGroupsRequest(group_ids=["shop.there", "shop.not-there"]),
                    pb.FetchOffsetsRequest(group_id="shop.there", all=True),
                    admin.ListGroupsRequest(),
                )
                return [(await call(over, look, TOKENS["admin"])).SerializeToString() for look in looks]

            before = await state()
            for there, not_there in zip(
                requests_about("shop.there"), requests_about("shop.not-there"), strict=True
            ):
                received = await call(over, there, TOKENS["stranger"])
                assert error_of(received) == pb.GROUP_AUTHORIZATION_FAILED
                other = await call(over, not_there, TOKENS["stranger"])
                assert str(received).replace("shop.there", "shop.not-there") == str(other)
                if there.DESCRIPTOR.file is pb.DESCRIPTOR:
                    assert await foreign.ask(there) == received
            assert await state() == before
            assert await heartbeat(own, "shop.there", member) == pb.NONE

    run(body())


def test_lists_show_what_the_caller_may_see(guarded: Coordinator) -> None:
    async def body() -> None:
        async with channel(guarded.address) as over:
            for group_id in ("shop.listed", "bill", "other.listed"):
                altered = admin.AlterOffsetsRequest(group_id=group_id, topics=[topic_offsets({0: 1})])
                assert error_of(await call(over, altered, TOKENS["admin"])) == pb.NONE

            async def listed(principal: str) -> set[str]:
                reply = await call(over, admin.ListGroupsRequest(), TOKENS[principal])
                assert isinstance(reply, admin.ListGroupsResponse)
                return {group.group_id for group in reply.groups}

            assert {"shop.listed", "bill", "other.listed"} <= await listed("admin")
            for principal, starts in {
                "member": ("shop.",),
                "reader": ("shop.", "bill"),
                "stranger": ("other.",),
            }.items():
                seen = await listed(principal)
                assert seen == {each for each in await listed("admin") if each.startswith(starts)}
                assert seen

    run(body())


def test_a_watch_of_a_foreign_group_ends_at_once(guarded: Coordinator) -> None:
    async def body() -> None:
        async with channel(guarded.address) as over:
            watch = AdminStub(over).WatchGroup(
                admin.WatchGroupRequest(group_id="shop.watched"), metadata=bearer(TOKENS["stranger"])
            )
            received = [update async for update in watch]
            assert [update.group.error_code for update in received] == [pb.GROUP_AUTHORIZATION_FAILED]

    run(body())


def test_everybody_who_is_known_may_see_the_slots(guarded: Coordinator) -> None:
    async def body() -> None:
        async with channel(guarded.address) as over:
            reply = await call(over, admin.DescribeSlotsRequest(), TOKENS["stranger"])
            assert isinstance(reply, admin.DescribeSlotsResponse)
            assert len(reply.slots) == 50

    run(body())


@pytest.mark.parametrize("listener", ["stranger", "member"])
def test_notices_go_to_their_member_whoever_names_it(guarded: Coordinator, listener: str) -> None:
    """Neither a caller from elsewhere, nor one of the group who is another member, can draw them to itself."""
    group_id = f"shop.notices-{listener}"

    async def body() -> None:
        async with (
            channel(guarded.address) as over,
            session(over, TOKENS["member"]) as own,
            session(over, TOKENS[listener]) as foreign,
        ):
            member = await joined(own, group_id)
            name = member.member_id if listener == "stranger" else "somebody"
            forged = pb.HeartbeatRequest(group_id=group_id, generation_id=1, member_id=name)
            assert error_of(await foreign.ask(forged)) in (
                pb.GROUP_AUTHORIZATION_FAILED,
                pb.UNKNOWN_MEMBER_ID,
            )
            second = pb.JoinGroupRequest(
                group_id=group_id,
                group_instance_id="second",
                session_timeout_ms=30_000,
                rebalance_timeout_ms=30_000,
                protocol_type="consumer",
                protocols=[pb.Protocol(name="range", metadata=subscription())],
            )
            joining = asyncio.ensure_future(call(over, second, TOKENS["member"]))
            notice = await own.notice()
            assert notice.member_id == member.member_id
            joining.cancel()

    run(body())


def test_what_is_taken_away_is_gone_on_open_streams_too(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.touch(mode=0o600)
    path.write_text("app plain:first-token shop.*\n")
    running = Coordinator(tmp_path, [*QUICK, f"--tokens-file={path}"])
    running.start()

    async def body() -> None:
        async with channel(running.address) as over, session(over, "first-token") as stream:
            member = await joined(stream, "shop.orders")
            path.write_text("app plain:second-token bill.*\n")
            while await heartbeat(stream, "shop.orders", member) != pb.GROUP_AUTHORIZATION_FAILED:
                pass
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call(over, admin.DescribeSlotsRequest(), "first-token")
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
            fetch = pb.FetchOffsetsRequest(group_id="bill.x", all=True)
            assert error_of(await call(over, fetch, "second-token")) == pb.NONE

            path.write_text("app nonsense\n")
            while not running.has_said("the previous contents stay in effect"):
                assert error_of(await call(over, fetch, "second-token")) == pb.NONE

    run(body())
    assert not running.has_said("first-token")
    assert not running.has_said("second-token")
    assert running.stop() == 0


def test_what_is_refused_is_counted(guarded: Coordinator) -> None:
    async def body() -> None:
        async with channel(guarded.address) as over, session(over, TOKENS["stranger"]) as stream:
            foreign = pb.HeartbeatRequest(group_id="shop.x")
            assert error_of(await stream.ask(foreign)) == pb.GROUP_AUTHORIZATION_FAILED
            too_long = pb.HeartbeatRequest(group_id="x" * 2_000)
            assert isinstance(await stream.ask(too_long), pb.Failure)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call(over, too_long, TOKENS["stranger"])
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT

    def counted(error: str) -> float:
        line = f'rota_coordinator_requests_total{{api="Heartbeat",error="{error}"}} '
        page = get(guarded.http, "/metrics").page.splitlines()
        return sum(float(each.removeprefix(line)) for each in page if each.startswith(line))

    errors = {"GROUP_AUTHORIZATION_FAILED": 1, "INVALID_ARGUMENT": 2}
    before = {error: counted(error) for error in errors}
    run(body())
    assert {error: counted(error) - before[error] for error in errors} == errors


def test_metadata_has_a_bound(guarded: Coordinator) -> None:
    async def body() -> None:
        async with channel(guarded.address) as over:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call(over, admin.DescribeSlotsRequest(), "x" * 100_000)
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            await call(over, admin.DescribeSlotsRequest(), TOKENS["admin"])

    run(body())


def test_no_token_is_in_the_log(guarded: Coordinator) -> None:
    """After all of the tests above; also when this one runs alone, with a refused and a known token."""

    async def body() -> None:
        async with channel(guarded.address) as over:
            await call(over, admin.DescribeSlotsRequest(), TOKENS["admin"])
            with pytest.raises(grpc.aio.AioRpcError):
                await call(over, admin.DescribeSlotsRequest(), "wrong-canary")

    run(body())
    assert not guarded.has_said("canary")
    assert guarded.has_said("a call from ipv4:127.0.0.1 was refused: unknown token")
