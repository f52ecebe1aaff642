"""The shared store: leases by the database's clock, one owner for each slot, and nothing written by who lost it."""

import asyncio
from collections.abc import Sequence

import pytest

from rota_coordinator.core.slots.table import Row, Table
from rota_coordinator.store import batches, postgres
from rota_coordinator.store.port import LeaseLost, SlotLost
from rota_coordinator.store.postgres import open_store
from rota_proto.coordinator.v1.records_pb2 import Record
from tests.coordinator.store.postgres_processes import WAITING, administrator, process
from tests.coordinator.store.records import numbers, record

pytestmark = pytest.mark.process


def row(table: Table, slot: int) -> Row:
    return table.rows[slot]


def test_a_lease_that_is_not_renewed_ends_and_its_slots_are_vacant(no_tables: str) -> None:
    async def body() -> None:
        async with (
            process(no_tables) as dying,
            process(no_tables) as other,
            administrator(no_tables) as admin,
        ):
            epoch, _ = await dying.store.claim(3)
            before = await dying.store.renew()
            assert {each.process_id for each in before.processes} == {dying.id, other.id}
            assert row(before, 3) == Row(3, epoch, owner=dying.id, new_owner="")
            await admin.do(
                "UPDATE rota.processes SET lease_until = clock_timestamp() + interval '300 ms' "
                "WHERE process_id = %s",
                dying.id,
            )
            await admin.do(
                "SELECT pg_sleep_until(lease_until) FROM rota.processes WHERE process_id = %s", dying.id
            )
            after = await other.store.renew()
            assert [each.process_id for each in after.processes] == [other.id]
            assert row(after, 3) == Row(3, epoch, owner="", new_owner="")
            with pytest.raises(LeaseLost):
                await dying.store.renew()

    asyncio.run(body())


def test_a_renewal_after_the_end_of_the_lease_is_too_late_though_nobody_noticed(no_tables: str) -> None:
    async def body() -> None:
        async with process(no_tables) as lost, administrator(no_tables) as admin:
            await admin.end_lease(lost)
            with pytest.raises(LeaseLost):
                await lost.store.claim(1)
            with pytest.raises(LeaseLost):
                await lost.store.renew()

    asyncio.run(body())


def test_only_the_living_end_others(no_tables: str) -> None:
    async def body() -> None:
        async with (
            process(no_tables) as one,
            process(no_tables) as two,
            administrator(no_tables) as admin,
        ):
            await admin.end_lease(one)
            await admin.end_lease(two)
            with pytest.raises(LeaseLost):
                await one.store.renew()
            assert await admin.do("SELECT count(*) FROM rota.processes") == [(2,)]

    asyncio.run(body())


def test_a_lost_lease_never_comes_back_whatever_the_clock_does(no_tables: str) -> None:
    async def body() -> None:
        async with (
            process(no_tables) as lost,
            process(no_tables) as other,
            administrator(no_tables) as admin,
        ):
            await admin.end_lease(lost)
            await other.store.renew()
            # The clock is put back.
            await admin.do("UPDATE rota.processes SET lease_until = lease_until + interval '1 hour'")
            with pytest.raises(LeaseLost):
                await lost.store.renew()
            with pytest.raises(LeaseLost):
                await lost.store.claim(1)
            assert await lost.store.register("127.0.0.1:1") != lost.id
            assert len((await lost.store.renew()).processes) == 2

    asyncio.run(body())


def test_a_claim_ends_the_lease_of_an_owner_that_came_too_late(no_tables: str) -> None:
    async def body() -> None:
        async with (
            process(no_tables) as lost,
            process(no_tables) as other,
            administrator(no_tables) as admin,
        ):
            old, _ = await lost.store.claim(1)
            await admin.end_lease(lost)
            new, _ = await other.store.claim(1)
            assert new > old
            with pytest.raises(LeaseLost):
                await lost.store.renew()
            with pytest.raises(SlotLost):
                await lost.store.append(1, old, [record(1)])

    asyncio.run(body())


