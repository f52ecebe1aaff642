"""
Opens the source of a group's offsets at its Kafka cluster, with credentials of the operator's own.

Called by `reset_lookups`; imports librdkafka, which is slow and optional.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from rota_operator.cluster.group_watch import ResetAccess
from rota_operator.engines.admin import alter_offsets
from rota_operator.engines.kafka import KafkaGroups, KafkaRecords
from rota_operator.engines.rota import RotaGroups
from rota_operator.engines.watch import Subscription
from rota_operator.offset_resets.sources import EngineSource, OffsetSource


@asynccontextmanager
async def kafka_source(access: ResetAccess) -> AsyncIterator[OffsetSource]:
    """Open clients for a group whose records are in Kafka, and its offsets there or at Rota. Raises Unavailable."""
    watched, coordinator = access.watched, access.coordinator
    properties = dict(watched.access.properties)
    records = KafkaRecords(properties, read_committed=watched.read_committed)
    groups = KafkaGroups(watched.group_id, properties)
    try:
        yield EngineSource(
            watched.group_id,
            Subscription(watched.topics, watched.topic_pattern),
            groups if coordinator is None else RotaGroups(coordinator),
            records,
            groups.commit if coordinator is None else partial(alter_offsets, coordinator, watched.group_id),
        )
    finally:
        await groups.close()
        await records.close()
