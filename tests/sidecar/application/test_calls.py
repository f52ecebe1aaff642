"""The calls that are one request and one answer, over a real socket."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message

from rota_proto.sidecar.v1 import sidecar_pb2 as pb
from rota_sidecar.application import service
from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.ledger.commit_points import CommitMetadata
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.engines.port import Refused, Unreachable
from rota_sidecar.engines.records import OffsetAndTimestamp
from tests.sidecar.application.fakes import P0, P1, TENURE, error
from tests.sidecar.application.talking import Code, Talk, at, play, refused

pytestmark = pytest.mark.process

UNKNOWN = Partition("nothing", 3)


def offset(
    partition: Partition,
    where: int,
    metadata: str = "",
    error_name: str = "NONE",
    *,
    leader_epoch: int | None = None,
    timestamp_ms: int = 0,
) -> pb.PartitionOffset:
    return pb.PartitionOffset(
        partition=at(*partition),
        offset=where,
        metadata=metadata,
        error_code=error(error_name),
        leader_epoch=leader_epoch,
        timestamp_ms=timestamp_ms,
    )


def test_a_commit_has_the_applications_offsets_and_metadata(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        talk.deliveries.answers.append(do.Answer(1, errors={P0: error("NONE"), P1: error("NONE")}))
        request = pb.CommitRequest(
            offsets=[offset(P0, 5, "so far", leader_epoch=2), offset(P1, 0)], tenure=pb.Tenure(number=3)
        )
        answer = await talk.stub.Commit(request)
        assert answer == pb.CommitResponse(offsets=[offset(P0, 5), offset(P1, 0)])
        asked = {P0: on.RequestedOffset(5, "so far", 2), P1: on.RequestedOffset(0)}
        assert talk.deliveries.asked == [on.CommitRequested(0, asked, 3)]

    play(tmp_path, story)


def test_a_commit_without_offsets_is_about_everything_that_has_verdicts(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        talk.deliveries.answers.append(do.Answer(1, offsets={P1: 8}))
        assert await talk.stub.Commit(pb.CommitRequest()) == pb.CommitResponse(offsets=[offset(P1, 8)])
        assert talk.deliveries.asked == [on.CommitRequested(0, None, 0)]

    play(tmp_path, story)


def test_the_outcome_of_a_commit_is_returned_for_each_partition(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        late = error("ILLEGAL_GENERATION")
        talk.deliveries.answers.append(
            do.Answer(1, errors={P0: error("NONE"), P1: late}, message="P1 is gone")
        )
        answer = await talk.stub.Commit(pb.CommitRequest(offsets=[offset(P0, 5), offset(P1, 6)]))
        assert answer == pb.CommitResponse(
            error_code=late,
            message="P1 is gone",
            offsets=[offset(P0, 5), offset(P1, 6, error_name="ILLEGAL_GENERATION")],
        )

    play(tmp_path, story)


def test_an_error_of_all_is_that_of_each(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        talk.deliveries.answers.append(do.Answer(1, error("UNKNOWN_MEMBER_ID")))
        answer = await talk.stub.Commit(pb.CommitRequest(offsets=[offset(P0, 5)]))
        assert answer.error_code == error("UNKNOWN_MEMBER_ID")
        assert answer.offsets == [offset(P0, 5, error_name="UNKNOWN_MEMBER_ID")]

    play(tmp_path, story)


def test_a_commit_waits_as_long_as_its_caller_does(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        talk.deliveries.hangs = True
        code, _ = await refused(talk.stub.Commit(pb.CommitRequest(), timeout=0.05))
        assert code is Code.DEADLINE_EXCEEDED

    play(tmp_path, story)


def test_a_caller_without_a_deadline_is_not_left_waiting_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "WITHIN_S_MAX", 0.05)

    async def story(talk: Talk) -> None:
        talk.deliveries.hangs = True
        code, details = await refused(talk.stub.Commit(pb.CommitRequest()))
        assert code is Code.DEADLINE_EXCEEDED
        assert (
            details
            == "no answer within 0.05 s; the request may still take effect, query the state before a retry"
        )

    play(tmp_path, story)


def test_a_seek_goes_to_offsets_and_to_either_end(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        request = pb.SeekRequest(offsets=[offset(P0, -1), offset(P1, -2), offset(UNKNOWN, 7)])
        talk.deliveries.answers.append(
            do.Answer(1, error("ILLEGAL_GENERATION"), message="nothing/3 is not ours")
        )
        assert await talk.stub.Seek(request) == pb.SeekResponse(
            error_code=error("ILLEGAL_GENERATION"), message="nothing/3 is not ours"
        )
        assert talk.deliveries.asked == [on.SeekRequested(0, {P0: -1, P1: -2, UNKNOWN: 7})]

    play(tmp_path, story)


def test_partitions_are_paused_and_resumed(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        partitions = [at(*P0), at(*P1)]
        assert await talk.stub.Pause(pb.PauseRequest(partitions=partitions)) == pb.PauseResponse()
        talk.deliveries.answers.append(do.Answer(1, errors={P1: error("ILLEGAL_GENERATION")}, message="gone"))
        answer = await talk.stub.Resume(pb.ResumeRequest(partitions=partitions))
        assert answer == pb.ResumeResponse(error_code=error("ILLEGAL_GENERATION"), message="gone")
        both = frozenset({P0, P1})
        assert talk.deliveries.asked == [on.PauseRequested(0, both), on.ResumeRequested(0, both)]

    play(tmp_path, story)


def test_topics_a_pattern_or_nothing_is_subscribed_to(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        for request in (
            pb.SubscribeRequest(topics=["orders", "returns"]),
            pb.SubscribeRequest(pattern=r"shop\..*"),
            pb.SubscribeRequest(),
        ):
            assert await talk.stub.Subscribe(request) == pb.SubscribeResponse()
        assert talk.deliveries.wanted == [(["orders", "returns"], ""), ([], r"shop\..*"), ([], "")]

    play(tmp_path, story)


def test_partitions_are_assigned_by_hand(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        await talk.stub.Assign(pb.AssignRequest(partitions=[at(*P0), at(*P1)]))
        await talk.stub.Assign(pb.AssignRequest())
        assert talk.deliveries.wanted == [frozenset({P0, P1}), frozenset()]

    play(tmp_path, story)


def test_a_position_is_known_not_known_yet_or_not_ours(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        talk.deliveries.is_held = {P0: TENURE, P1: TENURE}
        talk.deliveries.stands_at = {P0: 12}
        request = pb.PositionRequest(partitions=[at(*P0), at(*P1), at(*UNKNOWN)])
        assert (await talk.stub.Position(request)).offsets == [
            offset(P0, 12),
            offset(P1, -1),
            offset(UNKNOWN, -1, error_name="ILLEGAL_GENERATION"),
        ]

    play(tmp_path, story)


def test_committed_offsets_are_returned_without_rotas_own_metadata(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        talk.deliveries.stored = {
            P0: on.Stored(5, "so far", 3),
            P1: on.Stored(9, CommitMetadata(retries=2).metadata),
        }
        request = pb.CommittedRequest(partitions=[at(*UNKNOWN), at(*P0), at(*P1)])
        assert (await talk.stub.Committed(request)).offsets == [
            offset(UNKNOWN, -1),
            offset(P0, 5, "so far", leader_epoch=3),
            offset(P1, 9),
        ]

    play(tmp_path, story)


def test_the_assignment_is_what_is_held_and_what_is_paused(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        assert await talk.stub.Assignment(pb.AssignmentRequest()) == pb.AssignmentResponse()
        talk.deliveries.is_held = {P1: TENURE._replace(number=4, generation=9), P0: TENURE}
        talk.deliveries.is_paused = frozenset({P1})
        assert await talk.stub.Assignment(pb.AssignmentRequest()) == pb.AssignmentResponse(
            partitions=[at(*P0), at(*P1)],
            paused=[at(*P1)],
            tenure=pb.Tenure(member_id="member-1", generation_id=9, incarnation=77, number=4),
        )

    play(tmp_path, story)


def test_starts_and_ends_are_looked_up(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        talk.deliveries.looked_up.known = {P0: on.Bounds(3, 9), P1: on.Bounds(0, 0)}
        about = [at(*P1), at(*P0), at(*UNKNOWN)]
        missing = offset(UNKNOWN, -1, error_name="UNKNOWN_TOPIC_OR_PARTITION")
        starts = await talk.stub.BeginningOffsets(pb.BeginningOffsetsRequest(partitions=about))
        assert starts.offsets == [offset(P1, 0), offset(P0, 3), missing]
        ends = await talk.stub.EndOffsets(pb.EndOffsetsRequest(partitions=about))
        assert ends.offsets == [offset(P1, 0), offset(P0, 9), missing]

    play(tmp_path, story)


def test_offsets_of_points_in_time_are_looked_up(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        talk.deliveries.looked_up.times = {P0: OffsetAndTimestamp(4, 1_700)}
        times = [pb.OffsetsForTimesRequest.Time(partition=at(*each), timestamp_ms=1_500) for each in (P0, P1)]
        found = await talk.stub.OffsetsForTimes(pb.OffsetsForTimesRequest(times=times))
        assert found.offsets == [offset(P0, 4, timestamp_ms=1_700), offset(P1, -1)]

    play(tmp_path, story)


def test_a_topic_has_partitions_or_does_not_exist(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        talk.deliveries.counts = {"orders": 3}
        assert list((await talk.stub.Partitions(pb.PartitionsRequest(topic="orders"))).partitions) == [
            0,
            1,
            2,
        ]
        missing = await talk.stub.Partitions(pb.PartitionsRequest(topic="nothing"))
        assert missing.error_code == error("UNKNOWN_TOPIC_OR_PARTITION")

    play(tmp_path, story)


def test_metrics_have_their_labels(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        assert list((await talk.stub.Metrics(pb.MetricsRequest())).samples) == []
        labels = {"group": "g", "topic": "orders"}
        talk.deliveries.samples = [("rota_lag_records", labels, 7.0), ("rota_assigned_partitions", {}, 1.0)]
        found = (await talk.stub.Metrics(pb.MetricsRequest())).samples
        assert [(each.name, dict(each.labels), each.value) for each in found] == talk.deliveries.samples

    play(tmp_path, story)


def test_topics_are_listed_in_order(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        assert list((await talk.stub.Topics(pb.TopicsRequest())).topics) == []
        talk.deliveries.counts = {"payments": 1, "orders": 3}
        assert list((await talk.stub.Topics(pb.TopicsRequest())).topics) == ["orders", "payments"]

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (Unreachable("rota:7070 did not answer within 10 s"), Code.UNAVAILABLE),
        (Refused("rota:7070 forbids it"), Code.PERMISSION_DENIED),
    ],
)
def test_a_backends_failure_is_returned_with_its_message(
    tmp_path: Path, failure: Exception, code: Code
) -> None:
    async def story(talk: Talk) -> None:
        talk.deliveries.looked_up.fails = failure
        request = pb.EndOffsetsRequest(partitions=[at(*P0)])
        assert await refused(talk.stub.EndOffsets(request)) == (code, str(failure))

    play(tmp_path, story)


def test_an_answer_that_is_too_large_is_refused(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        talk.deliveries.is_held = {Partition("x" * 249, number): TENURE for number in range(20_000)}
        code, details = await refused(talk.stub.Assignment(pb.AssignmentRequest()))
        assert code is Code.RESOURCE_EXHAUSTED
        assert details.endswith("the limit is 4194304; request less at a time")

    play(tmp_path, story)


TWICE = [at(*P0), at(*P0)]
MANY = [at("orders", number) for number in range(10_001)]
WRONG: list[tuple[str, Message, str]] = [
    (
        "Commit",
        pb.CommitRequest(offsets=[offset(P0, -1)]),
        "the offset of orders/0 is -1; it cannot be negative",
    ),
    ("Commit", pb.CommitRequest(offsets=[offset(P0, 1), offset(P0, 2)]), "orders/0 is named twice"),
    (
        "Commit",
        pb.CommitRequest(offsets=[offset(P0, 1, "x" * 4_097)]),
        "the metadata of orders/0 is longer than 4096 characters",
    ),
    (
        "Commit",
        pb.CommitRequest(offsets=[offset(P0, 1, "\U0001f600" * 2_049)]),
        "the metadata of orders/0 is longer than 4096 characters",
    ),
    (
        "Commit",
        pb.CommitRequest(offsets=[offset(P0, 1, leader_epoch=-1)]),
        "the leader_epoch of orders/0 is -1; omit it if it is unknown",
    ),
    (
        "Commit",
        pb.CommitRequest(tenure=pb.Tenure(member_id="m", generation_id=3)),
        "the tenure has no number; return it as it came with the records, or omit it",
    ),
    (
        "Commit",
        pb.CommitRequest(offsets=[pb.PartitionOffset(offset=1)]),
        "invalid topic name ''; expected 1 to 249 letters, digits, '.', '_' and '-'",
    ),
    (
        "Commit",
        pb.CommitRequest(offsets=[pb.PartitionOffset(partition=each) for each in MANY]),
        "10001 partitions in one request; send at most 10000",
    ),
    ("Seek", pb.SeekRequest(), "offsets is empty; give at least one"),
    (
        "Seek",
        pb.SeekRequest(offsets=[offset(P0, -3)]),
        "the offset of orders/0 is -3; use an offset, -1 for the end or -2 for the start",
    ),
    ("Pause", pb.PauseRequest(), "partitions is empty; give at least one"),
    ("Resume", pb.ResumeRequest(partitions=TWICE), "orders/0 is named twice"),
    ("Assign", pb.AssignRequest(partitions=TWICE), "orders/0 is named twice"),
    (
        "Position",
        pb.PositionRequest(partitions=[at("orders", -1)]),
        "partition orders/-1: the number of a partition cannot be negative",
    ),
    (
        "Committed",
        pb.CommittedRequest(partitions=MANY),
        "10001 partitions in one request; send at most 10000",
    ),
    ("BeginningOffsets", pb.BeginningOffsetsRequest(partitions=TWICE), "orders/0 is named twice"),
    ("EndOffsets", pb.EndOffsetsRequest(partitions=TWICE), "orders/0 is named twice"),
    (
        "OffsetsForTimes",
        pb.OffsetsForTimesRequest(times=[pb.OffsetsForTimesRequest.Time(partition=at(*P0), timestamp_ms=-1)]),
        "timestamp_ms is -1; it cannot be negative",
    ),
    (
        "Partitions",
        pb.PartitionsRequest(topic="a b"),
        "invalid topic name 'a b'; expected 1 to 249 letters, digits, '.', '_' and '-'",
    ),
    (
        "Subscribe",
        pb.SubscribeRequest(topics=["a"], pattern="b"),
        "give either topics or a pattern, not both",
    ),
    ("Subscribe", pb.SubscribeRequest(topics=["a", "a"]), "a topic is named twice"),
    ("Poll", pb.PollRequest(session=1), "max_records is 0; it must be 1 to 100000"),
    (
        "Poll",
        pb.PollRequest(session=1, max_records=1, max_wait_ms=-1),
        "max_wait_ms is -1; it must be 0 to 300000",
    ),
]


@pytest.mark.parametrize(
    ("method", "request_", "details"), WRONG, ids=[f"{each[0]} {each[2]}" for each in WRONG]
)
def test_a_malformed_request_is_refused_and_nothing_happens(
    tmp_path: Path, method: str, request_: Message, details: str
) -> None:
    async def story(talk: Talk) -> None:
        call: Callable[..., asyncio.Future[object]] = getattr(talk.stub, method)
        assert await refused(call(request_)) == (Code.INVALID_ARGUMENT, details)
        assert (talk.deliveries.asked, talk.deliveries.wanted) == ([], [])

    play(tmp_path, story)


def test_a_pattern_that_is_none_is_refused(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        code, details = await refused(talk.stub.Subscribe(pb.SubscribeRequest(pattern="(")))
        assert code is Code.INVALID_ARGUMENT
        assert "invalid topic pattern '('; expected a regular expression" in details

    play(tmp_path, story)


def test_a_poll_without_an_attachment_is_refused(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        code, details = await refused(talk.stub.Poll(pb.PollRequest(session=4, max_records=1)))
        assert (code, details) == (
            Code.FAILED_PRECONDITION,
            "no application is attached with session 4; open Attach first",
        )

    play(tmp_path, story)


def test_bytes_that_are_no_request_are_refused(tmp_path: Path) -> None:
    async def story(talk: Talk) -> None:
        call: Any = talk.channel.unary_unary("/rota.sidecar.v1.Consumer/Commit")
        assert await refused(call(b"\xff\xff")) == (
            Code.INVALID_ARGUMENT,
            "the bytes are not the message that this method takes",
        )

    play(tmp_path, story)
