"""
Topic administration: create, grow, alter, describe and delete. Called by `log`; each topic and partition has its own result.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from rota_coordinator.core.log.config import DELETE_RETENTION_MS, FOR_EVER, NAME_LENGTH_MAX, LogConfig
from rota_coordinator.core.log.effects import Effects
from rota_coordinator.core.log.partition import DELETING, Partition, Retention
from rota_coordinator.core.log.state import State
from rota_coordinator.core.log.topics import Topic
from rota_coordinator.core.quotas import Reserve, Usage
from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.coordinator.v1.log_events_pb2 import LogEvent, StartMoved, TopicCreated, TopicDeleted
from rota_proto.log.v1 import log_pb2 as pb

NAME = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)
HIGH_WATERMARK = -1


def is_name(name: str) -> bool:
    """Return whether the name is a valid topic name."""
    return len(name) <= NAME_LENGTH_MAX and name not in (".", "..") and NAME.fullmatch(name) is not None


def repeated(names: Iterable[str]) -> set[str]:
    """Return the names that a request contains more than once; all their entries are rejected."""
    return {name for name, times in Counter(names).items() if times > 1}


class Creator(NamedTuple):
    """The principal that creates topics, and the reservation against its quota."""

    principal: str
    reserve: Reserve


def create_topics(
    state: State,
    request: pb.CreateTopicsRequest,
    new_uuid: Callable[[], bytes],
    creator: Creator,
    effects: Effects,
) -> pb.CreateTopicsResponse:
    """Handle CreateTopics; `new_uuid` returns an id that no topic has had."""
    twice = repeated(topic.name for topic in request.topics)
    reply = pb.CreateTopicsResponse()
    for asked in request.topics:
        error = codes.INVALID_REQUEST if asked.name in twice else creation_error(state, asked)
        topic_id = b""
        message = config_problem(asked.cleanup_policy, asked) if error == codes.INVALID_CONFIG else ""
        if not error:
            message = creator.reserve(creator.principal, Usage(topics=1, partitions=asked.partitions))
            error = codes.POLICY_VIOLATION if message else codes.NONE
        if not error:
            topic_id = new_uuid()
            state.write(LogEvent(topic_created=creation(state, asked, topic_id, creator.principal)), effects)
        reply.topics.add(name=asked.name, topic_id=topic_id, error_code=error, error_message=message)
    return reply


def creation_error(state: State, asked: pb.CreateTopicsRequest.Topic) -> codes.ErrorCode.ValueType:
    """Return the error of a topic that cannot be created; NONE if it can."""
    if not is_name(asked.name):
        return codes.INVALID_TOPIC_EXCEPTION
    if state.topics.get(asked.name) is not None:
        return codes.TOPIC_ALREADY_EXISTS
    if config_problem(asked.cleanup_policy, asked):
        return codes.INVALID_CONFIG
    return growth_error(state, 0, asked.partitions)


def config_problem(
    policy: pb.CleanupPolicy.ValueType, asked: pb.CreateTopicsRequest.Topic | pb.AlterTopicsRequest.Topic
) -> str:
    """Return why the settings of a topic are not possible together, and the remedy; empty when they are."""
    retentions = (asked.retention_ms, asked.retention_bytes)
    if policy not in pb.CleanupPolicy.values():
        return f"unknown cleanup policy {policy}; use one of delete, compact, and both"
    if min(retentions) < FOR_EVER:
        return "a retention is at least 1, or -1 for no limit"
    if asked.delete_retention_ms < 0:
        return "delete_retention_ms is at least 1, or 0 for the default"
    if policy not in DELETING and max(retentions) > 0:
        return "a topic with the cleanup policy compact has no retention; add delete to the policy, or omit the retention"
    return ""


def growth_error(state: State, before: int, partitions: int) -> codes.ErrorCode.ValueType:
    """Return the error of growing a topic from `before` to `partitions` partitions; NONE if it is allowed."""
    if not before < partitions <= state.config.partitions_max:
        return codes.INVALID_PARTITIONS
    if len(state.topics) + partitions - before > state.config.partitions_total_max:
        return codes.POLICY_VIOLATION
    return codes.NONE


def creation(
    state: State, asked: pb.CreateTopicsRequest.Topic, topic_id: bytes, created_by: str
) -> TopicCreated:
    """Return the event that creates the topic."""
    retention = in_effect(
        state.config,
        Retention(asked.retention_ms, asked.retention_bytes, asked.cleanup_policy, asked.delete_retention_ms),
    )
    log_ids = state.topics.next_log_ids(asked.partitions)
    return Topic(asked.name, topic_id, created_by).made(log_ids, retention)


def in_effect(config: LogConfig, asked: Retention) -> Retention:
    """
    Return the retention with the defaults of the server in place of 0.

    Without the policy `delete` it is unlimited: an older version, which knows no policy, then deletes nothing either.
    """
    deletes = asked.policy in DELETING
    return Retention(
        (asked.ms or config.retention_ms) if deletes else FOR_EVER,
        (asked.bytes or config.retention_bytes) if deletes else FOR_EVER,
        asked.policy,
        asked.delete_retention_ms or DELETE_RETENTION_MS,
    )


def delete_topics(state: State, request: pb.DeleteTopicsRequest, effects: Effects) -> pb.DeleteTopicsResponse:
    """Handle DeleteTopics."""
    twice = repeated(request.names)
    reply = pb.DeleteTopicsResponse()
    for name in request.names:
        topic = state.topics.get(name)
        if name in twice:
            reply.topics.add(name=name, error_code=codes.INVALID_REQUEST)
        elif topic is None:
            reply.topics.add(name=name, error_code=codes.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            delete(state, topic, effects)
            reply.topics.add(name=name, topic_id=topic.topic_id)
    return reply


def delete(state: State, topic: Topic, effects: Effects) -> None:
    """Delete the topic with all its records."""
    gone = TopicDeleted(name=topic.name, topic_id=topic.topic_id, last_log_id=state.topics.last_log_id)
    state.write(LogEvent(topic_deleted=gone), effects)
    effects.dropped += [partition.log_id for partition in topic.partitions]


def create_partitions(
    state: State, request: pb.CreatePartitionsRequest, reserve: Reserve, effects: Effects
) -> pb.CreatePartitionsResponse:
    """Handle CreatePartitions."""
    twice = repeated(topic.name for topic in request.topics)
    reply = pb.CreatePartitionsResponse()
    for asked in request.topics:
        topic = state.topics.get(asked.name)
        if asked.name in twice:
            reply.topics.add(name=asked.name, error_code=codes.INVALID_REQUEST)
        elif topic is None:
            reply.topics.add(name=asked.name, error_code=codes.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            error, message = grow(state, topic, asked.partitions, reserve, effects)
            reply.topics.add(
                name=asked.name, topic_id=topic.topic_id, error_code=error, error_message=message
            )
    return reply


def grow(
    state: State, topic: Topic, partitions: int, reserve: Reserve, effects: Effects
) -> tuple[codes.ErrorCode.ValueType, str]:
    """Add partitions up to this number, or return the error code and its message; the message may be empty."""
    more = partitions - len(topic.partitions)
    error = growth_error(state, len(topic.partitions), partitions)
    if error:
        return error, ""
    message = reserve(topic.created_by, Usage(partitions=more))
    if message:
        return codes.POLICY_VIOLATION, message
    state.write(LogEvent(topic_created=topic.made(state.topics.next_log_ids(more))), effects)
    return codes.NONE, ""


def alter_topics(state: State, request: pb.AlterTopicsRequest, effects: Effects) -> pb.AlterTopicsResponse:
    """Handle AlterTopics."""
    twice = repeated(topic.name for topic in request.topics)
    reply = pb.AlterTopicsResponse()
    for asked in request.topics:
        topic = state.topics.get(asked.name)
        if asked.name in twice:
            reply.topics.add(name=asked.name, error_code=codes.INVALID_REQUEST)
        elif topic is None:
            reply.topics.add(name=asked.name, error_code=codes.UNKNOWN_TOPIC_OR_PARTITION)
        elif problem := config_problem(policy_of(topic, asked), asked):
            reply.topics.add(
                name=asked.name,
                topic_id=topic.topic_id,
                error_code=codes.INVALID_CONFIG,
                error_message=problem,
            )
        else:
            alter(state, topic, asked, effects)
            reply.topics.add(name=asked.name, topic_id=topic.topic_id)
    return reply


def policy_of(topic: Topic, asked: pb.AlterTopicsRequest.Topic) -> pb.CleanupPolicy.ValueType:
    """Return the cleanup policy of the topic after the change."""
    return asked.cleanup_policy if asked.HasField("cleanup_policy") else topic.retention.policy


def alter(state: State, topic: Topic, asked: pb.AlterTopicsRequest.Topic, effects: Effects) -> None:
    """Change the settings as far as they are given. What is in effect is not written."""
    known = topic.retention
    if known.policy not in DELETING:
        # A topic that had no retention gets the one that a new topic would have.
        known = known._replace(ms=0, bytes=0)
    retention = in_effect(
        state.config,
        Retention(
            asked.retention_ms if asked.HasField("retention_ms") else known.ms,
            asked.retention_bytes if asked.HasField("retention_bytes") else known.bytes,
            policy_of(topic, asked),
            asked.delete_retention_ms if asked.HasField("delete_retention_ms") else known.delete_retention_ms,
        ),
    )
    if retention != topic.retention:
        state.write(LogEvent(topic_created=topic.made(retention=retention)), effects)


def describe_topics(state: State, request: pb.DescribeTopicsRequest) -> pb.DescribeTopicsResponse:
    """Handle DescribeTopics: the named topics, or all topics when the request names none."""
    reply = pb.DescribeTopicsResponse()
    for name in request.names or sorted(state.topics.by_name):
        topic = state.topics.get(name)
        if topic is None:
            reply.topics.add(name=name, error_code=codes.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            reply.topics.add(
                name=name,
                topic_id=topic.topic_id,
                partitions=len(topic.partitions),
                retention_ms=topic.retention.ms,
                retention_bytes=topic.retention.bytes,
                cleanup_policy=topic.retention.policy,
                delete_retention_ms=topic.retention.delete_retention_ms,
            )
    return reply


def delete_records(
    state: State, request: pb.DeleteRecordsRequest, effects: Effects
) -> pb.DeleteRecordsResponse:
    """
    Handle DeleteRecords; records at and after the last stable offset stay, because open transactions are undecided.
    """
    reply = pb.DeleteRecordsResponse()
    for asked in request.partitions:
        answered = reply.partitions.add(topic=asked.topic, index=asked.index, log_start_offset=-1)
        found = state.topics.find(asked.topic, asked.index, b"")
        if isinstance(found, Partition):
            answered.error_code = move_start(state, found, asked.before_offset, effects)
            answered.log_start_offset = found.start
        else:
            answered.error_code = found
    return reply


def move_start(
    state: State, partition: Partition, offset: int, effects: Effects
) -> codes.ErrorCode.ValueType:
    """Move the log start offset, or return the error. The start offset never decreases."""
    limit = partition.last_stable_offset
    new_start = limit if offset == HIGH_WATERMARK else offset
    if not 0 <= new_start <= limit:
        return codes.OFFSET_OUT_OF_RANGE
    if new_start > partition.start:
        moved = StartMoved(log_id=partition.log_id, offset=new_start)
        state.write(LogEvent(start_moved=moved), effects)
    return codes.NONE
