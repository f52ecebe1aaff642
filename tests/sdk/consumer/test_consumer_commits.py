"""Commits and positions of a consumer, over a group in memory."""

import pytest

import rota
from rota import errors
from rota.testing import Group
from tests.sdk.consumer.reading import P0, P1, SOON_MS, WAIT_MS, fill, offsets, read


def test_a_poll_commits_what_earlier_polls_returned(group: Group) -> None:
    fill(group, 4)
    consumer = group.consumer("orders", max_poll_records=2)
    consumer.poll(timeout_ms=WAIT_MS)
    assert group.committed.get(P0, 0) == 0
    consumer.poll(timeout_ms=WAIT_MS)
    assert group.committed[P0] == 2


def test_nothing_is_committed_by_itself_without_auto_commit(group: Group) -> None:
    fill(group, 4)
    consumer = group.consumer("orders", enable_auto_commit=False)
    read(consumer, 4)
    consumer.poll(timeout_ms=SOON_MS)
    consumer.close()
    assert group.committed == {}


def test_a_commit_without_offsets_covers_what_was_returned(group: Group) -> None:
    fill(group, 4)
    consumer = group.consumer("orders", enable_auto_commit=False, max_poll_records=3)
    consumer.poll(timeout_ms=WAIT_MS)
    consumer.commit()
    assert group.committed == {P0: 3}


def test_a_commit_keeps_its_text(group: Group) -> None:
    fill(group, 4)
    consumer = group.consumer("orders", enable_auto_commit=False)
    read(consumer, 1)
    consumer.commit({P0: rota.OffsetAndMetadata(2, "so far")})
    assert consumer.committed(P0, metadata=True) == rota.OffsetAndMetadata(2, "so far")
    assert consumer.committed(P0) == 2
    assert consumer.committed(P1) is None


def test_a_commit_of_what_others_have_by_now_is_refused(group: Group) -> None:
    fill(group, 4)
    consumer = group.consumer("orders", enable_auto_commit=False)
    read(consumer, 4)
    group.lose(P0)
    with pytest.raises(errors.IllegalGeneration):
        consumer.commit()
    assert group.committed == {}


def test_async_commits_call_back_in_their_order(group: Group) -> None:
    fill(group, 4)
    consumer = group.consumer("orders", enable_auto_commit=False)
    read(consumer, 4)
    completed: list[tuple[int, errors.RotaError | None]] = []
    for offset in (1, 2, 3):
        consumer.commit_async(
            {P0: offset}, lambda committed, error: completed.append((committed[P0].offset, error))
        )
    consumer.commit({P0: 4})
    assert completed == [(1, None), (2, None), (3, None)]
    assert group.committed == {P0: 4}


def test_an_async_commit_that_is_refused_tells_its_callback_and_nobody_else(group: Group) -> None:
    fill(group, 4)
    consumer = group.consumer("orders", enable_auto_commit=False)
    read(consumer, 4)
    group.lose(P0)
    completed: list[errors.RotaError | None] = []
    consumer.commit_async({P0: 4}, lambda committed, error: completed.append(error))
    consumer.close()
    assert [type(error) for error in completed] == [errors.IllegalGeneration]


def test_closing_commits_what_was_returned(group: Group) -> None:
    fill(group, 4)
    consumer = group.consumer("orders")
    read(consumer, 4)
    consumer.close()
    assert group.committed[P0] == 4
    with pytest.raises(errors.ConsumerClosed):
        consumer.poll()


def test_closing_without_auto_commit_leaves_the_last_records_to_come_again(group: Group) -> None:
    fill(group, 4)
    consumer = group.consumer("orders", enable_auto_commit=False)
    read(consumer, 4)
    consumer.close()
    assert offsets(read(group.consumer("orders"), 4)) == [0, 1, 2, 3]


def test_the_position_is_the_next_record_that_is_returned(group: Group) -> None:
    fill(group, 4)
    consumer = group.consumer("orders", max_poll_records=3)
    consumer.poll(timeout_ms=WAIT_MS)
    assert consumer.position(P0) == 3
    assert consumer.position(P1) == 0


def test_a_seek_goes_back_and_forth(group: Group) -> None:
    fill(group, 10)
    consumer = group.consumer("orders")
    read(consumer, 10)
    for offset in (2, 7, 0):
        consumer.seek(P0, offset)
        assert consumer.position(P0) == offset
        assert offsets(read(consumer, 10 - offset)) == list(range(offset, 10))


def test_two_seeks_in_a_row_count_as_the_last_one(group: Group) -> None:
    fill(group, 10)
    consumer = group.consumer("orders")
    read(consumer, 10)
    consumer.seek(P0, 1)
    consumer.seek(P0, 8)
    assert offsets(read(consumer, 2)) == [8, 9]


