"""Every invariant of the simulation can fail: a false history or a false state for each of them."""

from collections.abc import Callable

import pytest

from rota_coordinator.core.group.config import GroupConfig
from rota_coordinator.core.group.groups import Groups
from rota_coordinator.core.group.offsets import Offsets
from rota_coordinator.core.group.state import Barrier, Group, State
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.records_pb2 import (
    GenerationReserved,
    GroupMember,
    GroupRecord,
    OffsetCommitted,
    OffsetPending,
    OffsetRemoved,
    ProducerEnded,
    Record,
)
from tests.conformance.members import assignment
from tests.simulation.claims import check_decision, check_join, check_owner
from tests.simulation.history import Commit, History, Ticket
from tests.simulation.invariants import INVARIANTS, Violation
from tests.simulation.run import check_shares
from tests.simulation.situations import Look
from tests.simulation.transactions import TOPIC_OF_PRODUCERS, TransactionalHistory
from tests.simulation.watch import (
    LastContact,
    Mirror,
    check_bounds,
    check_change,
    check_patience,
    check_shape,
)
from tests.simulation.zoo import LIVENESS

FIRST = Ticket(incarnation=1, acknowledged={}, wrote=False)
A, B = "member-#1", "member-#2"


def history(**parts: int) -> History:
    """A group that is in its first generation, with who has which partition in it."""
    observed = History()
    observed.wrote(reserved(1))
    observed.wrote(group(1, **parts))
    return observed


def reserved(generation: int) -> Record:
    return Record(generation_reserved=GenerationReserved(group_id="g", generation_id=generation))


def group(generation: int, incarnation: int = 1, **parts: int) -> Record:
    members = [
        GroupMember(member_id=f"member-#{name.removeprefix('m')}", assignment=assignment(partition))
        for name, partition in parts.items()
    ]
    record = GroupRecord(group_id="g", incarnation=incarnation, generation_id=generation, members=members)
    return Record(group=record)


def offset(partition: int, value: int, number: int) -> Record:
    return Record(
        offset_committed=OffsetCommitted(
            group_id="g", partition=partition, offset=value, metadata=str(number)
        )
    )


def pending(producer_id: int, value: int) -> Record:
    """A commit of partition 0 in a producer's transaction."""
    held = OffsetCommitted(group_id="g", topic=TOPIC_OF_PRODUCERS, offset=value)
    return Record(offset_pending=OffsetPending(offset=held, producer_id=producer_id))


def ended(producer_id: int, *, committed: bool = True) -> Record:
    return Record(producer_ended=ProducerEnded(group_id="g", producer_id=producer_id, committed=committed))


def committed(observed: History, member_id: str, generation: int, value: int) -> Commit:
    """A commit of partition 0 that is sent, arrives, and is written."""
    commit = observed.committing(member_id, generation, {0: value})
    commit.arrivals = 1
    observed.wrote(offset(0, value, commit.number))
    return commit


def joined(leader: str, generation: int) -> pb.JoinGroupResponse:
    return pb.JoinGroupResponse(generation_id=generation, leader=leader)


def one_partition_is_written_for_two() -> None:
    history(m1=0, m2=0)


def one_partition_is_assigned_to_two() -> None:
    observed = history(m1=0, m2=1)
    for member_id in (A, B):
        observed.parts[(1, 1), member_id] = assignment(0)
        request = pb.SyncGroupRequest(generation_id=1, member_id=member_id)
        observed.synced(FIRST, request, pb.SyncGroupResponse(assignment=assignment(0)))


def a_state_has_a_partition_twice() -> None:
    groups = Groups(GroupConfig())
    groups.replay(group(1, m1=0, m2=0))
    check_bounds(groups.groups["g"])


def two_own_a_partition_at_once() -> None:
    observed = history(m1=0)
    observed.holds("process 1", A, 0, now_s=0, until_s=3)
    observed.wrote(group(2, m2=0), now_s=2)


def one_owns_what_was_given_away() -> None:
    history(m2=0).holds("process 1", A, 0, now_s=0, until_s=3)


def a_generation_is_issued_twice() -> None:
    history(m1=0).wrote(reserved(1))


