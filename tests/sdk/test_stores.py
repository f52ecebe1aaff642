"""Results and offsets are one transaction, behind whatever connection; a late owner's is not kept."""

import pytest

from rota import GroupMetadata, OffsetAndMetadata, TopicPartition
from rota.stores import (
    Dialect,
    NotAssigned,
    OffsetWentBack,
    PositionMoved,
    SqlStore,
    StoreError,
    StoreFenced,
    Tenure,
    TransactionLost,
)
from tests.sdk.databases import GROUP, P0, P1, Database, Owner, member

# The fixture `database` is in the tier of pytest.mark.process where it is PostgreSQL.


def test_results_and_offsets_are_kept_together(application: Database, owner: Owner) -> None:
    tenure = owner.store.assign(member(1), [P0, P1])
    assert tenure.positions == {P0: None, P1: None}

    with owner.store.transaction(tenure) as tx:
        owner.do(application.put("a", 1))
        tx.save({TopicPartition(*P0): OffsetAndMetadata(10, "noon")})
        tx.save({P1: 20})

    assert application.results == {"a": 1}
    assert application.offsets == {P0: 10, P1: 20} == tenure.positions
    assert owner.store.stored_offsets(GROUP) == {P0: 10, P1: 20}
    beside = application.ask(f"SELECT metadata FROM {application.prefix}offsets ORDER BY partition")
    assert beside == [("noon",), ("",)]


def test_the_next_owner_goes_on_where_the_last_one_has_committed(application: Database, owner: Owner) -> None:
    with owner.store.transaction(owner.store.assign(member(1), [P0])) as tx:
        tx.save({P0: 10})

    assert application.owner().store.assign(member(2), [P0, P1]).positions == {P0: 10, P1: None}


def test_nothing_is_kept_of_a_block_that_fails(application: Database, owner: Owner) -> None:
    tenure = owner.store.assign(member(1), [P0])

    def fail(error: BaseException) -> None:
        with owner.store.transaction(tenure) as tx:
            owner.do(application.put("a", 1))
            tx.save({P0: 10})
            raise error

    with pytest.raises(ValueError, match="unreadable"):
        fail(ValueError("unreadable record"))
    with pytest.raises(KeyboardInterrupt):
        fail(KeyboardInterrupt())

    assert (application.results, application.offsets, tenure.positions) == ({}, {}, {P0: None})
    owner.batch(tenure, {P0: 10}, application.put("a", 1))
    assert application.results == {"a": 1}


def test_a_late_owner_gets_the_current_owner_and_the_remedy(application: Database, owner: Owner) -> None:
    late = owner.store.assign(member(12), [P0])
    application.owner().store.assign(member(13), [P0])

    with pytest.raises(StoreFenced) as refused:
        owner.batch(late, {P0: 10}, application.put("a", 1))

    assert str(refused.value) == (
        "partition orders-0 of group sales belongs to member member-1-13 of (incarnation 1, generation 13), and this "
        "is member member-1-12 of (incarnation 1, generation 12): discard the batch, nothing of it was stored; this member is no "
        "longer the owner"
    )
    assert (refused.value.partition, refused.value.incarnation, refused.value.generation) == (P0, 1, 13)
    assert (application.results, application.offsets) == ({}, {})


def test_a_late_owner_is_fenced_whatever_its_batch_failed_with(application: Database, owner: Owner) -> None:
    late, newer = owner.store.assign(member(1), [P0]), application.owner()
    with newer.store.transaction(newer.store.assign(member(2), [P0])) as tx:
        newer.do(application.put("a", 1))
        tx.save({P0: 10})

    with pytest.raises(StoreFenced) as refused, owner.store.transaction(late):
        owner.do(application.put("a", 1))  # the other has written it already

    assert refused.value.__cause__ is not None
    assert "UNIQUE" in str(refused.value.__cause__).upper()


def test_a_late_owner_cannot_raise_its_fence(application: Database, owner: Owner) -> None:
    owner.store.assign(member(13), [P0])

    with pytest.raises(StoreFenced):
        application.owner().store.assign(member(12), [P0, P1])

    # Not for the partition that was free either.
    assert application.ask(f"SELECT partition, generation FROM {application.prefix}offsets") == [(0, 13)]


