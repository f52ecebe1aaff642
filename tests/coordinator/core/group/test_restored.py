"""Groups after their log was restored: no members, a higher incarnation, all committed offsets."""

from rota_coordinator.core.group.config import GroupConfig
from rota_coordinator.core.group.groups import Groups
from rota_coordinator.core.group.restored import begin_incarnation
from rota_coordinator.core.group.state import State
from rota_coordinator.core.instants import WallMs
from rota_proto.coordinator.v1.records_pb2 import (
    GenerationReserved,
    GroupMember,
    GroupRecord,
    GroupRemoved,
    OffsetCommitted,
    Record,
)

NOW = WallMs(1_000_000)


def backup() -> Groups:
    """A group with a member in a generation, and one more generation that was reserved; another group was removed."""
    groups = Groups(GroupConfig())
    member = GroupMember(member_id="m", session_timeout_ms=10_000, rebalance_timeout_ms=10_000)
    group = GroupRecord(
        group_id="g", incarnation=3, generation_id=7, protocol_type="consumer", protocol_name="range",
        leader="m", members=[member], created_by="shop",
    )  # fmt: skip
    for record in (
        Record(group_removed=GroupRemoved(group_id="former", incarnation=4)),
        Record(group=group),
        Record(generation_reserved=GenerationReserved(group_id="g", generation_id=8)),
        Record(offset_committed=OffsetCommitted(group_id="g", topic="orders", offset=42)),
        Record(offset_committed=OffsetCommitted(group_id="", topic="orders", offset=43)),
    ):
        groups.replay(record)
    return groups


def read_again(groups: Groups) -> Groups:
    """The groups as the next coordinator loads them."""
    loaded = Groups(GroupConfig())
    for record in groups.snapshot():
        loaded.replay(record)
    return loaded


def test_groups_have_no_members_and_keep_their_offsets_and_their_creator() -> None:
    groups = backup()
    before = [record for record in groups.snapshot() if record.HasField("offset_committed")]
    begin_incarnation(groups, NOW)
    loaded = read_again(groups)
    group = loaded.groups["g"]
    assert (group.state, list(group.members), group.state_since_ms) == (State.EMPTY, [], NOW)
    assert (group.protocol_type, group.created_by) == ("consumer", "shop")
    assert [record for record in loaded.snapshot() if record.HasField("offset_committed")] == before
    assert len(before) == 2


def test_incarnation_and_generation_exceed_all_that_were_issued() -> None:
    groups = backup()
    assert begin_incarnation(groups, NOW) == NOW
    loaded = read_again(groups)
    assert (loaded.groups["g"].incarnation, loaded.incarnation) == (NOW, NOW)
    assert loaded.groups["g"].reserved_generation == 8


def test_each_restore_of_the_same_backup_has_a_higher_incarnation() -> None:
    first, second = backup(), backup()
    assert begin_incarnation(first, NOW) < begin_incarnation(second, WallMs(NOW + 1))


def test_a_clock_that_was_set_back_lowers_no_incarnation() -> None:
    groups = backup()
    assert begin_incarnation(groups, WallMs(2)) == 5