def a_generation_is_notified_late() -> None:
    observed = history(m1=0)
    observed.reserved = (1, 5)
    observed.joined(FIRST, joined(A, 5))
    observed.joined(FIRST, joined(A, 4))


def a_generation_has_two_leaders() -> None:
    observed = history(m1=0)
    observed.joined(FIRST, joined(A, 1))
    observed.joined(FIRST, joined(B, 1))


def an_older_group_is_written() -> None:
    history(m1=0).wrote(group(0))


def a_fence_falls() -> None:
    observed = history(m1=0)
    observed.check_incarnation(1, 70)
    observed.wrote(reserved(2))
    observed.wrote(group(2, m1=0))
    observed.check_incarnation(2, 60)


def one_works_on_what_is_anothers() -> None:
    observed = history(m1=0)
    observed.holds("process 1", A, 0, now_s=0, until_s=3)
    observed.wrote(group(2, m2=0), now_s=4)
    observed.works("process 1", 0, now_s=5)


def a_late_verdict_is_committed() -> None:
    History().late_verdict([pb.ILLEGAL_GENERATION, pb.NONE])


def more_is_committed_than_is_done() -> None:
    observed = history(m1=0)
    observed.did(0, 0, 4)
    observed.check_done(observed.committing(A, 1, {0: 5}))


def a_tenure_begins_after_unprocessed_records() -> None:
    observed = history(m1=0)
    observed.did(0, 0, 4)
    observed.begins(0, 5)


def what_was_handed_over_is_done_again() -> None:
    observed = history(m1=0)
    observed.did(0, 0, 4)
    observed.releases[0] = 4
    observed.begins(0, 3)


def a_member_has_more_than_its_share() -> None:
    check_shares("g", [3, 1])


def two_are_given_one_id() -> None:
    observed = History()
    observed.identified(A, "process 1")
    observed.identified(A, "process 2")


def somebody_else_commits() -> None:
    committed(history(m1=0, m2=1), B, 1, 5)


def an_old_generation_commits() -> None:
    committed(history(m1=0), A, 0, 5)


def begun(observed: History, generation: int, member_id: str) -> None:
    """Write a generation and notify a member that it is in it; no member has received an assignment in it so far."""
    observed.wrote(reserved(generation))
    observed.joined(FIRST, pb.JoinGroupResponse(generation_id=generation, leader=A, member_id=member_id))


def somebody_else_commits_in_a_generation_that_was_begun() -> None:
    observed = history(m1=0)
    begun(observed, 2, B)
    committed(observed, B, 2, 5)


def a_stranger_commits_in_a_generation_that_was_begun() -> None:
    observed = history(m1=1)
    begun(observed, 2, A)
    committed(observed, B, 2, 5)


def test_a_member_of_a_generation_that_was_begun_commits_what_nobody_has() -> None:
    observed = history(m1=1)
    begun(observed, 2, B)
    committed(observed, B, 2, 5)
    assert observed.stored[0].offset == 5


def an_outsider_commits() -> None:
    committed(history(m1=0), "", -1, 5)


def a_refused_request_is_written() -> None:
    History().refused(FIRST._replace(wrote=True), "a heartbeat")


def an_offset_falls() -> None:
    observed = history(m1=0)
    committed(observed, A, 1, 5)
    committed(observed, A, 1, 4)


def an_earlier_tenure_comes_later() -> None:
    observed = history(m1=0)
    observed.wrote(reserved(2))
    observed.wrote(group(2, m1=0))
    committed(observed, A, 2, 5)
    # The log goes back to the first generation, which no coordinator may write.
    observed.group.generation_id = 1
    committed(observed, A, 1, 9)


def an_offset_of_a_living_group_is_forgotten() -> None:
    history(m1=0).wrote(Record(offset_removed=OffsetRemoved(group_id="g", partition=0)))


def a_read_is_older_than_an_acknowledgement() -> None:
    observed = history(m1=0)
    first = committed(observed, A, 1, 5)
    second = committed(observed, A, 1, 6)
    observed.acknowledges(second, 0)
    ticket = Ticket(1, dict(observed.acknowledged), wrote=False)
    observed.fetched(ticket, pb.FetchedPartition(index=0, offset=5, metadata=str(first.number)))


