"""Local state in a compacted topic of Rota's log: restored by the next owner, and never replaced by a late one."""

import random
from collections.abc import Iterator

import pytest

import rota
from rota.stores import (
    NotAssigned,
    OffsetWentBack,
    OwnerReplaced,
    StateUnreadable,
    StoreError,
    StoreFenced,
    TopicStore,
)
from tests.sdk.databases import P0, P1, member
from tests.support.coordinator import QUICK, Coordinator
from tests.support.workdir import workdir

pytestmark = pytest.mark.process

FLAGS = (*QUICK, "--log-retention-check-interval-ms=50", "--log-min-compaction-lag-ms=0")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with workdir("topic-store") as folder:
        coordinator = Coordinator(folder, FLAGS)
        coordinator.start()
        try:
            yield f"rota://{coordinator.address}"
        finally:
            coordinator.stop()


class Owner:
    """A process with a store, and the state that it has in memory."""

    def __init__(self, address: str, topic: str, **settings: float) -> None:
        self.store = TopicStore(address, topic, timeout_s=settings.get("timeout_s", 20), chunk_bytes=50)
        self.store.create_topic(2)

    def close(self) -> None:
        self.store.close()


@pytest.fixture
def owners(address: str, unique_name: str) -> Iterator[list[Owner]]:
    """Two processes that take a partition in turns."""
    both = [Owner(address, unique_name) for _ in range(2)]
    yield both
    for each in both:
        each.close()


def test_the_next_owner_has_state_and_position_of_the_last_transaction(owners: list[Owner]) -> None:
    chance = random.Random(3)
    state: dict[bytes, bytes] = {}
    for generation in range(1, 7):
        store = owners[generation % 2].store
        tenure = store.assign(member(generation), [P0, P1])
        assert store.restore(tenure, P0) == state
        assert tenure.positions[P0] == (None if generation == 1 else (generation - 1) * 10)
        for number in range(10):
            changes = {
                b"%d" % chance.randrange(9): None if chance.random() < 0.2 else chance.randbytes(number * 20)
            }
            with store.transaction(tenure, P0) as tx:
                tx.put(changes)
                tx.save((generation - 1) * 10 + number + 1)
            for key, value in changes.items():
                state.pop(key, None)
                if value is not None:
                    state[key] = value
        assert store.restore(tenure, P1) == {}
    assert len(state) > 3


def test_an_owner_that_was_replaced_writes_nothing(owners: list[Owner]) -> None:
    first, second = (owner.store for owner in owners)
    tenure = first.assign(member(1), [P0])
    with first.transaction(tenure, P0) as tx:
        tx.put({b"a": b"1"})
        tx.save(1)

    def work_while_replaced() -> None:
        with first.transaction(tenure, P0) as tx:
            tx.put({b"a": b"late"})
            tx.save(2)
            second.assign(member(2), [P0])

    with pytest.raises(OwnerReplaced, match="nothing of it was stored") as late:
        work_while_replaced()
    assert isinstance(late.value, StoreFenced)
    later = second.assign(member(2), [P0])
    assert later.positions == {P0: 1}
    with pytest.raises(NotAssigned):
        first.restore(tenure, P0)
    again = first.assign(member(3), [P0])
    assert first.restore(again, P0) == {b"a": b"1"}


def test_a_late_member_cannot_assign_and_the_owner_goes_on_after_it(owners: list[Owner]) -> None:
    late, present = (owner.store for owner in owners)
    tenure = present.assign(member(5), [P0])
    with present.transaction(tenure, P0) as tx:
        tx.put({b"a": b"1"})
    with pytest.raises(StoreFenced) as fenced:
        late.assign(member(4), [P0])
    assert (fenced.value.generation, fenced.value.partition) == (5, P0)
    # The late one has initialized the producer's id; the present owner takes it back.
    with pytest.raises(StoreFenced), present.transaction(tenure, P0) as tx:
        tx.put({b"a": b"2"})
    tenure = present.assign(member(5), [P0])
    assert present.restore(tenure, P0) == {b"a": b"1"}
    with present.transaction(tenure, P0) as tx:
        tx.put({b"a": b"3"})