def test_a_claim_waits_for_a_renewal_on_its_way_and_believes_it(no_tables: str) -> None:
    async def body() -> None:
        async with (
            process(no_tables) as late,
            process(no_tables) as other,
            administrator(no_tables) as admin,
            administrator(no_tables) as renewal,
        ):
            epoch, _ = await late.store.claim(1)
            await admin.end_lease(late)
            async with renewal.connection.transaction():
                await renewal.do(
                    "UPDATE rota.processes SET lease_until = clock_timestamp() + interval '1 hour' "
                    "WHERE process_id = %s",
                    late.id,
                )
                claim = asyncio.ensure_future(other.store.claim(1))
                await admin.backends(WAITING)
            with pytest.raises(SlotLost, match="belongs to another process"):
                await claim
            await late.store.append(1, epoch, [record(1)])

    asyncio.run(body())


def test_a_slot_of_the_living_is_not_given_away(no_tables: str) -> None:
    async def body() -> None:
        async with process(no_tables) as owner, process(no_tables) as other:
            epoch, _ = await owner.store.claim(1)
            with pytest.raises(SlotLost):
                await other.store.claim(1)
            assert row(await other.store.renew(), 1) == Row(1, epoch, owner.id, new_owner="")
            again, _ = await owner.store.claim(1)
            assert again > epoch
            with pytest.raises(SlotLost):
                await owner.store.release(1, epoch, other.id, b"")
            assert row(await other.store.renew(), 1).owner == owner.id

    asyncio.run(body())


def test_of_two_claims_at_once_one_wins(no_tables: str) -> None:
    async def body() -> None:
        async with process(no_tables) as one, process(no_tables) as two:
            for slot in range(10):
                outcomes = await asyncio.gather(
                    one.store.claim(slot), two.store.claim(slot), return_exceptions=True
                )
                assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Claim", "SlotLost"]

    asyncio.run(body())


def test_a_slot_is_handed_over_with_its_snapshot_which_is_given_once(no_tables: str) -> None:
    async def body() -> None:
        async with process(no_tables) as giver, process(no_tables) as new_owner:
            old, handover = await giver.store.claim(1)
            assert handover == b""
            await giver.store.append(1, old, [record(1)])
            await giver.store.release(1, old, new_owner.id, b"\x00deadlines")
            given = row(await new_owner.store.renew(), 1)
            assert (given.owner, given.new_owner) == ("", new_owner.id)
            with pytest.raises(SlotLost):
                await giver.store.append(1, old, [record(2)])
            with pytest.raises(SlotLost):
                await giver.store.release(1, old, "", b"")
            new, handover = await new_owner.store.claim(1)
            assert handover == b"\x00deadlines"
            assert row(await new_owner.store.renew(), 1) == Row(1, new, new_owner.id, new_owner="")
            assert (await new_owner.store.claim(1)).handover == b""
            assert numbers(await new_owner.store.load(1)) == [1]

    asyncio.run(body())


def test_who_leaves_owns_nothing_at_once(no_tables: str) -> None:
    async def body() -> None:
        async with process(no_tables) as leaving, process(no_tables) as other:
            await leaving.store.claim(1)
            await leaving.store.leave()
            table = await other.store.renew()
            assert [each.process_id for each in table.processes] == [other.id]
            assert len(table.vacant()) == 50
            with pytest.raises(LeaseLost):
                await leaving.store.renew()

    asyncio.run(body())


def test_a_process_that_registers_again_owns_nothing(no_tables: str) -> None:
    async def body() -> None:
        async with process(no_tables) as one:
            epoch, _ = await one.store.claim(1)
            new = await one.store.register("127.0.0.1:2")
            table = await one.store.renew()
            assert table.processes == ((new, "127.0.0.1:2"),)
            assert row(table, 1) == Row(1, epoch, owner="", new_owner="")
            assert (await one.store.claim(1)).epoch > epoch

    asyncio.run(body())


def test_an_append_that_waited_while_its_slot_was_claimed_is_refused(no_tables: str) -> None:
    async def body() -> None:
        async with (
            process(no_tables) as frozen,
            process(no_tables) as other,
            administrator(no_tables) as admin,
            administrator(no_tables) as holder,
        ):
            old, _ = await frozen.store.claim(1)
            beside, _ = await frozen.store.claim(2)
            await admin.end_lease(frozen)
            async with holder.connection.transaction():
                await holder.hold(1)
                claim = asyncio.ensure_future(other.store.claim(1))
                await admin.backends(WAITING)
                appends = [
                    frozen.store.append(1, old, [record(1)]),
                    frozen.store.append(2, beside, [record(2)]),
                ]
                await admin.backends(WAITING, 2)
            new, _ = await claim
            outcomes = await asyncio.gather(*appends, return_exceptions=True)
            assert isinstance(outcomes[0], SlotLost)
            assert outcomes[1] is None
            await other.store.append(1, new, [record(3)])
            assert numbers(await other.store.load(1)) == [3]
            assert numbers(await other.store.load(2)) == [2]

    asyncio.run(body())


