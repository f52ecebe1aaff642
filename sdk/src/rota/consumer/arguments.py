"""
Checks and conversion of what an application passes to `Consumer` and `AsyncConsumer`, before the engine is called.
"""

from collections.abc import Iterable, Mapping, Sequence

from rota import errors
from rota.addresses import address_of
from rota.consumer.core import Core
from rota.consumer.options import Options
from rota.consumer.sidecars import ExternalSidecar, Sidecar, Subscription
from rota.consumer.validation import topics_fault
from rota.offsets import OffsetAndMetadata, Offsets, completed
from rota.records import TopicPartition

PartitionLike = tuple[str, int]


def sidecar_of(options: Options) -> Sidecar:
    """Return the running sidecar, or one to be started."""
    if options.own_sidecar:
        from rota.consumer.sidecar_process import SidecarProcess

        return SidecarProcess(options, address_of(options.bootstrap_servers))
    return ExternalSidecar(options.address)


def subscription_of(topics: str | Iterable[str] | None, pattern: str) -> Subscription:
    """Build the subscription, an empty one for an empty list of topics; raise InvalidArgument without topics and pattern, or with both."""
    names = (topics,) if isinstance(topics, str) else tuple(topics or ())
    if (topics is None or names) and bool(names) == bool(pattern):
        raise errors.InvalidArgument(
            "subscribe takes either topics or a pattern; to subscribe to nothing, call unsubscribe()"
        )
    if fault := topics_fault(names, pattern):
        raise errors.InvalidArgument(fault)
    return Subscription(names, pattern)


def topic_partitions(partitions: Iterable[PartitionLike]) -> list[TopicPartition]:
    """Convert plain pairs to `TopicPartition`."""
    return [TopicPartition(topic, partition) for topic, partition in partitions]


def validated_offsets(offsets: Offsets | None) -> Mapping[TopicPartition, OffsetAndMetadata] | None:
    """Convert offsets of a commit, and check that none is negative."""
    if offsets is None:
        return None
    found = {
        TopicPartition(topic, partition): completed(offset) for (topic, partition), offset in offsets.items()
    }
    for partition, offset in found.items():
        if offset.offset < 0:
            raise errors.InvalidArgument(
                f"{offset.offset} for {partition.topic}[{partition.partition}] is not an offset: use the next offset to read, 0 or more"
            )
    return found


def check_assigned(core: Core, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
    """Return these partitions, or all assigned ones if none is given; IllegalState if one is not assigned."""
    for each in partitions:
        if each not in core.assigned:
            raise errors.IllegalState(
                f"{each.topic}[{each.partition}] is not assigned to this consumer: poll until it is, or call assign()"
            )
    return list(partitions) or sorted(core.assigned)
