"""The coordinator of a cluster as a process: pods are who their tokens say, for as long as Kubernetes says so."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import grpc.aio
import pytest

from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.admin_pb2_grpc import AdminStub
from rota_proto.coordinator.v1.coordinator_pb2_grpc import CoordinatorStub
from tests.conformance.members import subscription
from tests.coordinator.callers import call, channel, error_of, run, session
from tests.support.coordinator import QUICK, Coordinator, bearer
from tests.support.token_reviews import TokenReviews, serving_reviews

pytestmark = pytest.mark.process
LOOK = admin.DescribeSlotsRequest()
WITHIN_S = 60
Code = grpc.StatusCode


@pytest.fixture
def reviews(tmp_path: Path) -> Iterator[TokenReviews]:
    (tmp_path / "kubernetes").mkdir()
    with serving_reviews(tmp_path / "kubernetes") as server:
        yield server


@pytest.fixture
def coordinator(
    tmp_path: Path, reviews: TokenReviews, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Coordinator]:
    for name, value in reviews.environment.items():
        monkeypatch.setenv(name, value)
    tokens = tmp_path / "tokens"
    tokens.touch(mode=0o600)
    tokens.write_text("system:serviceaccount:rota:operator service-account admin:*\n")
    running = Coordinator(tmp_path, [*QUICK, *reviews.flags, f"--tokens-file={tokens}"])
    running.start()
    yield running
    assert not running.has_said("canary"), "a token"
    assert not running.has_said("internal error")
    assert running.stop() == 0


async def refusal(over: grpc.aio.Channel, token: str) -> tuple[Code, str]:
    """The status of a call that is not admitted."""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call(over, LOOK, token)
    return refused.value.code(), refused.value.details() or ""


def refusals_in(log: Path) -> list[dict[str, str]]:
    """The records of refusals in a log."""
    records = [json.loads(line) for line in log.read_text().splitlines()]
    return [each for each in records if each["event"] == "refused"]


def test_a_token_that_is_not_a_pods_is_refused_with_the_reason(
    coordinator: Coordinator, reviews: TokenReviews
) -> None:
    tokens = {
        "rejects the token (invalid bearer token)": "header.x.canary",
        "rejects the token (token audiences": reviews.pod("shop", "a", audience="https://kubernetes"),
        "not bound to a pod": reviews.pod("shop", ""),
    }

    async def body() -> None:
        async with channel(coordinator.address) as over:
            for message, token in tokens.items():
                for _ in range(3):
                    code, details = await refusal(over, token)
                    assert code is Code.UNAUTHENTICATED
                    assert message in details
            assert await refusal(over, "x" * 20_000) != (Code.OK, "")
            await call(over, LOOK, reviews.pod("shop", "orders-0"))

    run(body())
    assert len(reviews.reviewed) == len(tokens) + 1, "a rejected token is not reviewed again at once"
    recorded = [each["error"] for each in refusals_in(coordinator.log)]
    assert len(recorded) == len(set(recorded)), "repetitions are counted"
    for message in tokens:
        assert any(message in error for error in recorded)


def test_calls_end_with_their_token_or_pod(coordinator: Coordinator, reviews: TokenReviews) -> None:
    """A token that expires in a moment is reviewed again when it has."""
    expiring = reviews.pod("shop", "orders-0", expires_in_s=2)
    deleted = reviews.pod("shop", "orders-1", expires_in_s=2)
    other = reviews.pod("shop", "orders-2")

    async def body() -> None:
        async with channel(coordinator.address) as over, session(over, other) as lasting:
            sessions = [
                CoordinatorStub(over).Session(metadata=bearer(token)) for token in (expiring, deleted)
            ]
            for each in sessions:
                await each.initial_metadata()
            watch = AdminStub(over).WatchGroup(
                admin.WatchGroupRequest(group_id="shop.g"), metadata=bearer(expiring)
            )
            await watch.read()
            joining = CoordinatorStub(over).JoinGroup(
                await pending_join(over, other), metadata=bearer(deleted)
            )
            await asyncio.sleep(0)
            reviews.delete(expiring)
            reviews.delete(deleted)
            for ending in (*sessions, watch, joining):
                assert await ending.code() is Code.UNAUTHENTICATED
                assert "invalid bearer token" in (await ending.details() or "")
            heartbeat = pb.HeartbeatRequest(group_id="shop.g", member_id="x")
            assert error_of(await lasting.ask(heartbeat)) == pb.UNKNOWN_MEMBER_ID

    asyncio.run(asyncio.wait_for(body(), WITHIN_S))


async def pending_join(over: grpc.aio.Channel, token: str) -> pb.JoinGroupRequest:
    """A request to join that waits: for a member that does not rejoin."""
    request = join_request("shop.waiting")
    request.member_id = (await call(over, request, token)).member_id  # type: ignore[attr-defined]
    joined = await call(over, request, token)
    assert error_of(joined) == pb.NONE
    late = join_request("shop.waiting")
    late.member_id = (await call(over, late, token)).member_id  # type: ignore[attr-defined]
    return late


def join_request(group_id: str, instance_id: str = "") -> pb.JoinGroupRequest:
    return pb.JoinGroupRequest(
        group_id=group_id,
        group_instance_id=instance_id or None,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[pb.Protocol(name="range", metadata=subscription())],
    )


def test_while_the_api_server_is_away_known_pods_go_on_and_new_ones_wait(
    coordinator: Coordinator, reviews: TokenReviews
) -> None:
    known, new = reviews.pod("shop", "orders-0"), reviews.pod("shop", "orders-1")

    async def body() -> None:
        async with channel(coordinator.address) as over, session(over, known) as stream:
            reviews.refuses_with = 503
            waiting = asyncio.ensure_future(refusal(over, new))
            while not waiting.done():
                heartbeat = pb.HeartbeatRequest(group_id="shop.g", member_id="x")
                assert error_of(await stream.ask(heartbeat)) == pb.UNKNOWN_MEMBER_ID
                await call(over, LOOK, known)
                await asyncio.wait([waiting], timeout=0.2)
            code, details = await waiting
            assert code is Code.UNAVAILABLE
            assert details == "the API server could not review the token in time; retry"
            # One that waits when the API server is back is admitted.
            late = asyncio.ensure_future(call(over, LOOK, new))
            await asyncio.sleep(0)
            reviews.refuses_with = 0
            await late

    asyncio.run(asyncio.wait_for(body(), WITHIN_S))
    assert coordinator.has_said("reviews of tokens failed, the last one from 127.0.0.1:")
    assert coordinator.has_said("the API server cannot review tokens now (refused with 503)")


def test_an_instance_belongs_to_its_pod_and_to_the_successor(
    coordinator: Coordinator, reviews: TokenReviews
) -> None:
    first, other = reviews.pod("shop", "orders-0"), reviews.pod("shop", "orders-1")
    operator = reviews.pod("rota", "operator", account="operator")
    join = join_request("shop.static", "one")
    leave = pb.LeaveGroupRequest(group_id="shop.static", members=[pb.LeavingMember(group_instance_id="one")])

    async def body() -> None:
        async with channel(coordinator.address) as over, session(over, first) as stream:
            member = await stream.ask(join)
            assert isinstance(member, pb.JoinGroupResponse)
            assert member.error_code == pb.NONE
            taken = pb.HeartbeatRequest(
                group_id="shop.static",
                generation_id=member.generation_id,
                member_id=member.member_id,
                group_instance_id="one",
            )
            for forged in (join, leave, taken):
                assert error_of(await call(over, forged, other)) == pb.FENCED_INSTANCE_ID
            assert error_of(await stream.ask(taken)) != pb.FENCED_INSTANCE_ID, "it has changed nothing"
            successor = reviews.pod("shop", "orders-0", uid="another")
            async with session(over, successor) as next_stream:
                assert error_of(await next_stream.ask(join)) == pb.NONE
                assert error_of(await stream.ask(taken)) == pb.FENCED_INSTANCE_ID
                # An administrator may remove any member.
                assert error_of(await call(over, leave, operator)) == pb.NONE

    run(body())
    recorded = [each for each in refusals_in(coordinator.log) if each["pod"] == "shop/orders-1"]
    assert [(each["api"], each["error"]) for each in recorded] == [
        (api, "FENCED_INSTANCE_ID") for api in ("JoinGroup", "LeaveGroup", "Heartbeat")
    ]


@pytest.mark.parametrize(
    ("host", "message"),
    [
        ("", "--token-review is for a pod in Kubernetes, where KUBERNETES_SERVICE_HOST"),
        ("127.0.0.1", "--token-review needs the pod's service account"),
    ],
)
def test_a_process_outside_of_a_pod_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, message: str
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    command = [
        *(sys.executable, "-m", "rota_coordinator", f"--store=sqlite:{tmp_path}/c.db", "--token-review"),
        *("--listen=127.0.0.1:0", "--http-listen=127.0.0.1:0", f"--service-account-folder={tmp_path}"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S)
    assert done.returncode == 1
    assert message in done.stderr.splitlines()[-1]
