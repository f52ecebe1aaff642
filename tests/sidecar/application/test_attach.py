"""Attach: the attached application, its events, and the end of the attachment."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from rota_proto.sidecar.v1 import sidecar_pb2 as pb
from rota_sidecar.application import event_queue, streams
from rota_sidecar.application.translating import errors_to
from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.delivery.config import CommitMode, DeliveryConfig
from rota_sidecar.core.ledger.batches import Ordering
from rota_sidecar.core.ledger.rules import Rules
from rota_sidecar.core.member.partitions import Offset, Partition
from tests.sidecar.application.fakes import NOW_MS, P0, P1, TENURE, rebalance_event
from tests.sidecar.application.talking import (
    AttachStream,
    Code,
    Play,
    Talk,
    acknowledge,
    at,
    credit,
    ended,
    goodbye,
    judged,
    judgement,
    play,
)

pytestmark = pytest.mark.process

Story = Callable[[Talk], Coroutine[Any, Any, None]]


async def event_of(stream: AttachStream) -> pb.AttachResponse.Event:
    response = await stream.read()
    assert isinstance(response, pb.AttachResponse)
    return response.event


def test_an_application_learns_what_the_sidecar_is_set_to(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        talk.deliveries.set_to = DeliveryConfig(
            "shop.orders", Rules(Ordering.KEY), concurrency=7, commit_mode=CommitMode.SYNC
        )
        stream = talk.stub.Attach()
        await stream.write(
            pb.AttachRequest(hello=pb.AttachRequest.Hello(client_id="app", commits_itself=True))
        )
        response = await stream.read()
        assert response == pb.AttachResponse(
            attached=pb.AttachResponse.Attached(
                session=1,
                group_id="shop.orders",
                ordering=pb.ORDERING_KEY,
                concurrency=7,
                processing_timeout_ms=300_000,
                commit_mode="sync",
                frames_socket="app.sock.frames",
            )
        )
        assert talk.deliveries.attached == [(True, False, True)]
        assert talk.logged == [("attached", "app is attached")]

    play(tmp_path, story)


def test_a_second_application_is_refused_and_the_first_one_stays(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        first = await talk.attach()
        hello = pb.AttachRequest(hello=pb.AttachRequest.Hello())
        code, details = await ended(talk.stub.Attach(), hello)
        assert code is Code.ALREADY_EXISTS
        assert "already attached" in details
        talk.deliveries.there.on_assignment_event(rebalance_event(3, do.Kind.ASSIGNED, P0))
        assert (await event_of(first)).kind == pb.ASSIGNED
        assert talk.deliveries.detached == []

    play(tmp_path, story)


def test_an_event_says_what_happens_to_which_partitions_and_for_how_long(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        stream = await talk.attach()
        talk.deliveries.there.on_assignment_event(
            rebalance_event(8, do.Kind.REVOKING, P1, P0, deadline_ms=NOW_MS + 1_500)
        )
        assert await event_of(stream) == pb.AttachResponse.Event(
            event_id=1,
            kind=pb.REVOKING,
            partitions=[at("orders", 0), at("orders", 1)],
            tenure=pb.Tenure(member_id="member-1", generation_id=4, incarnation=77, number=1),
            deadline_ms=1_500,
        )

    play(tmp_path, story)


def test_a_deadline_that_has_passed_is_now(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        stream = await talk.attach()
        talk.deliveries.there.on_assignment_event(
            rebalance_event(8, do.Kind.REVOKING, P0, deadline_ms=NOW_MS - 1)
        )
        assert (await event_of(stream)).deadline_ms == 0

    play(tmp_path, story)


def test_an_acknowledgement_is_posted_once(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        stream = await talk.attach()
        talk.deliveries.there.on_assignment_event(rebalance_event(40, do.Kind.ASSIGNED, P0))
        event = await event_of(stream)
        await stream.write(acknowledge(event.event_id))
        await stream.write(acknowledge(event.event_id))
        await stream.write(goodbye())
        await talk.deliveries.until(lambda: talk.deliveries.detached)
        assert talk.deliveries.all(on.Acknowledged) == [on.Acknowledged(40)]

    play(tmp_path, story)


def test_revoked_may_be_acknowledged_and_is_not_waited_for(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        stream = await talk.attach()
        talk.deliveries.there.on_assignment_event(rebalance_event(41, do.Kind.REVOKED, P0))
        await stream.write(acknowledge((await event_of(stream)).event_id))
        await stream.write(goodbye())
        await talk.deliveries.until(lambda: talk.deliveries.detached)
        assert talk.deliveries.events == []

    play(tmp_path, story)


def test_an_event_that_never_was_cannot_be_acknowledged(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        stream = await talk.attach()
        code, details = await ended(stream, acknowledge(1))
        assert code is Code.FAILED_PRECONDITION
        assert details == "unknown event 1; acknowledge the event_id of an event"
        await talk.deliveries.until(lambda: talk.deliveries.detached)
        assert talk.deliveries.detached == [(1, False)]

    play(tmp_path, story)


def test_an_event_on_deliver_is_acknowledged_after_the_judgements_before_it(play: Play) -> None:
    async def story(talk: Talk) -> None:
        stream = await talk.attach()
        records = await talk.deliver()
        talk.deliveries.there.on_assignment_event(rebalance_event(9, do.Kind.REVOKING, P0))
        event = await event_of(stream)
        await records.write(judged(judgement(5)))
        await records.write(
            pb.DeliverRequest(acknowledge=pb.AttachRequest.Acknowledge(event_id=event.event_id))
        )
        await talk.deliveries.until(lambda: len(talk.deliveries.events) == 2)
        assert isinstance(talk.deliveries.events[0], on.Judged)
        assert talk.deliveries.events[1] == on.Acknowledged(9)

    play(story)


def test_very_many_partitions_come_in_several_events_and_are_acknowledged_by_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_queue, "PARTITIONS_PER_EVENT", 2)
    partitions = [Partition("orders", number) for number in range(5)]

    async def story(talk: Talk) -> None:
        stream = await talk.attach()
        talk.deliveries.there.on_assignment_event(rebalance_event(7, do.Kind.ASSIGNED, *partitions))
        events = [await event_of(stream) for _ in range(3)]
        assert [len(event.partitions) for event in events] == [2, 2, 1]
        assert [event.event_id for event in events] == [1, 2, 3]
        for event in (events[2], events[0]):
            await stream.write(acknowledge(event.event_id))
        talk.deliveries.there.on_assignment_event(rebalance_event(8, do.Kind.ASSIGNED, P0))
        await stream.write(acknowledge((await event_of(stream)).event_id))
        await stream.write(acknowledge(events[1].event_id))
        await talk.deliveries.until(lambda: len(talk.deliveries.events) == 2)
        assert talk.deliveries.events == [on.Acknowledged(8), on.Acknowledged(7)]

    play(tmp_path, story)


def test_ten_thousand_partitions_with_the_longest_names_fit_into_a_message() -> None:
    names = (f"{number:05}".ljust(249, "x") for number in range(event_queue.PARTITIONS_PER_EVENT))
    partitions = [Partition(name, 100_000) for name in names]
    queue = event_queue.EventQueue()
    queue.put(rebalance_event(1, do.Kind.ASSIGNED, *partitions), NOW_MS)
    message = queue._waiting.get_nowait()
    assert message.ByteSize() < 4 << 20


def stalled(*partitions: Partition, kind: do.ErrorKind = do.ErrorKind.NO_OFFSET) -> do.PartitionError:
    return do.PartitionError(12, kind, partitions, "nothing is committed; seek")


def test_an_error_says_which_partitions_stand_still_and_why_and_asks_for_nothing(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        stream = await talk.attach(takes_errors=True)
        talk.deliveries.there.report(stalled(P1, P0))
        talk.deliveries.there.on_assignment_event(rebalance_event(8, do.Kind.ASSIGNED, P0))
        assert await stream.read() == pb.AttachResponse(
            error=pb.AttachResponse.PartitionError(
                kind=pb.PARTITION_ERROR_KIND_NO_OFFSET,
                partitions=[at("orders", 0), at("orders", 1)],
                message="nothing is committed; seek",
                delivery_epoch=12,
            )
        )
        await stream.write(acknowledge((await event_of(stream)).event_id))
        await stream.write(goodbye())
        await talk.deliveries.until(lambda: talk.deliveries.detached)
        assert talk.deliveries.events == [on.Acknowledged(8)]

    play(tmp_path, story)


def test_committed_offsets_come_in_messages_of_a_bounded_size_and_ask_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_queue, "PARTITIONS_PER_EVENT", 1)

    async def story(talk: Talk) -> None:
        stream = await talk.attach(takes_commits=True)
        assert talk.deliveries.takes_commits
        committed = do.OffsetsCommitted({P1: Offset(1, 7), P0: Offset(1, 5, metadata="its own")})
        talk.deliveries.there.on_commit(committed)
        for number, offset in ((0, 5), (1, 7)):
            assert await stream.read() == pb.AttachResponse(
                committed=pb.AttachResponse.Committed(
                    offsets=[pb.PartitionOffset(partition=at("orders", number), offset=offset)]
                )
            )

    play(tmp_path, story)


def test_an_application_that_does_not_know_errors_gets_none(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        stream = await talk.attach()
        talk.deliveries.there.report(stalled(P0))
        talk.deliveries.there.on_assignment_event(rebalance_event(8, do.Kind.ASSIGNED, P0))
        assert (await event_of(stream)).kind == pb.ASSIGNED

    play(tmp_path, story)


def test_every_kind_of_error_has_its_name_in_the_contract() -> None:
    for kind in do.ErrorKind:
        (message,) = errors_to(stalled(P0, kind=kind), 10)
        name = pb.PartitionErrorKind.Name(message.error.kind)
        assert name == f"PARTITION_ERROR_KIND_{kind.name}"


def test_an_error_of_very_many_partitions_comes_in_several_messages() -> None:
    partitions = [Partition("orders", number) for number in range(5)]
    assert [len(each.error.partitions) for each in errors_to(stalled(*partitions), 2)] == [2, 2, 1]


def test_an_application_that_reads_no_events_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_queue, "EVENTS_MAX", 3)

    async def story(talk: Talk) -> None:
        stream = await talk.attach()
        for number in range(4):
            talk.deliveries.there.on_assignment_event(rebalance_event(number, do.Kind.ASSIGNED, P0))
        code, details = await ended(stream)
        assert code is Code.RESOURCE_EXHAUSTED
        assert details.startswith("3 events wait for the application")

    play(tmp_path, story)


def test_a_goodbye_is_a_clean_end(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        stream = await talk.attach(client_id="app")
        await stream.write(goodbye())
        assert await stream.read() is grpc.aio.EOF
        assert await stream.code() is Code.OK
        assert talk.deliveries.detached == [(1, True)]
        assert talk.logged[-1] == ("detached", "app said goodbye")

    play(tmp_path, story)


def test_an_application_that_vanishes_is_gone_and_not_clean(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        (await talk.attach()).cancel()
        await talk.deliveries.until(lambda: talk.deliveries.detached)
        assert talk.deliveries.detached == [(1, False)]
        await talk.attach()

    play(tmp_path, story)


def test_closing_the_stream_without_a_goodbye_is_not_clean(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        stream = await talk.attach()
        await stream.done_writing()
        assert await stream.read() is grpc.aio.EOF
        assert talk.deliveries.detached == [(1, False)]

    play(tmp_path, story)


def test_the_sidecars_end_is_said_to_the_application(play: Play) -> None:
    async def story(talk: Talk) -> None:
        stream = await talk.attach()
        records = await talk.deliver()
        await records.write(credit(1))
        await talk.deliveries.until(lambda: talk.deliveries.credit)
        talk.deliveries.there.close("the sidecar stops")
        assert await ended(stream) == (Code.UNAVAILABLE, "the sidecar stops")
        assert await ended(records) == (Code.UNAVAILABLE, "the sidecar stops")

    play(story)


def test_reports_are_taken_from_applications_that_read_themselves(tmp_path: Path) -> None:
    position = pb.AttachRequest.Report.Position(partition=at("orders", 1), tenure_number=3, position=9)
    time = pb.AttachRequest.Report.Position(
        partition=at("orders", 0), tenure_number=3, position=9, timestamp_ms=7, timestamp_only=True
    )
    progress = pb.AttachRequest.Report.Progress(
        input_rows=10, processed_rows_per_second=2.5, batch_duration_ms=4000
    )
    report = pb.AttachRequest(report=pb.AttachRequest.Report(positions=[position, time], progress=progress))
    expected = on.Reported(
        [on.ReportedPosition(P1, 3, 9, None), on.ReportedPosition(P0, 3, 9, 7, timestamp_only=True)],
        on.QueryProgress(10, 2.5, 4.0),
    )

    async def story(talk: Talk) -> None:
        stream = await talk.attach(reads_itself=True)
        await stream.write(report)
        await talk.deliveries.until(lambda: talk.deliveries.events)
        assert talk.deliveries.events == [expected]

    play(tmp_path, story)


def test_a_report_of_anybody_else_is_refused(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        stream = await talk.attach()
        code, details = await ended(stream, pb.AttachRequest(report=pb.AttachRequest.Report()))
        assert code is Code.FAILED_PRECONDITION
        assert "attach with reads_itself" in details

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("first", "details"),
    [
        (acknowledge(1), "Attach begins with a hello; send it first, and once"),
        (pb.AttachRequest(), "the message has no request that this version knows"),
        (
            pb.AttachRequest(hello=pb.AttachRequest.Hello(client_id="x" * 1_025)),
            "client_id has 1025 characters; at most 1024 are allowed",
        ),
    ],
)
def test_attach_begins_with_a_hello(tmp_path: Path, first: pb.AttachRequest, details: str) -> None:
    async def story(talk: Talk) -> None:
        assert await ended(talk.stub.Attach(), first) == (Code.INVALID_ARGUMENT, details)
        assert talk.deliveries.attached == []

    play(tmp_path, story)


def test_a_second_hello_is_refused(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        stream = await talk.attach()
        code, _ = await ended(stream, pb.AttachRequest(hello=pb.AttachRequest.Hello()))
        assert code is Code.INVALID_ARGUMENT

    play(tmp_path, story)


def test_a_stream_without_a_hello_is_not_kept_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "HELLO_S", 0.05)

    async def story(talk: Talk) -> None:
        code, details = await ended(talk.stub.Attach())
        assert code is Code.DEADLINE_EXCEEDED
        assert "begin Attach with one" in details

    play(tmp_path, story)


def test_the_tenure_of_an_empty_assignment_is_the_present_one(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        stream = await talk.attach()
        newer = TENURE._replace(number=2, generation=5)
        talk.deliveries.is_held = {P0: TENURE}
        talk.deliveries.there.on_assignment_event(rebalance_event(1, do.Kind.ASSIGNED, tenure=newer))
        await event_of(stream)
        assignment = await talk.stub.Assignment(pb.AssignmentRequest())
        assert assignment.tenure.generation_id == 5
        assert list(assignment.partitions) == [at("orders", 0)]

    play(tmp_path, story)
