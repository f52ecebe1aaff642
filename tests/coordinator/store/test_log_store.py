"""The rows of the embedded log in the store: in order, together or not at all, and read while others write."""

import asyncio
import contextlib
from pathlib import Path

import apsw
import pytest

from rota_coordinator.core.log.batch import Control, Header, Row
from rota_coordinator.core.log.retention import Oldest
from rota_coordinator.store import batches, sqlite_rows, sqlite_schema
from rota_coordinator.store.port import LOG_SLOT, DamagedBatch, LogStore, SlotLost, StoreError
from rota_coordinator.store.sqlite import open_store
from tests.coordinator.store.log_rows import (
    COUNT,
    EVERYTHING,
    everything,
    headers,
    offsets,
    play,
    row,
    rows,
    run,
)
from tests.coordinator.store.records import numbers, record


def test_rows_come_back_as_they_were_written_after_a_restart(tmp_path: Path) -> None:
    of_a_transaction = Header(
        20, 3, 5, 9, 70_000_000_000, 4, 2_147_483_647, transactional=True, control=Control.RECORDS
    )
    marker = Header(23, 1, 9, 9, 70_000_000_000, 4, -1, transactional=True, control=Control.COMMIT)
    written = [
        *rows(1, 2),
        Row(1, of_a_transaction, 17, 3, b"\x00\xff" * 70_000),
        Row(1, marker, 18, 0, b""),
        row(1, 24, 5_000),
    ]

    async def write(store: LogStore) -> None:
        epoch, _ = await store.claim(LOG_SLOT)
        await asyncio.gather(*(store.append_rows(epoch, [each], flush=False) for each in written))

    async def read(store: LogStore) -> None:
        assert await everything(store, 1) == written
        assert await headers(store) == [(1, each.header) for each in written]
        assert [type(header.control) for _, header in await headers(store)] == [Control] * len(written)
        assert [header.transactional for _, header in await headers(store)] == [
            False,
            False,
            True,
            True,
            False,
        ]
        assert await everything(store, 2) == []

    play(tmp_path, write, read)


def test_all_headers_are_read_in_chunks_by_log_and_offset(tmp_path: Path) -> None:
    each = sqlite_rows.HEADERS_AT_ONCE // 2 + 1

    async def story(store: LogStore) -> None:
        epoch, _ = await store.claim(LOG_SLOT)
        written = [rows(log_id, each, 1) for log_id in (3, 1, 2)]
        await asyncio.gather(*(store.append_rows(epoch, some, flush=False) for some in written))
        chunks = [chunk async for chunk in store.headers()]
        assert [len(chunk) for chunk in chunks] == [
            sqlite_rows.HEADERS_AT_ONCE,
            3 * each - sqlite_rows.HEADERS_AT_ONCE,
        ]
        expected = [(number, row(number, at * COUNT).header) for number in (1, 2, 3) for at in range(each)]
        assert [header for chunk in chunks for header in chunk] == expected

    play(tmp_path, story)


def test_a_read_begins_with_the_batch_that_has_the_offset_and_ends_with_the_bytes(tmp_path: Path) -> None:
    async def story(store: LogStore) -> None:
        epoch, _ = await store.claim(LOG_SLOT)
        # Offsets 30 to 49 were never given to anybody.
        await store.append_rows(epoch, [*rows(1, 3), *rows(1, 3, first=5)], flush=True)
        await store.append_rows(epoch, rows(2, 3), flush=True)

        async def read(offset: int, until: int, max_bytes: int) -> list[int]:
            return offsets(await store.read(1, offset, until, max_bytes))

        assert await read(0, EVERYTHING, 1_000_000) == [0, 10, 20, 50, 60, 70]
        assert await read(19, EVERYTHING, 1_000_000) == [10, 20, 50, 60, 70]
        assert await read(20, EVERYTHING, 1_000_000) == [20, 50, 60, 70]
        assert await read(40, EVERYTHING, 1_000_000) == [50, 60, 70]
        assert await read(0, 20, 1_000_000) == [0, 10]
        assert await read(0, 21, 1_000_000) == [0, 10, 20]
        assert await read(10, EVERYTHING, 299) == [10, 20]
        assert await read(10, EVERYTHING, 300) == [10, 20, 50]
        assert await read(10, EVERYTHING, 0) == [10]
        assert await read(80, EVERYTHING, 1_000_000) == []
        assert await read(0, 0, 1_000_000) == []
        assert offsets(await store.read(3, 0, EVERYTHING, 1_000_000)) == []

    play(tmp_path, story)


