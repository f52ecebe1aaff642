"""Reading Kafka as deliveries do, and writing what is to be read: for the tests of the sidecar's records."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

from confluent_kafka import Producer

from rota_sidecar.engines.kafka.python_client.reading import PythonRecords
from rota_sidecar.engines.kafka.read_options import OnOutage, ReadOptions
from rota_sidecar.engines.kafka.reading import KafkaRecords
from rota_sidecar.engines.kafka.settings import KafkaSettings
from rota_sidecar.engines.records import OnFetchResult, Records
from tests.sidecar.engines.readers import Reader
from tests.support.kafka import Kafka

WITHIN_S = 60
TEST_S = 120
MANNER = ReadOptions("any-group", read_committed=True, with_keys=False)
Story = Callable[[Reader], Awaitable[None]]
Client = Callable[[KafkaSettings, OnFetchResult, OnOutage, ReadOptions], Records]
CLIENTS: Mapping[str, Client] = {"librdkafka": KafkaRecords, "python": PythonRecords}


@asynccontextmanager
async def reading(
    settings: KafkaSettings, manner: ReadOptions = MANNER, client: Client = KafkaRecords
) -> AsyncIterator[Reader]:
    reader = Reader(lambda on_event, complain: client(settings, on_event, complain, manner))
    try:
        yield reader
    finally:
        async with asyncio.timeout(WITHIN_S):
            await reader.records.close()
        assert len(asyncio.all_tasks()) == 1, "nothing goes on after the end"


def play(kafka: Kafka, story: Story, manner: ReadOptions = MANNER, client: Client = KafkaRecords) -> None:
    async def run() -> None:
        settings = KafkaSettings(tuple(kafka.bootstrap.split(",")))
        async with asyncio.timeout(TEST_S), reading(settings, manner, client) as reader:
            await story(reader)

    asyncio.run(run())


class Writer:
    """Writes to a topic."""

    def __init__(self, kafka: Kafka, topic: str, settings: Mapping[str, str | int] = {}) -> None:
        # Brokers that die would be complained about. What is sent again must not come behind what was sent later.
        quiet = {**kafka.client_config(), "linger.ms": 5, "log_level": 0, "enable.idempotence": True}
        self.producer = Producer({**quiet, **settings})
        self._topic = topic

    def write(self, *values: bytes | None, partition: int = 0, key: bytes | None = None) -> None:
        for value in values:
            self.producer.produce(self._topic, value, key, partition)
        assert self.producer.flush(WITHIN_S) == 0

    def transact(self, *values: bytes, commit: bool) -> None:
        self.producer.begin_transaction()
        self.write(*values)
        if commit:
            self.producer.commit_transaction(WITHIN_S)
        else:
            self.producer.abort_transaction(WITHIN_S)
