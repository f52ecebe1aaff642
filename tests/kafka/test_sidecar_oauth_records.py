"""Records, dead letters and lookups through librdkafka with bearer tokens, and the messages when there is none."""

import asyncio
from collections.abc import Coroutine, Iterator
from pathlib import Path

import pytest

from rota_service.oauth_sources import TokenEndpoint
from rota_sidecar.core.delivery.events import Read
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.engines.kafka.settings import KafkaSettings
from rota_sidecar.engines.kafka.writing import KafkaDeadLetterWriter
from rota_sidecar.engines.port import Refused, Unreachable
from rota_sidecar.engines.records import DeadLetter
from tests.kafka.oauth_logins import ALLOWED, bearer, broker, settings, token_file
from tests.kafka.sidecar_reading import WITHIN_S, Writer, reading
from tests.support.kafka import Kafka
from tests.support.kafka.oauth import CLIENT_ID, CLIENT_SECRET, Answer, endpoint, unsecured

pytestmark = pytest.mark.kafka

TOPIC, DEAD_LETTERS = f"{ALLOWED}topic", f"{ALLOWED}dead-letters"
PARTITION = Partition(TOPIC, 0)
SESSION_S = 5.0
ROUNDS = 13
TEST_S = 120


@pytest.fixture(scope="module", params=["oauth", "oauth-tls"])
def kafka(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    with broker(request.param, SESSION_S) as kafka:
        kafka.create_topic(TOPIC)
        kafka.create_topic(DEAD_LETTERS)
        yield kafka


def play(story: Coroutine[None, None, None]) -> None:
    async def within() -> None:
        async with asyncio.timeout(TEST_S):
            await story

    asyncio.run(within())


async def round_trips(kafka: Kafka, ours: KafkaSettings, rounds: int) -> None:
    """Read a record, look up the end and write a dead letter, each second."""
    writer = Writer(kafka, TOPIC)
    dead_letters = KafkaDeadLetterWriter(ours)
    async with reading(ours) as reader:
        epoch = reader.open()
        at = (await reader.records.bounds([PARTITION], WITHIN_S))[PARTITION].end
        for number in range(rounds):
            await asyncio.to_thread(writer.write, b"%d" % number)
            passage = await reader.read_to(PARTITION, at + 1, offset=at, delivery_epoch=epoch)
            assert passage.next_offset == at + 1, "each record is read once"
            at = passage.next_offset
            assert (await reader.records.bounds([PARTITION], WITHIN_S))[PARTITION].end == at
            await dead_letters.write([DeadLetter(DEAD_LETTERS, None, b"late", (), 1_000)], WITHIN_S)
            await asyncio.sleep(1)
        await dead_letters.close()
        assert reader.outages.empty(), reader.outages.get_nowait()


def test_records_are_read_and_dead_letters_written_over_sessions_and_tokens(kafka: Kafka) -> None:
    with endpoint(lambda: Answer.token(lifetime_s=12)) as idp:
        warnings: list[str] = []
        login = bearer(TokenEndpoint(idp.url, CLIENT_ID, CLIENT_SECRET), warnings)
        play(round_trips(kafka, settings(kafka, login), ROUNDS))
        # One token for all clients, renewed at 80 % of its life.
        assert 2 <= len(idp.requests) <= 4
    assert warnings == []


def test_a_token_that_is_missing_at_first_is_said_and_used_when_it_is_there(
    kafka: Kafka, tmp_path: Path
) -> None:
    source = token_file(tmp_path, "")

    async def story() -> None:
        async with reading(settings(kafka, bearer(source))) as reader:
            waiting = reader.fetch(PARTITION, 0)
            outage = await reader.outage()
            assert outage == (
                f"there is no token for the login to Kafka: the token file {source.path} is empty; write the token to it"
            )
            source.path.write_text(unsecured())
            assert isinstance(await waiting, Read)
            assert await reader.outage() == ""

    play(story())


def test_a_client_that_the_endpoint_rejects_is_said_without_its_secret(kafka: Kafka) -> None:
    with endpoint() as idp:
        ours = settings(kafka, bearer(TokenEndpoint(idp.url, CLIENT_ID, "wrong-secret-nobody-sees")))

        async def story() -> None:
            async with reading(ours) as reader:
                reader.fetch(PARTITION, 0)
                outage = await reader.outage()
                assert "rejects the client (401, invalid_client)" in outage
                assert "nobody-sees" not in outage
                with pytest.raises(Refused, match="rejects the client"):
                    await reader.records.bounds([PARTITION], WITHIN_S)

        play(story())


def test_a_token_that_the_broker_rejects_is_an_outage_without_the_token(kafka: Kafka, tmp_path: Path) -> None:
    token = unsecured() + "c2lnbmF0dXJl"
    ours = settings(kafka, bearer(token_file(tmp_path, token)))

    async def story() -> None:
        async with reading(ours) as reader:
            reader.fetch(PARTITION, 0)
            outage = await reader.outage()
            assert "no records can be read from Kafka" in outage
            assert token not in outage

    play(story())


def test_dead_letters_without_a_token_are_retried_later(kafka: Kafka, tmp_path: Path) -> None:
    source = token_file(tmp_path, "")

    async def story() -> None:
        dead_letters = KafkaDeadLetterWriter(settings(kafka, bearer(source)))
        late = [DeadLetter(DEAD_LETTERS, None, b"late", (), 1_000)]
        with pytest.raises(Unreachable, match="there is no token for the login to Kafka"):
            await dead_letters.write(late, WITHIN_S)
        source.path.write_text(unsecured())
        await dead_letters.write(late, WITHIN_S)
        await dead_letters.close()

    play(story())