@pytest.mark.parametrize(
    ("older", "newer"), [((1, 9), (2, 1)), ((1, 9), (1, 10)), ((1, 2**31 - 1), (2**40, 0))]
)
def test_a_group_that_was_born_again_is_newer_whatever_its_generation(
    application: Database, owner: Owner, older: tuple[int, int], newer: tuple[int, int]
) -> None:
    late = owner.store.assign(member(older[1], incarnation=older[0]), [P0])
    other = application.owner()
    tenure = other.store.assign(member(newer[1], incarnation=newer[0]), [P0])

    with pytest.raises(StoreFenced):
        owner.store.assign(late.group, [P0])
    with pytest.raises(StoreFenced):
        owner.batch(late, {P0: 10})
    other.batch(tenure, {P0: 5})

    assert application.offsets == {P0: 5}


def test_a_restarted_static_member_replaces_itself_in_the_same_generation(
    application: Database, owner: Owner
) -> None:
    former = owner.store.assign(member(3, name="before"), [P0])
    other = application.owner()
    back = other.store.assign(member(3, name="after"), [P0])

    with pytest.raises(StoreFenced, match="member after of"):
        owner.batch(former, {P0: 10})
    other.batch(back, {P0: 7})

    assert application.offsets == {P0: 7}


def test_only_the_partitions_of_the_batch_are_looked_at(application: Database, owner: Owner) -> None:
    tenure = owner.store.assign(member(1), [P0, P1])
    application.owner().store.assign(member(2), [P1])

    owner.batch(tenure, {P0: 10})
    with pytest.raises(StoreFenced), owner.store.transaction(tenure) as tx:
        tx.save({P0: 11, P1: 1})

    assert application.offsets == {P0: 10}


def test_a_batch_that_saves_no_offset_is_refused_for_any_partition(
    application: Database, owner: Owner
) -> None:
    tenure = owner.store.assign(member(1), [P0, P1])
    application.owner().store.assign(member(2), [P1])

    with pytest.raises(StoreFenced), owner.store.transaction(tenure):
        owner.do(application.put("a", 1))

    assert application.results == {}


def test_an_offset_goes_back_only_when_that_is_said(application: Database, owner: Owner) -> None:
    tenure = owner.store.assign(member(1), [P0])
    owner.batch(tenure, {P0: 10})

    with pytest.raises(OffsetWentBack, match=r"offset 9 .* below the stored offset 10"):
        owner.batch(tenure, {P0: 9}, application.put("a", 1))
    assert (application.offsets, application.results) == ({P0: 10}, {})

    with owner.store.transaction(tenure) as tx:
        tx.save({P0: 9}, rewind=True)
    owner.batch(tenure, {P0: 9})
    assert application.offsets == {P0: 9} == tenure.positions


def test_a_commit_whose_answer_was_lost_is_not_done_twice(application: Database, owner: Owner) -> None:
    first = owner.store.assign(member(1), [P0])
    unknown = Tenure(first.group, dict(first.positions))
    owner.batch(first, {P0: 10}, application.put("a", 1))

    with pytest.raises(PositionMoved, match=r"offset 10 .* left no offset"):
        owner.batch(unknown, {P0: 10}, application.put("b", 1))

    assert application.results == {"a": 1}
    assert owner.store.assign(member(1), [P0]).positions == {P0: 10}


def test_a_partition_that_was_not_assigned_is_refused(application: Database, owner: Owner) -> None:
    tenure = owner.store.assign(member(1), [P0])

    with pytest.raises(NotAssigned, match="orders-1"):
        owner.batch(tenure, {P1: 10})
    application.ask(f"DELETE FROM {application.prefix}offsets")
    with pytest.raises(NotAssigned, match="orders-0"):
        owner.batch(tenure, {P0: 10})

    assert application.offsets == {}


def test_a_new_generation_needs_a_new_assignment(owner: Owner) -> None:
    positions = owner.store.assign(member(1), [P0]).positions

    with pytest.raises(NotAssigned), owner.store.transaction(Tenure(member(2), positions)) as tx:
        tx.save({P0: 10})