def test_many_small_rows_are_read_in_several_goes(tmp_path: Path) -> None:
    count = sqlite_rows.READ_ROWS + 1

    async def story(store: LogStore) -> None:
        epoch, _ = await store.claim(LOG_SLOT)
        await store.append_rows(epoch, rows(1, count, 1), flush=False)
        assert len(await store.read(1, 0, EVERYTHING, 1_000_000)) == sqlite_rows.READ_ROWS
        assert await everything(store, 1) == rows(1, count, 1)

    play(tmp_path, story)


def test_a_time_is_found_where_it_was_first_reached(tmp_path: Path) -> None:
    async def story(store: LogStore) -> None:
        epoch, _ = await store.claim(LOG_SLOT)
        written = [
            row(1, 0, max_timestamp_ms=100),
            row(1, 10, max_timestamp_ms=500),
            row(1, 20, max_timestamp_ms=300),
            row(1, 30, max_timestamp_ms=500),
            row(1, 40, max_timestamp_ms=700),
        ]
        await store.append_rows(epoch, written, flush=False)
        await store.append_rows(epoch, [row(2, 0, max_timestamp_ms=10_000)], flush=False)

        async def first_at(timestamp_ms: int) -> int | None:
            found = await store.first_at(1, timestamp_ms)
            return None if found is None else found.base_offset

        times = (0, 100, 101, 300, 500, 501, 700, 701)
        assert [await first_at(time) for time in times] == [0, 0, 10, 10, 10, 40, 40, None]
        await store.drop_rows(1, 20)
        # What reached 500 first is gone.
        assert [await first_at(time) for time in times] == [20, 20, 20, 20, 30, 40, 40, None]
        await store.drop_rows(1, 50)
        assert await first_at(0) is None

    play(tmp_path, story)


def test_the_oldest_batches_and_the_size_of_a_log(tmp_path: Path) -> None:
    async def story(store: LogStore) -> None:
        epoch, _ = await store.claim(LOG_SLOT)
        written = [row(1, number * COUNT, size) for number, size in enumerate((100, 5_000, 7, 0))]
        for each in written:
            await store.append_rows(epoch, [each], flush=False)
        await store.append_rows(epoch, rows(2, 3), flush=False)
        assert await store.oldest(1, 2) == [Oldest(written[0].header, 100), Oldest(written[1].header, 5_000)]
        assert len(await store.oldest(1, 99)) == 4
        assert await store.size(1) == 5_107
        await store.drop_rows(1, 20)
        assert await store.oldest(1, 1) == [Oldest(written[2].header, 7)]
        assert await store.size(1) == 7
        assert (await store.oldest(3, 1), await store.size(3)) == ([], 0)

    async def later(store: LogStore) -> None:
        epoch, _ = await store.claim(LOG_SLOT)
        await store.append_rows(epoch, [row(1, 40, 30)], flush=False)
        assert (await store.size(1), await store.size(2)) == (37, 300)
        await store.drop_rows(1, None)
        assert await store.size(1) == 0
        await store.append_rows(epoch, [row(1, 50, 60)], flush=False)
        assert (await store.size(1), await store.size(2)) == (60, 300)

    play(tmp_path, story, later)


def test_what_is_appended_together_is_written_in_the_order_of_the_calls(tmp_path: Path) -> None:
    async def story(store: LogStore) -> None:
        (log, _), (group, _) = await store.claim(LOG_SLOT), await store.claim(3)
        before = store.append(3, group, [record(1)])
        with store.atomic():
            parts = [
                store.append(LOG_SLOT, log, [record(1)]),
                store.append_rows(log, rows(1, 2), flush=False),
                store.append(3, group, [record(2)]),
                store.append(LOG_SLOT, log, [record(2)]),
            ]
        after = store.append(3, group, [record(3)])
        await asyncio.gather(before, *parts, after)
        assert numbers(await store.load(3)) == [1, 2, 3]
        assert numbers(await store.load(LOG_SLOT)) == [1, 2]
        assert len(await everything(store, 1)) == 2

    play(tmp_path, story)


