"""Sidecars look up offsets that the operator cannot: rarely, in bounded queries, and never one that does not answer before another one."""

from collections.abc import Collection, Mapping, Sequence

import pytest

from rota_operator.overview.assignment import Partition
from rota_operator.overview.offset_lookups import (
    ALL_PARTITIONS,
    KINDS,
    LISTING_INTERVAL_MS,
    LISTING_RETRY_MS,
    LOOKUP_INTERVAL_MS,
    PARTITIONS_MAX,
    QUERY_INTERVAL_MS,
    SIDECAR_RETRY_MS,
    FoundOffsets,
    OffsetLookups,
    OffsetQuery,
)
from rota_operator.overview.offsets import PartitionOffsets
from rota_proto.fleet.v1 import fleet_pb2 as pb

COMMITTED, START, END = KINDS
NO_ANSWER = pb.OrderAnswer(error="a did not answer within 25 s; see its log")
REFUSED = pb.OrderAnswer(order_id=1, error="the query covers 9000 partitions")


def orders(number: int) -> Partition:
    return Partition("orders", number)


def answer(offsets: Mapping[Partition, int], failed: Collection[Partition] = ()) -> pb.OrderAnswer:
    return pb.OrderAnswer(
        order_id=1,
        offsets=[
            pb.PartitionOffset(topic=each.topic, partition=each.number, offset=offset)
            for each, offset in offsets.items()
        ],
        errors=[pb.PartitionError(topic=each.topic, partition=each.number, message="-") for each in failed],
    )


class Group:
    """The lookups of one group, its connected sidecars and its partitions without an owner."""

    def __init__(self, *sidecars: str, unowned: Collection[Partition] = ()) -> None:
        self.lookups = OffsetLookups()
        self.sidecars = sidecars
        self.unowned = unowned
        self.now_ms = 0

    def ask(self) -> OffsetQuery | None:
        return self.lookups.next(self.sidecars, self.unowned, self.now_ms)

    def expect(self) -> OffsetQuery:
        """Return the next query, whenever it is sent."""
        for _ in range(60):
            if (query := self.ask()) is not None:
                return query
            self.now_ms += 1_000
        raise AssertionError("nothing is asked within a minute")

    def answer(self, query: OffsetQuery, given: pb.OrderAnswer) -> FoundOffsets | None:
        return self.lookups.answered(query, given, self.now_ms)

    def look_up(self, *answers: pb.OrderAnswer) -> tuple[Sequence[OffsetQuery], FoundOffsets]:
        """Answer the queries of one lookup, by default with nothing; returns them and the result."""
        queries, found = [], None
        for given in answers or [answer({})] * len(KINDS):
            queries.append(self.expect())
            found = self.answer(queries[-1], given)
        assert found is not None
        return queries, found


def test_a_listing_asks_for_committed_offsets_starts_and_ends_of_all_partitions_in_this_order() -> None:
    group = Group("a")
    queries, found = group.look_up(
        answer({orders(0): 4}), answer({orders(0): 1, orders(1): 0}), answer({orders(0): 9, orders(1): 7})
    )
    assert [(each.kind, each.partitions) for each in queries] == [(kind, ()) for kind in KINDS]
    offsets = {orders(0): PartitionOffsets(4, 1, 9), orders(1): PartitionOffsets(None, 0, 7)}
    assert found == FoundOffsets(offsets, is_complete=True)
    assert found.has_committed


def test_queries_of_a_group_keep_their_distance_and_one_is_under_way_at_a_time() -> None:
    group = Group("a", "b")
    query = group.expect()
    group.now_ms += QUERY_INTERVAL_MS
    assert group.ask() is None
    group.answer(query, answer({}))
    started_ms = group.now_ms
    assert group.ask() is not None
    group = Group("a", "b")
    group.answer(group.expect(), answer({}))
    group.now_ms += QUERY_INTERVAL_MS - 1
    assert group.ask() is None
    group.now_ms += 1
    assert group.ask() is not None
    assert group.now_ms == started_ms


def test_without_a_connected_sidecar_nothing_is_asked() -> None:
    assert Group(unowned=[orders(0)]).ask() is None


def test_while_all_partitions_have_owners_only_the_next_listing_is_asked_for() -> None:
    group = Group("a")
    group.look_up()
    listed_ms = group.now_ms
    assert group.expect().partitions == ()
    assert LISTING_INTERVAL_MS <= group.now_ms - listed_ms <= LISTING_INTERVAL_MS + QUERY_INTERVAL_MS


def test_partitions_without_an_owner_are_looked_up_again_between_two_listings() -> None:
    group = Group("a", unowned=[orders(0)])
    offsets = {orders(0): 5}
    group.look_up(*[answer(offsets)] * 3)
    listed_ms = group.now_ms
    queries, found = group.look_up(*[answer({**offsets, orders(1): 9})] * 3)
    assert [(each.kind, each.partitions) for each in queries] == [(kind, (orders(0),)) for kind in KINDS]
    assert found == FoundOffsets({orders(0): PartitionOffsets(5, 5, 5)})
    assert group.now_ms - listed_ms >= LOOKUP_INTERVAL_MS