def test_a_renewal_waits_neither_for_a_stuck_append_nor_to_end_the_process_that_sent_it(
    no_tables: str,
) -> None:
    async def body() -> None:
        async with (
            process(no_tables) as stuck,
            process(no_tables) as other,
            administrator(no_tables) as admin,
            administrator(no_tables) as holder,
        ):
            epoch, _ = await stuck.store.claim(1)
            async with holder.connection.transaction():
                await holder.hold(1)
                append = stuck.store.append(1, epoch, [record(1)])
                await admin.backends(WAITING)
                assert row(await stuck.store.renew(), 1).owner == stuck.id
                await admin.end_lease(stuck)
                assert row(await other.store.renew(), 1).owner == ""
                assert not append.done()
            await append

    asyncio.run(body())


def test_a_renewal_passes_over_an_ended_process_that_somebody_holds(no_tables: str) -> None:
    async def body() -> None:
        async with (
            process(no_tables) as ended,
            process(no_tables) as other,
            administrator(no_tables) as admin,
            administrator(no_tables) as holder,
        ):
            await admin.end_lease(ended)
            async with holder.connection.transaction():
                await holder.do("SELECT FROM rota.processes WHERE process_id = %s FOR UPDATE", ended.id)
                assert len((await other.store.renew()).processes) == 2
            assert len((await other.store.renew()).processes) == 1

    asyncio.run(body())


def test_appends_that_wait_together_are_one_transaction(no_tables: str) -> None:
    async def body() -> None:
        async with process(no_tables) as one, administrator(no_tables) as admin:
            epochs = {slot: (await one.store.claim(slot)).epoch for slot in range(4)}
            await asyncio.gather(
                *(one.store.append(number % 4, epochs[number % 4], [record(number)]) for number in range(20))
            )
            assert await admin.do("SELECT count(DISTINCT xmin::text), count(*) FROM rota.batches") == [
                (1, 20)
            ]
            assert numbers(await one.store.load(3)) == [3, 7, 11, 15, 19]

    asyncio.run(body())


def test_a_log_of_large_batches_is_read_a_few_at_a_time(
    no_tables: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    decode = batches.decode_all

    def decode_all(rows: Sequence[tuple[int, bytes, int]], where: str) -> list[Record]:
        sizes.append(len(rows))
        return decode(rows, where)

    monkeypatch.setattr(postgres, "READ_BYTES", 2_000)
    monkeypatch.setattr(batches, "decode_all", decode_all)

    async def body() -> None:
        async with process(no_tables) as one:
            epoch, _ = await one.store.claim(1)
            for number in range(7):
                await one.store.append(1, epoch, [record(number, group_id="g" * 900)])
            assert numbers(await one.store.load(1)) == list(range(7))
            assert sizes == [3, 3, 1]

    asyncio.run(body())


def test_a_compaction_that_a_claim_overtook_changes_nothing(no_tables: str) -> None:
    async def body() -> None:
        async with (
            process(no_tables) as slow,
            process(no_tables) as other,
            administrator(no_tables) as admin,
            administrator(no_tables) as holder,
        ):
            epoch, _ = await slow.store.claim(1)
            await asyncio.gather(*(slow.store.append(1, epoch, [record(number)]) for number in (1, 2, 3)))
            async with holder.connection.transaction():
                await holder.do("SELECT FROM rota.batches FOR UPDATE")
                compaction = asyncio.ensure_future(slow.store.compact(1, epoch, [record(9)]))
                await admin.backends(WAITING)
                await admin.end_lease(slow)
                await other.store.claim(1)
            with pytest.raises(SlotLost):
                await compaction
            assert numbers(await other.store.load(1)) == [1, 2, 3]

    asyncio.run(body())


def test_tables_are_made_once_by_processes_that_start_together(no_tables: str) -> None:
    async def body() -> None:
        stores = await asyncio.gather(*(open_store(no_tables) for _ in range(5)))
        await stores[0].register("127.0.0.1:1")
        assert len((await stores[0].renew()).rows) == 50
        for store in stores:
            await store.close()

    asyncio.run(body())
