"""One partition's whole way: assigned, found, read, handed out, judged, committed, revoked."""

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.ledger.commit_points import CommitMetadata, State, parse_commit_metadata
from tests.sidecar.core.delivery.driven import (
    INTERVAL_MS,
    Driven,
    committed,
    delivered,
    names,
    offset_of,
    some,
)


def test_a_partition_goes_its_whole_way() -> None:
    driven = Driven()
    assert driven.attach() == []
    assert names(driven.assign(0)) == ["ASSIGNED", "FetchCommitted"]
    assert driven.acknowledge() == []
    assert names(driven.find(5)) == ["Fetch", "Commit"]
    assert names(driven.credit(100)) == []
    assert names(driven.read(10)) == ["Fetch"]
    assert delivered(driven.answer_commit()) == [(0, 5, 15)]
    assert names(driven.judge(5, 9)) == ["Settled"]
    assert names(driven.pass_time(INTERVAL_MS)) == ["Commit"]
    assert committed(driven.last(do.Commit)) == {0: 10}
    driven.answer_commit()
    assert names(driven.revoke(0)) == ["StopFetching", "REVOKING"]
    driven.judge(10, 14)
    assert names(driven.acknowledge()) == ["Commit"]
    assert committed(driven.last(do.Commit)) == {0: 15}
    assert names(driven.answer_commit()) == ["ReleasePartitions"]
    assert names(driven.revoked(0)) == ["REVOKED"]
    assert not driven.delivery.held


def test_nothing_is_handed_out_before_a_commit_says_that_records_are() -> None:
    driven = Driven()
    driven.attach(credit=10)
    driven.assign(0)
    driven.acknowledge()
    driven.find(5)
    assert delivered(driven.read(10)) == []
    offset = offset_of(driven.last(do.Commit))
    assert (offset.offset, parse_commit_metadata(offset.metadata).state) == (5, State.OPEN)
    assert delivered(driven.answer_commit()) == [(0, 5, 15)]


def test_nothing_is_handed_out_before_its_assignment_was_acknowledged() -> None:
    driven = Driven()
    driven.attach(credit=10)
    driven.assign(0)
    driven.find(0)
    driven.answer_commit()
    assert delivered(driven.read(5)) == []
    assert delivered(driven.acknowledge()) == [(0, 0, 5)]


def test_what_has_verdicts_is_committed_each_interval_and_nothing_when_nothing_has_changed() -> None:
    driven = Driven().begin(0)
    driven.read(10)
    driven.judge(0, 3)
    assert names(driven.pass_time(INTERVAL_MS - 1)) == []
    assert names(driven.pass_time(1)) == ["Commit"]
    driven.answer_commit()
    assert "Commit" not in names(driven.pass_time(INTERVAL_MS * 3))


def test_a_record_is_not_committed_before_its_verdict_whatever_comes_after_it() -> None:
    driven = Driven().begin(0)
    driven.read(10)
    driven.judge(4, 9)
    assert names(driven.pass_time(INTERVAL_MS)) == []
    driven.judge(0, 2)
    driven.pass_time(INTERVAL_MS)
    assert committed(driven.last(do.Commit)) == {0: 3}


def test_a_clean_end_is_committed_with_a_clean_mark() -> None:
    driven = Driven().begin(0)
    driven.read(10)
    driven.judge(0, 9)
    driven.revoke(0)
    driven.acknowledge()
    assert parse_commit_metadata(offset_of(driven.last(do.Commit)).metadata) == CommitMetadata()


def test_one_commit_is_under_way_at_a_time_and_later_offsets_wait() -> None:
    driven = Driven().begin(0, 1)
    driven.read(10)
    driven.read(10, 1)
    driven.judge(0, 3)
    driven.pass_time(INTERVAL_MS)
    assert committed(driven.last(do.Commit)) == {0: 4}
    before = len(driven.all(do.Commit))
    driven.judge(4, 5)
    driven.judge(0, 6, number=1)
    driven.pass_time(INTERVAL_MS)
    assert len(driven.all(do.Commit)) == before
    assert names(driven.answer_commit()) == ["Commit"]
    assert committed(driven.last(do.Commit)) == {0: 6, 1: 7}