def test_a_query_has_a_bounded_number_of_partitions_and_the_rest_comes_next() -> None:
    group = Group("a")
    group.look_up()
    group.unowned = [orders(number) for number in range(PARTITIONS_MAX + 3)]
    first, _ = group.look_up()
    second, _ = group.look_up()
    assert [len(each[0].partitions) for each in (first, second)] == [PARTITIONS_MAX, 3]
    assert {*first[0].partitions, *second[0].partitions} == {*group.unowned}


def test_the_request_names_the_partitions_by_topic() -> None:
    query = OffsetQuery("a", END, (orders(0), orders(2), Partition("payments", 1)))
    named = pb.QueryOffsets(
        what=END,
        topics=[
            pb.TopicPartitions(topic="orders", partitions=[0, 2]),
            pb.TopicPartitions(topic="payments", partitions=[1]),
        ],
    )
    assert query.request() == named
    assert OffsetQuery("a", START).request() == pb.QueryOffsets(what=START)


def test_sidecars_are_asked_in_turn() -> None:
    group = Group("a", "b", "c")
    queries, _ = group.look_up()
    assert [each.sidecar for each in queries] == ["a", "b", "c"]


@pytest.mark.parametrize("failure", [NO_ANSWER, REFUSED], ids=["no answer", "refused"])
def test_a_sidecar_that_fails_is_not_asked_again_before_another_one(failure: pb.OrderAnswer) -> None:
    group = Group("a", "b")
    asked = []
    for _ in range(4):
        query = group.expect()
        asked.append(query.sidecar)
        assert group.answer(query, failure) is None
    assert asked == ["a", "b", "a", "b"]
    group.sidecars = ("a", "b", "c")
    assert group.expect().sidecar == "c"


def test_the_others_are_asked_as_long_as_they_answer() -> None:
    group = Group("a", "b")
    group.answer(group.expect(), NO_ANSWER)
    queries, _ = group.look_up()
    group.unowned = [orders(0)]
    again, _ = group.look_up()
    assert {each.sidecar for each in (*queries, *again)} == {"b"}


def test_the_only_sidecar_is_left_alone_for_a_while_after_it_did_not_answer() -> None:
    group = Group("a")
    group.answer(group.expect(), NO_ANSWER)
    failed_ms = group.now_ms
    assert group.expect().kind == COMMITTED
    assert group.now_ms - failed_ms >= SIDECAR_RETRY_MS


def test_a_lookup_that_failed_half_way_begins_anew() -> None:
    group = Group("a", "b")
    group.answer(group.expect(), answer({orders(0): 4}))
    failed = group.expect()
    assert failed.kind == START
    group.answer(failed, NO_ANSWER)
    queries, found = group.look_up(*[answer({orders(0): 6})] * 3)
    assert [each.kind for each in queries] == list(KINDS)
    assert found.offsets == {orders(0): PartitionOffsets(6, 6, 6)}


def test_a_listing_that_is_refused_holds_up_no_partitions() -> None:
    group = Group("a", unowned=[orders(0)])
    group.answer(group.expect(), REFUSED)
    queries, found = group.look_up(*[answer({orders(0): 6})] * 3)
    assert queries[0].partitions == (orders(0),)
    assert found.offsets.keys() == {orders(0)}
    refused_ms = group.now_ms
    assert group.expect().partitions == ()
    assert group.now_ms - refused_ms <= LISTING_RETRY_MS


def test_partitions_that_a_sidecar_refuses_come_after_the_others() -> None:
    group = Group("a")
    group.look_up()
    group.unowned = [orders(number) for number in range(PARTITIONS_MAX + 1)]
    group.answer(group.expect(), REFUSED)
    assert group.expect().partitions == (orders(PARTITIONS_MAX),)


def test_a_late_answer_changes_nothing() -> None:
    group = Group("a", "b")
    late = group.expect()
    group.answer(late, NO_ANSWER)
    query = group.expect()
    assert group.answer(late, answer({orders(0): 4})) is None
    assert group.answer(query, answer({})) is None
    assert group.expect().kind == START


def test_partitions_that_no_longer_exist_are_missing_in_a_listing() -> None:
    gone = Partition("payments", 0)
    group = Group("a", unowned=[orders(0), orders(1), gone])
    there = answer({orders(0): 3}, [Partition("payments", ALL_PARTITIONS)])
    _, found = group.look_up(there, there, there)
    assert found.missing == {orders(1), gone}
    assert found.is_complete


def test_a_partition_that_failed_is_unknown_and_neither_zero_nor_missing() -> None:
    group = Group("a", unowned=[orders(0), orders(1)])
    there = {orders(0): 3, orders(1): 3}
    _, found = group.look_up(answer({orders(0): 3}, [orders(1)]), answer(there), answer(there))
    assert found.offsets[orders(1)] == PartitionOffsets(None, 3, 3)
    assert found.offsets[orders(1)].lag_records is None
    assert (found.missing, found.is_complete) == (frozenset(), False)
    _, found = group.look_up(*[answer({orders(0): 3}, [orders(1)])] * 3)
    assert found.offsets.keys() == {orders(0)}
    assert found.missing == frozenset()


def test_a_listing_without_any_partition_is_not_complete() -> None:
    _, found = Group("a").look_up()
    assert not found.is_complete


def test_nothing_committed_is_known_from_a_complete_listing() -> None:
    _, found = Group("a").look_up(answer({}), answer({orders(0): 0}), answer({orders(0): 8}))
    assert (found.is_complete, found.has_committed) == (True, False)
