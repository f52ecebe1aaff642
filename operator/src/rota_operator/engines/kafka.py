"""Engine adapter for Kafka brokers, through confluent-kafka. Imported only if a group is on Kafka."""

import asyncio
import base64
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._group import ConsumerGroupDescription
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._topic import TopicDescription
from typing_extensions import override

from rota_operator.engines.port import Groups, IndexedRecords, Range, Unavailable
from rota_operator.overview.assignment import Partition
from rota_operator.overview.description import UNKNOWN, DescribedMember, Description

CALL_S = 2.0
# Time limit of one read of timestamps; partitions without an answer by then are read at the next poll.
READ_S = 1.5
READ_WAIT_S = 0.1
READ_AT_ONCE = 500
# Only the first record of each partition is needed.
FETCH_BYTES = 16 * 1024
# confluent-kafka has no type annotations for these two.
EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
NO_GROUP = KafkaError.GROUP_ID_NOT_FOUND
STATES: dict[object, str] = {
    ConsumerGroupState.EMPTY: "Empty",
    ConsumerGroupState.PREPARING_REBALANCING: "PreparingRebalance",
    ConsumerGroupState.COMPLETING_REBALANCING: "CompletingRebalance",
    ConsumerGroupState.STABLE: "Stable",
    ConsumerGroupState.DEAD: "Dead",
}
# Errors of connections that say more than the timeout they lead to.
CAUSES = (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._RESOLVE, KafkaError._TRANSPORT)
MISSING = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
Answer = TypeVar("Answer")
Config = Mapping[str, Any]


class Reader:
    """
    A librdkafka consumer that joins no group, on its own thread because its calls block.

    Its `group.id` is the group whose committed offsets can be fetched.
    """

    def __init__(self, group_id: str, config: Config) -> None:
        self._config = {
            **config,
            "log_level": 0,
            "group.id": group_id,
            # A commit has no time limit of its own.
            "socket.timeout.ms": 10_000,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
        }
        self._thread = ThreadPoolExecutor(1, "kafka-reader")
        self._consumer: Consumer | None = None

    async def ask(self, question: Callable[[Consumer], Answer]) -> Answer:
        """Ask in the thread. Raises Unavailable."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._ask, question)
        except KafkaException as error:
            raise Unavailable(error_message(error)) from None

    def _ask(self, question: Callable[[Consumer], Answer]) -> Answer:
        if self._consumer is None:
            self._consumer = Consumer(self._config)
        return question(self._consumer)

    async def close(self) -> None:
        """Close the consumer and end the thread."""
        if self._consumer is not None:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._consumer.close)
        self._thread.shutdown()


class Admin:
    """
    A librdkafka administration client, made when it is first used.

    librdkafka reports refused logins and TLS errors to a callback, and answers a request with a timeout only.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._client: AdminClient | None = None
        self._error = ""

    @property
    def client(self) -> AdminClient:
        """The client. Raises Unavailable if its properties are unusable, for instance no PEM."""
        if self._client is None:
            config = {**self._config, "log_level": 0, "error_cb": self._failed}
            try:
                self._client = AdminClient(config)
            except KafkaException as error:
                raise Unavailable(error_message(error)) from None
        return self._client

    async def ask(self, question: "Callable[[AdminClient], Future[Answer]]", *absent: int) -> Answer | None:
        """Ask, and return None for the error codes in `absent`. Raises Unavailable with the cause of a timeout."""
        try:
            return await await_answer(question(self.client), *absent)
        except Unavailable as error:
            self._error = ""
            self.client.poll(0)
            raise Unavailable(f"{error}: {self._error}" if self._error else str(error)) from None

    def close(self) -> None:
        """Drop the client, which ends its connections: it refers to this object, and this one to it."""
        self._client = None

    def _failed(self, error: KafkaError) -> None:
        if error.code() in CAUSES:
            self._error = error.str()


