"""

Authorization of requests about topics: denied entries are removed from the request, and returned as errors in the
response.
Called by `rpc.log_service` for every request about topics, before the topics are looked up.
"""

import copy
from collections.abc import Awaitable, Callable
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from google.protobuf.message import Message

from rota_coordinator.security.access_control import AuthorizedCaller
from rota_coordinator.security.policy import TopicAction
from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.log.v1 import log_pb2 as pb

REFUSED = codes.TOPIC_AUTHORIZATION_FAILED
Request = TypeVar("Request", bound=Message)
Reply = TypeVar("Reply", bound=Message)


class Subject(NamedTuple):
    """The fields of a request type that name topics."""

    action: TopicAction
    # The fields that list the topics in the request and in its response, in the same order.
    asked: str
    answered: str
    topic_of: Callable[[Any], str]
    refusal: Callable[[Any], Message]
    # Returns an empty response.
    nothing: Callable[[], Any]


def of_topics(action: TopicAction, nothing: type[Message], asked: str = "topics") -> Subject:
    """Return the subject of a request that names topics."""
    name_of: Callable[[Any], str] = str if asked == "names" else attrgetter("name")
    kind = pb.DescribeTopicsResponse.Topic if nothing is pb.DescribeTopicsResponse else pb.TopicResult
    refusal = lambda each: kind(name=name_of(each), error_code=REFUSED)
    return Subject(action, asked, "topics", name_of, refusal, nothing)


def of_partitions(
    action: TopicAction, nothing: type[Message], kind: type[Message], **unknown: int
) -> Subject:
    """Return the subject of a request that names partitions; `unknown` are the response's fields beside the error."""
    refusal = lambda each: kind(topic=each.topic, index=each.index, error_code=REFUSED, **unknown)
    return Subject(action, "partitions", "partitions", attrgetter("topic"), refusal, nothing)


SUBJECTS: dict[type[Message], Subject] = {
    pb.CreateTopicsRequest: of_topics(TopicAction.ADMIN, pb.CreateTopicsResponse),
    pb.CreatePartitionsRequest: of_topics(TopicAction.ADMIN, pb.CreatePartitionsResponse),
    pb.AlterTopicsRequest: of_topics(TopicAction.ADMIN, pb.AlterTopicsResponse),
    pb.DeleteTopicsRequest: of_topics(TopicAction.ADMIN, pb.DeleteTopicsResponse, "names"),
    pb.DescribeTopicsRequest: of_topics(TopicAction.CONSUME, pb.DescribeTopicsResponse, "names"),
    pb.ProduceRequest: of_partitions(
        TopicAction.PRODUCE, pb.ProduceResponse, pb.ProduceResponse.Partition, base_offset=-1
    ),
    pb.FetchRequest: of_partitions(TopicAction.CONSUME, pb.FetchResponse, pb.FetchResponse.Partition),
    pb.ListOffsetsRequest: of_partitions(
        TopicAction.CONSUME,
        pb.ListOffsetsResponse,
        pb.ListOffsetsResponse.Partition,
        offset=-1,
        timestamp_ms=-1,
    ),
    pb.DeleteRecordsRequest: of_partitions(
        TopicAction.ADMIN, pb.DeleteRecordsResponse, pb.DeleteRecordsResponse.Partition
    ),
}


async def screened(
    request: Request,
    caller: AuthorizedCaller,
    act: Callable[[Request], Awaitable[Reply]],
) -> Reply:
    """Handle the allowed entries of a request, and return the response with errors for the denied ones."""
    subject = SUBJECTS[type(request)]
    asked = getattr(request, subject.asked)
    denied = {name for name in map(subject.topic_of, asked) if not caller.may_topic(subject.action, name)}
    if not denied:
        return await act(request)
    for name in sorted(denied):
        caller.denied(request, name, REFUSED)
    allowed = [each for each in asked if subject.topic_of(each) not in denied]
    reply: Reply = subject.nothing()
    if allowed:
        left = copy.copy(request)
        del getattr(left, subject.asked)[:]
        getattr(left, subject.asked).extend(allowed)
        reply = await act(left)
    answered = getattr(reply, subject.answered)
    rest = iter(list(answered))
    del answered[:]
    for each in asked:
        answered.append(subject.refusal(each) if subject.topic_of(each) in denied else next(rest))
    return reply
