"""Kafka and Fleet have TLS settings of their own: plain text or another authority at one, TLS at the other."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import grpc
import pytest

from rota_proto.fleet.v1 import fleet_pb2 as pb
from tests.sidecar.fleet.headquarters import Headquarters, serving
from tests.support.certificates import Authority, Issued
from tests.support.kafka import Kafka, running
from tests.support.kafka.security import Guarded
from tests.support.sidecar import Deliverer

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Return the authority of Fleet, which Kafka's brokers do not know."""
    return Authority(tmp_path_factory.mktemp("fleet") / "authority")


@pytest.fixture(scope="module")
def guarded() -> Iterator[Kafka]:
    with running(security="guarded") as kafka:
        yield kafka


def server_credentials(authority: Authority, server: Issued) -> grpc.ServerCredentials:
    """Return credentials of a server that requires a client certificate of its authority."""
    pair = (server.key.read_bytes(), server.certificate.read_bytes())
    return grpc.ssl_server_credentials([pair], authority.certificate.read_bytes(), require_client_auth=True)


def is_stable(report: pb.SidecarReport) -> bool:
    return report.member.state == pb.MEMBER_STATE_STABLE and report.cluster_id != ""


def run(folder: Path, authority: Authority, kafka: Kafka, topic: str, flags: Sequence[str]) -> None:
    """Start a sidecar with these flags, and return when it has reported to Fleet as a stable member."""
    client = authority.issue("sidecar")
    credentials = server_credentials(authority, authority.issue("fleet"))
    environment: dict[str, str] = {}
    if isinstance(kafka.security, Guarded):
        environment = {
            "ROTA_SASL_USERNAME": kafka.security.admin,
            "ROTA_SASL_PASSWORD": kafka.security.admin_password,
        }

    async def story(fleet: Headquarters) -> None:
        own = (
            f"--fleet={fleet.address}",
            f"--rota-tls-ca={authority.certificate}",
            f"--rota-tls-cert={client.certificate}",
            f"--rota-tls-key={client.key}",
        )
        sidecar = Deliverer(
            folder, kafka.bootstrap, topic, (f"--topics={topic}", *own, *flags), environment=environment
        )
        await asyncio.to_thread(sidecar.start)
        try:
            await fleet.wait_until(lambda: bool(fleet.reports) and is_stable(fleet.last))
        finally:
            await asyncio.to_thread(sidecar.close)

    async def serve() -> None:
        async with serving(credentials=credentials) as fleet:
            await story(fleet)

    asyncio.run(serve())


def test_kafka_in_plain_text_beside_a_fleet_with_tls(
    tmp_path: Path, authority: Authority, kafka: Kafka, unique_name: str
) -> None:
    kafka.create_topic(unique_name)
    run(tmp_path, authority, kafka, unique_name, ())


def test_kafka_under_an_authority_of_its_own_beside_a_fleet_with_tls(
    tmp_path: Path, authority: Authority, guarded: Kafka, unique_name: str
) -> None:
    guarded.create_topic(unique_name)
    security = guarded.security
    assert isinstance(security, Guarded)
    flags = (
        f"--tls-ca={security.ca}",
        f"--tls-cert={security.client.certificate}",
        f"--tls-key={security.client.key}",
        "--sasl-mechanism=SCRAM-SHA-512",
    )
    run(tmp_path, authority, guarded, unique_name, flags)
