"""Records of local state in a topic: the last one of each key is enough to have the state again."""

import random

import pytest

from rota.stores import StoreError
from rota.stores import state_records as records
from rota.stores.state_records import Entry, Fence, PartitionState

HERE = ("orders", 1)
SCOPE = records.scope_of("sales", HERE)
CHUNK_BYTES = 10


def read(some: list[Entry]) -> PartitionState:
    state = PartitionState(SCOPE, HERE)
    for key, value in some:
        state.apply(key, value)
    return state


def compacted(some: list[Entry]) -> list[Entry]:
    """The last record of each key, in the order of the records."""
    last = dict(some)
    return [(key, last.pop(key)) for key, _ in reversed(some) if key in last][::-1]


def test_the_state_is_the_last_value_of_each_entry_with_and_without_compaction() -> None:
    chance = random.Random(5)
    expected: dict[str, dict[bytes, bytes]] = {"a": {}, "b": {}}
    counts: dict[tuple[str, bytes], int] = {}
    written: list[Entry] = []
    for _ in range(300):
        name = chance.choice(["a", "b"]), b"%d" % chance.randrange(12)
        value = None if chance.random() < 0.2 else chance.randbytes(chance.randrange(45))
        some, counts[name] = records.chunks(SCOPE, name, value, CHUNK_BYTES, counts.get(name, 0))
        written += some
        if value is None:
            expected[name[0]].pop(name[1], None)
        else:
            expected[name[0]][name[1]] = value
        for left in (written, compacted(written)):
            state = read(left)
            found = records.states_of(state)
            assert {kind: found.get(kind, {}) for kind in expected} == expected
            assert state.counts() == {name: count for name, count in counts.items() if count}


def test_fence_and_position_are_those_that_were_written_last() -> None:
    owner = Fence(3, 7, "member-ü")
    state = read(
        [
            records.fence(SCOPE, Fence(3, 6, "other")),
            records.position(SCOPE, 5),
            records.fence(SCOPE, owner),
            records.position(SCOPE, 12),
        ]
    )
    assert (state.fence, state.next_offset) == (owner, 12)
    assert (read([]).fence, read([]).next_offset) == (None, None)


@pytest.mark.parametrize(
    ("group", "partition"), [("sale", ("orders", 1)), ("sales", ("order", 1)), ("sales", ("orders", 2))]
)
def test_records_of_others_and_of_later_versions_are_passed_over(
    group: str, partition: tuple[str, int]
) -> None:
    other = records.scope_of(group, partition)
    some, _ = records.chunks(other, ("a", b"key"), b"value", CHUNK_BYTES, 0)
    state = read(
        [*some, records.fence(other, Fence(1, 1, "m")), records.position(other, 1), (b"z" + SCOPE, b"?")]
    )
    state.apply(None, b"value")
    assert (state.fence, state.next_offset, records.states_of(state)) == (None, None, {})


def test_an_entry_without_all_of_its_chunks_is_refused() -> None:
    some, count = records.chunks(SCOPE, ("a", b"key"), bytes(35), CHUNK_BYTES, 0)
    assert count == 4
    for missing in range(4):
        state = read([entry for number, entry in enumerate(some) if number != missing])
        with pytest.raises(StoreError, match=r"state 'a' of partition orders-1 .* chunks are missing"):
            records.states_of(state)


def test_keys_and_values_have_a_limit() -> None:
    for key, value in ((bytes(records.KEY_BYTES_MAX + 1), b""), (b"", bytes(records.ENTRY_BYTES_MAX + 1))):
        with pytest.raises(StoreError, match="split it over several keys"):
            records.chunks(SCOPE, ("a", key), value, CHUNK_BYTES, 0)
