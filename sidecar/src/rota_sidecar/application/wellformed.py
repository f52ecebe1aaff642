"""
Stateless validation of the application's requests: limits, ranges and required fields.

Called by `validation_interceptor` for each call and by `streams` for each message, before they have any effect. Each
function returns a message for the sender, or an empty string for a valid request.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sized
from typing import Any

from google.protobuf.message import Message

from rota_proto.sidecar.v1 import sidecar_pb2 as pb
from rota_sidecar.config.parsing import pattern_problem, topics_problem

PARTITIONS_MAX = 10_000
TOPICS_MAX = 10_000
JUDGEMENTS_MAX = 10_000
# Limit of a pattern, a reason, and every other text without a limit of its own.
TEXT_LENGTH_MAX = 1_024
# Kafka's limit, counted in UTF-16 code units.
METADATA_UNITS_MAX = 4_096
CREDIT_MAX = 1_000_000
POLL_RECORDS_MAX = 100_000
WAIT_MS_MAX = 300_000
RETRY_AFTER_MS_MAX = 24 * 3_600_000
ABOUT_SEVERAL = (pb.ACK, pb.SKIP)

Fault = Callable[[Any], str]


def fault(request: Message) -> str:
    """Validate a request of any type."""
    look = FAULTS.get(type(request))
    return "" if look is None else look(request)


# ------------------------------------------------------------------------------------------------ streams


def attaching(request: pb.AttachRequest) -> str:
    """Validate a message of Attach."""
    match request.WhichOneof("request"):
        case None:
            return "the message has no request that this version knows"
        case "hello":
            return text("client_id", request.hello.client_id)
        case "report":
            return reporting(request.report)
        case _:
            return ""


def reporting(report: pb.AttachRequest.Report) -> str:
    """Validate reported positions and progress."""
    named = [each.partition for each in report.positions]
    return (
        partitions(named)
        or first(
            f"position is {each.position}; it cannot be negative"
            for each in report.positions
            if each.position < 0 or each.timestamp_ms < 0
        )
        or first(
            "a position has timestamp_only without timestamp_ms; report a timestamp, or no such position"
            for each in report.positions
            if each.timestamp_only and not each.HasField("timestamp_ms")
        )
        or progress(report.progress)
    )


def progress(reported: pb.AttachRequest.Report.Progress) -> str:
    """Validate the progress of a query; NaN is no number that a metric can add up."""
    numbers = (reported.input_rows, reported.processed_rows_per_second, reported.batch_duration_ms)
    if all(0 <= number < math.inf for number in numbers):
        return ""
    return "a number of the progress is negative or not finite; report rows, rows per second and milliseconds from 0"


def delivering(request: pb.DeliverRequest) -> str:
    """Validate a message of Deliver."""
    match request.WhichOneof("request"):
        case None:
            return "the message has no request that this version knows"
        case "credit" if not 1 <= request.credit.records <= CREDIT_MAX:
            return f"credit for {request.credit.records} records; it must be 1 to {CREDIT_MAX}"
        case "judgements":
            judgements = request.judgements.judgements
            return number_of("judgements", judgements, JUDGEMENTS_MAX) or first(map(judgement, judgements))
        case _:
            return ""


def judgement(judged: pb.DeliverRequest.Judgement) -> str:
    """Validate a verdict with its record."""
    return partition(judged.partition) or where(judged) or verdict(judged) or text("reason", judged.reason)


def where(judged: pb.DeliverRequest.Judgement) -> str:
    """Validate the offsets of a verdict."""
    if judged.delivery_epoch < 1:
        return "a judgement has no delivery_epoch; return the one of its records"
    if judged.offset < 0:
        return f"a judgement has offset {judged.offset}; it cannot be negative"
    if judged.HasField("last_offset"):
        if judged.verdict not in ABOUT_SEVERAL:
            return "last_offset is for ACK and SKIP; other verdicts are for one record"
        if judged.last_offset < judged.offset:
            return f"a judgement has last_offset {judged.last_offset} before its offset {judged.offset}"
    return ""


def verdict(judged: pb.DeliverRequest.Judgement) -> str:
    """Validate the kind of a verdict and its delay."""
    if judged.verdict == pb.VERDICT_UNSPECIFIED or judged.verdict not in pb.Verdict.values():
        return f"invalid verdict {judged.verdict}; use ACK, RETRY, DEAD_LETTER or SKIP"
    if not judged.HasField("retry_after_ms"):
        return ""
    if judged.verdict != pb.RETRY:
        return "retry_after_ms is for RETRY only"
    if not 0 <= judged.retry_after_ms <= RETRY_AFTER_MS_MAX:
        return f"retry_after_ms is {judged.retry_after_ms}; it must be 0 to {RETRY_AFTER_MS_MAX}"
    return ""


# ------------------------------------------------------------------------------------------------ calls


def subscribing(request: pb.SubscribeRequest) -> str:
    """Validate a subscription."""
    if request.topics and request.pattern:
        return "give either topics or a pattern, not both"
    if len(set(request.topics)) < len(request.topics):
        return "a topic is named twice"
    return (
        number_of("topics", request.topics, TOPICS_MAX)
        or topics_problem(request.topics)
        or text("pattern", request.pattern)
        or pattern_problem(request.pattern)
    )


def polling(request: pb.PollRequest) -> str:
    """Validate a poll."""
    if not 1 <= request.max_records <= POLL_RECORDS_MAX:
        return f"max_records is {request.max_records}; it must be 1 to {POLL_RECORDS_MAX}"
    if not 0 <= request.max_wait_ms <= WAIT_MS_MAX:
        return f"max_wait_ms is {request.max_wait_ms}; it must be 0 to {WAIT_MS_MAX}"
    return ""


def committing(request: pb.CommitRequest) -> str:
    """Validate a commit."""
    tenure = request.tenure
    if not tenure.number and (tenure.member_id or tenure.generation_id or tenure.incarnation):
        return "the tenure has no number; return it as it came with the records, or omit it"
    return partitions([each.partition for each in request.offsets]) or first(map(offset, request.offsets))


def offset(asked: pb.PartitionOffset) -> str:
    """Validate an offset to commit."""
    if asked.offset < 0:
        return f"the offset of {named(asked.partition)} is {asked.offset}; it cannot be negative"
    if len(asked.metadata.encode("utf-16-le")) // 2 > METADATA_UNITS_MAX:
        return f"the metadata of {named(asked.partition)} is longer than {METADATA_UNITS_MAX} characters"
    if asked.leader_epoch < 0:
        return (
            f"the leader_epoch of {named(asked.partition)} is {asked.leader_epoch}; omit it if it is unknown"
        )
    return ""


def seeking(request: pb.SeekRequest) -> str:
    """Validate a seek."""
    return (
        some("offsets", request.offsets)
        or partitions([each.partition for each in request.offsets])
        or first(
            f"the offset of {named(each.partition)} is {each.offset}; use an offset, -1 for the end or -2 for the start"
            for each in request.offsets
            if each.offset < -2
        )
    )


def looking_up_times(request: pb.OffsetsForTimesRequest) -> str:
    """Validate a lookup of offsets by timestamps."""
    return partitions([each.partition for each in request.times]) or first(
        f"timestamp_ms is {each.timestamp_ms}; it cannot be negative"
        for each in request.times
        if each.timestamp_ms < 0
    )


def about_partitions(request: pb.AssignRequest | pb.PositionRequest | pb.CommittedRequest) -> str:
    """Validate a request that is a list of partitions."""
    return partitions(request.partitions)


def pausing(request: pb.PauseRequest | pb.ResumeRequest) -> str:
    """Validate a pause or a resume."""
    return some("partitions", request.partitions) or partitions(request.partitions)


def counting(request: pb.PartitionsRequest) -> str:
    """Validate a request for the partitions of a topic."""
    return topics_problem([request.topic])


# ------------------------------------------------------------------------------------------------ parts of requests


def partitions(several: Collection[pb.TopicPartition]) -> str:
    """Validate a list of partitions: no duplicates, and not too many."""
    wrong = number_of("partitions", several, PARTITIONS_MAX) or first(map(partition, several))
    if wrong:
        return wrong
    seen: set[tuple[str, int]] = set()
    for each in several:
        if (each.topic, each.partition) in seen:
            return f"{named(each)} is named twice"
        seen.add((each.topic, each.partition))
    return ""


def partition(one: pb.TopicPartition) -> str:
    """Validate a partition."""
    if one.partition < 0:
        return f"partition {named(one)}: the number of a partition cannot be negative"
    return topics_problem([one.topic])


def named(one: pb.TopicPartition) -> str:
    """Format a partition for messages."""
    return f"{one.topic}/{one.partition}"


def some(name: str, values: Sized) -> str:
    """Require at least one value."""
    return "" if values else f"{name} is empty; give at least one"


def text(name: str, value: str) -> str:
    """Validate the length of a text."""
    if len(value) <= TEXT_LENGTH_MAX:
        return ""
    return f"{name} has {len(value)} characters; at most {TEXT_LENGTH_MAX} are allowed"


def number_of(name: str, values: Sized, most: int) -> str:
    """Validate the number of values."""
    return "" if len(values) <= most else f"{len(values)} {name} in one request; send at most {most}"


def first(faults: Iterable[str]) -> str:
    """Return the first fault; empty if there is none."""
    return next(filter(None, faults), "")


FAULTS: Mapping[type[Message], Fault] = {
    pb.AttachRequest: attaching,
    pb.DeliverRequest: delivering,
    pb.SubscribeRequest: subscribing,
    pb.AssignRequest: about_partitions,
    pb.PollRequest: polling,
    pb.CommitRequest: committing,
    pb.SeekRequest: seeking,
    pb.PositionRequest: about_partitions,
    pb.CommittedRequest: about_partitions,
    pb.PauseRequest: pausing,
    pb.ResumeRequest: pausing,
    pb.OffsetsForTimesRequest: looking_up_times,
    pb.BeginningOffsetsRequest: about_partitions,
    pb.EndOffsetsRequest: about_partitions,
    pb.PartitionsRequest: counting,
}