def test_what_is_revoked_is_given_up_when_its_last_commit_is_durable() -> None:
    driven = Driven().begin(0)
    driven.read(10)
    driven.revoke(0)
    driven.judge(0, 9)
    assert names(driven.acknowledge()) == ["Commit"]
    assert names(driven.answer_commit(pb.REBALANCE_IN_PROGRESS)) == []
    assert names(driven.pass_time(200)) == ["Commit"]
    assert names(driven.answer_commit()) == ["ReleasePartitions"]


def test_only_what_moves_is_stopped() -> None:
    driven = Driven().begin(0, 1, credit=5)
    driven.read(5, 0)
    driven.revoke(0)
    driven.credit(5)
    assert delivered(driven.read(5, 1)) == [(1, 0, 5)]


def test_what_was_only_read_ahead_is_dropped_with_a_revocation() -> None:
    driven = Driven().begin(0, credit=3)
    driven.read(10)
    driven.judge(0, 2)
    driven.revoke(0)
    assert delivered(driven.credit(100)) == []
    driven.acknowledge()
    assert committed(driven.last(do.Commit)) == {0: 3}


def test_the_acknowledgement_of_a_revocation_gives_back_what_is_in_hand() -> None:
    driven = Driven().begin(0)
    driven.read(10)
    driven.revoke(0)
    driven.judge(0, 3)
    assert names(driven.acknowledge()) == ["Commit"]
    offset = offset_of(driven.last(do.Commit))
    assert (offset.offset, parse_commit_metadata(offset.metadata)) == (4, CommitMetadata()), (
        "nobody is charged for what is given back"
    )


def test_when_time_is_up_it_gives_up_with_what_there_is() -> None:
    driven = Driven().begin(0)
    driven.read(10)
    driven.judge(0, 3)
    driven.revoke(0, within_ms=10_000)
    deadline_ms = driven.now_ms + 10_000
    while not driven.all(do.ReleasePartitions):
        driven.pass_time(100)
        if names(driven.done)[-1] == "Commit":
            assert committed(driven.last(do.Commit)) == {0: 4}
            driven.answer_commit()
    assert driven.now_ms < deadline_ms


def test_it_gives_up_in_time_though_the_coordinator_answers_nothing() -> None:
    driven = Driven().begin(0)
    driven.read(10)
    driven.judge(0, 9)
    driven.revoke(0, within_ms=10_000)
    driven.acknowledge()
    deadline_ms = driven.now_ms + 10_000
    while not driven.all(do.ReleasePartitions):
        driven.pass_time(100)
    assert driven.now_ms < deadline_ms


def test_who_is_asked_anew_with_more_time_still_commits() -> None:
    driven = Driven().begin(0)
    driven.read(10)
    driven.judge(0, 9)
    driven.revoke(0, within_ms=10_000)
    driven.acknowledge()
    assert committed(driven.last(do.Commit)) == {0: 10}
    driven.revoke(0, within_ms=60_000)
    assert driven.pass_time(10_000)[-1] == do.ReleasePartitions(1)
    driven.answer_commit(pb.NOT_COORDINATOR)
    driven.pass_time(1_000)
    assert driven.answer_commit() == [do.ReleasePartitions(2)]


def test_with_nobody_attached_it_commits_and_gives_up_at_once() -> None:
    driven = Driven()
    driven.assign(0)
    driven.find(-1)
    driven.list_offsets(3, 9)
    assert committed(driven.last(do.Commit)) == {0: 3}
    assert "Commit" not in names(driven.revoke(0))
    assert names(driven.answer_commit()) == ["ReleasePartitions"]


def test_an_assignment_is_announced_after_all_revocations_were_settled() -> None:
    driven = Driven().begin(0)
    driven.revoke(0)
    driven.acknowledge()
    driven.answer_commit()
    driven.revoked(0)
    driven.assign(1)
    events = [(event.kind.name, event.partitions) for event in driven.all(do.AssignmentEvent)]
    assert events == [
        ("ASSIGNED", some(0)),
        ("REVOKING", some(0)),
        ("REVOKED", some(0)),
        ("ASSIGNED", some(1)),
    ]
