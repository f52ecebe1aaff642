"""The snapshot of a slot that is handed over holds the remaining session time of each member."""

from rota_coordinator.core.group.config import GroupConfig
from rota_coordinator.core.group.effects import Call
from rota_coordinator.core.group.groups import Groups
from rota_coordinator.core.group.join import Joining
from rota_coordinator.core.instants import MonotonicMs
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.records_pb2 import HandoverSnapshot, Record

GROUP = "shop.orders"
SESSION_MS = 10_000
CONFIG = GroupConfig(initial_rebalance_delay_ms=0)


def stable_group(at_ms: MonotonicMs) -> tuple[Groups, list[Record]]:
    """A group with one static member that was last heard at this time, and its log."""
    groups = Groups(CONFIG)
    join = pb.JoinGroupRequest(
        group_id=GROUP,
        group_instance_id="pod-0",
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        protocol_type="consumer",
        protocols=[pb.Protocol(name="range")],
    )
    joined = groups.join(Joining(Call(1), join, "/127.0.0.1", "fresh"), at_ms)
    closed = groups.pass_time(GROUP, at_ms)
    (joined_reply,) = [reply for _, reply in [*joined.replies, *closed.replies]]
    assert isinstance(joined_reply, pb.JoinGroupResponse)
    sync = pb.SyncGroupRequest(
        group_id=GROUP,
        generation_id=joined_reply.generation_id,
        member_id=joined_reply.member_id,
        group_instance_id="pod-0",
        protocol_type="consumer",
        protocol_name="range",
        assignments=[pb.Assignment(member_id=joined_reply.member_id)],
    )
    synced = groups.handle(Call(2), sync, at_ms)
    return groups, [*joined.records, *closed.records, *synced.records]


def read_again(log: list[Record], at_ms: MonotonicMs, handover: HandoverSnapshot) -> Groups:
    groups = Groups(CONFIG)
    for record in log:
        groups.replay(record)
    groups.loaded(at_ms, handover)
    return groups


def test_a_session_goes_on_where_the_last_owner_left_it() -> None:
    groups, log = stable_group(at_ms=MonotonicMs(1_000))
    handover = groups.handover(MonotonicMs(4_000))
    assert [each.remaining_ms for each in handover.sessions] == [7_000]
    assert read_again(log, MonotonicMs(50_000), handover).wake_at_ms(GROUP) == 57_000


def test_after_a_crash_a_session_begins_anew() -> None:
    _, log = stable_group(at_ms=MonotonicMs(1_000))
    assert read_again(log, MonotonicMs(50_000), HandoverSnapshot()).wake_at_ms(GROUP) == 60_000


def test_a_session_that_ended_before_the_hand_over_is_not_prolonged() -> None:
    groups, log = stable_group(at_ms=MonotonicMs(1_000))
    assert (
        read_again(log, MonotonicMs(50_000), groups.handover(MonotonicMs(30_000))).wake_at_ms(GROUP) == 50_000
    )


def test_a_snapshot_never_gives_more_than_a_session() -> None:
    groups, log = stable_group(at_ms=MonotonicMs(1_000))
    handover = groups.handover(MonotonicMs(1_000))
    handover.sessions[0].remaining_ms = 99_999
    handover.sessions.add(group_id="gone", member_id="nobody", remaining_ms=1)
    assert read_again(log, MonotonicMs(50_000), handover).wake_at_ms(GROUP) == 60_000