def test_if_one_part_is_refused_nothing_of_it_is_written_and_its_slots_are_to_be_claimed_anew(
    tmp_path: Path,
) -> None:
    async def story(store: LogStore) -> None:
        (log, _), (old, _), (other, _) = [await store.claim(slot) for slot in (LOG_SLOT, 3, 4)]
        new, _ = await store.claim(3)
        with store.atomic():
            parts = [
                store.append(LOG_SLOT, log, [record(1)]),
                store.append_rows(log, rows(1, 1), flush=True),
                store.append(3, old, [record(1)]),
            ]
        late = [store.append(LOG_SLOT, log, [record(2)]), store.append_rows(log, rows(2, 1), flush=True)]
        well = [store.append(3, new, [record(3)]), store.append(4, other, [record(4)])]
        refused = await asyncio.gather(*parts, *late, return_exceptions=True)
        await asyncio.gather(*well)
        assert [type(error) for error in refused] == [StoreError, StoreError, SlotLost, SlotLost, SlotLost]
        assert "slot 3 is no longer at epoch 1" in str(refused[0])
        assert numbers(await store.load(LOG_SLOT)) == []
        assert await headers(store) == []
        assert (numbers(await store.load(3)), numbers(await store.load(4))) == ([3], [4])
        log, _ = await store.claim(LOG_SLOT)
        await store.append_rows(log, rows(2, 1), flush=True)
        assert len(await headers(store)) == 1

    play(tmp_path, story)


def test_rows_of_an_old_epoch_are_refused(tmp_path: Path) -> None:
    async def story(store: LogStore) -> None:
        old, _ = await store.claim(LOG_SLOT)
        new, _ = await store.claim(LOG_SLOT)
        refused = store.append_rows(old, rows(1, 1), flush=False)
        await store.append_rows(new, rows(2, 1), flush=False)
        with pytest.raises(SlotLost):
            await refused
        assert [log_id for log_id, _ in await headers(store)] == [2]

    play(tmp_path, story)


def test_an_error_of_the_file_in_one_part_undoes_all_and_breaks_their_slots(tmp_path: Path) -> None:
    async def story(store: LogStore) -> None:
        (log, _), (group, _) = await store.claim(LOG_SLOT), await store.claim(3)
        await store.append_rows(log, rows(1, 1), flush=False)
        run(
            tmp_path, "CREATE TRIGGER full BEFORE INSERT ON headers BEGIN SELECT raise(ABORT, 'no room'); END"
        )
        with store.atomic():
            parts = [
                store.append(3, group, [record(1)]),
                store.append_rows(log, rows(1, 1, first=1), flush=False),
            ]
        drop = store.drop_rows(1, 10)
        for part in parts:
            with pytest.raises(StoreError, match=r"could not be written .*no room"):
                await part
        with pytest.raises(StoreError, match="log 1 keeps its rows"):
            await drop
        run(tmp_path, "DROP TRIGGER full")
        for late in (store.append(3, group, []), store.append_rows(log, rows(1, 1, first=2), flush=False)):
            with pytest.raises(SlotLost):
                await late
        assert numbers(await store.load(3)) == []
        log, _ = await store.claim(LOG_SLOT)
        await store.append_rows(log, rows(1, 1, first=1), flush=False)
        assert await everything(store, 1) == rows(1, 2)
        assert await store.size(1) == 200

    play(tmp_path, story)


def test_a_decision_that_breaks_off_is_not_written(tmp_path: Path) -> None:
    async def story(store: LogStore) -> None:
        log, _ = await store.claim(LOG_SLOT)
        parts: list[asyncio.Future[None]] = []
        with contextlib.suppress(KeyError), store.atomic():
            parts.append(store.append_rows(log, rows(1, 1), flush=False))
            raise KeyError
        with pytest.raises(StoreError, match="was abandoned"):
            await parts[0]
        with pytest.raises(SlotLost):
            await store.append_rows(log, rows(2, 1), flush=False)
        assert await headers(store) == []

    play(tmp_path, story)


