"""Claims of a response, compared with the written records when the response leaves its coordinator."""

from collections.abc import Sequence

from google.protobuf.message import Message

from rota_coordinator.core.group.answers import Request
from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.records_pb2 import OffsetPending, Record
from tests.simulation.history import Commit, History, Ticket, number_in
from tests.simulation.invariants import Violation
from tests.simulation.transactions import TOPIC_OF_PRODUCERS

# These say nothing of what was written: after the second one not even the coordinator knows, and after the third one the write is
# still under way.
UNDECIDED = (pb.NONE, pb.NOT_COORDINATOR, pb.REQUEST_TIMED_OUT)
# Of one decision, beside one record for each partition: what makes or ends the group, and a transaction.
RECORDS_OF_GROUP_MAX = 2


def check(history: History, ticket: Ticket, request: Request, reply: Message, whose: object) -> None:
    """Everything that an answer may claim; `whose` is the process that asked."""
    match request, reply:
        case pb.JoinGroupRequest(), pb.JoinGroupResponse():
            check_join(history, ticket, (request, reply), whose)
        case pb.SyncGroupRequest(), pb.SyncGroupResponse():
            check_sync(history, ticket, request, reply)
        case pb.HeartbeatRequest(), pb.HeartbeatResponse():
            check_refusal(history, ticket, reply.error_code, "a heartbeat")
        case pb.CommitOffsetsRequest(), pb.CommitOffsetsResponse():
            check_commit(history, ticket, request, reply)
        case pb.FetchOffsetsRequest(), pb.FetchOffsetsResponse():
            check_fetch(history, ticket, reply)
        case _:
            pass


def check_join(
    history: History, ticket: Ticket, said: tuple[pb.JoinGroupRequest, pb.JoinGroupResponse], whose: object
) -> None:
    """An id, a generation, or both. Who names its id itself may be a new process that knows it from the last one."""
    request, reply = said
    if reply.error_code in (pb.NONE, pb.MEMBER_ID_REQUIRED) and reply.member_id != request.member_id:
        history.identified(reply.member_id, whose)
    if reply.error_code == pb.NONE:
        history.joined(ticket, reply)
    elif reply.error_code == pb.GROUP_MAX_SIZE_REACHED:
        history.sends_away(request.member_id)


def check_sync(
    history: History, ticket: Ticket, request: pb.SyncGroupRequest, reply: pb.SyncGroupResponse
) -> None:
    """A part."""
    check_refusal(history, ticket, reply.error_code, "a sync")
    if reply.error_code == pb.NONE:
        history.synced(ticket, request, reply)


def check_fetch(history: History, ticket: Ticket, reply: pb.FetchOffsetsResponse) -> None:
    """Offsets."""
    for topic in reply.topics:
        for each in topic.partitions:
            history.fetched(ticket, each)


def check_refusal(history: History, ticket: Ticket, error: pb.ErrorCode.ValueType, what: str) -> None:
    """Check that a refused request has changed nothing."""
    if error not in UNDECIDED:
        history.refused(ticket, what)


def check_commit(
    history: History, ticket: Ticket, request: pb.CommitOffsetsRequest, reply: pb.CommitOffsetsResponse
) -> None:
    """Partition by partition."""
    check_refusal(history, ticket, reply.error_code, "a commit")
    commit = commit_of(request, history)
    if commit is None or reply.error_code != pb.NONE:
        return
    for topic in reply.topics:
        for each in topic.partitions:
            if each.error_code == pb.NONE:
                history.acknowledges(commit, each.index)


def check_owner(reply: Message | None, *, alive: bool, owner: bool) -> None:
    """S11: a process that answers owns the slot at that moment, by the store's own table and clock."""
    refusal = reply.groups[0] if isinstance(reply, admin.DeleteGroupsResponse) else reply
    said_nothing = reply is None or getattr(refusal, "error_code", pb.NONE) == pb.NOT_COORDINATOR
    if not said_nothing and not (alive and owner):
        raise Violation("S11", f"{type(reply).__name__} of a process that is not the owner")


def check_decision(deciding: str, records: Sequence[Record], partitions: int) -> None:
    """S13 and S14: a decision writes records of its own group, at most one for each partition of all topics."""
    named = {group_named(record) for record in records}
    if len(named) > 1 or (deciding and named != {deciding}):
        raise Violation("S13", f"a decision for {deciding or 'one group'} changes {sorted(named)}")
    if len(records) > partitions + RECORDS_OF_GROUP_MAX:
        raise Violation("S14", f"one decision made {len(records)} records")


def commit_of(request: Request, history: History) -> Commit | None:
    """The commit that a request carries; every one has its number in its metadata."""
    if not isinstance(request, pb.CommitOffsetsRequest | admin.AlterOffsetsRequest):
        return None
    metadata = [
        each.metadata
        for topic in request.topics
        if topic.name != TOPIC_OF_PRODUCERS
        for each in topic.partitions
    ]
    return history.commits[number_in(metadata[0])] if metadata else None


def group_named(record: Record) -> str:
    """The group that a record is about."""
    body = getattr(record, record.WhichOneof("record") or "")
    if isinstance(body, OffsetPending):
        body = body.offset
    name: str = body.group_id
    return name
