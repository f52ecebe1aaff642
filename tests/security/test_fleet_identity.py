"""The Fleet of `rota up` knows each replica by its secret: a stranger on its port is told nothing, and nothing of it is taken."""

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import grpc.aio
import pytest

from rota_operator.fleet.authentication import bearer_token
from rota_operator.fleet.order_ids import order_ids
from rota_operator.fleet.principal import Principal, SidecarRef
from rota_operator.fleet.server import STREAMS_MAX, FleetCallbacks, FleetServer, serve_fleet
from rota_operator.local.replica_secrets import NAMESPACE, Replica, ReplicaSecrets
from rota_proto.fleet.v1 import fleet_pb2 as pb
from rota_proto.fleet.v1.fleet_pb2_grpc import FleetStub

if TYPE_CHECKING:
    # It has a name in the stubs alone.
    from rota_proto.fleet.v1.fleet_pb2_grpc import FleetAsyncStub

    Stream = grpc.aio.StreamStreamCall[pb.SidecarReport, pb.SidecarOrder]

WITHIN_S = 60
KEEP = Replica("keep-0", "keep")
OTHER = Replica("other-0", "other")
SUSPEND = pb.SidecarOrder(suspend=pb.Suspend())
Metadata = tuple[tuple[str, str], ...]


class Laptop:
    """A Fleet with two replicas, and the secrets that these were given."""

    def __init__(self, folder: Path) -> None:
        known = ReplicaSecrets()
        self.secrets: dict[Replica, str] = {}
        for replica in (KEEP, OTHER):
            known.issue(replica, folder / replica.name)
            self.secrets[replica] = (folder / replica.name).read_text().strip()
        self.known = known
        self.received: list[pb.SidecarReport] = []
        self.has_received = asyncio.Event()
        self.fleet = FleetServer(FleetCallbacks(known.authenticate, self._on_report), order_ids(1))
        self.address = ""

    def _on_report(self, principal: Principal, report: pb.SidecarReport) -> None:
        self.received.append(report)
        self.has_received.set()


Story = Callable[[Laptop, "FleetAsyncStub"], Awaitable[None]]


def run_story(folder: Path, story: Story) -> None:
    async def run() -> None:
        laptop = Laptop(folder)
        async with (
            asyncio.timeout(WITHIN_S),
            serve_fleet(laptop.fleet, "127.0.0.1:0") as address,
            grpc.aio.insecure_channel(address) as channel,
        ):
            laptop.address = address
            await story(laptop, FleetStub(channel))

    asyncio.run(run())


async def reporting(*reports: pb.SidecarReport) -> AsyncIterator[pb.SidecarReport]:
    """Yield the reports, and then nothing until the stream is ended."""
    for report in reports:
        yield report
    await asyncio.Event().wait()


def refusal(address: str, report: pb.SidecarReport, metadata: Metadata) -> tuple[grpc.StatusCode, str]:
    """
    Report, and return the status of the stream.

    By gRPC's blocking client: that for asyncio loses the server's status if the stream is refused while it writes
    (https://github.com/grpc/grpc/issues/36066).
    """
    with grpc.insecure_channel(address) as channel:
        stream = FleetStub(channel).Connect(iter([report]), metadata=metadata, timeout=WITHIN_S)
        return stream.code(), stream.details()


async def order_on(stream: "Stream") -> pb.SidecarOrder:
    order = await stream.read()
    assert isinstance(order, pb.SidecarOrder), "the stream has ended"
    return order


def bearer(secret: str) -> Metadata:
    return (("authorization", f"Bearer {secret}"),)


def report_of(replica: Replica) -> pb.SidecarReport:
    return pb.SidecarReport(sidecar=replica.name, group_id=replica.group_id)


