"""Records of a Kafka broker with access control: permitted reads, and the messages of refused ones."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota_sidecar.core.delivery.events import Bounds, FetchError, Read
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.engines.kafka.settings import KafkaSettings, Sasl, TlsFiles
from rota_sidecar.engines.port import Refused
from tests.kafka.sidecar_reading import CLIENTS, WITHIN_S, Client, reading
from tests.support.kafka import Kafka, running
from tests.support.kafka.access import READ_TOPICS, allow
from tests.support.kafka.security import Guarded

pytestmark = pytest.mark.kafka

ALLOWED = "allowed"


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> Client:
    """Each client that reads Kafka's records."""
    return CLIENTS[request.param]


@pytest.fixture(scope="module")
def guarded() -> Iterator[Kafka]:
    """Its user may read one topic, and no group."""
    with running(security="guarded") as kafka:
        for topic in (ALLOWED, "forbidden"):
            kafka.create_topic(topic)
        assert isinstance(kafka.security, Guarded)
        allow(kafka, kafka.security.user, ALLOWED, READ_TOPICS)
        yield kafka


def login(kafka: Kafka, password_file: Path) -> KafkaSettings:
    assert isinstance(kafka.security, Guarded)
    known = kafka.security
    return KafkaSettings(
        (kafka.bootstrap,),
        tls=TlsFiles(known.ca, known.client.certificate, known.client.key),
        sasl=Sasl("SCRAM-SHA-512", known.user, password_file=password_file),
    )


def test_a_login_reads_what_it_may_and_hears_what_it_may_not(
    guarded: Kafka, tmp_path: Path, client: Client
) -> None:
    assert isinstance(guarded.security, Guarded)
    password = tmp_path / "password"
    password.write_text(guarded.security.password)

    async def story() -> None:
        async with reading(login(guarded, password), client=client) as reader:
            assert (await reader.read(Partition(ALLOWED, 0), 0)).bounds == Bounds(0, 0)
            assert (await reader.failure(Partition("forbidden", 0), 0)).fetch_error is FetchError.DENIED
            with pytest.raises(
                Refused, match="Kafka does not authorize this user to describe topic 'forbidden'"
            ):
                await reader.records.bounds([Partition("forbidden", 0)], WITHIN_S)
            assert reader.outages.empty()

    asyncio.run(story())


def test_a_password_that_is_missing_at_first_is_said_and_taken_when_it_is_there(
    guarded: Kafka, tmp_path: Path, client: Client
) -> None:
    password = tmp_path / "password"
    assert isinstance(guarded.security, Guarded)
    known = guarded.security

    async def story() -> None:
        async with reading(login(guarded, password), client=client) as reader:
            waiting = reader.fetch(Partition(ALLOWED, 0), 0)
            assert "of the Kafka password cannot be read" in await reader.outage()
            password.write_text(known.password)
            assert isinstance(await waiting, Read)
            assert await reader.outage() == ""

    asyncio.run(story())


def test_a_wrong_password_is_said_and_never_shown(guarded: Kafka, tmp_path: Path, client: Client) -> None:
    password = tmp_path / "password"
    password.write_text("not-the-password")

    async def story() -> None:
        async with reading(login(guarded, password), client=client) as reader:
            reader.fetch(Partition(ALLOWED, 0), 0)
            outage = await reader.outage()
            assert "no records can be read from Kafka" in outage
            assert "not-the-password" not in outage
            with pytest.raises(Refused, match="rejects the login of user"):
                await reader.records.bounds([Partition(ALLOWED, 0)], 5)

    asyncio.run(story())