def the_log_loses_an_offset() -> None:
    observed = history(m1=0)
    committed(observed, A, 1, 5)
    observed.check_log([])


def nobody_sent_an_offset() -> None:
    history(m1=0).wrote(offset(0, 5, 1))


def a_commit_is_applied_twice() -> None:
    observed = history(m1=0)
    commit = committed(observed, A, 1, 5)
    observed.wrote(offset(0, 5, commit.number))


def a_compacted_log_says_something_else() -> None:
    mirror = Mirror(GroupConfig())
    mirror.wrote(1, [group(1, m1=0)])
    mirror.compacted([group(2, m1=0)])


def an_old_owner_writes() -> None:
    mirror = Mirror(GroupConfig())
    mirror.wrote(2, [group(1, m1=0)])
    mirror.wrote(1, [group(2, m1=0)])


def a_stranger_answers() -> None:
    check_owner(pb.HeartbeatResponse(), alive=True, owner=False)


def a_process_answers_after_its_lease() -> None:
    check_owner(pb.FetchOffsetsResponse(), alive=False, owner=True)


def a_member_is_given_up_for_the_coordinators_pause() -> None:
    check_patience(LastContact(at_s=0, stopped_s=0), LastContact(at_s=4, stopped_s=3))


def a_decision_changes_another_group() -> None:
    check_decision("another", [group(1, m1=0)], partitions=1)


def a_decision_is_long() -> None:
    check_decision("g", [group(1, m1=0)] * 4, partitions=1)


def a_commit_is_acknowledged_too_soon() -> None:
    observed = history(m1=0)
    observed.acknowledges(observed.committing(A, 1, {0: 5}), 0)


def a_generation_is_notified_too_soon() -> None:
    history(m1=0).joined(FIRST, joined(A, 2))


def an_assignment_is_sent_that_is_not_written() -> None:
    request = pb.SyncGroupRequest(generation_id=1, member_id=A)
    history(m1=0).synced(FIRST, request, pb.SyncGroupResponse(assignment=assignment(1)))


def a_read_shows_what_is_not_written() -> None:
    observed = history(m1=0)
    observed.committing(A, 1, {0: 5})
    observed.fetched(FIRST, pb.FetchedPartition(index=0, offset=5, metadata="1"))


def ids_are_handed_out_without_end() -> None:
    busy = Group("g", GroupConfig(), 1)
    busy.pending = {f"member-#{number}": 0 for number in range(1_000)}
    check_bounds(busy)


def a_compacted_log_is_long() -> None:
    mirror = Mirror(GroupConfig())
    records = [group(1, m1=0)] * 5
    mirror.wrote(1, records)
    mirror.compacted(records)


def the_later_commit_of_two_transactions_is_lost() -> None:
    observed, read = TransactionalHistory(), Offsets()
    records = [pending(1, 11), pending(2, 22), ended(1), ended(2)]
    for record in records:
        observed.wrote(record)
    for record in records[:-1]:
        read.replay(record)
    observed.check(read)


def an_aborted_offset_is_committed() -> None:
    observed, read = TransactionalHistory(), Offsets()
    for record in (pending(1, 11), ended(1, committed=False)):
        observed.wrote(record)
    for record in (pending(1, 11), ended(1)):
        read.replay(record)
    observed.check(read)


def an_empty_group_has_a_round() -> None:
    empty = Group("g", GroupConfig(), 1)
    empty.barrier = Barrier(deadline_ms=0, open_until_ms=0)
    check_shape(empty)


def an_empty_group_is_stable_at_once() -> None:
    found = Group("g", GroupConfig(), 1)
    before = Look.at(found)
    check_change(found, before, before._replace(state=State.STABLE))


