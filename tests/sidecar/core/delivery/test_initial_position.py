"""Initial positions of partitions, and positions that are no longer in the log."""

from dataclasses import replace

import pytest

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery.config import Reset
from tests.sidecar.core.delivery.driven import (
    GROUP,
    INTERVAL_MS,
    NOTHING_STORED,
    Driven,
    committed,
    delivered,
    names,
    one,
    some,
)


def test_it_begins_at_what_is_committed() -> None:
    assert Driven().begin(0, offset=42).fetch_of().offset == 42


def test_look_ups_are_tried_again_while_the_coordinator_loads_or_a_transaction_is_open() -> None:
    for error in (pb.UNSTABLE_OFFSET_COMMIT, pb.COORDINATOR_LOAD_IN_PROGRESS, pb.NOT_COORDINATOR):
        driven = Driven()
        driven.assign(0)
        for _ in range(3):
            assert driven.find(each=error) == []
            assert names(driven.pass_time(1_000)) == ["FetchCommitted"]
        driven.find(7)
        assert driven.fetch_of().offset == 7
        assert driven.all(do.Problem) == []


def test_only_those_that_failed_are_looked_up_again() -> None:
    driven = Driven()
    driven.assign(0, 1)
    asked = driven.last(do.FetchCommitted)
    driven.step(on.CommittedFetched(asked.request, pb.NONE, {one(0): on.Stored(5, "")}))
    driven.pass_time(1_000)
    assert driven.last(do.FetchCommitted).partitions == some(1)


@pytest.mark.parametrize(("reset", "offset"), [(Reset.EARLIEST, 3), (Reset.LATEST, 99)])
def test_where_nothing_is_committed_it_begins_as_is_set_and_commits_that_at_once(
    reset: Reset, offset: int
) -> None:
    driven = Driven(initial_offset=reset)
    driven.assign(0)
    assert names(driven.find(-1)) == ["ListOffsets"]
    assert names(driven.list_offsets(3, 99)) == ["Fetch", "Commit"]
    assert driven.fetch_of().offset == offset
    assert committed(driven.last(do.Commit)) == {0: offset}


def test_the_beginning_is_committed_again_when_that_fails() -> None:
    driven = Driven()
    driven.assign(0)
    driven.find(-1)
    driven.list_offsets(3, 99)
    driven.answer_commit(pb.COORDINATOR_NOT_AVAILABLE)
    assert "Commit" in names(driven.pass_time(200))


def test_a_look_up_of_the_log_is_tried_again_and_said() -> None:
    driven = Driven()
    driven.assign(0)
    driven.find(-1)
    asked = driven.last(do.ListOffsets)
    driven.step(on.OffsetsListed(asked.request, {}, "nobody answers"))
    assert "nobody answers" in driven.last(do.Problem).message
    assert names(driven.pass_time(200)) == ["ListOffsets"]


def test_where_nothing_is_committed_and_nothing_is_set_it_stops_and_says_so() -> None:
    driven = Driven(initial_offset=Reset.NONE)
    driven.assign(0)
    assert names(driven.find(-1)) == ["Problem"]
    message = driven.delivery.partitions[one()].stopped
    assert GROUP in message
    assert "seek" in message


def test_what_has_stopped_at_its_beginning_goes_on_when_somebody_says_where() -> None:
    for who in ("seek", "commit", "reset", "settings"):
        driven = Driven(initial_offset=Reset.NONE)
        driven.attach(commits_itself=True)
        driven.assign(0)
        driven.find(-1)
        if who == "seek":
            driven.seek(5, 0)
        elif who == "commit":
            driven.commit_asked({0: 5})
            driven.answer_commit()
        elif who == "reset":
            driven.step(on.ResetOffsets(77, 1, {one(): 5}))
            driven.answer_commit()
        else:
            driven.step(on.Configure(replace(driven.delivery.config, initial_offset=Reset.EARLIEST)))
            driven.find(-1)
            driven.list_offsets(5, 5)
        assert driven.fetch_of().offset == 5, who


def test_partitions_that_appear_later_begin_at_their_first_record() -> None:
    driven = Driven(initial_offset=Reset.LATEST)
    driven.assign(0)
    driven.find(-1)
    driven.list_offsets(3, 99)
    driven.answer_commit()
    driven.assign(1)
    driven.find(-1)
    driven.list_offsets(0, 50)
    assert driven.fetch_of(1).offset == 0


def test_a_partition_that_was_there_before_and_a_topic_that_is_new_begin_as_is_set() -> None:
    driven = Driven(initial_offset=Reset.LATEST, commit_interval_ms=INTERVAL_MS)
    driven.assign(0)
    driven.lose(0)
    driven.assign(0)
    driven.find(-1)
    driven.list_offsets(3, 99)
    assert driven.fetch_of().offset == 99
    driven.assign(0, topic="other")
    driven.find(-1)
    driven.list_offsets(1, 7)
    assert driven.fetch_of(0, "other").offset == 7


