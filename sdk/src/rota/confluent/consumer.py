"""`rota.confluent.Consumer`: a `rota.Consumer` with the methods of confluent-kafka's."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from typing_extensions import override

from rota import errors
from rota.confluent.messages import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    ClusterMetadata,
    Message,
    PartitionMetadata,
    TopicMetadata,
    TopicPartition,
    milliseconds,
    offsets_in,
    pairs,
    settings_of,
)
from rota.consumer import api
from rota.consumer.listeners import Partitions, RebalanceListener
from rota.metadata import GroupMetadata
from rota.parameters import CONSUMER
from rota.records import TopicPartition as Partition

OnRebalance = Callable[["Consumer", list[TopicPartition]], object]


class Consumer:
    """
    Consumes topics as a member of a group; one thread uses it at a time.

    >>> consumer = Consumer({"bootstrap.servers": "rota://127.0.0.1:7070", "group.id": "billing"})    # doctest: +SKIP
    >>> consumer.subscribe(["orders"])                                                                # doctest: +SKIP
    >>> message = consumer.poll(1.0)                                                                  # doctest: +SKIP

    Offsets are those of `rota.Consumer`: a message counts as consumed when the poll after its own begins.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._set_up(api.Consumer(**settings_of(config, CONSUMER)))

    @classmethod
    def over(cls, consumer: api.Consumer) -> Self:
        """Wrap a consumer, such as one of `rota.testing.Group`; it is closed with this one."""
        wrapping = cls.__new__(cls)
        wrapping._set_up(consumer)
        return wrapping

    def _set_up(self, consumer: api.Consumer) -> None:
        self._consumer = consumer
        self._is_subscribed = False
        self._is_closed = False

    # Subscription and assignment

    def subscribe(
        self,
        topics: Sequence[str],
        on_assign: OnRebalance | None = None,
        on_revoke: OnRebalance | None = None,
        on_lost: OnRebalance | None = None,
    ) -> None:
        """Subscribe to topics; one that begins with ^ makes all of them patterns, each for a part of a name. `poll` runs the callbacks."""
        listener = _Callbacks(self, on_assign, on_revoke, on_lost)
        if any(topic.startswith("^") for topic in topics):
            pattern = "|".join(
                f"(?:{topic[1:]}).*" if topic.startswith("^") else re.escape(topic) for topic in topics
            )
            self._consumer.subscribe(pattern=pattern, listener=listener)
        else:
            self._consumer.subscribe(topics, listener=listener)
        self._is_subscribed = bool(topics)

    def unsubscribe(self) -> None:
        """Commit consumed offsets if auto commit is on, release the partitions, and leave the group."""
        self._consumer.unsubscribe()
        self._is_subscribed = False

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """
        Assign partitions manually, and seek to the offsets they have.

        Of a subscribed consumer the group assigns: the call then seeks only, as in an `on_assign` callback that sets offsets.
        """
        if not self._is_subscribed:
            self._consumer.assign(pairs(partitions))
        self._seek_given(partitions)

    def incremental_assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Add partitions to a manual assignment, and seek to the offsets they have; the same for subscribed consumers as `assign`."""
        if not self._is_subscribed:
            self._consumer.assign(self._consumer.assignment().union(pairs(partitions)))
        self._seek_given(partitions)

    def unassign(self) -> None:
        """Drop a manual assignment; nothing for a subscribed consumer, whose partitions go when `on_revoke` returns."""
        if not self._is_subscribed:
            self._consumer.assign([])

    def incremental_unassign(self, partitions: Sequence[TopicPartition]) -> None:
        """Remove partitions from a manual assignment; nothing for a subscribed consumer."""
        if not self._is_subscribed:
            self._consumer.assign(self._consumer.assignment().difference(pairs(partitions)))

    def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions."""
        return [TopicPartition(*each) for each in sorted(self._consumer.assignment())]

    def _seek_given(self, partitions: Iterable[TopicPartition]) -> None:
        for each in partitions:
            if each.offset >= 0 or each.offset in (OFFSET_BEGINNING, OFFSET_END):
                self.seek(each)

    # Consumption

    def poll(self, timeout: float | None = None) -> Message | None:
        """Return the next message; None after `timeout` seconds. Without a timeout, or with -1, wait for one."""
        return next(iter(self.consume(1, timeout)), None)

    def consume(self, num_messages: int = 1, timeout: float | None = None) -> list[Message]:
        """
        Return up to so many messages; wait up to `timeout` seconds for the first one, and not for more.

        Raises the error of a partition, where confluent-kafka returns a message that has it.
        """
        if num_messages < 1:
            return []
        polled = self._consumer.poll(timeout_ms=milliseconds(timeout), max_records=num_messages)
        return [Message(record) for records in polled.values() for record in records]

    # Offsets

    def commit(
        self,
        message: Message | None = None,
        offsets: Sequence[TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> list[TopicPartition] | None:
        """
        Commit the offset after a message, or these offsets, or those of all consumed messages.

        With `asynchronous=False` the commit is durable when the call returns, which returns the offsets that it was given.
        """
        if message is not None and offsets is not None:
            raise errors.InvalidArgument("commit takes either a message or offsets")
        if message is not None:
            offsets = [TopicPartition(message.topic(), message.partition(), message.offset() + 1)]
        wanted = None if offsets is None else offsets_in(offsets)
        if asynchronous:
            self._consumer.commit_async(wanted)
            return None
        self._consumer.commit(wanted)
        return None if offsets is None else list(offsets)

    def committed(
        self, partitions: Sequence[TopicPartition], timeout: float | None = None
    ) -> list[TopicPartition]:
        """Return the group's committed offsets; OFFSET_INVALID without a commit."""
        found: list[TopicPartition] = []
        for topic, partition in pairs(partitions):
            offset = self._consumer.committed((topic, partition), metadata=True, timeout_ms=_limit(timeout))
            if offset is None or isinstance(offset, int):
                found.append(TopicPartition(topic, partition))
            else:
                found.append(TopicPartition(topic, partition, offset.offset, offset.metadata))
        return found

    def position(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Return the offset of the next message of each partition; wait until it is known."""
        return [TopicPartition(*each, self._consumer.position(each)) for each in pairs(partitions)]

    def seek(self, partition: TopicPartition) -> None:
        """Continue at the partition's offset, at OFFSET_BEGINNING or at OFFSET_END."""
        (wanted,) = pairs([partition])
        if partition.offset == OFFSET_BEGINNING:
            self._consumer.seek_to_beginning(wanted)
        elif partition.offset == OFFSET_END:
            self._consumer.seek_to_end(wanted)
        else:
            self._consumer.seek(wanted, partition.offset)

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float | None = None, cached: bool = False
    ) -> tuple[int, int]:  # fmt: skip
        """Return the offset of the first message, and the one after the last; looked up at each call, `cached` or not."""
        (wanted,) = pairs([partition])
        (low,) = self._consumer.beginning_offsets([wanted], _limit(timeout)).values()
        (high,) = self._consumer.end_offsets([wanted], _limit(timeout)).values()
        return low, high

    def offsets_for_times(
        self, partitions: Sequence[TopicPartition], timeout: float | None = None
    ) -> list[TopicPartition]:
        """Return the first offset of each partition at or after the timestamp in its `offset`; OFFSET_END if there is none."""
        times = {Partition(each.topic, each.partition): each.offset for each in partitions}
        found = self._consumer.offsets_for_times(times, _limit(timeout))
        return [
            TopicPartition(*partition, OFFSET_END if offset is None else offset.offset)
            for partition, offset in found.items()
        ]

    def list_topics(self, topic: str | None = None, timeout: float | None = None) -> ClusterMetadata:
        """Return the partitions of a topic, or of all topics, one lookup for each; the timeout is for the list of all."""
        names = [topic] if topic is not None else sorted(self._consumer.topics(_limit(timeout)))
        found = {name: self._consumer.partitions_for_topic(name) for name in names}
        return ClusterMetadata({name: _topic(name, partitions) for name, partitions in found.items()})

    # Flow control and group

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Return no messages of these partitions until `resume`; they stay assigned."""
        self._consumer.pause(*pairs(partitions))

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """Return messages of these partitions again."""
        self._consumer.resume(*pairs(partitions))

    def consumer_group_metadata(self) -> GroupMetadata:
        """Return the member's identity in its group, for `send_offsets_to_transaction`."""
        return self._consumer.group_metadata()

    def memberid(self) -> str:
        """Return the member's id; empty before it has joined."""
        return self._consumer.group_metadata().member_id

    # Shutdown

    def close(self) -> None:
        """Commit consumed offsets if auto commit is on, release the partitions, and leave the group."""
        if not self._is_closed:
            self._is_closed = True
            self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Callbacks(RebalanceListener):
    """Passes rebalances on to the functions of `subscribe`."""

    def __init__(
        self,
        consumer: Consumer,
        on_assign: OnRebalance | None,
        on_revoke: OnRebalance | None,
        on_lost: OnRebalance | None,
    ) -> None:
        self._consumer = consumer
        self._on_assign = on_assign
        self._on_revoke = on_revoke
        self._on_lost = on_lost or on_revoke

    @override
    def on_partitions_assigned(self, partitions: Partitions) -> None:
        self._call(self._on_assign, partitions)

    @override
    def on_partitions_revoked(self, partitions: Partitions) -> None:
        self._call(self._on_revoke, partitions)

    @override
    def on_partitions_lost(self, partitions: Partitions) -> None:
        self._call(self._on_lost, partitions)

    def _call(self, callback: OnRebalance | None, partitions: Partitions) -> None:
        if callback is not None:
            callback(self._consumer, [TopicPartition(*each, OFFSET_INVALID) for each in partitions])


def _topic(name: str, partitions: set[int] | None) -> TopicMetadata:
    if partitions is None:
        return TopicMetadata(name, {}, errors.UnknownTopicOrPartition(name))
    return TopicMetadata(name, {number: PartitionMetadata(number) for number in sorted(partitions)})


def _limit(timeout: float | None) -> float | None:
    """Return the timeout of a call in ms; None for that of the settings, where none is given."""
    return None if timeout is None or timeout < 0 else timeout * 1000