FALSE: tuple[tuple[str, Callable[[], None]], ...] = (
    ("S1", one_partition_is_written_for_two),
    ("S1", one_partition_is_assigned_to_two),
    ("S1", a_state_has_a_partition_twice),
    ("S2", two_own_a_partition_at_once),
    ("S2", one_owns_what_was_given_away),
    ("S2", one_works_on_what_is_anothers),
    ("S3", a_generation_is_issued_twice),
    ("S3", a_generation_is_notified_late),
    ("S3", a_generation_has_two_leaders),
    ("S3", an_older_group_is_written),
    ("S3", two_are_given_one_id),
    ("S3", a_fence_falls),
    ("S4", somebody_else_commits),
    ("S4", an_old_generation_commits),
    ("S4", an_outsider_commits),
    ("S4", somebody_else_commits_in_a_generation_that_was_begun),
    ("S4", a_stranger_commits_in_a_generation_that_was_begun),
    ("S4", a_refused_request_is_written),
    ("S4", a_late_verdict_is_committed),
    ("S5", an_offset_falls),
    ("S5", an_earlier_tenure_comes_later),
    ("S5", an_offset_of_a_living_group_is_forgotten),
    ("S6", a_read_is_older_than_an_acknowledgement),
    ("S6", the_log_loses_an_offset),
    ("S7", nobody_sent_an_offset),
    ("S7", a_commit_is_applied_twice),
    ("S8", more_is_committed_than_is_done),
    ("S8", a_tenure_begins_after_unprocessed_records),
    ("S9", what_was_handed_over_is_done_again),
    ("S10", a_compacted_log_says_something_else),
    ("S11", an_old_owner_writes),
    ("S11", a_stranger_answers),
    ("S11", a_process_answers_after_its_lease),
    ("L2", a_member_is_given_up_for_the_coordinators_pause),
    ("L4", a_member_has_more_than_its_share),
    ("S12", a_commit_is_acknowledged_too_soon),
    ("S12", a_generation_is_notified_too_soon),
    ("S12", an_assignment_is_sent_that_is_not_written),
    ("S12", a_read_shows_what_is_not_written),
    ("S13", a_decision_changes_another_group),
    ("S14", a_decision_is_long),
    ("S14", ids_are_handed_out_without_end),
    ("S14", a_compacted_log_is_long),
    ("S17", an_empty_group_has_a_round),
    ("S17", an_empty_group_is_stable_at_once),
    ("S18", the_later_commit_of_two_transactions_is_lost),
    ("S18", an_aborted_offset_is_committed),
)


@pytest.mark.parametrize(("name", "story"), FALSE, ids=lambda each: getattr(each, "__name__", each))
def test_a_false_history_is_refused(name: str, story: Callable[[], None]) -> None:
    with pytest.raises(Violation, match=f"^{name}: "):
        story()


def test_who_is_sent_away_by_a_full_group_may_work_until_it_learns_of_it() -> None:
    observed = history(m1=0)
    observed.holds("process 1", A, 0, now_s=0, until_s=3)
    refusal = pb.JoinGroupResponse(error_code=pb.GROUP_MAX_SIZE_REACHED)
    check_join(observed, FIRST, (pb.JoinGroupRequest(member_id=A), refusal), whose="process 1")
    observed.wrote(group(2, m2=0), now_s=2)
    observed.works("process 1", 0, now_s=3)
    with pytest.raises(Violation, match=r"^S2: "):
        observed.works("process 1", 0, now_s=30)


def test_who_has_left_a_round_may_work_until_it_has_looked_at_the_clock() -> None:
    observed = history(m1=0)
    observed.holds("process 1", A, 0, now_s=0, until_s=3)
    observed.wrote(group(2, m2=0), now_s=5)
    observed.works("process 1", 0, now_s=9, round_ended_s=9)
    with pytest.raises(Violation, match=r"^S2: "):
        observed.works("process 1", 0, now_s=9.2, round_ended_s=9)


def test_a_client_without_the_members_core_may_take_back_its_own_commit() -> None:
    observed = history(m1=0)
    for value in (5, 4):
        commit = observed.committing(A, 1, {0: value})
        commit.arrivals, commit.is_honest = 1, False
        observed.wrote(offset(0, value, commit.number))
    assert observed.stored[0].offset == 4


def test_every_invariant_can_fail() -> None:
    assert {name for name, _ in FALSE} | LIVENESS.keys() == INVARIANTS.keys()
