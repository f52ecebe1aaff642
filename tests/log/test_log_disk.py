"""A server whose disk fails: it says so, acknowledges nothing, and goes on when the disk is well again."""

import asyncio
import resource
from pathlib import Path

import grpc
import pytest

from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.log.v1 import log_pb2 as pb
from tests.coordinator.store.disk import Fault
from tests.log.conversation import Conversation, batch
from tests.log.disk_server import become
from tests.support.coordinator import QUICK, Coordinator, serving
from tests.support.web import get

pytestmark = pytest.mark.process

VALUE = b"v" * 100_000
ROOM = 3_000_000
AFTER_S = 20
POLL_S = 0.1


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
    assert "check the disk" in (refused.details() or "")
    return acknowledged


async def go_on(talk: Conversation) -> None:
    """The disk is well again, and the server finds out by itself."""
    async with asyncio.timeout(AFTER_S):
        while (refused := await refusal(talk, b"after")) is not None:
            assert refused.code() == grpc.StatusCode.UNAVAILABLE
            await asyncio.sleep(POLL_S)


async def check(talk: Conversation, acknowledged: int) -> None:
    """Check that later batches are behind the refused ones, whose outcome is unknown."""
    values = await talk.values("full", pb.ISOLATION_LEVEL_READ_UNCOMMITTED)
    assert values[:acknowledged] == [VALUE] * acknowledged
    assert values[-1] == b"after"


def check_after_a_crash(coordinator: Coordinator, acknowledged: int) -> None:
    """The same from the file."""

    async def after() -> None:
        async with Conversation(coordinator.address) as talk:
            await check(talk, acknowledged)

    coordinator.kill()
    coordinator.start()
    asyncio.run(after())
    assert get(coordinator.http, "/readyz").status == 200


def limit_files(coordinator: Coordinator, most: int) -> None:
    """No file of the server may become longer; what a full disk does to it."""
    _, hard = resource.prlimit(coordinator.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(coordinator.pid, resource.RLIMIT_FSIZE, (most, hard))


def test_files_that_cannot_grow_are_said_and_nothing_that_was_acknowledged_is_lost(tmp_path: Path) -> None:
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

    with serving(tmp_path) as coordinator:
        check_after_a_crash(coordinator, asyncio.run(before()))


async def is_ready(coordinator: Coordinator) -> bool:
    """Return whether the server reports that it is ready."""
    return (await asyncio.to_thread(get, coordinator.http, "/readyz")).status == 200


@pytest.mark.parametrize("fault", [Fault.FULL, Fault.READ_ONLY, Fault.FLUSH])
def test_a_disk_that_fails_is_said_and_nothing_is_served_until_it_is_well(
    tmp_path: Path, fault: Fault
) -> None:
    async def before() -> int:
        async with Conversation(coordinator.address) as talk:
            await talk.make("full")
            for _ in range(3):
                assert await refusal(talk, VALUE) is None
            await become(coordinator, fault)
            assert await fill(talk) == 0
            # It is not taken either by a second try: it is known by now that the disk fails.
            assert await refusal(talk, b"second") is not None
            assert not await is_ready(coordinator)
            await become(coordinator, Fault.NONE)
            await go_on(talk)
            await check(talk, 3)
            return 3

    coordinator = Coordinator(tmp_path, QUICK, program="tests.log.disk_server")
    coordinator.start()
    try:
        check_after_a_crash(coordinator, asyncio.run(before()))
    finally:
        coordinator.stop()