# ---------------------------------------------------------------------------------------------- expiry


def expired(on_offset_expired: Reset) -> Driven:
    """Three records are in hand, and behind them there is nothing to read."""
    driven = Driven(on_offset_expired=on_offset_expired).begin(0, offset=10)
    driven.read(3)
    driven.fail_read(on.FetchError.OUT_OF_RANGE)
    return driven


def expired_for_good(on_offset_expired: Reset) -> Driven:
    """Return the same, done and committed; the committed offset is outside of the log too."""
    driven = expired(on_offset_expired)
    driven.judge(10, 12)
    assert committed(driven.last(do.Commit)) == {0: 13}
    driven.answer_commit()
    driven.find(13)
    # Of the mark that records are in flight.
    driven.answer_commit()
    driven.fail_read(on.FetchError.OUT_OF_RANGE)
    return driven


def test_where_it_has_read_before_it_begins_at_what_is_committed_once_what_was_read_is_done() -> None:
    """As in a log that was restored from a backup, whose group has the offsets of the backup."""
    driven = expired(Reset.EARLIEST)
    assert names(driven.judge(10, 12)) == ["Settled", "Commit"]
    assert names(driven.answer_commit()) == ["FetchCommitted"]
    driven.find(4)
    assert driven.fetch_of().offset == 4
    assert driven.all(do.ListOffsets) == []


def test_a_member_that_the_restored_group_does_not_know_reads_nothing() -> None:
    driven = expired(Reset.EARLIEST)
    driven.judge(10, 12)
    driven.answer_commit()
    fetches = len(driven.all(do.Fetch))
    driven.find(error=pb.UNKNOWN_MEMBER_ID)
    driven.lose(0)
    assert len(driven.all(do.Fetch)) == fetches
    assert driven.all(do.ListOffsets) == []


def test_what_is_committed_outside_of_the_log_is_an_expiry() -> None:
    driven = expired_for_good(Reset.EARLIEST)
    assert len(driven.all(do.ListOffsets)) == 1
    assert "it says so" in driven.last(do.Problem).message
    driven.list_offsets(500, 900)
    assert driven.fetch_of().offset == 500
    assert committed(driven.last(do.Commit)) == {0: 500}


def test_without_a_setting_it_stops_there_and_says_so_and_commits_what_is_done() -> None:
    driven = expired_for_good(Reset.NONE)
    assert "it says so" in driven.last(do.Problem).message
    assert driven.delivery.partitions[one()].stopped
    assert driven.all(do.ListOffsets) == []


def test_it_goes_on_from_an_expiry_when_somebody_says_how() -> None:
    for who in ("seek", "commit", "settings"):
        driven = expired_for_good(Reset.NONE)
        if who == "seek":
            driven.seek(500, 0)
        elif who == "commit":
            driven.commit_asked({0: 500})
        else:
            driven.step(on.Configure(replace(driven.delivery.config, on_offset_expired=Reset.EARLIEST)))
            driven.list_offsets(500, 900)
        assert driven.fetch_of().offset == 500, who
        assert not driven.delivery.partitions[one()].stopped


def test_a_commit_that_has_vanished_is_an_expiry() -> None:
    driven = Driven().begin(0, offset=5)
    driven.lose(0)
    driven.assign(0)
    driven.step(on.CommittedFetched(driven.last(do.FetchCommitted).request, pb.NONE, {one(): NOTHING_STORED}))
    assert "vanished" in driven.last(do.Problem).message
    assert driven.delivery.partitions[one()].stopped


def test_what_is_done_in_a_topic_that_was_made_anew_is_not_committed_there() -> None:
    driven = Driven(on_offset_expired=Reset.EARLIEST).begin(0, offset=10)
    driven.read(3)
    driven.judge(10, 12)
    assert names(driven.fail_read(on.FetchError.OTHER_TOPIC)) == ["ListOffsets"]
    driven.list_offsets(0, 4)
    assert committed(driven.last(do.Commit)) == {0: 0}
    driven.answer_commit()
    driven.read(2)
    assert delivered(driven.done)[-1] == (0, 0, 2)


def test_what_is_not_there_where_it_read_before_its_owner_went_on_is_no_expiry() -> None:
    driven = Driven().begin(0, offset=10, commits_itself=True)
    driven.commit_asked({0: 20})
    driven.fail_read(on.FetchError.OUT_OF_RANGE)
    assert driven.fetch_of().offset == 20
    assert not driven.delivery.partitions[one()].stopped
