"""
Checks of commits against the embedded log, before their group handles them: existing topics, open transaction.

As in Kafka, partitions of unknown topics are rejected for every principal, and the rest of the request is handled
without them. The same holds for offsets that an administrator alters. Called by `router` when it serves a log.
"""

import copy
from collections.abc import Callable, Mapping
from functools import partial

from google.protobuf.message import Message

from rota_coordinator.core.group.answers import Request, refused
from rota_coordinator.runtime.calls import Answer, CommitRequest
from rota_coordinator.runtime.replicated_state import SlotState
from rota_coordinator.runtime.topic_log import TopicLog
from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.coordinator.v1 import coordinator_pb2 as pb

Submit = Callable[[Request, str, str], Answer]
# Requests that store offsets.
OffsetWriteRequest = CommitRequest | admin.AlterOffsetsRequest


class TopicCommits:
    """Filters commits by the topics of the log before it submits them to the router."""

    def __init__(self, log: TopicLog, submit: Submit) -> None:
        self._log = log
        self._submit = submit

    def submit(self, request: OffsetWriteRequest, client_host: str, principal: str) -> Answer:
        """
        Submit the valid part of a principal's commit to its group, and add the errors of the other topics to the
        answer.
        """
        error = self._error(request)
        if error:
            return answered(refused(request, error))
        refusals: dict[str, pb.ErrorCode.ValueType] = {}
        for topic in request.topics:
            topic_id = self._log.core.topic_id(topic.name)
            if topic_id is None:
                refusals[topic.name] = pb.UNKNOWN_TOPIC_OR_PARTITION
            elif not topic.topic_id:
                # Stored with the offset, to distinguish the topic from a later one of the same name.
                topic.topic_id = topic_id
            elif topic.topic_id != topic_id:
                # The topic was deleted and recreated while the consumer was reading it.
                refusals[topic.name] = pb.UNKNOWN_TOPIC_ID
        if not refusals:
            return self._submit(request, client_host, principal)
        left = without(request, refusals)
        if not left.topics:
            return answered(completed(request, refusals, None))
        answer = Answer()
        part = self._submit(left, client_host, principal)
        part.when_done(partial(complete, request, refusals, answer))
        return answer

    def _error(self, request: OffsetWriteRequest) -> pb.ErrorCode.ValueType:
        if self._log.state is not SlotState.READY:
            return pb.COORDINATOR_LOAD_IN_PROGRESS
        # An empty group id is rejected by the group core.
        if isinstance(request, pb.TxnCommitOffsetsRequest) and request.group_id:
            return self._log.core.txn_offsets_error(request)
        return pb.NONE


def answered(reply: Message) -> Answer:
    """Return a completed answer."""
    answer = Answer()
    answer.set_result(reply)
    return answer


OffsetWriteResponse = pb.CommitOffsetsResponse | pb.TxnCommitOffsetsResponse | admin.AlterOffsetsResponse
RESPONSES: Mapping[type[OffsetWriteRequest], type[OffsetWriteResponse]] = {
    pb.CommitOffsetsRequest: pb.CommitOffsetsResponse,
    pb.TxnCommitOffsetsRequest: pb.TxnCommitOffsetsResponse,
    admin.AlterOffsetsRequest: admin.AlterOffsetsResponse,
}
Refusals = Mapping[str, pb.ErrorCode.ValueType]


def without(request: OffsetWriteRequest, refusals: Refusals) -> OffsetWriteRequest:
    """Return a copy of the request without the refused topics."""
    left = copy.copy(request)
    del left.topics[:]
    left.topics.extend(topic for topic in request.topics if topic.name not in refusals)
    return left


def complete(request: OffsetWriteRequest, refusals: Refusals, answer: Answer, part: Answer) -> None:
    """Complete the answer from the group's response to the accepted part."""
    if answer.done():
        return
    error = None if part.cancelled() else part.exception()
    if error is not None:
        answer.set_exception(error)
        return
    reply = part.result()
    answer.set_result(None if reply is None else completed(request, refusals, reply))


def completed(request: OffsetWriteRequest, refusals: Refusals, reply: Message | None) -> Message:
    """Return the response for all topics, in the order of the request."""
    if isinstance(reply, admin.AlterOffsetsResponse) and reply.error_code:
        return reply
    whole = RESPONSES[type(request)]()
    if isinstance(reply, OffsetWriteResponse):
        whole.error_code = reply.error_code
        rest = iter(reply.topics)
    else:
        rest = iter(())
    for topic in request.topics:
        if topic.name not in refusals:
            whole.topics.append(next(rest))
            continue
        refused_ones = whole.topics.add(name=topic.name).partitions
        for partition in topic.partitions:
            refused_ones.add(index=partition.index, error_code=refusals[topic.name])
    return whole
