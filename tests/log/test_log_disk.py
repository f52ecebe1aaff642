"""A real server whose file cannot grow any more: it says so, acknowledges nothing, and goes on when there is room."""

import asyncio
import resource
from pathlib import Path

import grpc
import pytest

from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.log.v1 import log_pb2 as pb
from tests.log.conversation import Conversation, batch
from tests.support.coordinator import Coordinator, serving
from tests.support.web import get

pytestmark = pytest.mark.process

VALUE = b"v" * 100_000
ROOM = 3_000_000
AFTER_S = 20
POLL_S = 0.1


def limit_files(coordinator: Coordinator, most: int) -> None:
    """No file of the server may become longer; what a full disk does to it."""
    _, hard = resource.prlimit(coordinator.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(coordinator.pid, resource.RLIMIT_FSIZE, (most, hard))


async def refusal(talk: Conversation, value: bytes) -> grpc.aio.AioRpcError | None:
    """Why a value is not acknowledged; None if it is."""
    try:
        reply = await talk.send("full", batch([value]))
    except grpc.aio.AioRpcError as refused:
        return refused
    assert reply.error_code == codes.NONE
    return None


async def fill(talk: Conversation) -> int:
    """Append until it is refused; how many were acknowledged."""
    acknowledged = 0
    while (refused := await refusal(talk, VALUE)) is None:
        acknowledged += 1
        assert acknowledged * len(VALUE) < ROOM, "the disk is never full"
    assert refused.code() == grpc.StatusCode.UNAVAILABLE
    assert "coordinator.db" in (refused.details() or "")
    return acknowledged


async def go_on(talk: Conversation) -> None:
    """There is room again, and the server finds out by itself."""
    async with asyncio.timeout(AFTER_S):
        while (refused := await refusal(talk, b"after")) is not None:
            assert refused.code() == grpc.StatusCode.UNAVAILABLE
            await asyncio.sleep(POLL_S)


async def check(talk: Conversation, acknowledged: int) -> None:
    """Of those that were refused nobody knows; what comes after them is behind them."""
    values = await talk.values("full", pb.ISOLATION_LEVEL_READ_UNCOMMITTED)
    assert values[:acknowledged] == [VALUE] * acknowledged
    assert values[-1] == b"after"


def test_a_full_disk_is_said_and_nothing_that_was_acknowledged_is_lost(tmp_path: Path) -> None:
    async def before() -> int:
        async with Conversation(coordinator.address) as talk:
            await talk.make("full")
            limit_files(coordinator, ROOM)
            acknowledged = await fill(talk)
            assert acknowledged > 3
            limit_files(coordinator, resource.RLIM_INFINITY)
            await go_on(talk)
            await check(talk, acknowledged)
            return acknowledged

    async def after() -> None:
        async with Conversation(coordinator.address) as talk:
            await check(talk, acknowledged)

    with serving(tmp_path) as coordinator:
        acknowledged = asyncio.run(before())
        coordinator.kill()
        coordinator.start()
        asyncio.run(after())
        assert get(coordinator.http, "/readyz").status == 200
