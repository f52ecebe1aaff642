"""The embedded store: what was acknowledged is there, an old epoch writes nothing, a damaged file is not believed."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import TypeVar

import apsw
import pytest

from rota_coordinator.store.port import SlotLost, StoreError
from rota_coordinator.store.sqlite import SqliteStore, open_store
from rota_proto.coordinator.v1.records_pb2 import GenerationReserved, Record

Result = TypeVar("Result")


def record(number: int) -> Record:
    return Record(generation_reserved=GenerationReserved(group_id="g", generation_id=number))


def numbers(records: object) -> list[int]:
    return [each.generation_reserved.generation_id for each in records]  # type: ignore[attr-defined]


def run(body: Coroutine[None, None, Result]) -> Result:
    return asyncio.run(body)


def test_appended_records_come_back_in_their_order_after_a_restart(tmp_path: Path) -> None:
    async def write() -> None:
        store = open_store(tmp_path / "c.db")
        epoch, _ = await store.claim(7)
        appends = [store.append(7, epoch, [record(number), record(number + 1)]) for number in (1, 3, 5)]
        await asyncio.gather(*appends)
        await store.close()

    async def read() -> list[int]:
        store = open_store(tmp_path / "c.db")
        found = numbers(await store.load(7))
        assert await store.load(8) == []
        await store.close()
        return found

    run(write())
    assert run(read()) == [1, 2, 3, 4, 5, 6]


def test_an_old_epoch_writes_nothing_and_its_neighbours_in_the_commit_do(tmp_path: Path) -> None:
    async def body() -> None:
        store = open_store(tmp_path / "c.db")
        old, _ = await store.claim(1)
        (new, _), (other, _) = await store.claim(1), await store.claim(2)
        outcomes = await asyncio.gather(
            store.append(1, old, [record(1)]),
            store.append(1, new, [record(2)]),
            store.append(2, other, [record(3)]),
            return_exceptions=True,
        )
        assert isinstance(outcomes[0], SlotLost)
        assert not any(outcomes[1:])
        assert (numbers(await store.load(1)), numbers(await store.load(2))) == ([2], [3])
        with pytest.raises(SlotLost):
            await store.compact(1, old, [])
        await store.close()

    run(body())


def test_compaction_replaces_the_log_and_appends_go_on_behind_it(tmp_path: Path) -> None:
    async def body() -> list[int]:
        store = open_store(tmp_path / "c.db")
        epoch, _ = await store.claim(1)
        for number in range(1, 6):
            await store.append(1, epoch, [record(number)])
        await store.compact(1, epoch, [record(5)])
        await store.append(1, epoch, [record(6)])
        found = numbers(await store.load(1))
        await store.close()
        return found

    assert run(body()) == [5, 6]


def test_what_was_decided_after_a_failed_append_is_not_written_without_it(tmp_path: Path) -> None:
    async def body() -> None:
        store = open_store(tmp_path / "c.db")
        epoch, _ = await store.claim(1)
        await store.append(1, epoch, [record(1)])
        await in_the_way(
            store, "CREATE TRIGGER full BEFORE INSERT ON batches BEGIN SELECT raise(ABORT, 'full'); END"
        )
        with pytest.raises(StoreError, match="could not be written"):
            await store.append(1, epoch, [record(2)])
        await in_the_way(store, "DROP TRIGGER full")
        with pytest.raises(SlotLost):
            await store.append(1, epoch, [record(3)])
        epoch, _ = await store.claim(1)
        await store.append(1, epoch, [record(4)])
        assert numbers(await store.load(1)) == [1, 4]
        await store.close()

    async def in_the_way(store: SqliteStore, statement: str) -> None:
        await store._do(lambda connection: connection.execute(statement))

    run(body())


def test_a_second_process_is_kept_out(tmp_path: Path) -> None:
    async def body() -> None:
        store = open_store(tmp_path / "c.db")
        with pytest.raises(StoreError, match="in use by another coordinator"):
            open_store(tmp_path / "c.db")
        await store.close()
        await open_store(tmp_path / "c.db").close()

    run(body())


def test_a_damaged_batch_is_refused_with_its_place(tmp_path: Path) -> None:
    async def write() -> None:
        store = open_store(tmp_path / "c.db")
        epoch, _ = await store.claim(1)
        await store.append(1, epoch, [record(1)])
        await store.close()

    async def read() -> None:
        store = open_store(tmp_path / "c.db")
        with pytest.raises(StoreError, match=r"batch 1 of slot 1 in .* is damaged"):
            await store.load(1)
        await store.close()

    run(write())
    connection = apsw.Connection(str(tmp_path / "c.db"))
    connection.execute("UPDATE batches SET data = CAST(data || x'00' AS BLOB)")
    connection.close()
    run(read())


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(b"this is no database, and it is long enough to be looked at" * 20, "cannot be opened")],
)
def test_a_file_that_is_no_database_is_refused(tmp_path: Path, content: bytes, sentence: str) -> None:
    (tmp_path / "c.db").write_bytes(content)

    async def body() -> None:
        with pytest.raises(StoreError, match=sentence):
            open_store(tmp_path / "c.db")

    run(body())


def test_a_file_of_a_later_version_is_refused(tmp_path: Path) -> None:
    connection = apsw.Connection(str(tmp_path / "c.db"))
    connection.pragma("user_version", 99)
    connection.close()

    async def body() -> None:
        with pytest.raises(StoreError, match="later version of Rota"):
            open_store(tmp_path / "c.db")

    run(body())
