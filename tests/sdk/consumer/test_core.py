"""The consumer's core: what is told, what is returned, what is finished. No IO, every order of things."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from rota.consumer.batch_slice import BatchSlice
from rota.consumer.core import Core, FinishedRange, Rebalance, RebalanceKind, Tenure
from rota.records import Headers, TopicPartition

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
ROOM = 100


class Column:
    """A batch whose values are the offsets as decimal text."""

    def __init__(self, first: int, count: int) -> None:
        self.values: Sequence[bytes | None] = [b"%d" % offset for offset in range(first, first + count)]
        self.keys: Sequence[bytes | None] = [None] * count
        self.timestamps_ms = [0] * count
        self.headers: Sequence[Headers] = [()] * count


def batch_slice(partition: TopicPartition, first: int, count: int, delivery_epoch: int = 1) -> BatchSlice:
    return BatchSlice(
        partition, delivery_epoch, Column(first, count), range(first, first + count), size=count
    )


def tenure(number: int) -> Tenure:
    return Tenure(number, "member", number, 1)


def event(number: int, kind: RebalanceKind, *partitions: TopicPartition, generation: int = 1) -> Rebalance:
    return Rebalance(number, kind, partitions, tenure(generation))


def assigned(*partitions: TopicPartition) -> Core:
    """A core that was told to have these, in tenure 1."""
    core = Core(ROOM)
    core.on_rebalance(event(1, RebalanceKind.ASSIGNED, *partitions))
    deliver_rebalance(core)
    return core


def deliver_rebalance(core: Core) -> Rebalance:
    due = core.next_rebalance()
    assert due is not None
    core.begin_rebalance(due, {})
    core.end_rebalance(due)
    return due


def offsets(slices: Sequence[BatchSlice]) -> list[int]:
    return [offset for each in slices for offset in range(each.base_offset, each.next_offset)]


def test_a_part_of_a_batch_keeps_the_number_of_its_deliveries() -> None:
    whole = batch_slice(TopicPartition("orders", 0), 0, 5)
    whole.deliveries = 4
    assert [record.deliveries for record in whole.between(1, 3)] == [4, 4]


def test_nothing_is_kept_of_a_partition_before_it_was_assigned() -> None:
    core = Core(ROOM)
    assert not core.on_records(batch_slice(P0, 0, 3), 1)
    assert core.take(10) == []


def test_records_of_a_revoked_partition_are_not_returned_after_the_callback() -> None:
    core = assigned(P0, P1)
    core.on_records(batch_slice(P0, 0, 3), 1)
    core.on_records(batch_slice(P1, 0, 3), 1)
    core.on_rebalance(event(2, RebalanceKind.REVOKING, P0))
    assert deliver_rebalance(core).kind is RebalanceKind.REVOKING
    assert {each.topic_partition for each in core.take(10)} == {P1}
    assert not core.on_records(batch_slice(P0, 3, 3), 1)


def test_a_tenure_in_which_all_that_the_application_has_is_still_its_own_is_taken_at_once() -> None:
    core = assigned(P0, P1)
    core.on_rebalance(event(2, RebalanceKind.REVOKING, P1))
    core.on_rebalance(event(3, RebalanceKind.ASSIGNED, generation=2))
    assert core.tenure == tenure(2)


def test_a_tenure_in_which_something_is_gone_is_taken_when_the_application_knows_it() -> None:
    for gone in (RebalanceKind.LOST, RebalanceKind.REVOKED):
        core = assigned(P0, P1)
        core.on_rebalance(event(2, gone, P1))
        core.on_rebalance(event(3, RebalanceKind.ASSIGNED, P1, generation=2))
        assert core.tenure == tenure(1)
        assert deliver_rebalance(core).kind is RebalanceKind.LOST
        assert core.tenure == tenure(2)


def test_a_listener_that_lets_go_too_slowly_is_still_in_the_old_tenure() -> None:
    core = assigned(P0)
    revoking = event(2, RebalanceKind.REVOKING, P0)
    core.on_rebalance(revoking)
    core.begin_rebalance(revoking, {})
    core.on_rebalance(event(3, RebalanceKind.REVOKED, P0))
    core.on_rebalance(event(4, RebalanceKind.ASSIGNED, generation=2))
    assert core.tenure == tenure(1)
    core.end_rebalance(revoking)
    assert core.tenure == tenure(2)


def test_a_sidecar_that_comes_back_gives_no_tenure_to_what_was_returned_before() -> None:
    core = assigned(P0)
    core.on_disconnect("the sidecar was away")
    core.on_rebalance(event(1, RebalanceKind.ASSIGNED, P0, generation=2))
    assert core.tenure == tenure(1)
    deliver_rebalance(core)
    assert core.tenure == tenure(2)


def test_records_of_an_earlier_tenure_are_dropped() -> None:
    core = assigned(P0)
    core.on_rebalance(event(2, RebalanceKind.REVOKING, P0))
    deliver_rebalance(core)
    core.on_rebalance(event(3, RebalanceKind.ASSIGNED, P0, generation=2))
    deliver_rebalance(core)
    assert not core.on_records(batch_slice(P0, 0, 3, delivery_epoch=1), 1)
    assert core.on_records(batch_slice(P0, 0, 3, delivery_epoch=2), 2)


def test_a_partition_lost_before_its_assignment_was_reported_is_never_reported() -> None:
    core = Core(ROOM)
    core.on_rebalance(event(1, RebalanceKind.ASSIGNED, P0))
    core.on_rebalance(event(2, RebalanceKind.LOST, P0))
    assert core.next_rebalance() is None
    assert sorted(core.acks_due()) == [1, 2]


def test_what_was_not_let_go_before_the_deadline_is_lost() -> None:
    core = assigned(P0)
    core.on_rebalance(event(2, RebalanceKind.REVOKING, P0))
    core.on_rebalance(event(3, RebalanceKind.REVOKED, P0))
    assert deliver_rebalance(core).kind is RebalanceKind.LOST
    assert core.next_rebalance() is None
    assert core.assigned == {}


def test_what_was_let_go_in_time_is_not_lost_afterwards() -> None:
    core = assigned(P0)
    core.on_rebalance(event(2, RebalanceKind.REVOKING, P0))
    deliver_rebalance(core)
    core.on_rebalance(event(3, RebalanceKind.REVOKED, P0))
    assert core.next_rebalance() is None


def test_a_partition_that_goes_while_its_listener_runs_is_reported_once() -> None:
    core = assigned(P0)
    core.on_rebalance(event(2, RebalanceKind.REVOKING, P0))
    due = core.next_rebalance()
    assert due is not None
    core.begin_rebalance(due, {})
    core.on_rebalance(event(3, RebalanceKind.REVOKED, P0))
    core.end_rebalance(due)
    assert core.next_rebalance() is None


def test_an_event_whose_listener_failed_is_reported_again() -> None:
    core = Core(ROOM)
    core.on_rebalance(event(1, RebalanceKind.ASSIGNED, P0))
    due = core.next_rebalance()
    assert due is not None
    core.begin_rebalance(due, {P0: 7})
    core.begin_rebalance(due, {P0: 9})
    assert core.next_rebalance() is due
    assert core.position(P0) == 7


def test_an_event_of_an_earlier_connection_is_not_acknowledged_in_the_next() -> None:
    core = Core(ROOM)
    core.on_rebalance(event(1, RebalanceKind.ASSIGNED, P0))
    due = core.next_rebalance()
    assert due is not None
    core.begin_rebalance(due, {})
    core.on_disconnect("it is away")
    assert core.end_rebalance(due) is False


def test_all_is_lost_with_the_sidecar() -> None:
    core = assigned(P0, P1)
    core.on_records(batch_slice(P0, 0, 3), 1)
    core.on_disconnect("it is away")
    calls = deliver_rebalance(core)
    assert (calls.kind, calls.partitions, calls.reason) == (RebalanceKind.LOST, (P0, P1), "it is away")
    assert core.take(10) == []
    assert core.assigned == {}


def test_a_poll_gets_no_more_than_it_asked_for() -> None:
    core = assigned(P0)
    core.on_records(batch_slice(P0, 0, 10), 1)
    assert offsets(core.take(4)) == [0, 1, 2, 3]
    (rest,) = core.take(100)
    assert rest.values[0] == b"4"
    assert offsets([rest]) == [4, 5, 6, 7, 8, 9]


def test_what_was_returned_is_finished_by_the_next_poll() -> None:
    core = assigned(P0)
    core.on_records(batch_slice(P0, 0, 10), 1)
    core.take(4)
    core.take(2)
    assert core.finish() == [FinishedRange(P0, 1, 0, 5)]
    assert core.finish() == []


def test_a_gap_is_not_part_of_what_is_finished() -> None:
    core = assigned(P0)
    core.on_records(batch_slice(P0, 0, 2), 1)
    core.on_records(batch_slice(P0, 3, 2), 1)
    core.take(10)
    assert core.finish() == [FinishedRange(P0, 1, 0, 1), FinishedRange(P0, 1, 3, 4)]


def test_what_a_commit_has_covered_is_not_said_again() -> None:
    core = assigned(P0)
    core.on_records(batch_slice(P0, 0, 10), 1)
    core.take(10)
    core.on_commit({P0: 6})
    assert core.finish() == [FinishedRange(P0, 1, 6, 9)]


def test_what_was_put_back_is_returned_again_and_not_finished() -> None:
    core = assigned(P0)
    core.on_records(batch_slice(P0, 0, 10), 1)
    (taken,) = core.take(10)
    core.put_back(taken, 3)
    assert core.position(P0) == 3
    assert core.finish() == [FinishedRange(P0, 1, 0, 2)]
    assert offsets(core.take(10)) == [3, 4, 5, 6, 7, 8, 9]


def test_after_a_seek_nothing_of_before_is_returned() -> None:
    core = assigned(P0)
    core.on_records(batch_slice(P0, 0, 10, delivery_epoch=1), 1)
    core.take(2)
    core.on_seek(P0, 50, voided_epoch=1)
    assert not core.on_records(batch_slice(P0, 10, 5, delivery_epoch=1), 1)
    assert core.on_records(batch_slice(P0, 50, 5, delivery_epoch=2), 1)
    assert offsets(core.take(10)) == [50, 51, 52, 53, 54]
    assert core.finish() == [FinishedRange(P0, 2, 50, 54)]


def test_records_that_are_faster_than_the_answer_to_a_seek_are_kept() -> None:
    core = assigned(P0)
    core.on_records(batch_slice(P0, 0, 10, delivery_epoch=1), 1)
    core.on_records(batch_slice(P0, 50, 5, delivery_epoch=2), 1)
    core.on_seek(P0, 50, voided_epoch=1)
    assert offsets(core.take(10)) == [50, 51, 52, 53, 54]


def test_somebody_elses_reset_moves_the_position() -> None:
    core = assigned(P0)
    core.on_records(batch_slice(P0, 10, 5, delivery_epoch=1), 1)
    core.take(10)
    core.on_records(batch_slice(P0, 0, 5, delivery_epoch=2), 1)
    assert core.position(P0) == 0
    assert core.finish() == []


def test_nothing_of_a_paused_partition_is_returned() -> None:
    core = assigned(P0, P1)
    core.on_records(batch_slice(P0, 0, 3), 1)
    core.on_records(batch_slice(P1, 0, 3), 1)
    core.paused.add(P0)
    assert {each.topic_partition for each in core.take(10)} == {P1}
    assert core.paused_in_buffer() == {P0: 0}
    core.paused.clear()
    assert offsets(core.take(10)) == [0, 1, 2]


def test_partitions_take_turns() -> None:
    core = assigned(P0, P1)
    core.on_records(batch_slice(P0, 0, 6), 1)
    core.on_records(batch_slice(P1, 0, 6), 1)
    assert [each.topic_partition for turn in range(4) for each in core.take(3)] == [P0, P1, P0, P1]


def test_manually_assigned_partitions_are_reported_to_no_listener() -> None:
    core = Core(ROOM)
    core.assign([P0])
    core.on_rebalance(event(1, RebalanceKind.ASSIGNED, P0))
    assert core.next_rebalance() is None
    assert core.acks_due() == [1]
    assert core.on_records(batch_slice(P0, 0, 3), 1)


def test_a_commit_of_everything_names_what_was_read_or_sought_only() -> None:
    core = assigned(P0, P1)
    core.position(P1, 5)
    core.on_records(batch_slice(P0, 0, 3), 1)
    core.take(2)
    assert core.consumed_positions() == {P0: 2}
    core.on_seek(P1, 9, voided_epoch=0)
    assert core.consumed_positions() == {P0: 2, P1: 9}


DEEDS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.sampled_from([P0, P1]), st.integers(1, 8)),
        st.tuples(st.just("poll"), st.just(P0), st.integers(1, 10)),
        st.tuples(st.just("seek"), st.sampled_from([P0, P1]), st.integers(0, 50)),
        st.tuples(st.just("revoke"), st.sampled_from([P0, P1]), st.just(0)),
        st.tuples(st.just("assign"), st.sampled_from([P0, P1]), st.just(0)),
        st.tuples(st.just("lose"), st.sampled_from([P0, P1]), st.just(0)),
        st.tuples(st.just("deliver_rebalance"), st.just(P0), st.just(0)),
    ),
    max_size=60,
)


class World:
    """A sidecar that keeps to the contract, and an application that polls; it checks as it goes."""

    def __init__(self) -> None:
        self.core = Core(ROOM)
        self.credit = 0
        self.ledgers = 0
        self.tenures = 0
        self.events = 0
        # Of the sidecar: by partition its tenure, its delivery epoch and the next offset; whether it was acknowledged.
        self.owned: dict[TopicPartition, list[int]] = {}
        self.acknowledged: set[TopicPartition] = set()
        self.expected: dict[TopicPartition, int] = {}
        self.unfinished: list[tuple[TopicPartition, int]] = []

    def on_rebalance(self, kind: RebalanceKind, partition: TopicPartition) -> None:
        self.events += 1
        self.core.on_rebalance(event(self.events, kind, partition, generation=self.tenures))

    def assign(self, partition: TopicPartition, _: int) -> None:
        if partition not in self.owned:
            self.tenures += 1
            self.ledgers += 1
            self.owned[partition] = [self.tenures, self.ledgers, 0]
            self.on_rebalance(RebalanceKind.ASSIGNED, partition)

    def revoke(self, partition: TopicPartition, _: int) -> None:
        if self.owned.pop(partition, None) is not None:
            self.acknowledged.discard(partition)
            self.on_rebalance(RebalanceKind.REVOKING, partition)

    def lose(self, partition: TopicPartition, _: int) -> None:
        if self.owned.pop(partition, None) is not None:
            self.acknowledged.discard(partition)
            self.on_rebalance(RebalanceKind.LOST, partition)
            self.forget(partition)

    def send(self, partition: TopicPartition, count: int) -> None:
        self.credit += self.core.credit()
        assert self.credit + self.core.buffer.records <= ROOM
        if partition in self.acknowledged and count <= self.credit:
            self.credit -= count
            number, delivery_epoch, offset = self.owned[partition]
            self.core.on_records(batch_slice(partition, offset, count, delivery_epoch), number)
            self.owned[partition][2] += count

    def seek(self, partition: TopicPartition, offset: int) -> None:
        if partition in self.acknowledged:
            void = self.ledgers
            self.ledgers += 1
            self.owned[partition][1:] = [self.ledgers, offset]
            self.core.on_seek(partition, offset, void)
            self.expected[partition] = offset
            self.unfinished = [each for each in self.unfinished if each[0] != partition]

    def deliver_rebalance(self, partition: TopicPartition, _: int) -> None:
        if self.core.next_rebalance() is None:
            return
        calls = deliver_rebalance(self.core)
        for each in calls.partitions:
            if calls.kind is RebalanceKind.ASSIGNED:
                self.expected[each] = 0
                if each in self.owned and self.owned[each][0] == self.core.assigned[each].tenure:
                    self.acknowledged.add(each)
            else:
                self.forget(each)

    def forget(self, partition: TopicPartition) -> None:
        self.expected.pop(partition, None)
        self.unfinished = [each for each in self.unfinished if each[0] != partition]

    def poll(self, _: TopicPartition, count: int) -> None:
        finished = [
            (each.partition, offset)
            for each in self.core.finish()
            for offset in range(each.first, each.last + 1)
        ]
        assert sorted(finished) == sorted(self.unfinished)
        self.unfinished = []
        for each in self.core.take(count):
            assert self.expected[each.topic_partition] == each.base_offset
            self.expected[each.topic_partition] = each.next_offset
            self.unfinished += [(each.topic_partition, offset) for offset in offsets([each])]


@given(DEEDS)
def test_every_record_is_returned_once_in_order_and_finished_once_whatever_happens(
    deeds: list[tuple[str, TopicPartition, int]],
) -> None:
    world = World()
    for deed, partition, number in deeds:
        getattr(world, deed)(partition, number)