def test_a_snapshot_that_is_asked_for_inside_comes_behind_what_it_says(tmp_path: Path) -> None:
    async def story(store: LogStore) -> None:
        (log, _), (group, _) = await store.claim(LOG_SLOT), await store.claim(3)
        await store.append(3, group, [record(1)])
        with store.atomic():
            parts = [store.append(3, group, [record(2)]), store.compact(3, group, [record(2)])]
            parts.append(store.append_rows(log, rows(1, 1), flush=False))
        await asyncio.gather(*parts)
        assert numbers(await store.load(3)) == [2]

    play(tmp_path, story)


def test_together_cannot_be_nested(tmp_path: Path) -> None:
    async def story(store: LogStore) -> None:
        with store.atomic(), pytest.raises(RuntimeError, match="cannot be nested"), store.atomic():
            pass

    play(tmp_path, story)


def test_a_row_that_cannot_be_put_down_is_refused_and_the_writer_goes_on(tmp_path: Path) -> None:
    async def story(store: LogStore) -> None:
        log, _ = await store.claim(LOG_SLOT)
        with pytest.raises(StoreError, match=r"could not be written .*please report it"):
            await store.append_rows(log, [row(1, 0, max_timestamp_ms=2**70)], flush=False)
        log, _ = await store.claim(LOG_SLOT)
        await store.append_rows(log, rows(1, 1), flush=False)
        assert await everything(store, 1) == rows(1, 1)

    play(tmp_path, story)


def test_an_offset_is_not_written_twice(tmp_path: Path) -> None:
    async def story(store: LogStore) -> None:
        log, _ = await store.claim(LOG_SLOT)
        await store.append_rows(log, rows(1, 1), flush=False)
        with pytest.raises(StoreError, match="could not be written"):
            await store.append_rows(log, rows(1, 1, 50), flush=False)
        assert await everything(store, 1) == rows(1, 1)

    play(tmp_path, story)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE payloads SET data = CAST(data || x'00' AS BLOB) WHERE payload_id = 2",
        "DELETE FROM payloads WHERE payload_id = 2",
        "UPDATE headers SET count = 9 WHERE base_offset = 10",
        "UPDATE headers SET payload_id = 1 WHERE base_offset = 10",
        "UPDATE headers SET codec = 1 WHERE base_offset = 10",
    ],
)
def test_a_damaged_row_is_refused_with_its_position(tmp_path: Path, damage: str) -> None:
    async def story(store: LogStore) -> None:
        log, _ = await store.claim(LOG_SLOT)
        await store.append_rows(log, rows(1, 3), flush=False)
        run(tmp_path, damage)
        assert len(await store.read(1, 0, 10, 1_000_000)) == 1
        with pytest.raises(StoreError, match=r"the batch at offset 10 of log 1 in .*c\.db is damaged"):
            await store.read(1, 10, 20, 1_000_000)
        assert len(await store.read(1, 20, 30, 1_000_000)) == 1
        if "headers" in damage:
            with pytest.raises(StoreError, match="offset 10 of log 1"):
                await headers(store)

    play(tmp_path, story)


def test_what_is_written_after_a_damaged_row_was_met_is_seen_by_all_readers(tmp_path: Path) -> None:
    async def story(store: LogStore) -> None:
        log, _ = await store.claim(LOG_SLOT)
        await store.append_rows(log, rows(1, 3), flush=False)
        run(tmp_path, "UPDATE payloads SET data = x'00' WHERE payload_id = 1")
        # Held as a log of errors may hold it: with it lives all that the read had in hand.
        with pytest.raises(StoreError) as held:
            await store.read(1, 0, 30, 1_000_000)
        await store.append_rows(log, rows(2, 2), flush=False)
        assert await everything(store, 2) == rows(2, 2)
        assert held.value.__traceback__ is not None

    play(tmp_path, story)


def test_rows_before_a_damaged_one_are_read_and_what_lies_there_is_handed_on(tmp_path: Path) -> None:
    async def story(store: LogStore) -> None:
        log, _ = await store.claim(LOG_SLOT)
        await store.append_rows(log, rows(1, 3), flush=False)
        run(tmp_path, "UPDATE payloads SET data = x'00' WHERE payload_id = 2")
        assert await store.read(1, 0, 30, 1_000_000) == rows(1, 1)
        with pytest.raises(DamagedBatch) as met:
            await store.read(1, 10, 30, 1_000_000)
        assert met.value.row == rows(1, 2)[1]._replace(payload=b"\0")
        run(tmp_path, "UPDATE headers SET count = 9 WHERE base_offset = 10")
        with pytest.raises(DamagedBatch) as met:
            await store.read(1, 10, 30, 1_000_000)
        assert met.value.row is None

    play(tmp_path, story)


