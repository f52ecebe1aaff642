"""
One coordinator writes a SQLite file, whatever name another one knows it by.

The lock keeps a second coordinator out. Where a lock does not hold, as on some network file systems, the epoch of each slot
does: it is compared in the transaction that writes, whatever is written.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import apsw
import psycopg
import pytest

from rota_coordinator.store import postgres
from rota_coordinator.store.port import LOG_SLOT, SlotLost, StoreError
from rota_coordinator.store.sqlite import SqliteStore, open_store
from rota_proto.coordinator.v1.admin_pb2 import AlterOffsetsRequest
from tests.conformance.members import TOPIC
from tests.coordinator.callers import call, channel
from tests.coordinator.store.log_rows import rows
from tests.coordinator.store.records import record
from tests.support.coordinator import Coordinator

SLOT = 7
LOG_ID = 1


def same(path: Path) -> Path:
    return path


def through_a_symlink(path: Path) -> Path:
    link = path.with_name("link.sqlite")
    link.symlink_to(path)
    return link


def through_a_hard_link(path: Path) -> Path:
    link = path.with_name("hard.sqlite")
    link.hardlink_to(path)
    return link


def after_files_beside_it_were_removed(path: Path) -> Path:
    for beside in path.parent.glob("*.lock"):
        beside.unlink()
    return path


@pytest.mark.parametrize(
    "name", [same, through_a_symlink, through_a_hard_link, after_files_beside_it_were_removed]
)
def test_a_second_writer_is_refused_by_whatever_name(tmp_path: Path, name: Callable[[Path], Path]) -> None:
    async def body() -> None:
        path = tmp_path / "coordinator.sqlite"
        store = open_store(path)
        await store.claim(0)
        with pytest.raises(StoreError, match="is in use by another coordinator"):
            open_store(name(path))
        await store.close()
        again = open_store(path)
        await again.claim(0)
        await again.close()

    asyncio.run(body())


def test_a_symlink_beside_the_file_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("kept")
    (tmp_path / "coordinator.sqlite.lock").symlink_to(precious)

    async def body() -> None:
        await open_store(tmp_path / "coordinator.sqlite").close()

    asyncio.run(body())
    assert precious.read_text() == "kept"


class Epochs(NamedTuple):
    """Of the first owner."""

    slot: int
    log: int


async def append_together(store: SqliteStore, epochs: Epochs) -> object:
    """As the end of a transaction: offsets, records and events."""
    with store.atomic():
        parts = [
            store.append(SLOT, epochs.slot, [record(2)]),
            store.append_rows(epochs.log, rows(LOG_ID, 1, first=9), flush=True),
            store.append(LOG_SLOT, epochs.log, [record(2)]),
        ]
    return await asyncio.gather(*parts)


Write = Callable[[SqliteStore, Epochs], Awaitable[object]]
# Each with the slots of which the epoch must hold.
WRITES: dict[str, tuple[Write, Sequence[int]]] = {
    "groups and offsets": (lambda store, epochs: store.append(SLOT, epochs.slot, [record(2)]), [SLOT]),
    "topics and producers": (
        lambda store, epochs: store.append(LOG_SLOT, epochs.log, [record(2)]),
        [LOG_SLOT],
    ),
    "records": (
        lambda store, epochs: store.append_rows(epochs.log, rows(LOG_ID, 100, first=9), flush=False),
        [LOG_SLOT],
    ),
    "a transaction": (append_together, [SLOT, LOG_SLOT]),
    "a snapshot": (lambda store, epochs: store.compact(SLOT, epochs.slot, [record(3)]), [SLOT]),
    "retention": (lambda store, epochs: store.drop_rows(LOG_ID, None), [LOG_SLOT]),
    "compaction": (lambda store, epochs: store.rewrite_rows(LOG_ID, []), [LOG_SLOT]),
    "a claim": (lambda store, epochs: store.claim(SLOT), [SLOT]),
}


def take_over(file: Path, slot: int) -> None:
    """Claim the slot as a second coordinator does that no lock keeps out."""
    connection = apsw.Connection(str(file))
    connection.execute("UPDATE slots SET epoch = epoch + 1 WHERE slot = ?", (slot,))
    connection.close()


def contents(file: Path) -> list[object]:
    """All rows of all tables."""
    connection = apsw.Connection(str(file))
    tables = ("slots", "batches", "headers", "payloads")
    found: list[object] = [connection.execute(f"SELECT * FROM {table}").fetchall() for table in tables]
    connection.close()
    return found


@pytest.mark.parametrize(
    ("write", "slot"),
    [
        pytest.param(write, slot, id=f"{what}, slot {slot}")
        for what, (write, slots) in WRITES.items()
        for slot in slots
    ],
)
def test_an_owner_whose_epoch_was_raised_in_the_file_writes_nothing(
    tmp_path: Path, write: Write, slot: int
) -> None:
    file = tmp_path / "coordinator.sqlite"

    async def refused(store: SqliteStore) -> None:
        (log, _), (epoch, _) = await store.claim(LOG_SLOT), await store.claim(SLOT)
        await store.append(SLOT, epoch, [record(1)])
        await store.append(LOG_SLOT, log, [record(1)])
        await store.append_rows(log, rows(LOG_ID, 3), flush=True)
        take_over(file, slot)
        before = contents(file)
        with pytest.raises(SlotLost, match=f"slot {slot} of .*coordinator.sqlite .*another coordinator"):
            await write(store, Epochs(epoch, log))
        # Neither does it write to slots that are not claimed yet: the file is another's.
        with pytest.raises(SlotLost, match="another coordinator"):
            await store.claim(SLOT + 1)
        assert contents(file) == before

    async def body() -> None:
        store = open_store(file)
        try:
            await refused(store)
        finally:
            await store.close()

    asyncio.run(body())


@pytest.mark.process
def test_a_coordinator_whose_file_was_taken_over_ends_with_a_message(tmp_path: Path) -> None:
    coordinator = Coordinator(tmp_path)
    coordinator.start()
    coordinator.make_topic(TOPIC)

    async def commit() -> None:
        request = AlterOffsetsRequest(group_id="g")
        request.topics.add(name=TOPIC).partitions.add(index=0, offset=1)
        async with channel(coordinator.address) as over:
            await call(over, request)

    connection = apsw.Connection(str(coordinator.file))
    connection.execute("UPDATE slots SET epoch = epoch + 1")
    before = connection.execute("SELECT * FROM batches").fetchall()
    asyncio.run(commit())
    assert coordinator.ends() == 1
    assert "another coordinator has claimed it" in coordinator.log.read_text().splitlines()[-1]
    assert connection.execute("SELECT * FROM batches").fetchall() == before
    connection.close()


@pytest.mark.process
def test_on_postgresql_an_epoch_that_was_raised_fences_every_write_of_its_slot(database: str) -> None:
    async def body() -> None:
        store = await postgres.open_store(database)
        await store.register("127.0.0.1:1")
        epoch, _ = await store.claim(SLOT)
        await store.append(SLOT, epoch, [record(1)])
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("UPDATE rota.slots SET epoch = epoch + 1 WHERE slot = %s", (SLOT,))
            read = "SELECT slot, sequence, data FROM rota.batches"
            before = connection.execute(read).fetchall()
            for write in (
                store.append(SLOT, epoch, [record(2)]),
                store.compact(SLOT, epoch, [record(3)]),
                store.release(SLOT, epoch, "", b"handover"),
            ):
                with pytest.raises(SlotLost, match=f"slot {SLOT} is no longer at epoch {epoch}"):
                    await write
            assert connection.execute(read).fetchall() == before
        await store.close()

    asyncio.run(body())
