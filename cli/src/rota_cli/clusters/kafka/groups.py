"""Groups that Kafka brokers coordinate."""

import threading
from collections.abc import Collection, Iterator, Sequence

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaException,
)
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin._group import ConsumerGroupDescription, MemberDescription
from typing_extensions import override

from rota.records import TopicPartition
from rota_cli.clusters.kafka.brokers import Brokers
from rota_cli.clusters.model import (
    CLASSIC,
    CONSUMER,
    DEAD,
    Check,
    CheckStatus,
    Committed,
    Group,
    ListedGroup,
    Member,
)
from rota_cli.clusters.port import Groups, GroupSnapshot, Offsets
from rota_cli.errors import NotFound
from rota_cli.output.units import pluralize

STATES: dict[object, str] = {
    ConsumerGroupState.EMPTY: "Empty",
    ConsumerGroupState.PREPARING_REBALANCING: "PreparingRebalance",
    ConsumerGroupState.COMPLETING_REBALANCING: "CompletingRebalance",
    ConsumerGroupState.STABLE: "Stable",
    ConsumerGroupState.DEAD: "Dead",
}
UNKNOWN = "Unknown"
# Older brokers do not report it.
TYPES: dict[object, str] = {ConsumerGroupType.CLASSIC: CLASSIC, ConsumerGroupType.CONSUMER: CONSUMER}


class KafkaGroups(Groups):
    """The groups of a Kafka cluster."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    @override
    def list_all(self) -> Sequence[ListedGroup]:
        found = self._brokers.result(self._brokers.admin.list_consumer_groups)
        if found.errors:
            raise self._brokers.translate_error(found.errors[0])
        return sorted(
            (
                ListedGroup(
                    each.group_id,
                    STATES.get(each.state, UNKNOWN),
                    "" if each.is_simple_consumer_group else "consumer",
                    TYPES.get(each.type),
                )
                for each in found.valid
            ),
            key=lambda group: group.group,
        )

    @override
    def describe(self, group_id: str) -> Group:
        admin = self._brokers.admin
        try:
            found = self._brokers.result(
                lambda: admin.describe_consumer_groups([group_id])[group_id], group_id
            )
        except NotFound:
            return Group(group_id, DEAD, "", "", (), coordinator=self._brokers.connection.servers)
        return _group(found)

    @override
    def offsets(self, group_id: str) -> dict[TopicPartition, Committed]:
        admin = self._brokers.admin
        wanted = [ConsumerGroupTopicPartitions(group_id)]
        try:
            found = self._brokers.result(
                lambda: admin.list_consumer_group_offsets(wanted)[group_id], group_id
            )
        except NotFound:
            return {}
        # The metadata is not read: librdkafka's string has no terminator, and confluent-kafka reads beyond
        # it.
        return {
            TopicPartition(each.topic, each.partition): Committed(each.offset)
            for each in found.topic_partitions or ()
            if each.offset >= 0
        }

    @override
    def alter(self, group_id: str, offsets: Offsets) -> None:
        admin = self._brokers.admin
        wanted = [
            ConsumerGroupTopicPartitions(
                group_id, [KafkaTopicPartition(*each, offset) for each, offset in offsets.items()]
            )
        ]
        found = self._brokers.result(lambda: admin.alter_consumer_group_offsets(wanted)[group_id], group_id)
        for each in found.topic_partitions or ():
            if each.error is not None:
                raise self._brokers.translate_error(KafkaException(each.error), group_id)

    @override
    def delete_offsets(self, group_id: str, partitions: Collection[TopicPartition]) -> frozenset[str]:
        from rota_cli.clusters.kafka.offset_deletion import delete_offsets

        return delete_offsets(self._brokers.connection, group_id, partitions)

    @override
    def delete(self, group_id: str) -> None:
        admin = self._brokers.admin
        self._brokers.result(lambda: admin.delete_consumer_groups([group_id])[group_id], group_id)

    @override
    def watch(self, group_id: str, *, every_s: float) -> Iterator[GroupSnapshot]:
        before: Group | None = None
        while True:
            found = self.describe(group_id)
            if found != before:
                before = found
                yield GroupSnapshot(found, self._brokers.clocks.now_ms())
            # Brokers do not push changes: poll.
            threading.Event().wait(every_s)

    @property
    @override
    def rebalance_reason_hint(self) -> str:
        return (
            "Kafka does not report what triggered the last rebalance; see the last `Preparing to rebalance group` line of this "
            "group in the log of its coordinator"
        )

    @override
    def health(self) -> Iterator[Check]:
        found = self._brokers.result(self._brokers.admin.describe_cluster)
        if found.controller is None:
            yield Check(
                "coordinator",
                CheckStatus.WARNING,
                f"cluster {found.cluster_id} has no active controller: check again in a moment, then see the brokers' logs",
            )
            return
        yield Check(
            "coordinator",
            CheckStatus.OK,
            f"cluster {found.cluster_id} with {pluralize(len(found.nodes), 'broker')}",
        )

    @override
    def close(self) -> None:
        """Close nothing: a librdkafka client is destroyed with its last reference."""


def _group(found: ConsumerGroupDescription) -> Group:
    """Convert a description. This client reports no generation, leader or subscription."""
    return Group(
        group=found.group_id,
        state=STATES.get(found.state, UNKNOWN),
        protocol_type="" if found.is_simple_consumer_group else "consumer",
        strategy=found.partition_assignor,
        members=[_member(each) for each in found.members or ()],
        coordinator=f"{found.coordinator.host}:{found.coordinator.port}",
        group_type=TYPES.get(found.type),
    )


def _member(found: MemberDescription) -> Member:
    return Member(
        member_id=found.member_id,
        instance_id=found.group_instance_id or "",
        client_id=found.client_id,
        host=found.host,
        partitions=sorted(
            TopicPartition(each.topic, each.partition) for each in found.assignment.topic_partitions
        ),
    )
