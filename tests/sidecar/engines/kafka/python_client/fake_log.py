"""A broker in the test's process with one topic, whose log and answers the test decides."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer.fetch import FetchRequest, FetchResponse
from kafka.protocol.consumer.offsets import ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.producer.produce import ProduceRequest, ProduceResponse

from rota_sidecar.engines.kafka.settings import Address, KafkaSettings
from tests.sidecar.engines.kafka.fake_broker import answering, listening

TOPIC = "orders"
TOPIC_ID = uuid.UUID(int=7)
NODE = 1
Fetched = FetchResponse.FetchableTopicResponse
Listed = ListOffsetsResponse.ListOffsetsTopicResponse
Produced = ProduceResponse.TopicProduceResponse


class FakeLog:
    """
    Answers requests about the partitions of one topic.

    Invariant: `logs` has the bytes that a fetch of each partition returns, whatever its offset; where there are none, the
    fetch is never answered, as if the broker waited for records.
    """

    def __init__(self, partitions: int = 2) -> None:
        self.address = Address("nowhere", 1)
        self.logs: list[bytes] = [b""] * partitions
        # The error code of each answer about a partition, one after the other; then none.
        self.errors: list[int] = []
        self.fetches: list[FetchRequest] = []
        self.produced: list[bytes] = []
        self.is_waiting = asyncio.Event()

    def answer(self, request: ApiMessage) -> ApiMessage | None:
        """Return the answer to a request; None: there is none."""
        match request:
            case MetadataRequest():
                return self._metadata()
            case FetchRequest():
                return self._fetched(request)
            case ListOffsetsRequest():
                return self._listed(request)
            case ProduceRequest():
                return self._written(request)
            case _:
                raise AssertionError(f"unexpected request {request}")

    def _error(self) -> int:
        return self.errors.pop(0) if self.errors else 0

    def _metadata(self) -> MetadataResponse:
        partitions: list[object] = [
            (0, number, NODE, 5, [NODE], [NODE], []) for number in range(len(self.logs))
        ]
        return MetadataResponse(
            throttle_time_ms=0,
            brokers=[(NODE, *self.address, None)],
            cluster_id="c",
            controller_id=NODE,
            topics=[(0, TOPIC, TOPIC_ID, False, partitions, set())],
        )

    def _fetched(self, request: FetchRequest) -> FetchResponse | None:
        self.fetches.append(request)
        asked = [each.partition for topic in request.topics for each in topic.partitions]
        if not any(self.logs[number] for number in asked) and not self.errors:
            self.is_waiting.set()
            return None
        parts = [self._part(number) for number in asked]
        return FetchResponse(
            throttle_time_ms=0,
            error_code=0,
            session_id=0,
            responses=[Fetched(topic_id=TOPIC_ID, partitions=parts)],
        )

    def _part(self, number: int) -> object:
        error, records = self._error(), b""
        if not error:
            records, self.logs[number] = self.logs[number], b""
        return Fetched.PartitionData(
            partition_index=number,
            error_code=error,
            high_watermark=100,
            last_stable_offset=90,
            log_start_offset=0,
            aborted_transactions=[],
            records=records,
        )

    def _listed(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        (topic,) = request.topics
        partitions = [
            Listed.ListOffsetsPartitionResponse(
                partition_index=each.partition_index,
                error_code=self._error(),
                timestamp=1_000,
                offset=0 if each.timestamp == -2 else 90,
                leader_epoch=5,
            )
            for each in topic.partitions
        ]
        return ListOffsetsResponse(throttle_time_ms=0, topics=[Listed(name=TOPIC, partitions=partitions)])

    def _written(self, request: ProduceRequest) -> ProduceResponse:
        (topic,) = request.topic_data
        partitions: list[object] = []
        for each in topic.partition_data:
            error = self._error()
            if not error:
                self.produced.append(each.records)
            partitions.append(
                Produced.PartitionProduceResponse(
                    index=each.index,
                    error_code=error,
                    base_offset=0,
                    log_append_time_ms=-1,
                    log_start_offset=0,
                    record_errors=[],
                    error_message=None,
                )
            )
        return ProduceResponse(
            responses=[Produced(name=TOPIC, partition_responses=partitions)], throttle_time_ms=0
        )

    def numbers_fetched(self) -> Sequence[Sequence[int]]:
        """Return the partitions of each Fetch request."""
        return [
            [each.partition for topic in fetch.topics for each in topic.partitions] for fetch in self.fetches
        ]


@asynccontextmanager
async def serving(log: FakeLog) -> AsyncIterator[KafkaSettings]:
    """Serve the log; yields the settings to connect to it."""
    async with listening(answering(log.answer)) as settings:
        (log.address,) = settings.addresses
        yield settings