def test_a_seek_is_for_what_is_assigned(group: Group) -> None:
    with pytest.raises(errors.IllegalState, match=r"orders\[0\] is not assigned"):
        group.consumer("orders").seek(P0, 1)


def test_seeking_to_the_beginning_and_to_the_end(group: Group) -> None:
    fill(group, 5)
    consumer = group.consumer("orders")
    read(consumer, 5)
    consumer.seek_to_beginning(P0)
    assert offsets(read(consumer, 5)) == [0, 1, 2, 3, 4]
    consumer.seek_to_beginning()
    consumer.seek_to_end()
    assert consumer.position(P0) == 5
    fill(group, 1)
    assert offsets(read(consumer, 1)) == [5]


def test_a_commit_after_a_seek_back_names_the_lower_offset(group: Group) -> None:
    fill(group, 5)
    consumer = group.consumer("orders", enable_auto_commit=False)
    read(consumer, 5)
    consumer.commit()
    consumer.seek(P0, 2)
    consumer.commit()
    assert group.committed[P0] == 2


def test_a_paused_partition_stays_assigned_and_silent(group: Group) -> None:
    fill(group, 4)
    fill(group, 4, partition=1)
    consumer = group.consumer("orders", max_poll_records=1)
    read(consumer, 1)
    consumer.pause(P0)
    assert consumer.paused() == {P0}
    assert consumer.assignment() == {P0, P1}
    rest = read(consumer, 3) + [
        record for records in consumer.poll(timeout_ms=SOON_MS).values() for record in records
    ]
    assert {record.partition for record in rest} == {1}


def test_what_waited_of_a_paused_partition_comes_once_after_it_is_resumed(group: Group) -> None:
    fill(group, 6)
    consumer = group.consumer("orders", max_poll_records=2)
    first = read(consumer, 2)
    consumer.pause(P0)
    for _ in range(2):
        assert consumer.poll(timeout_ms=SOON_MS) == {}
    consumer.resume(P0)
    assert consumer.paused() == set()
    assert offsets(first + read(consumer, 4)) == [0, 1, 2, 3, 4, 5]


def test_partitions_of_a_topic_and_of_none(group: Group) -> None:
    fill(group, 1)
    consumer = group.consumer("orders")
    assert consumer.partitions_for_topic("orders") == {0, 1}
    assert consumer.partitions_for_topic("nothing") is None


def test_metrics_are_those_of_the_sidecar(group: Group) -> None:
    fill(group, 1)
    consumer = group.consumer("orders")
    read(consumer, 1)
    assert consumer.metrics() == {rota.MetricName.of("rota_assigned_partitions", group="test"): 2}


def test_topics_are_those_that_exist(group: Group) -> None:
    consumer = group.consumer("orders")
    group.create_topic("payments", 1)
    assert consumer.topics() == {"orders", "payments"}


def test_offsets_by_time_and_at_both_ends(group: Group) -> None:
    for time in (1_000, 2_000, 3_000):
        group.send("orders", b"", partition=0, timestamp_ms=time)
    consumer = group.consumer("orders")
    assert consumer.offsets_for_times({P0: 1_500, P1: 1_500}) == {
        P0: rota.OffsetAndTimestamp(1, 2_000),
        P1: None,
    }
    assert consumer.beginning_offsets([P0, P1]) == {P0: 0, P1: 0}
    assert consumer.end_offsets([P0, P1]) == {P0: 3, P1: 0}


def test_the_group_metadata_is_that_of_the_present_generation(group: Group) -> None:
    fill(group, 2)
    consumer = group.consumer("orders")
    read(consumer, 2)
    before = consumer.group_metadata()
    assert (before.group_id, before.generation_id, before.incarnation) == ("test", 1, 1)
    group.take_away(P1)
    consumer.poll(timeout_ms=SOON_MS)
    group.give_back(P1)
    consumer.poll(timeout_ms=SOON_MS)
    assert consumer.group_metadata().generation_id > before.generation_id


@pytest.mark.parametrize("how", ["lost", "at the deadline"])
def test_the_group_metadata_stays_old_until_the_application_hears_what_it_has_lost(
    group: Group, how: str
) -> None:
    fill(group, 2)
    consumer = group.consumer("orders")
    read(consumer, 2)
    before = consumer.group_metadata()
    if how == "lost":
        group.lose(P1)
    else:
        group.take_away(P1)
        group.expire()
    # The member has it again, and a newer generation: what was read before could be another's work by now.
    group.give_back(P1)
    assert consumer.group_metadata() == before
    consumer.poll(timeout_ms=SOON_MS)
    assert consumer.group_metadata().generation_id > before.generation_id


def test_who_assigns_by_hand_has_no_generation(group: Group) -> None:
    fill(group, 1)
    consumer = group.consumer()
    consumer.assign([P0])
    read(consumer, 1)
    assert consumer.group_metadata().generation_id == -1
