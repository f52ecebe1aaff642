"""
The port through which the shell reports requests, appends, rebalances and lag to metrics and logs.

The shell depends on this port only, so that tests and the simulation run without metrics and logs.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from google.protobuf.message import Message

from rota_coordinator.core.group.effects import Round
from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.log.v1 import log_pb2 as log

# Kafka's error code, or the name of the gRPC status of a call that ended without a response.
Error = int | str
SUPERSEDED = "ABORTED"
LOG_REQUESTS = (
    log.CreateTopicsRequest,
    log.DeleteTopicsRequest,
    log.DescribeTopicsRequest,
    log.CreatePartitionsRequest,
    log.ProduceRequest,
    log.FetchRequest,
    log.ListOffsetsRequest,
    log.InitProducerRequest,
    log.AddOffsetsToTransactionRequest,
    log.EndTransactionRequest,
    log.DeleteRecordsRequest,
)


class Observer(Protocol):
    """Receives events of the shell. Methods must not block: they run within each request."""

    def answered(self, request: Message, error: Error, seconds: float) -> None:
        """Record a request that was answered or rejected, and its duration in seconds."""

    def appended(self, seconds: float) -> None:
        """Record an append that the store has finished or failed, and its duration in seconds."""

    def round_changed(self, change: Round) -> None:
        """Record the start or the end of a group's rebalance."""

    def lagged(self, seconds: float) -> None:
        """Record the delay of an event-loop timer, in seconds."""


class Observers:
    """
    Passes each event to all observers. A failing observer affects neither requests nor others, and is reported once.
    """

    def __init__(
        self, observers: Iterable[Observer] = (), report: Callable[[str], None] = lambda text: None
    ) -> None:
        all_observers = tuple(observers)
        self._answered = [each.answered for each in all_observers]
        self._appended = [each.appended for each in all_observers]
        self._round_changed = [each.round_changed for each in all_observers]
        self._lagged = [each.lagged for each in all_observers]
        self._report = report
        self._failed: set[str] = set()

    def answered(self, request: Message, error: Error, seconds: float) -> None:
        self._notify(self._answered, request, error, seconds)

    def appended(self, seconds: float) -> None:
        self._notify(self._appended, seconds)

    def round_changed(self, change: Round) -> None:
        self._notify(self._round_changed, change)

    def lagged(self, seconds: float) -> None:
        self._notify(self._lagged, seconds)

    def _notify(self, listeners: Iterable[Callable[..., None]], *arguments: object) -> None:
        for listener in listeners:
            try:
                listener(*arguments)
            except Exception as error:  # noqa: BLE001  a request must not fail because of an observer
                self._fails(listener.__qualname__, error)

    def _fails(self, listener: str, error: Exception) -> None:
        if listener not in self._failed:
            self._failed.add(listener)
            self._report(f"{listener} failed ({error!r}) and may miss events from now on; please report this")


def error_of(reply: Message | None) -> Error:
    """Return the error of an answer, or the first error of its parts."""
    match reply:
        case None:
            return SUPERSEDED
        case pb.HeartbeatResponse() | pb.JoinGroupResponse() | pb.SyncGroupResponse():
            return reply.error_code
        case (
            pb.CommitOffsetsResponse()
            | pb.TxnCommitOffsetsResponse()
            | admin.DeleteOffsetsResponse()
            | admin.AlterOffsetsResponse()
        ):
            return reply.error_code or first_partition_error(reply.topics)
        case pb.LeaveGroupResponse():
            return reply.error_code or first_error(reply.members)
        case admin.DescribeGroupsResponse() | admin.DeleteGroupsResponse():
            return first_error(reply.groups)
        case (
            log.ProduceResponse()
            | log.FetchResponse()
            | log.ListOffsetsResponse()
            | log.DeleteRecordsResponse()
        ):
            return first_error(reply.partitions)
        case (
            log.CreateTopicsResponse()
            | log.DeleteTopicsResponse()
            | log.DescribeTopicsResponse()
            | log.CreatePartitionsResponse()
            | log.AlterTopicsResponse()
        ):
            return first_error(reply.topics)
        case _:
            return int(getattr(reply, "error_code", pb.NONE))


def first_partition_error(topics: Iterable[pb.TopicErrors]) -> int:
    """Return the first error of the partitions of several topics; NONE: no error. Called for every commit."""
    for topic in topics:
        for partition in topic.partitions:
            if partition.error_code:
                return partition.error_code
    return pb.NONE


class Part(Protocol):
    """A part of a response with its own error code."""

    @property
    def error_code(self) -> pb.ErrorCode.ValueType: ...


def first_error(parts: Iterable[Part]) -> int:
    """Return the first error of several parts; NONE: no error."""
    return next((part.error_code for part in parts if part.error_code), pb.NONE)
