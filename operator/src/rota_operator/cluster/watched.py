"""Parameters of the watches of a group, by its ConsumerGroup."""

import re
from collections.abc import Collection
from typing import NamedTuple

from rota_operator.cluster.kafka_access import NO_ACCESS, KafkaAccess
from rota_operator.overview.assignment import Partition
from rota_operator.plan.settings import ISOLATION
from rota_operator.spec.model import ROTA, ConsumerGroupSpec


class Watched(NamedTuple):
    """Parameters of the watches of a group; a change of one starts them anew."""

    group_id: str
    # HOST:PORT of Rota's coordinator; empty if the group is on Kafka.
    coordinator: str
    # The records are in the coordinator's embedded log, not in Kafka.
    has_log: bool
    topics: tuple[str, ...]
    topic_pattern: str
    initial_offset: str
    read_committed: bool
    # How the operator itself reads the group's Kafka cluster.
    access: KafkaAccess = NO_ACCESS


def watched_of(spec: ConsumerGroupSpec, group_id: str, access: KafkaAccess = NO_ACCESS) -> Watched:
    """Return what the watches of a group depend on."""
    coordinator = ""
    if spec.speaks_rota:
        coordinator = spec.bootstrap_servers[0].removeprefix(ROTA)
    elif spec.coordination == "Rota":
        coordinator = spec.coordinator_address.removeprefix(ROTA)
    return Watched(
        group_id=group_id,
        coordinator=coordinator,
        has_log=spec.speaks_rota,
        topics=spec.topics,
        topic_pattern=spec.topic_pattern,
        initial_offset=spec.offsets.initial_offset,
        read_committed=spec.config.get(ISOLATION) == "read_committed",
        access=access,
    )


def count_subscribed(watched: Watched, partitions: Collection[Partition]) -> int | None:
    """Return how many of the partitions the group subscribes to; None for a pattern that is no regular expression here."""
    if not watched.topic_pattern:
        return sum(each.topic in watched.topics for each in partitions)
    try:
        matches = re.compile(watched.topic_pattern).fullmatch
    except (re.error, RecursionError, OverflowError):
        return None
    return sum(matches(each.topic) is not None for each in partitions)