def test_a_failure_that_the_application_swallows_does_not_lose_results_in_silence(
    application: Database, owner: Owner
) -> None:
    application.ask(application.put("twice", 1))
    tenure = owner.store.assign(member(1), [P0])

    def swallow() -> None:
        with owner.store.transaction(tenure) as tx:
            owner.do(application.put("a", 1))
            with pytest.raises(Exception, match=r"(?i)unique"):
                owner.do(application.break_off)
            tx.save({P0: 10})

    with pytest.raises(TransactionLost, match="let SQL errors"):
        swallow()

    assert (application.results, application.offsets) == ({"twice": 1}, {})


def test_a_key_is_not_claimed_behind_a_failure_that_was_swallowed(
    application: Database, owner: Owner
) -> None:
    application.ask(application.put("twice", 1))
    tenure = owner.store.assign(member(1), [P0])

    def swallow() -> None:
        with owner.store.transaction(tenure) as tx:
            with pytest.raises(Exception, match=r"(?i)unique"):
                owner.do(application.break_off)
            tx.set_if_absent("order-1")

    with pytest.raises(TransactionLost):
        swallow()

    assert application.ask(f"SELECT key FROM {application.prefix}keys") == []


def test_a_commit_inside_the_block_raises(application: Database, owner: Owner) -> None:
    tenure = owner.store.assign(member(1), [P0])

    with pytest.raises(TransactionLost, match="do not commit"):
        owner.batch(tenure, {P0: 10}, "COMMIT")

    assert application.offsets == {}


def test_a_batch_inside_a_batch_is_refused(application: Database, owner: Owner) -> None:
    tenure = owner.store.assign(member(1), [P0])

    with owner.store.transaction(tenure) as tx:
        with pytest.raises(StoreError, match="leave its block first"), owner.store.transaction(tenure):
            pass
        tx.save({P0: 10})

    assert application.offsets == {P0: 10}


def test_what_a_transaction_is_to_keep_is_asked_for_inside_its_block(owner: Owner) -> None:
    tenure = owner.store.assign(member(1), [P0])
    with owner.store.transaction(tenure) as tx:
        tx.save({P0: 10})

    with pytest.raises(StoreError, match="has ended"):
        tx.save({P0: 11})
    with pytest.raises(StoreError, match="has ended"):
        tx.set_if_absent("key")


def test_what_is_no_offset_is_refused(owner: Owner) -> None:
    tenure = owner.store.assign(member(1), [P0])

    with owner.store.transaction(tenure) as tx:
        with pytest.raises(StoreError, match="-1 is not an offset"):
            tx.save({P0: -1})
        with pytest.raises(StoreError, match="the limit is 4096"):
            tx.save({P0: OffsetAndMetadata(1, "x" * 4097)})


def test_many_partitions_are_assigned_and_saved_at_once(application: Database, owner: Owner) -> None:
    partitions = [(f"topic-{number % 3}", number) for number in range(250)]
    tenure = owner.store.assign(member(1), partitions)
    offsets = {partition: 7 + partition[1] for partition in partitions}

    with owner.store.transaction(tenure) as tx:
        tx.save(offsets)

    assert application.offsets == offsets
    assert application.owner().store.assign(member(2), reversed(partitions)).positions == offsets
    with pytest.raises(StoreFenced), owner.store.transaction(tenure) as tx:
        tx.save({partitions[-1]: 1000})


def test_tables_that_are_there_are_left_alone(application: Database, owner: Owner) -> None:
    with owner.store.transaction(owner.store.assign(member(1), [P0])) as tx:
        tx.save({P0: 10})

    application.owner().store.create_tables()

    assert application.offsets == {P0: 10}


def test_who_has_no_generation_cannot_be_fenced(owner: Owner) -> None:
    alone = GroupMetadata(group_id=GROUP, incarnation=0, generation_id=-1, member_id="")

    with pytest.raises(StoreError, match="assigned no generation"):
        owner.store.assign(alone, [P0])


def test_tables_of_another_name_or_database_are_refused_with_a_message() -> None:
    class Unknown:
        pass

    with pytest.raises(StoreError, match="is not a valid prefix"):
        SqlStore(Unknown(), prefix="x; DROP", dialect=Dialect.SQLITE, paramstyle="qmark")
    with pytest.raises(StoreError, match="the SQL dialect of tests is unknown"):
        SqlStore(Unknown())
    with pytest.raises(StoreError, match=r"the paramstyle of .* is unknown"):
        SqlStore(Unknown(), dialect=Dialect.POSTGRESQL)