class KafkaGroups(Groups):
    """
    A group of a cluster, and its committed offsets.

    Those are asked of a consumer: librdkafka's administration client crashes the process (2.16) when a broker answers that it
    does not coordinate the group.
    """

    def __init__(self, group_id: str, config: Config) -> None:
        self._group_id = group_id
        self._admin = Admin(config)
        # Otherwise the fetch waits for offsets of open transactions; lag counts from what is committed now.
        self._reader = Reader(group_id, {**config, "isolation.level": "read_uncommitted"})

    async def describe(self) -> Description:
        """Describe the group; a group that does not exist has state Dead. Raises Unavailable."""
        group_id = self._group_id
        found = await self._admin.ask(
            lambda admin: admin.describe_consumer_groups([group_id], request_timeout=CALL_S)[group_id],
            NO_GROUP,
        )
        if found is None:
            return Description(group_id, "Dead", None, "", ())
        return description_of(found)

    @override
    async def committed(
        self, group_id: str, partitions: Collection[Partition], *, only_these: bool = False
    ) -> Mapping[Partition, int]:
        asked = [TopicPartition(*each) for each in partitions]
        if not asked:
            return {}
        found = await self._reader.ask(lambda consumer: consumer.committed(asked, timeout=CALL_S))
        return {
            Partition(each.topic, each.partition): each.offset
            for each in found
            if each.offset >= 0 and each.error is None
        }

    async def commit_initial_offsets(self, offsets: Mapping[Partition, int]) -> None:
        """Commit the initial offsets of a group without members. Raises Unavailable, also if a member has joined meanwhile."""
        await self._commit(offsets, "commit the initial offsets")

    async def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Reset offsets of a group without members. Raises Unavailable, also if a member has joined meanwhile."""
        await self._commit(offsets, "reset the offsets")

    async def _commit(self, offsets: Mapping[Partition, int], what: str) -> None:
        wanted = [TopicPartition(*each, offset) for each, offset in offsets.items()]
        # Outside of the group, like a consumer with manual assignment: brokers refuse that while the group has members.
        found = await self._reader.ask(
            lambda consumer: consumer.commit(offsets=wanted, asynchronous=False) if wanted else ()
        )
        for each in found or ():
            if each.error is not None:
                raise Unavailable(f"cannot {what} of group {self._group_id} ({each.error.name()})")

    async def delete(self) -> None:
        """Delete the group with its offsets; no error if it does not exist. Raises Unavailable, also if it has members."""
        group_id = self._group_id
        await self._admin.ask(
            lambda admin: admin.delete_consumer_groups([group_id], request_timeout=CALL_S)[group_id], NO_GROUP
        )

    async def close(self) -> None:
        """Close the connections."""
        self._admin.close()
        await self._reader.close()


class KafkaRecords(IndexedRecords):
    """Topics of a cluster, read at one isolation level."""

    def __init__(self, config: Config, *, read_committed: bool) -> None:
        self._admin = Admin(config)
        self._isolation = IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED
        reading = {
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed" if read_committed else "read_uncommitted",
            "queued.min.messages": 1,
            "fetch.message.max.bytes": FETCH_BYTES,
            "fetch.wait.max.ms": 100,
        }
        # librdkafka requires a group id, and uses it for commits only.
        self._reader = Reader("rota-operator", {**config, **reading})

    @override
    async def partitions(self, topics: Collection[str], pattern: str = "") -> Collection[Partition]:
        if not topics and not pattern:
            return ()
        found = await self._describe({*topics, *await self._matching(pattern)})
        return [Partition(topic.name, each.id) for topic in found for each in topic.partitions]

    @override
    async def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        return {each.name: topic_id_of(each) for each in await self._describe(topics)}

    async def _describe(self, names: Collection[str]) -> list[TopicDescription]:
        """Describe topics; those that do not exist are left out. Raises Unavailable."""
        if not names:
            return []
        collection = TopicCollection(sorted(names))
        asked = self._admin.client.describe_topics(collection, request_timeout=CALL_S)
        found = await asyncio.gather(*(await_answer(each, *MISSING) for each in asked.values()))
        return [topic for topic in found if topic is not None]

    async def _matching(self, pattern: str) -> Collection[str]:
        """Topics whose full name matches the pattern, without Kafka's internal ones."""
        if not pattern:
            return ()
        found = await self._reader.ask(lambda consumer: consumer.list_topics(timeout=CALL_S))
        return [name for name in found.topics if not name.startswith("__") and re.fullmatch(pattern, name)]

    @override
    async def ranges(self, partitions: Collection[Partition]) -> Mapping[Partition, Range]:
        # The start first: records that are deleted between the two calls must not put it after the end.
        starts = await self._at(partitions, EARLIEST)
        ends = await self._at(partitions, LATEST)
        return {each: Range(start, ends[each]) for each, start in starts.items() if each in ends}

    @override
    async def at_time(self, partitions: Collection[Partition], at_ms: int) -> Mapping[Partition, int]:
        return await self._at(partitions, OffsetSpec.for_timestamp(at_ms))

    async def _at(self, partitions: Iterable[Partition], which: OffsetSpec) -> dict[Partition, int]:
        asked = {TopicPartition(*each): which for each in partitions}
        if not asked:
            return {}
        answers = self._admin.client.list_offsets(
            asked, isolation_level=self._isolation, request_timeout=CALL_S
        )
        found = await asyncio.gather(*(await_answer(each, *MISSING) for each in answers.values()))
        return {
            Partition(partition.topic, partition.partition): info.offset
            for partition, info in zip(answers, found, strict=True)
            if info is not None
        }

    @override
    async def timestamps(self, offsets: Mapping[Partition, int]) -> Mapping[Partition, int | None]:
        if not offsets:
            return {}
        clock = asyncio.get_running_loop().time
        return await self._reader.ask(lambda consumer: first_timestamps(consumer, offsets, clock))

    async def close(self) -> None:
        """Close the connections."""
        self._admin.close()
        await self._reader.close()


