"""Local state is there again as the last transaction left it, from a full snapshot and the changes since."""

import random
import struct

import pytest

from rota.stores import Dialect, NotAssigned, Snapshots, StoreError, StoreFenced, Tenure
from rota.stores.tables import Tables
from tests.sdk.databases import P0, P1, Database, Owner, member

# The fixture `database` is in the tier of pytest.mark.process where it is PostgreSQL.

TOTALS = Snapshots("totals", full_every=4, chunk_bytes=64)


def rows(application: Database) -> list[tuple[int, int]]:
    """(sequence, whether it is a full one) of all that is stored."""
    found = application.ask(
        f"SELECT DISTINCT sequence, is_full FROM {application.prefix}snapshots ORDER BY 1"
    )
    return [(sequence, is_full) for sequence, is_full in found]


def keep(owner: Owner, tenure: Tenure, changes: dict[bytes, bytes | None], state: dict[bytes, bytes]) -> None:
    """Change the state, and save it."""
    for key, value in changes.items():
        if value is None:
            state.pop(key, None)
        else:
            state[key] = value
    with owner.store.transaction(tenure) as tx:
        TOTALS.save(tx, P0, changes, state)


def test_restored_is_what_was_saved_after_every_transaction(application: Database, owner: Owner) -> None:
    drawn = random.Random(7)
    tenure = owner.store.assign(member(1), [P0])
    state: dict[bytes, bytes] = {}
    for _ in range(30):
        some = [bytes([drawn.randrange(20)]) for _ in range(drawn.randrange(6))]
        keep(
            owner,
            tenure,
            {key: drawn.choice([None, b"", drawn.randbytes(drawn.randrange(90))]) for key in some},
            state,
        )
        assert owner.store.restore(TOTALS, tenure, P0) == state
    assert len(state) > 3
    assert application.owner().store.restore(TOTALS, owner.store.assign(member(2), [P0]), P0) == state


def test_a_full_snapshot_comes_in_time_and_prunes_what_was_before(
    application: Database, owner: Owner
) -> None:
    tenure = owner.store.assign(member(1), [P0])
    state: dict[bytes, bytes] = {}
    seen = []
    for number in range(10):
        keep(owner, tenure, {b"count": b"%d" % number}, state)
        seen.append(rows(application))

    assert seen[3] == [(1, 0), (2, 0), (3, 0), (4, 0)]
    assert seen[4] == [(5, 1)]
    assert seen[7] == [(5, 1), (6, 0), (7, 0), (8, 0)]
    assert seen[8] == [(9, 1)]


def test_a_full_snapshot_can_be_asked_for_also_of_nothing(application: Database, owner: Owner) -> None:
    tenure = owner.store.assign(member(1), [P0])
    keep(owner, tenure, {b"a": b"1"}, {})
    with owner.store.transaction(tenure) as tx:
        TOTALS.save_full(tx, P0, {})

    assert rows(application) == [(2, 1)]
    assert owner.store.restore(TOTALS, tenure, P0) == {}


def test_a_state_larger_than_a_chunk_is_kept_in_several(application: Database, owner: Owner) -> None:
    tenure = owner.store.assign(member(1), [P0])
    state = {b"%d" % number: bytes([number]) * 40 for number in range(50)}
    with owner.store.transaction(tenure) as tx:
        TOTALS.save_full(tx, P0, state)

    ((chunks, longest),) = application.ask(
        f"SELECT COUNT(*), MAX(LENGTH(content)) FROM {application.prefix}snapshots"
    )
    assert (chunks, longest) == (25, 100)
    assert owner.store.restore(TOTALS, tenure, P0) == state


def test_no_change_writes_nothing(application: Database, owner: Owner) -> None:
    tenure = owner.store.assign(member(1), [P0])
    keep(owner, tenure, {}, {b"a": b"1"})

    assert rows(application) == []


def test_partitions_and_kinds_of_state_are_kept_apart(owner: Owner) -> None:
    tenure = owner.store.assign(member(1), [P0, P1])
    counts = Snapshots("counts")
    with owner.store.transaction(tenure) as tx:
        TOTALS.save(tx, P0, {b"a": b"1"}, {})
        TOTALS.save(tx, P1, {b"a": b"2"}, {})
        counts.save_full(tx, P0, {b"a": b"3"})

    assert owner.store.restore(TOTALS, tenure, P0) == {b"a": b"1"}
    assert owner.store.restore(TOTALS, tenure, P1) == {b"a": b"2"}
    assert owner.store.restore(counts, tenure, P0) == {b"a": b"3"}
    assert owner.store.restore(counts, tenure, P1) == {}


def test_a_late_owner_adds_nothing_and_reads_nothing(application: Database, owner: Owner) -> None:
    late = owner.store.assign(member(1), [P0])
    keep(owner, late, {b"a": b"1"}, {})
    tenure = application.owner().store.assign(member(2), [P0])

    with pytest.raises(StoreFenced):
        keep(owner, late, {b"a": b"2"}, {})
    with pytest.raises(StoreFenced):
        owner.store.restore(TOTALS, late, P0)

    assert rows(application) == [(1, 0)]
    assert application.owner().store.restore(TOTALS, tenure, P0) == {b"a": b"1"}


def test_nothing_of_a_state_is_kept_when_the_offset_is_refused(application: Database, owner: Owner) -> None:
    tenure = owner.store.assign(member(1), [P0])
    owner.batch(tenure, {P0: 10})

    def go_back() -> None:
        with owner.store.transaction(tenure) as tx:
            TOTALS.save(tx, P0, {b"a": b"1"}, {})
            tx.save({P0: 9})

    with pytest.raises(StoreError, match="below the stored"):
        go_back()

    assert rows(application) == []


def test_the_state_of_a_partition_that_was_not_assigned_is_refused(owner: Owner) -> None:
    tenure = owner.store.assign(member(1), [P0])

    with owner.store.transaction(tenure) as tx, pytest.raises(NotAssigned):
        TOTALS.save(tx, P1, {b"a": b"1"}, {})


def test_what_a_full_snapshot_has_replaced_while_it_was_read_does_not_count() -> None:
    tenure = Tenure(member(1), {P0: None})
    flow = TOTALS.restored(Tables(Dialect.POSTGRESQL, "rota_"), tenure, P0)
    entry = struct.Struct(">Ii1s1s")

    next(flow)
    flow.send([])  # nobody newer stands there
    # A page of changes; before the next one is asked for, a full snapshot has pruned them.
    flow.send([(sequence, 0, 0, entry.pack(1, 1, b"a", b"1")) for sequence in range(1, 9)])
    with pytest.raises(StopIteration) as end:
        flow.send([(12, 0, 1, entry.pack(1, 1, b"b", b"2")), (12, 1, 1, entry.pack(1, 1, b"c", b"3"))])

    assert end.value.value == {b"b": b"2", b"c": b"3"}


def test_snapshots_that_cannot_be_are_refused() -> None:
    with pytest.raises(StoreError, match="at least 1"):
        Snapshots(full_every=0)