@pytest.mark.process
@pytest.mark.parametrize(
    "metadata",
    [
        (),
        bearer(""),
        bearer("keep-0"),
        (("authorization", "Basic a2VlcDo="),),
        (("authorization", "Bearer"),),
    ],
    ids=["none", "empty", "name", "basic", "bare"],
)
def test_a_stranger_that_says_keep_0_hears_nothing_and_reports_nothing(
    tmp_path: Path, metadata: Metadata
) -> None:
    async def story(laptop: Laptop, stub: "FleetAsyncStub") -> None:
        mine = stub.Connect(reporting(report_of(KEEP)), metadata=bearer(laptop.secrets[KEEP]))
        await laptop.has_received.wait()
        code, details = await asyncio.to_thread(refusal, laptop.address, report_of(KEEP), metadata)
        assert code is grpc.StatusCode.UNAUTHENTICATED
        assert "--fleet-token-file" in details
        assert laptop.received == [report_of(KEEP)]
        ordering = asyncio.ensure_future(
            laptop.fleet.order(SidecarRef(NAMESPACE, KEEP.name), SUSPEND, WITHIN_S)
        )
        assert (await order_on(mine)).WhichOneof("order") == "suspend", (
            "the replica itself still hears its orders"
        )
        ordering.cancel()
        mine.cancel()

    run_story(tmp_path, story)


@pytest.mark.process
def test_a_stranger_is_refused_before_its_message(tmp_path: Path) -> None:
    async def story(laptop: Laptop, stub: "FleetAsyncStub") -> None:
        silent = [stub.Connect(reporting()) for _ in range(100)]
        codes = [await each.code() for each in silent]
        assert set(codes) == {grpc.StatusCode.UNAUTHENTICATED}
        assert len(codes) < STREAMS_MAX

    run_story(tmp_path, story)


@pytest.mark.process
def test_a_replica_speaks_for_itself_alone(tmp_path: Path) -> None:
    async def story(laptop: Laptop, stub: "FleetAsyncStub") -> None:
        liar = stub.Connect(reporting(report_of(KEEP)), metadata=bearer(laptop.secrets[OTHER]))
        assert await liar.code() is grpc.StatusCode.PERMISSION_DENIED
        assert "the token of 'other-0'" in (await liar.details() or "")
        assert laptop.received == []

        mine = stub.Connect(reporting(report_of(KEEP)), metadata=bearer(laptop.secrets[KEEP]))
        await laptop.has_received.wait()
        ordering = asyncio.ensure_future(
            laptop.fleet.order(SidecarRef(NAMESPACE, KEEP.name), SUSPEND, WITHIN_S)
        )
        order = await order_on(mine)
        answer = report_of(OTHER)
        answer.answers.append(pb.OrderAnswer(order_id=order.order_id, error="answered by another one"))
        laptop.has_received.clear()
        other = stub.Connect(reporting(answer), metadata=bearer(laptop.secrets[OTHER]))
        await laptop.has_received.wait()
        assert not ordering.done()
        for each in (mine, other, ordering):
            each.cancel()

    run_story(tmp_path, story)


@pytest.mark.process
def test_a_secret_is_worth_nothing_once_its_replica_has_gone(tmp_path: Path) -> None:
    async def story(laptop: Laptop, stub: "FleetAsyncStub") -> None:
        laptop.known.revoke(KEEP)
        late = stub.Connect(reporting(report_of(KEEP)), metadata=bearer(laptop.secrets[KEEP]))
        assert await late.code() is grpc.StatusCode.UNAUTHENTICATED

    run_story(tmp_path, story)


@pytest.mark.parametrize("mask", [0o000, 0o022])
def test_a_secret_is_in_a_file_for_this_user_alone(tmp_path: Path, mask: int) -> None:
    file, elsewhere = tmp_path / "secret", tmp_path / "elsewhere"
    elsewhere.write_text("precious")
    file.symlink_to(elsewhere)
    known = ReplicaSecrets()
    before = os.umask(mask)
    try:
        known.issue(KEEP, file)
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.lstat().st_mode) == 0o600
    assert elsewhere.read_text() == "precious"
    secret = file.read_text().strip()
    assert known.replica_of(secret) == KEEP
    known.issue(KEEP, file)
    assert known.replica_of(secret) is None, "each start of a sidecar has its own"
    assert known.replica_of(file.read_text().strip()) == KEEP


def test_only_one_bearer_token_is_a_secret() -> None:
    assert bearer_token([("authorization", "Bearer one")]) == "one"
    for wrong in (
        [],
        [("authorization", "Bearer one")] * 2,
        [("authorization", b"Bearer one")],
        [("token", "one")],
    ):
        assert bearer_token(wrong) == ""
