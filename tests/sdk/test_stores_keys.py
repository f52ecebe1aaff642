"""De-duplication by unique key: a key is claimed once, with the transaction that claims it."""

import pytest

from rota.metadata import GroupMetadata
from rota.stores import StoreError, StoreFenced
from tests.sdk.databases import P0, Database, Owner, member

# The fixture `database` is in the tier of pytest.mark.process where it is PostgreSQL.


def keys(application: Database) -> set[str]:
    return {key for (key,) in application.ask(f"SELECT key FROM {application.prefix}keys")}


def test_a_key_is_new_once(owner: Owner) -> None:
    tenure = owner.store.assign(member(1), [P0])

    with owner.store.transaction(tenure) as tx:
        assert tx.set_if_absent("order-1")
        assert not tx.set_if_absent("order-1")
        tx.save({P0: 1})
    with owner.store.transaction(tenure) as tx:
        assert not tx.set_if_absent("order-1")
        assert tx.set_each_if_absent(["order-2", "order-1", "order-3", "order-2"]) == {"order-2", "order-3"}


def test_many_keys_are_claimed_at_once(application: Database, owner: Owner) -> None:
    wanted = {f"order-{number}" for number in range(250)}

    with owner.store.transaction(owner.store.assign(member(1), [P0])) as tx:
        assert tx.set_if_absent("order-249")
        assert tx.set_each_if_absent(wanted) == wanted - {"order-249"}
        assert tx.set_each_if_absent([]) == set()

    assert keys(application) == wanted


def test_a_key_is_free_again_when_its_transaction_is_not_kept(application: Database, owner: Owner) -> None:
    late = owner.store.assign(member(1), [P0])
    other = application.owner()
    tenure = other.store.assign(member(2), [P0])

    def claim() -> None:
        with owner.store.transaction(late) as tx:
            assert tx.set_if_absent("order-1")

    with pytest.raises(StoreFenced):
        claim()

    assert keys(application) == set()
    with other.store.transaction(tenure) as tx:
        assert tx.set_if_absent("order-1")


def test_groups_have_keys_of_their_own(application: Database, owner: Owner) -> None:
    other = GroupMetadata(group_id="stock", incarnation=1, generation_id=1, member_id="m")

    for group in (member(1), other):
        with owner.store.transaction(owner.store.assign(group, [P0])) as tx:
            assert tx.set_if_absent("order-1")

    assert application.ask(f"SELECT COUNT(*) FROM {application.prefix}keys") == [(2,)]


def test_a_key_that_has_expired_is_absent_and_can_be_pruned(application: Database, owner: Owner) -> None:
    tenure = owner.store.assign(member(1), [P0])

    with owner.store.transaction(tenure) as tx:
        for key in ("over", "over-2", "over-3"):
            assert tx.set_if_absent(key, expires_in_seconds=0)
        assert tx.set_if_absent("lives", expires_in_seconds=3600)
        assert tx.set_if_absent("for-ever")
    with owner.store.transaction(tenure) as tx:
        assert tx.set_if_absent("over", expires_in_seconds=3600)
        assert not tx.set_if_absent("over")
        assert not tx.set_if_absent("lives")
        assert not tx.set_if_absent("for-ever")

    assert owner.store.prune_keys(limit=1) == 1
    assert owner.store.prune_keys() == 1
    assert owner.store.prune_keys() == 0
    assert keys(application) == {"over", "lives", "for-ever"}


def test_a_key_that_no_index_can_hold_is_refused(application: Database, owner: Owner) -> None:
    tenure = owner.store.assign(member(1), [P0])

    with owner.store.transaction(tenure) as tx:
        with pytest.raises(StoreError, match="exceeds 1024 bytes"):
            tx.set_if_absent("ü" * 513)
        assert tx.set_if_absent("ü" * 512)

    assert keys(application) == {"ü" * 512}