def first_timestamps(
    consumer: Consumer, offsets: Mapping[Partition, int], clock: Callable[[], float]
) -> dict[Partition, int | None]:
    """Read the first record at or after each offset, within READ_S."""
    until_s = clock() + READ_S
    found: dict[Partition, int | None] = {}
    left = set(offsets)
    consumer.assign([TopicPartition(*each, offset) for each, offset in offsets.items()])
    try:
        while left and clock() < until_s:
            for message in consumer.consume(READ_AT_ONCE, READ_WAIT_S):
                here = Partition(message.topic() or "", message.partition() or 0)
                if here not in left:
                    continue
                error = message.error()
                if error is None:
                    found[here] = message.timestamp()[1]
                elif error.code() == KafkaError._PARTITION_EOF:
                    found[here] = None
                # Another error, such as an offset that retention has just deleted: retried at the next poll.
                left.discard(here)
    finally:
        consumer.unassign()
    return found


def description_of(found: ConsumerGroupDescription) -> Description:
    """Convert a broker's description of a group."""
    return Description(
        group_id=found.group_id,
        state=STATES.get(found.state, UNKNOWN),
        generation=None,
        strategy=found.partition_assignor,
        members=[
            DescribedMember(
                each.member_id,
                each.client_id,
                frozenset(
                    Partition(partition.topic, partition.partition)
                    for partition in each.assignment.topic_partitions
                ),
                each.group_instance_id or "",
                each.host,
            )
            for each in found.members or ()
        ],
    )


def topic_id_of(topic: TopicDescription) -> str:
    """Return the id of a topic in hexadecimal, as sidecars report it."""
    # Of 16 bytes, written as base64 without padding.
    return base64.b64decode(f"{topic.topic_id}==").hex()


async def await_answer(answer: "Future[Answer]", *absent: int) -> Answer | None:
    """Await a librdkafka future; return None for the error codes in `absent`. Raises Unavailable."""
    try:
        return await asyncio.wrap_future(answer)
    except KafkaException as error:
        if error.args[0].code() in absent:
            return None
        raise Unavailable(error_message(error)) from None


def error_message(error: KafkaException) -> str:
    """Format librdkafka's error."""
    return f"request to the Kafka brokers failed ({error.args[0].name()})"
