"""Equal shares: whatever the table, the processes' own parts of the plan fit together and settle."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from rota_coordinator.core.slots.share import Share, share
from rota_coordinator.core.slots.table import Process, Row, Table, empty_rows

NAMES = ("p0", "p1", "p2", "p3", "p4")


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """Any reading: some processes, slots owned by them or vacant, heirs that live or do not."""
    alive = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    owner = st.sampled_from([*alive, ""])
    new_owner = st.sampled_from([*NAMES, ""])
    rows = tuple(
        Row(slot, draw(st.integers(0, 9)), name := draw(owner), "" if name else draw(new_owner))
        for slot in range(13)
    )
    return Table(tuple(Process(name, f"{name}:7070") for name in alive), rows)


def parts(table: Table) -> dict[str, Share]:
    return {process_id: share(table, process_id) for process_id, _ in table.processes}


def after(table: Table) -> Table:
    """Return the table after every process has carried out its part."""
    rows = {row.slot: row for row in table.rows}
    for process_id, part in parts(table).items():
        for slot in part.claim:
            rows[slot] = rows[slot]._replace(owner=process_id, new_owner="")
        for slot, new_owner in part.give:
            rows[slot] = rows[slot]._replace(owner="", new_owner=new_owner)
    return Table(table.processes, tuple(rows.values()))


def spread(table: Table) -> list[int]:
    return [len(table.owned_by(process_id)) for process_id, _ in table.processes]


@given(tables())
def test_no_slot_is_wanted_by_two_and_every_vacant_one_by_somebody(table: Table) -> None:
    wanted = Counter(slot for part in parts(table).values() for slot in part.claim)
    assert wanted == Counter(row.slot for row in table.vacant())


@given(tables())
def test_a_process_gives_only_what_is_its_own(table: Table) -> None:
    for process_id, part in parts(table).items():
        assert {transfer.slot for transfer in part.give} <= set(table.owned_by(process_id))
        assert process_id not in {transfer.new_owner for transfer in part.give}


@given(tables())
def test_shares_become_equal_in_three_rounds_and_then_nothing_moves(table: Table) -> None:
    for _ in range(3):
        table = after(table)
    assert not table.vacant()
    assert max(spread(table)) - min(spread(table)) <= 1
    assert after(table) == table


@given(tables())
def test_a_named_heir_that_lives_gets_its_slot(table: Table) -> None:
    alive = {process_id for process_id, _ in table.processes}
    for row in table.vacant():
        if row.new_owner in alive:
            assert row.slot in share(table, row.new_owner).claim


def test_one_process_takes_everything() -> None:
    table = Table((Process("p0", "a:1"),), empty_rows())
    assert share(table, "p0") == Share(claim=list(range(50)), give=[])


def test_a_process_that_is_not_in_the_table_takes_nothing() -> None:
    table = Table((Process("p0", "a:1"),), empty_rows())
    assert share(table, "p1") == Share(claim=[], give=[])


def test_a_newcomer_gets_its_share_from_both() -> None:
    rows = tuple(Row(slot, 1, "p0" if slot < 25 else "p1", "") for slot in range(50))
    table = Table((Process("p0", "a:1"), Process("p1", "b:1"), Process("p2", "c:1")), rows)
    moved = Counter(name for name, part in parts(table).items() for _ in part.give)
    assert moved == {"p0": 8, "p1": 8}
    assert spread(after(after(table))) == [17, 17, 16]


def test_a_difference_of_one_moves_nothing() -> None:
    rows = tuple(Row(slot, 1, "p0" if slot < 16 else "p1" if slot < 33 else "p2", "") for slot in range(50))
    table = Table((Process("p0", "a:1"), Process("p1", "b:1"), Process("p2", "c:1")), rows)
    assert after(table) == table
