"""A log of a million commits, for those who measure how it is read."""

import asyncio
from pathlib import Path

from rota_coordinator.core.group.hashing import slot_of
from rota_coordinator.core.slots.table import SLOTS
from rota_coordinator.store.sqlite import open_store
from rota_proto.coordinator.v1.records_pb2 import GroupRecord, OffsetCommitted, Record

TOPIC = "orders"
GROUPS = 1_000
PARTITIONS = 10
# Each is a commit of all partitions by every group.
WAVES = 100
COMMITS = GROUPS * PARTITIONS * WAVES
LAST_OFFSET = WAVES - 1
COMMITTED_AT_MS = 1_700_000_000_000


async def write(file: Path) -> None:
    """Fill a new file."""
    store = open_store(file)
    epochs = [(await store.claim(slot)).epoch for slot in range(SLOTS)]
    groups = [(group_id, slot_of(group_id, SLOTS)) for group_id in group_ids()]
    births = [
        store.append(slot, epochs[slot], [born(group_id, number)])
        for number, (group_id, slot) in enumerate(groups, 1)
    ]
    await asyncio.gather(*births)
    for wave in range(WAVES):
        await asyncio.gather(
            *(store.append(slot, epochs[slot], committed(group_id, wave)) for group_id, slot in groups)
        )
    await store.close()


def group_ids() -> list[str]:
    """All groups of the log."""
    return [f"group-{number}" for number in range(GROUPS)]


def born(group_id: str, incarnation: int) -> Record:
    """Return the record of a group without members."""
    return Record(
        group=GroupRecord(group_id=group_id, incarnation=incarnation, state_since_ms=COMMITTED_AT_MS)
    )


def committed(group_id: str, offset: int) -> list[Record]:
    """One commit."""
    return [
        Record(
            offset_committed=OffsetCommitted(
                group_id=group_id,
                topic=TOPIC,
                partition=partition,
                offset=offset,
                leader_epoch=-1,
                committed_at_ms=COMMITTED_AT_MS + offset,
            )
        )
        for partition in range(PARTITIONS)
    ]
