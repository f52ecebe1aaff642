"""Callbacks of a consumer's listener and their order, over a group in memory."""

import pytest
from typing_extensions import override

import rota
from rota.consumer.listeners import Partitions
from rota.testing import Group
from tests.sdk.consumer.reading import P0, P1, SOON_MS, WAIT_MS, Listener, fill, offsets, read
from tests.support.processes import wait_for


def test_revoked_partitions_are_reported_before_assigned_ones(group: Group) -> None:
    fill(group, 2)
    listener = Listener()
    consumer = group.consumer()
    consumer.subscribe("orders", listener=listener)
    read(consumer, 2)
    group.take_away(P0)
    group.give_back(P0)
    consumer.poll(timeout_ms=SOON_MS)
    consumer.poll(timeout_ms=SOON_MS)
    assert listener.calls == [("assigned", (P0, P1)), ("revoked", (P0,)), ("assigned", (P0,))]


def test_a_listener_commits_what_is_revoked(group: Group) -> None:
    fill(group, 4)
    consumer = group.consumer(enable_auto_commit=False)

    class Committing(rota.RebalanceListener):
        @override
        def on_partitions_revoked(self, partitions: Partitions) -> None:
            assert set(partitions) <= consumer.assignment()
            consumer.commit()

    consumer.subscribe("orders", listener=Committing())
    read(consumer, 4)
    group.take_away(P0)
    consumer.poll(timeout_ms=SOON_MS)
    assert group.committed[P0] == 4
    assert consumer.assignment() == {P1}


def test_auto_commit_covers_what_is_revoked_and_nothing_comes_twice(group: Group) -> None:
    fill(group, 4)
    consumer = group.consumer("orders", max_poll_records=3)
    assert offsets(read(consumer, 3)) == [0, 1, 2]
    group.take_away(P0)
    assert consumer.poll(timeout_ms=SOON_MS) == {}
    assert group.committed[P0] == 3
    group.give_back(P0)
    assert offsets(read(consumer, 1)) == [3]


def test_a_group_is_rewound_in_the_listener(group: Group) -> None:
    fill(group, 4)
    fill(group, 4, partition=1)
    first = group.consumer("orders")
    read(first, 8)
    first.close()
    consumer = group.consumer()

    class Rewind(rota.RebalanceListener):
        @override
        def on_partitions_assigned(self, partitions: Partitions) -> None:
            assert [consumer.position(each) for each in partitions] == [4, 4]
            consumer.seek_to_beginning(*partitions)

    consumer.subscribe("orders", listener=Rewind())
    assert sorted(offsets(read(consumer, 8))) == sorted([*range(4), *range(4)])


def test_lost_partitions_are_reported_as_lost(group: Group) -> None:
    fill(group, 2)
    listener = Listener()
    consumer = group.consumer()
    consumer.subscribe("orders", listener=listener)
    read(consumer, 2)
    group.lose(P0)
    consumer.poll(timeout_ms=SOON_MS)
    assert listener.calls[-1] == ("lost", (P0,))


def test_who_does_not_poll_before_the_deadline_has_lost_its_partitions(group: Group) -> None:
    fill(group, 2)
    listener = Listener()
    consumer = group.consumer()
    consumer.subscribe("orders", listener=listener)
    read(consumer, 2)
    group.take_away(P0)
    group.expire()
    consumer.poll(timeout_ms=SOON_MS)
    assert listener.calls[-1] == ("lost", (P0,))


def test_a_listener_that_fails_is_called_again_and_nothing_is_returned_before(group: Group) -> None:
    fill(group, 2)
    calls: list[int] = []

    class Failing(rota.RebalanceListener):
        @override
        def on_partitions_assigned(self, partitions: Partitions) -> None:
            calls.append(len(partitions))
            if len(calls) == 1:
                raise ValueError("not yet")

    consumer = group.consumer()
    consumer.subscribe("orders", listener=Failing())
    with pytest.raises(ValueError, match="not yet"):
        consumer.poll(timeout_ms=WAIT_MS)
    assert offsets(read(consumer, 2)) == [0, 1]
    assert calls == [2, 2]


class Committing(rota.RebalanceListener):
    """A typical listener: it commits revoked partitions, and ignores lost ones."""

    def __init__(self, consumer: rota.Consumer) -> None:
        self._consumer = consumer

    @override
    def on_partitions_revoked(self, partitions: Partitions) -> None:
        self._consumer.commit()


def test_a_listener_that_commits_what_goes_commits_nothing_of_what_is_lost(group: Group) -> None:
    fill(group, 2)
    fill(group, 2, partition=1)
    consumer = group.consumer(enable_auto_commit=False)
    consumer.subscribe("orders", listener=Committing(consumer))
    read(consumer, 4)
    group.lose(P0)
    assert consumer.poll(timeout_ms=SOON_MS) == {}
    assert group.committed == {P1: 2}


def test_a_lost_partition_is_reported_once_even_if_the_listener_fails(group: Group) -> None:
    class Failing(rota.RebalanceListener):
        @override
        def on_partitions_lost(self, partitions: Partitions) -> None:
            raise ValueError("it fails")

    fill(group, 2)
    consumer = group.consumer()
    consumer.subscribe("orders", listener=Failing())
    read(consumer, 2)
    group.lose(P0)
    with pytest.raises(ValueError, match="it fails"):
        consumer.poll(timeout_ms=SOON_MS)
    assert consumer.poll(timeout_ms=SOON_MS) == {}
    assert consumer.assignment() == {P1}


@pytest.mark.parametrize("ends", ["close", "unsubscribe"])
def test_partitions_lost_before_close_are_distinguished_from_revoked_ones(group: Group, ends: str) -> None:
    class Both(Listener):
        @override
        def on_partitions_revoked(self, partitions: Partitions) -> None:
            super().on_partitions_revoked(partitions)
            consumer.commit()

    fill(group, 2)
    fill(group, 2, partition=1)
    listener = Both()
    consumer = group.consumer(enable_auto_commit=False)
    consumer.subscribe("orders", listener=listener)
    read(consumer, 4)
    group.lose(P0)
    wait_for(
        "the consumer hears of it",
        lambda: consumer._engine.core.next_rebalance() is not None,
        within_s=WAIT_MS / 1000,
    )
    getattr(consumer, ends)()
    assert listener.calls[1:] == [("lost", (P0,)), ("revoked", (P1,))]
    assert group.committed == {P1: 2}


@pytest.mark.parametrize("goes", ["take_away", "lose"])
def test_a_partition_that_goes_during_its_callback_may_still_be_sought_and_paused(
    group: Group, goes: str
) -> None:
    fill(group, 6)
    consumer = group.consumer(enable_auto_commit=False)

    class Rewinding(Listener):
        @override
        def on_partitions_assigned(self, partitions: Partitions) -> None:
            super().on_partitions_assigned(partitions)
            if P0 in partitions and not group.committed:
                getattr(group, goes)(P0)
                consumer.pause(P0)
                consumer.seek(P0, 3)
                assert consumer.position(P0) == 3
                consumer.resume(P0)

        @override
        def on_partitions_revoked(self, partitions: Partitions) -> None:
            super().on_partitions_revoked(partitions)
            consumer.commit()

    listener = Rewinding()
    consumer.subscribe("orders", listener=listener)
    consumer.poll(timeout_ms=SOON_MS)
    consumer.poll(timeout_ms=SOON_MS)
    assert listener.calls == [("assigned", (P0, P1)), ("revoked" if goes == "take_away" else "lost", (P0,))]
    assert group.committed == ({P0: 3} if goes == "take_away" else {})
