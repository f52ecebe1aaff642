"""Fleet serves with TLS, by certificates that are renewed while it runs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest

from rota_operator.fleet.order_ids import order_ids
from rota_operator.fleet.principal import Principal, SidecarRef
from rota_operator.fleet.server import FleetCallbacks, FleetServer, serve_fleet
from rota_proto.fleet.v1 import fleet_pb2 as pb
from rota_proto.fleet.v1.fleet_pb2_grpc import FleetStub
from rota_service.server_certificates import CertificateFiles, Certificates
from tests.support.certificates import Authority
from tests.support.coordinator import OWN_CONNECTION

pytestmark = pytest.mark.process

WITHIN_S = 60
METADATA = (("authorization", "Bearer secret"),)


async def authenticate(token: str) -> Principal:
    return Principal(SidecarRef("shop", "orders-0"), "orders")


@asynccontextmanager
async def serving(certificates: Certificates) -> AsyncIterator[str]:
    fleet = FleetServer(FleetCallbacks(authenticate, lambda _principal, _report: None), order_ids(1))
    async with (
        asyncio.timeout(WITHIN_S),
        serve_fleet(fleet, "127.0.0.1:0", certificates.credentials()) as address,
    ):
        yield address


async def outcome(channel: grpc.aio.Channel) -> grpc.StatusCode:
    """Report once on a new connection; return the status of the stream."""

    async def reports() -> AsyncIterator[pb.SidecarReport]:
        yield pb.SidecarReport(sidecar="orders-0", group_id="orders")

    async with channel:
        return await FleetStub(channel).Connect(reports(), metadata=METADATA).code()


def trusting(address: str, authority: Authority) -> grpc.aio.Channel:
    credentials = grpc.ssl_channel_credentials(authority.certificate.read_bytes())
    # Else a channel to the same address reuses the connection, and its certificate.
    return grpc.aio.secure_channel(address, credentials, options=OWN_CONNECTION)


def test_sidecars_that_trust_the_authority_connect_and_others_do_not(tmp_path: Path) -> None:
    authority, foreign = Authority(tmp_path / "ours"), Authority(tmp_path / "foreign")
    issued = authority.issue("fleet")

    async def run() -> None:
        async with serving(Certificates(CertificateFiles(issued.certificate, issued.key), print)) as address:
            assert await outcome(trusting(address, authority)) is grpc.StatusCode.OK
            assert await outcome(trusting(address, foreign)) is grpc.StatusCode.UNAVAILABLE
            assert await outcome(grpc.aio.insecure_channel(address)) is grpc.StatusCode.UNAVAILABLE

    asyncio.run(run())


def test_renewed_certificates_are_used_by_the_next_connection(tmp_path: Path) -> None:
    before, after = Authority(tmp_path / "before"), Authority(tmp_path / "after")
    issued, renewed = before.issue("fleet"), after.issue("fleet")
    events: list[str] = []

    async def run() -> None:
        certificates = Certificates(CertificateFiles(issued.certificate, issued.key), events.append)
        async with serving(certificates) as address:
            assert await outcome(trusting(address, before)) is grpc.StatusCode.OK
            issued.replace(renewed)
            assert await outcome(trusting(address, after)) is grpc.StatusCode.OK
            assert await outcome(trusting(address, before)) is grpc.StatusCode.UNAVAILABLE
        assert events == [f"{issued.certificate} was reloaded"]

    asyncio.run(run())