def test_a_partition_that_stays_is_not_read_again_and_its_fence_rises(owners: list[Owner]) -> None:
    store, other = (owner.store for owner in owners)
    tenure = store.assign(member(1), [P0])
    with store.transaction(tenure, P0) as tx:
        tx.put({b"a": b"1"})
        tx.save(7)
    later = store.assign(member(2), [P0, P1])
    assert later.positions == {P0: 7, P1: None}
    with pytest.raises(StoreError, match="has changed since it was read"):
        store.restore(later, P0)
    with pytest.raises(NotAssigned), store.transaction(tenure, P0):
        pass
    with pytest.raises(StoreFenced):
        other.assign(member(1), [P0])


def test_a_failed_block_stores_nothing(owners: list[Owner], address: str, unique_name: str) -> None:
    store = owners[0].store
    results = f"{unique_name}-results"
    rota.create_topics(address, {results: 1})
    tenure = store.assign(member(1), [P0])
    for fails in (False, True):
        tenure = store.assign(member(1), [P0])
        try:
            with store.transaction(tenure, P0) as tx:
                tx.send(results, b"failed" if fails else b"kept", b"key")
                tx.put({b"a": b"failed" if fails else b"kept"}, name="totals")
                tx.save(2 if fails else 1)
                if fails:
                    raise RuntimeError("the application")
        except RuntimeError:
            assert fails
    tenure = store.assign(member(1), [P0])
    assert tenure.positions == {P0: 1}
    assert store.restore(tenure, P0, name="totals") == {b"a": b"kept"}
    assert store.restore(tenure, P0) == {}
    with rota.LogReader(address, read_committed=True) as reader:
        assert [value for batch in reader.read(results, 0) for value in batch.values] == [b"kept"]
    with pytest.raises(OffsetWentBack), store.transaction(tenure, P0) as tx:
        tx.save(0)
    tenure = store.assign(member(1), [P0])
    with store.transaction(tenure, P0) as tx:
        tx.save(0, rewind=True)
    assert tenure.positions == {P0: 0}


def test_state_is_restored_after_the_topic_was_compacted(
    owners: list[Owner], address: str, unique_name: str
) -> None:
    store, other = (owner.store for owner in owners)
    tenure = store.assign(member(1), [P0])
    state = {b"%d" % number: b"%d" % number * 60 for number in range(20)}
    for _ in range(60):
        with store.transaction(tenure, P0) as tx:
            tx.put(state)
            tx.save(1)

    def left() -> int:
        with rota.LogReader(address, read_committed=True) as reader:
            return sum(len(batch) for batch in reader.read(unique_name, 0))

    written = 60 * (sum(-(-len(value) // 50) for value in state.values()) + 1)
    for _ in range(2_000):
        # Each transaction makes half of the log new at some point.
        with store.transaction(tenure, P0) as tx:
            tx.save(2)
        if left() < written / 2:
            break
    assert left() < written / 2
    later = other.assign(member(2), [P0])
    assert (other.restore(later, P0), later.positions) == (state, {P0: 2})


def test_a_topic_with_too_few_partitions_is_refused(owners: list[Owner]) -> None:
    with pytest.raises(StoreError, match=r"has no partition 2 for the state of orders-2: add partitions"):
        owners[0].store.assign(member(1), [("orders", 2)])


def test_a_transaction_of_another_partition_is_waited_for(
    owners: list[Owner], address: str, unique_name: str
) -> None:
    other = Owner(address, unique_name, timeout_s=1).store
    tenure = owners[0].store.assign(member(1), [P0])
    with owners[0].store.transaction(tenure, P0) as tx:
        tx.put({b"a": b"1"})
        # The same partition of the state topic, of another group.
        open_one = rota.Producer(address, transactional_id=f"{unique_name}-open")
        open_one.init_transactions()
        open_one.begin_transaction()
        open_one.send(unique_name, b"", b"foreign", 0).result(10)
    with pytest.raises(StateUnreadable, match="a transaction is open there"):
        other.assign(member(2), [P0])
    open_one.abort_transaction()
    open_one.close()
    later = other.assign(member(2), [P0])
    assert other.restore(later, P0) == {b"a": b"1"}
    other.close()
