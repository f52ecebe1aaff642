"""Topics of a Rota log: create, describe, alter and delete them, add partitions, delete records. For administrators and tests."""

from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

from rota import errors
from rota.addresses import address_of, is_rota
from rota.clocks import system_clocks
from rota.connection import Connection, Credentials, background, retry_until
from rota.records import TopicPartition
from rota_proto.log.v1 import log_pb2 as pb

WITHIN_S = 30.0
FOR_EVER = -1
# Kafka's values of cleanup.policy.
CLEANUP_POLICIES = {
    "delete": pb.CLEANUP_POLICY_DELETE,
    "compact": pb.CLEANUP_POLICY_COMPACT,
    "compact,delete": pb.CLEANUP_POLICY_COMPACT_DELETE,
}
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """Name, partitions, retention and cleanup policy of a topic."""

    name: str
    partitions: int
    topic_id: bytes
    retention_ms: int
    retention_bytes: int
    # As in Kafka: delete, compact, or compact,delete.
    cleanup_policy: str
    # Compaction keeps records without a value for this long.
    delete_retention_ms: int


class Topics:
    """
    The topics of one server.

    >>> with rota.Topics("rota://127.0.0.1:7070") as topics:      # doctest: +SKIP
    ...     topics.create({"orders": 12}, retention_ms=86_400_000)
    """

    def __init__(self, bootstrap_servers: str, *, credentials: Credentials | None = None) -> None:
        address = address_of(bootstrap_servers)
        if not is_rota(address):
            raise errors.NotSupported(
                f"{address} is a Kafka cluster: use rota.create_topics, `rota topics`, or Kafka's own tools"
            )
        self._background = background()
        self._clock = system_clocks().monotonic_s
        self._connection = self._background.run(_connected(address, credentials))

    def create(
        self,
        partitions: Mapping[str, int],
        *,
        retention_ms: int = FOR_EVER,
        retention_bytes: int = FOR_EVER,
        cleanup_policy: str = "delete",
        delete_retention_ms: int = 0,
        exist_ok: bool = True,
    ) -> None:
        """
        Create topics with so many partitions each; existing topics are unchanged.

        With the `cleanup_policy` "compact" a topic keeps the last record of each key, with "compact,delete" also for its retention
        only. `delete_retention_ms` is how long records without a value are kept then; 0 is the server's default, one day.
        """
        policy = policy_of(cleanup_policy)
        request = pb.CreateTopicsRequest(
            topics=[
                pb.CreateTopicsRequest.Topic(
                    name=name,
                    partitions=count,
                    retention_ms=retention_ms,
                    retention_bytes=retention_bytes,
                    cleanup_policy=policy,
                    delete_retention_ms=delete_retention_ms,
                )
                for name, count in partitions.items()
            ]
        )
        may_be = errors.TopicAlreadyExists.code if exist_ok else 0
        self._ask(lambda: self._changed(self._connection.log.CreateTopics, request, may_be))

    def add_partitions(self, partitions: Mapping[str, int]) -> None:
        """
        Increase the number of partitions of topics to the given total. Records with a key may then go to other
        partitions.
        """
        request = pb.CreatePartitionsRequest(
            topics=[
                pb.CreatePartitionsRequest.Topic(name=name, partitions=count)
                for name, count in partitions.items()
            ]
        )
        self._ask(lambda: self._changed(self._connection.log.CreatePartitions, request))

    def alter(
        self,
        names: Iterable[str],
        *,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
        cleanup_policy: str | None = None,
        delete_retention_ms: int | None = None,
    ) -> None:
        """
        Change the retention and the cleanup policy of topics; what is None stays as it is.

        The log deletes records at its next check. A topic that becomes compacted loses its records without a key.
        """
        policy = None if cleanup_policy is None else policy_of(cleanup_policy)
        request = pb.AlterTopicsRequest(
            topics=[
                pb.AlterTopicsRequest.Topic(
                    name=name,
                    retention_ms=retention_ms,
                    retention_bytes=retention_bytes,
                    cleanup_policy=policy,
                    delete_retention_ms=delete_retention_ms,
                )
                for name in names
            ]
        )
        self._ask(lambda: self._changed(self._connection.log.AlterTopics, request))

    def delete(self, names: Iterable[str]) -> None:
        """Delete topics with all their records."""
        request = pb.DeleteTopicsRequest(names=list(names))
        self._ask(lambda: self._changed(self._connection.log.DeleteTopics, request))

    def delete_records(self, before: Mapping[tuple[str, int], int]) -> dict[TopicPartition, int]:
        """
        Delete all records before these offsets, for every group; return the new log start offset of each partition.

        >>> topics.delete_records({("orders", 0): 1_200})                # doctest: +SKIP
        """
        request = pb.DeleteRecordsRequest(
            partitions=[
                pb.DeleteRecordsRequest.Partition(topic=topic, index=index, before_offset=offset)
                for (topic, index), offset in before.items()
            ]
        )

        async def ask() -> dict[TopicPartition, int]:
            response = await self._connection.ask(
                self._connection.log.DeleteRecords, request, within_s=WITHIN_S
            )
            for part in response.partitions:
                if part.error_code:
                    raise errors.error_of(part.error_code, f"{part.topic}[{part.index}]")
            return {
                TopicPartition(part.topic, part.index): part.log_start_offset for part in response.partitions
            }

        return self._ask(ask)

    def describe(self, names: Iterable[str] = ()) -> list[TopicDescription]:
        """Describe topics; all of them if no name is given."""
        request = pb.DescribeTopicsRequest(names=list(names))

        async def ask() -> list[TopicDescription]:
            response = await self._connection.ask(
                self._connection.log.DescribeTopics, request, within_s=WITHIN_S
            )
            for topic in response.topics:
                if topic.error_code:
                    raise errors.error_of(topic.error_code, topic.name)
            return [
                TopicDescription(
                    topic.name,
                    topic.partitions,
                    topic.topic_id,
                    topic.retention_ms,
                    topic.retention_bytes,
                    name_of(topic.cleanup_policy),
                    topic.delete_retention_ms,
                )
                for topic in response.topics
            ]

        return self._ask(ask)

    async def _changed(self, call: Any, request: Any, may_be: int = 0) -> None:  # noqa: ANN401  one of three calls
        response = await self._connection.ask(call, request, within_s=WITHIN_S)
        for topic in response.topics:
            if topic.error_code not in (0, may_be):
                raise errors.error_of(topic.error_code, topic.name, topic.error_message)

    def _ask(self, ask: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        deadline_s = self._clock() + WITHIN_S
        return self._background.run(retry_until(ask, deadline_s=deadline_s, clock=self._clock))

    def close(self) -> None:
        """Close the connection."""
        self._background.run(self._connection.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def policy_of(cleanup_policy: str) -> pb.CleanupPolicy.ValueType:
    """Return the contract's value of a cleanup policy; in any order. Raises InvalidConfig."""
    policy = ",".join(sorted(part.strip() for part in cleanup_policy.split(",")))
    if policy not in CLEANUP_POLICIES:
        raise errors.InvalidConfig.with_message(
            f"cleanup_policy {cleanup_policy!r}: expected one of {', '.join(map(repr, CLEANUP_POLICIES))}"
        )
    return CLEANUP_POLICIES[policy]


def name_of(policy: pb.CleanupPolicy.ValueType) -> str:
    """Return Kafka's value of a cleanup policy; the number of one of a later version."""
    return next((name for name, each in CLEANUP_POLICIES.items() if each == policy), str(policy))


def create_topics(
    bootstrap_servers: str,
    partitions: Mapping[str, int],
    *,
    kafka_config: Mapping[str, str | int | float | bool] | None = None,
) -> None:
    """
    Create topics with so many partitions each, unless they exist; on Kafka brokers too.

    `kafka_config` has librdkafka settings, for brokers that require authentication.

    >>> rota.create_topics("rota://127.0.0.1:7070", {"orders": 12})    # doctest: +SKIP
    """
    address = address_of(bootstrap_servers)
    if not is_rota(address):
        # confluent-kafka is optional.
        from rota import kafka_topics

        kafka_topics.create(address, partitions, kafka_config or {}, WITHIN_S)
        return
    with Topics(bootstrap_servers) as topics:
        topics.create(partitions)


async def _connected(address: str, credentials: Credentials | None) -> Connection:
    return Connection(address, credentials)
