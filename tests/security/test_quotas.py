"""A principal uses no more of the coordinator than its quota, whatever it sends, and the refusal says how to raise it."""

import asyncio
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import grpc
import grpc.aio
import pytest

from rota import Credentials, Producer, Topics, errors
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from tests.cli.command import Rota
from tests.conformance.members import subscription
from tests.coordinator.callers import call, channel, run
from tests.support.coordinator import QUICK, Coordinator, serving
from tests.support.processes import peak_mib, wait_for

pytestmark = pytest.mark.process
MIB = 1024 * 1024
MEMORY_MIB = 300
# Kept, they would take twice the memory that a coordinator may use.
LARGE_JOINS = 160
AT_ONCE = 4
LARGE = subscription(user_data=bytes(39 * MIB // 10))
TOKENS = """\
flood plain:flood-token topics:* *
small plain:small-token topics:* quota:topics=2,partitions=3 quota:log-bytes=100000
"""
WITHIN_S = 60


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    """One for all tests of this file, where each principal has groups and topics of its own."""
    folder = tmp_path_factory.mktemp("quotas")
    tokens = folder / "tokens"
    tokens.touch(mode=0o600)
    tokens.write_text(TOKENS)
    with serving(folder, [*QUICK, f"--tokens-file={tokens}"]) as running:
        yield running


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


async def refusals_of(address: str, *joins: pb.JoinGroupRequest) -> list[grpc.aio.AioRpcError]:
    """Send the joins, a few at a time, and return how those that were refused ended."""
    refusals: list[grpc.aio.AioRpcError] = []

    async def send(over: grpc.aio.Channel, some: Sequence[pb.JoinGroupRequest]) -> None:
        for join in some:
            try:
                await call(over, join, "flood-token")
            except grpc.aio.AioRpcError as refused:
                refusals.append(refused)

    async with channel(address) as over:
        await asyncio.gather(*(send(over, joins[first::AT_ONCE]) for first in range(AT_ONCE)))
    return refusals


def test_large_joins_that_are_malformed_do_not_stay_in_memory(coordinator: Coordinator) -> None:
    async def body() -> None:
        malformed = large_join("malformed")
        malformed.protocols[0].name = ""
        refusals = await refusals_of(coordinator.address, *[malformed] * LARGE_JOINS)
        assert [refused.code() for refused in refusals] == [grpc.StatusCode.INVALID_ARGUMENT] * LARGE_JOINS

    run(body())
    assert peak_mib(coordinator.pid) <= MEMORY_MIB


def test_large_joins_in_many_groups_do_not_fill_the_memory(coordinator: Coordinator) -> None:
    refusals: list[grpc.aio.AioRpcError] = []

    async def body() -> None:
        joins = [large_join(f"flood-{number}") for number in range(LARGE_JOINS)]
        refusals.extend(await refusals_of(coordinator.address, *joins))

    run(body())
    assert peak_mib(coordinator.pid) <= MEMORY_MIB
    assert LARGE_JOINS - len(refusals) == 64 * MIB // len(LARGE)
    assert {refused.code() for refused in refusals} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
    said = refusals[-1].details() or ""
    assert "principal flood has " in said
    assert "bytes of group metadata and assignments" in said
    assert "its quota is 67108864" in said
    assert "--quota-group-bytes, or for this principal with quota:group-bytes=N in the tokens file" in said


@pytest.fixture
def small(coordinator: Coordinator, tmp_path: Path) -> Credentials:
    """The token of a principal with little room."""
    token = tmp_path / "token"
    token.write_text("small-token")
    token.chmod(0o600)
    return Credentials(token_file=token)


def test_topics_partitions_and_records_above_a_quota_are_refused_with_its_message(
    coordinator: Coordinator, small: Credentials, tmp_path: Path
) -> None:
    servers = f"rota://{coordinator.address}"
    command = Rota(servers, tmp_path)
    token = f"--token-file={small.token_file}"
    for name in ("small-0", "small-1"):
        assert command("topics", "create", name, token).code == 0
    refused = command("topics", "create", "small-2", token)
    assert refused.code != 0
    assert "principal small has 2 topics and would have 3, but its quota is 2" in refused.stderr
    assert "--quota-topics" in refused.stderr

    with Topics(servers, credentials=small) as topics:
        with pytest.raises(
            errors.PolicyViolation,
            match=r"small-0: principal small has 2 partitions .* 4, but its quota is 3",
        ):
            topics.add_partitions({"small-0": 3})
        topics.add_partitions({"small-0": 2})

    value = os.urandom(40_000)
    with Producer(servers, credentials=small) as producer:
        for _ in range(2):
            producer.send("small-0", value, partition=0).result(WITHIN_S)
        with pytest.raises(
            errors.PolicyViolation,
            match=r"small-1\[0\]: principal small has .* bytes of the log .*--quota-log-bytes",
        ):
            producer.send("small-1", value, partition=0).result(WITHIN_S)
    # What retention deletes is free again, and so is a deleted topic.
    assert command("topics", "delete", "small-0", "--yes", token).code == 0
    with Producer(servers, credentials=small) as producer:

        def appended() -> bool:
            try:
                producer.send("small-1", value, partition=0).result(WITHIN_S)
            except errors.PolicyViolation:
                return False
            return True

        wait_for("room for a record", appended, within_s=WITHIN_S)