def test_readers_see_whole_writes_and_all_that_was_acknowledged(tmp_path: Path) -> None:
    async def story(store: LogStore) -> None:
        log, _ = await store.claim(LOG_SLOT)
        acknowledged = 0

        async def read_until(count: int) -> None:
            seen = 0
            while seen < count:
                least = acknowledged
                found, other = await asyncio.gather(everything(store, 1), everything(store, 2))
                assert found == rows(1, len(found), 3_000)
                assert least <= len(found)
                # Both logs have the same rows in each write, and the second one was read as late as the first.
                assert len(other) >= least
                assert len(found) % 2 == len(other) % 2 == 0
                seen = len(found)

        async def write(count: int) -> None:
            nonlocal acknowledged
            for first in range(0, count, 2):
                with store.atomic():
                    parts = [
                        store.append_rows(log, rows(log_id, 2, 3_000, first=first), flush=False)
                        for log_id in (1, 2)
                    ]
                await asyncio.gather(*parts)
                acknowledged = first + 2

        await asyncio.gather(write(300), *(read_until(300) for _ in range(6)))

    play(tmp_path, story)


def test_rows_wait_in_the_open(tmp_path: Path) -> None:
    async def story(store: LogStore) -> None:
        log, _ = await store.claim(LOG_SLOT)
        with store.atomic():
            parts = [store.append_rows(log, rows(1, 3, 1_000), flush=True)]
            assert store.rows_waiting_bytes() == 0
        parts.append(store.append_rows(log + 1, rows(1, 1, 1_000), flush=True))
        await asyncio.gather(*parts, return_exceptions=True)
        assert store.rows_waiting_bytes() == 0

    play(tmp_path, story)


def test_what_comes_after_the_end_is_refused(tmp_path: Path) -> None:
    async def body() -> None:
        store = open_store(tmp_path / "c.db")
        log, _ = await store.claim(LOG_SLOT)
        await store.append_rows(log, rows(1, 3, 2 * sqlite_rows.DROPPED_BYTES), flush=False)
        drop = store.drop_rows(1, None)
        await store.close()
        with pytest.raises(StoreError, match="is closed"):
            await drop
        with pytest.raises(StoreError, match="is closed"):
            await store.append_rows(log, rows(1, 1), flush=False)
        with pytest.raises(StoreError, match="is closed"):
            await store.read(1, 0, 10, 10)

    asyncio.run(body())


def test_a_file_of_version_1_is_opened_and_its_groups_are_there(tmp_path: Path) -> None:
    old = apsw.Connection(str(tmp_path / "c.db"))
    old.pragma("journal_mode", "wal")
    old.execute(sqlite_schema.GROUPS)
    old.pragma("user_version", 1)
    old.execute("INSERT INTO slots VALUES (3, 7)")
    old.execute("INSERT INTO batches VALUES (3, 1, ?, ?)", batches.encode([record(1)]))
    old.close()

    async def story(store: LogStore) -> None:
        epoch, _ = await store.claim(3)
        assert epoch == 8
        await store.append(3, epoch, [record(2)])
        assert numbers(await store.load(3)) == [1, 2]
        log, _ = await store.claim(LOG_SLOT)
        await store.append_rows(log, rows(1, 1), flush=True)
        assert await everything(store, 1) == rows(1, 1)

    play(tmp_path, story, story_of_a_restart)
    opened = apsw.Connection(str(tmp_path / "c.db"))
    assert opened.pragma("auto_vacuum") == sqlite_schema.INCREMENTAL
    assert opened.pragma("integrity_check") == "ok"


async def story_of_a_restart(store: LogStore) -> None:
    """Return the records and rows of the migrated file after reopening it."""
    assert numbers(await store.load(3)) == [1, 2]
    assert await everything(store, 1) == rows(1, 1)
