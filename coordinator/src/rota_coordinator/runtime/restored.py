"""
Prepares a store that was restored from a backup, before coordinators serve from it. Called by `program` for `--restored`.

Each slot is claimed, loaded, and replaced by a snapshot in a higher incarnation; the embedded log assigns no producer id again. A run
that was interrupted is repeated as a whole.
"""

from collections.abc import Callable

from rota_coordinator.core.group.config import GroupConfig
from rota_coordinator.core.group.groups import Groups
from rota_coordinator.core.group.restored import begin_incarnation
from rota_coordinator.core.instants import WallMs
from rota_coordinator.store.port import LOG_SLOT, SharedStore, SlotLost, Store, StoreError
from rota_proto.coordinator.v1.log_events_pb2 import LogEvent, ProducerIdsAllocated
from rota_proto.coordinator.v1.records_pb2 import Record


async def skip_producer_ids(store: Store, now_ms: WallMs) -> None:
    """
    Skip the producer ids that were assigned after the backup: two producers with one id would have records dropped as duplicates.

    As with incarnations, the wall clock in milliseconds exceeds every id that was counted up from the first.
    """
    claim = await store.claim(LOG_SLOT)
    allocated = [
        record.log_event.producer_ids_allocated.next_producer_id
        for record in await store.load(LOG_SLOT)
        if record.log_event.HasField("producer_ids_allocated")
    ]
    skipped = ProducerIdsAllocated(next_producer_id=max([now_ms, *(each + 1 for each in allocated)]))
    event = LogEvent(producer_ids_allocated=skipped)
    await store.append(LOG_SLOT, claim.epoch, [Record(log_event=event)])


async def prepare_restored(store: Store, shared: SharedStore | None, wall_ms: Callable[[], WallMs]) -> int:
    """Raise the incarnation of every slot and return the number of groups. Raises StoreError if another coordinator serves one."""
    if shared is not None:
        await shared.register("")
    count = 0
    try:
        for slot in range(store.slots):
            if shared is not None:
                await shared.renew()
            claim = await store.claim(slot)
            groups = Groups(GroupConfig())
            for record in await store.load(slot):
                groups.replay(record)
            begin_incarnation(groups, wall_ms())
            await store.compact(slot, claim.epoch, groups.snapshot())
            count += len(groups.groups)
    except SlotLost as lost:
        raise StoreError(
            f"a coordinator serves groups from this store ({lost}); stop all coordinators, restore the backup again, and run "
            "--restored before they start"
        ) from lost
    finally:
        if shared is not None:
            await shared.leave()
    return count
