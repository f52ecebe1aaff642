"""A principal uses no more of the coordinator than its quota, whatever it sends, and the refusal says how to raise it."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import grpc
import grpc.aio
import pytest

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.conformance.members import subscription
from tests.coordinator.callers import call, channel, run
from tests.support.coordinator import QUICK, Coordinator, serving

pytestmark = pytest.mark.process
MIB = 1024 * 1024
MEMORY_MIB = 300
# Kept, they would take twice the memory that a coordinator may use.
LARGE_JOINS = 160
AT_ONCE = 4
LARGE = subscription(user_data=bytes(39 * MIB // 10))
TOKENS = """\
flood plain:flood-token topics:* *
"""


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    """One for all tests of this file, where each principal has groups and topics of its own."""
    folder = tmp_path_factory.mktemp("quotas")
    tokens = folder / "tokens"
    tokens.touch(mode=0o600)
    tokens.write_text(TOKENS)
    with serving(folder, [*QUICK, f"--tokens-file={tokens}"]) as running:
        yield running


def peak_mib(pid: int) -> int:
    """The most memory that the process has had."""
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) // 1024


def large_join(group: str) -> pb.JoinGroupRequest:
    """The join of a static member, which needs no other one before it."""
    return pb.JoinGroupRequest(
        group_id=group,
        group_instance_id="i",
        client_id="flood",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=[pb.Protocol(name="range", metadata=LARGE)],
    )


def test_large_joins_in_many_groups_do_not_fill_the_memory(coordinator: Coordinator) -> None:
    refusals: list[grpc.aio.AioRpcError] = []

    async def flood(over: grpc.aio.Channel, numbers: range) -> None:
        for number in numbers:
            try:
                await call(over, large_join(f"flood-{number}"), "flood-token")
            except grpc.aio.AioRpcError as refused:
                refusals.append(refused)

    async def body() -> None:
        async with channel(coordinator.address) as over:
            await asyncio.gather(
                *(flood(over, range(first, LARGE_JOINS, AT_ONCE)) for first in range(AT_ONCE))
            )

    run(body())
    assert peak_mib(coordinator.pid) <= MEMORY_MIB
    assert LARGE_JOINS - len(refusals) == 64 * MIB // len(LARGE)
    assert {refused.code() for refused in refusals} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
    said = refusals[-1].details() or ""
    assert "principal flood has " in said
    assert "bytes of group metadata and assignments" in said
    assert "its quota is 67108864" in said
    assert "--quota-group-bytes, or for this principal with quota:group-bytes=N in the tokens file" in said
