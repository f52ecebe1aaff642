"""An application is told why it gets no records of a partition: once per occurrence, when it knows the partition."""

import pytest

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery.actions import ErrorKind
from rota_sidecar.core.delivery.config import Reset
from tests.sidecar.core.delivery.driven import Driven, one, some


def errors(driven: Driven) -> list[tuple[ErrorKind, list[int]]]:
    """All that the application was told, with the numbers of the partitions."""
    return [
        (error.kind, [each.number for each in error.partitions]) for error in driven.all(do.PartitionError)
    ]


def without_offsets(*numbers: int) -> Driven:
    driven = Driven(initial_offset=Reset.NONE)
    driven.attach(credit=1_000)
    driven.assign(*numbers)
    driven.find(-1)
    return driven


def test_an_error_is_reported_after_the_acknowledgement_of_the_partitions_and_not_before() -> None:
    driven = without_offsets(0, 1)
    assert errors(driven) == []
    driven.acknowledge()
    assert errors(driven) == [(ErrorKind.NO_OFFSET, [0, 1])]
    error = driven.last(do.PartitionError)
    assert "nothing is committed" in error.message
    assert "seek" in error.message


def test_a_seek_before_the_acknowledgement_settles_it_and_nothing_is_reported() -> None:
    driven = without_offsets(0)
    assigned = driven.last(do.AssignmentEvent).event_id
    driven.seek(5, 0)
    driven.acknowledge(assigned)
    assert errors(driven) == []


def test_a_seek_that_is_answered_later_has_a_ledger_that_is_not_lower() -> None:
    driven = without_offsets(0)
    driven.acknowledge()
    (answer,) = driven.answers(driven.seek(5, 0))
    assert answer.delivery_epoch >= driven.last(do.PartitionError).delivery_epoch
    driven.fail_read(on.FetchError.OUT_OF_RANGE)
    assert driven.last(do.PartitionError).delivery_epoch > answer.delivery_epoch


def test_the_other_partitions_go_on() -> None:
    driven = Driven(initial_offset=Reset.NONE)
    driven.attach(credit=1_000)
    driven.assign(0, 1)
    driven.acknowledge()
    asked = driven.last(do.FetchCommitted)
    stored = {one(0): on.Stored(-1, ""), one(1): on.Stored(7, "")}
    driven.step(on.CommittedFetched(asked.request, pb.NONE, stored))
    driven.answer_commit()
    driven.read(3, 1)
    assert errors(driven) == [(ErrorKind.NO_OFFSET, [0])]
    assert {each.partition for each in driven.all(do.Deliver)} == some(1)


def test_an_expired_offset_is_reported_once_per_occurrence() -> None:
    driven = Driven(on_offset_expired=Reset.NONE).begin(0, offset=7)
    for occurrences in (1, 2):
        driven.fail_read(on.FetchError.OUT_OF_RANGE)
        driven.pass_time(60_000)
        assert errors(driven) == [(ErrorKind.OFFSET_OUT_OF_RANGE, [0])] * occurrences
        driven.seek(7, 0)


@pytest.mark.parametrize(
    ("fetch_error", "kind"),
    [
        (on.FetchError.UNKNOWN_TOPIC, ErrorKind.UNKNOWN_TOPIC),
        (on.FetchError.DENIED, ErrorKind.TOPIC_AUTHORIZATION),
        (on.FetchError.CORRUPT, ErrorKind.CORRUPT_RECORD),
    ],
)
def test_an_error_under_retry_is_reported_once_until_it_has_passed(
    fetch_error: on.FetchError, kind: ErrorKind
) -> None:
    driven = Driven().begin(0)
    for occurrences in (1, 2):
        for _ in range(3):
            driven.fail_read(fetch_error)
            driven.pass_time(20_000)
        assert errors(driven) == [(kind, [0])] * occurrences
        driven.read(1)
        driven.judge(driven.fetch_of().offset - 1)


def test_a_log_that_cannot_be_reached_is_no_error_of_a_partition() -> None:
    driven = Driven().begin(0)
    driven.fail_read(on.FetchError.UNREACHABLE)
    assert errors(driven) == []
    assert driven.all(do.Problem)


@pytest.mark.parametrize(
    ("problem", "refused", "reported"),
    [
        ("", False, [(ErrorKind.UNKNOWN_TOPIC, [0])]),
        ("topic orders is not for us", True, [(ErrorKind.TOPIC_AUTHORIZATION, [0])]),
        ("nobody answers", False, []),
    ],
)
def test_a_failed_lookup_is_reported_where_the_application_can_react(
    problem: str, refused: bool, reported: list[tuple[ErrorKind, list[int]]]
) -> None:
    driven = Driven(initial_offset=Reset.EARLIEST)
    driven.attach()
    driven.assign(0)
    driven.acknowledge()
    driven.find(-1)
    driven.step(on.OffsetsListed(driven.last(do.ListOffsets).request, {}, problem, refused))
    assert errors(driven) == reported


def test_denied_access_to_offsets_is_reported() -> None:
    driven = Driven()
    driven.attach()
    driven.assign(0)
    driven.acknowledge()
    for _ in range(3):
        driven.find(error=pb.GROUP_AUTHORIZATION_FAILED)
        driven.pass_time(20_000)
    assert errors(driven) == [(ErrorKind.GROUP_AUTHORIZATION, [0])]


def test_errors_are_reported_to_the_next_application_too() -> None:
    driven = without_offsets(0)
    driven.acknowledge()
    driven.detach()
    driven.attach()
    driven.acknowledge()
    assert errors(driven) == [(ErrorKind.NO_OFFSET, [0])] * 2


def test_a_partition_shows_what_is_wrong_with_it_until_that_is_over() -> None:
    driven = Driven(on_offset_expired=Reset.NONE).begin(0, offset=7)
    assert driven.delivery.partitions[one()].problem == ""
    driven.fail_read(on.FetchError.UNKNOWN_TOPIC)
    assert "retrying" in driven.delivery.partitions[one()].problem
    driven.pass_time(1_000)
    driven.read(0)
    assert driven.delivery.partitions[one()].problem == ""
    driven.fail_read(on.FetchError.OUT_OF_RANGE)
    driven.find(7)
    driven.fail_read(on.FetchError.OUT_OF_RANGE)
    assert "has no position to read from" in driven.delivery.partitions[one()].problem
    driven.commit_asked({0: 9})
    assert driven.delivery.partitions[one()].problem == ""
