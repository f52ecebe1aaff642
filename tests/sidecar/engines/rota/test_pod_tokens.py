"""A pod's token is replaced in its file before it expires: the membership goes on with the new one."""

import asyncio
from pathlib import Path

import pytest

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.engines.port import CoordinatorEvent, Disconnected, Refused, Unreachable
from rota_sidecar.engines.rota.connection import Credentials
from rota_sidecar.engines.rota.coordination import RotaCoordination
from tests.conformance.members import subscription
from tests.support.coordinator import QUICK, serving
from tests.support.token_reviews import TokenReviews, serving_reviews

pytestmark = pytest.mark.process
GROUP = "shop.orders"
WITHIN_S = 60


def join(member_id: str = "") -> pb.JoinGroupRequest:
    return pb.JoinGroupRequest(
        group_id=GROUP,
        member_id=member_id,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[pb.Protocol(name="range", metadata=subscription())],
    )


def test_a_member_stays_when_its_token_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kubernetes").mkdir()
    with serving_reviews(tmp_path / "kubernetes") as reviews:
        for name, value in reviews.environment.items():
            monkeypatch.setenv(name, value)
        with serving(tmp_path, [*QUICK, *reviews.flags]) as coordinator:
            asyncio.run(member_with_expiring_token(coordinator.address, tmp_path / "token", reviews))


async def member_with_expiring_token(address: str, file: Path, reviews: TokenReviews) -> None:
    events: asyncio.Queue[CoordinatorEvent] = asyncio.Queue()
    coordination = RotaCoordination(
        GROUP, [f"rota://{address}"], Credentials(token_file=file), events.put_nowait
    )
    expiring = reviews.pod("shop", "orders-0", expires_in_s=2)
    file.write_text(expiring)
    async with asyncio.timeout(WITHIN_S):
        await coordination.find(WITHIN_S)
        given = await coordination.ask(join(), WITHIN_S)
        assert isinstance(given, pb.JoinGroupResponse)
        joined = await coordination.ask(join(given.member_id), WITHIN_S)
        assert isinstance(joined, pb.JoinGroupResponse)
        assert joined.error_code == pb.NONE
        # Waits for the assignment, when the stream ends.
        other = await coordination.ask(join(), WITHIN_S)
        assert isinstance(other, pb.JoinGroupResponse)
        waiting = asyncio.create_task(coordination.ask(join(other.member_id), WITHIN_S))
        reviews.delete(expiring)
        with pytest.raises(Unreachable, match=r"ended the connection .*finding the coordinator again"):
            await waiting
        while not isinstance(event := await events.get(), Disconnected):
            assert isinstance(event, pb.RebalanceNotice)
        # The file has the old token still: it is refused, and not retried for ever.
        with pytest.raises(Refused, match="cannot authenticate this client"):
            await coordination.find(WITHIN_S)
        file.write_text(reviews.pod("shop", "orders-0"))
        assert await coordination.find(WITHIN_S) == pb.NONE
        heartbeat = pb.HeartbeatRequest(
            group_id=GROUP, generation_id=joined.generation_id, member_id=joined.member_id
        )
        answer = await coordination.ask(heartbeat, WITHIN_S)
        assert isinstance(answer, pb.HeartbeatResponse)
        assert answer.error_code == pb.REBALANCE_IN_PROGRESS, "it is a member still"
    await coordination.close()
