"""
Situations that a run must have met to mean anything: faults, and situations that are known to be difficult.

They are observed, not caused: no scenario is written for them. A run in which one of them is rare fails.
"""

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from google.protobuf.message import Message

from rota_coordinator.core.group.answers import Request
from rota_coordinator.core.group.groups import Groups
from rota_coordinator.core.group.members import Member, instance_of
from rota_coordinator.core.group.state import Group, State
from rota_coordinator.runtime.replicated_state import SlotState
from rota_coordinator.runtime.slot import Slot
from rota_proto.coordinator.v1 import coordinator_pb2 as pb

FAULTS = (
    "connection reset",
    "coordinator crash",
    "coordinator paused",
    "member killed",
    "member paused",
    "message cut off",
    "message delayed",
    "message overtaken",
    "reply lost",
    "request copied",
    "request lost",
    "slow write",
    "store cut off",
    "store error after the write",
    "store error before the write",
)
# Where members have ledgers, and applications hands.
DELIVERIES = (
    "a dead letter cannot be written",
    "a dead letter is written",
    "a member leaves because its application hangs",
    "a partition is handed over in good order",
    "a verdict comes after its tenure",
    "an application crashes with records in its hands",
    "an application hangs over a record",
    "an application lies",
)
SITUATIONS = (
    "a commit from an old generation is refused",
    "a commit from one who is out is refused",
    "a commit for a partition that another one has is refused",
    "a commit counts while a round is open",
    "a commit is answered before its write has ended",
    "a slot is handed over",
    "a slot is taken from a dead process",
    "a static member comes back while a round is open",
    "a static member comes back to a stable group",
    "a static leader comes back and is not asked again",
    "a fenced static member speaks",
    "a late heartbeat or commit saves a suspect",
    "a heartbeat comes while the log is read",
    "a join comes while the assignment is awaited",
    "a join comes for one that waits already",
    "a lease is lost",
    "a leader is gone before its assignment",
    "a member finds its group full",
    "a member gives everything up for the silence of the coordinator",
    "a member is sent to another coordinator",
    "a member leaves while a round is open",
    "a member takes up its generation after a crash",
    "a partition is handed over in good order",
    "a round closes without those who did not come",
    "a verdict comes after its tenure",
    "a transaction ends while another one holds an offset of its partition",
    "a write comes too late for its epoch",
    "a write of a dead process lands",
    "an application does not let go in time",
    "crash between barrier and assignment",
    "crash with a suspect",
    "crash with a write under way",
    "crash with ids handed out",
    "crash with joins open",
    "everybody is gone in a round",
    "store error while the assignment is awaited",
    "store error with joins open",
    "the log is compacted in mid-round",
    "the log is read in mid-round",
)
REFUSED_COMMITS = {
    pb.ILLEGAL_GENERATION: "a commit from an old generation is refused",
    pb.UNKNOWN_MEMBER_ID: "a commit from one who is out is refused",
    pb.FENCED_INSTANCE_ID: "a fenced static member speaks",
}


class Look(NamedTuple):
    """State of a group at the end of a turn."""

    state: State
    incarnation: int
    generation: int
    leader: str
    members: frozenset[str]
    unsynced: frozenset[str]
    joins: bool
    has_suspected_members: bool
    pending: bool

    @classmethod
    def at(cls, group: Group) -> "Look":
        members = group.members
        return cls(
            group.state,
            group.incarnation,
            group.generation,
            members.leader,
            frozenset(members.by_id),
            frozenset(group.unsynced),
            any(member.joining is not None for member in members),
            any(member.grace_until_ms is not None for member in members),
            bool(group.pending),
        )


class Situations:
    """Counts them."""

    def __init__(self) -> None:
        self.met: Counter[str] = Counter()

    def asked(self, slot: Slot, request: Request) -> Callable[[], None]:
        """A request is about to be decided; what is returned is called when it is."""
        if slot.state is not SlotState.READY:
            self._when(
                isinstance(request, pb.HeartbeatRequest) and slot.state is SlotState.CATCH_UP,
                "a heartbeat comes while the log is read",
            )
            return nothing
        match request:
            case pb.JoinGroupRequest():
                self._join(slot.groups.groups.get(request.group_id), request)
            case pb.LeaveGroupRequest():
                group = slot.groups.groups.get(request.group_id)
                self._when(
                    group is not None and group.state is State.PREPARING,
                    "a member leaves while a round is open",
                )
            case pb.HeartbeatRequest() | pb.CommitOffsetsRequest():
                return self._word_of_life(slot.groups.groups.get(request.group_id), request)
            case _:
                pass
        return nothing

    def _join(self, group: Group | None, request: pb.JoinGroupRequest) -> None:
        if group is None:
            return
        self._when(group.state is State.COMPLETING, "a join comes while the assignment is awaited")
        member = group.members.by_id.get(request.member_id)
        self._when(
            member is not None and member.joining is not None, "a join comes for one that waits already"
        )
        if not request.member_id and instance_of(request) in group.members.instances:
            self._when(group.state is State.PREPARING, "a static member comes back while a round is open")
            self._when(group.state is State.STABLE, "a static member comes back to a stable group")

    def _word_of_life(
        self, group: Group | None, request: pb.HeartbeatRequest | pb.CommitOffsetsRequest
    ) -> Callable[[], None]:
        member: Member | None = None if group is None else group.members.by_id.get(request.member_id)
        if member is None or member.grace_until_ms is None:
            return nothing
        found = member
        return lambda: self._when(found.grace_until_ms is None, "a late heartbeat or commit saves a suspect")

    def changed(self, before: Look, now: Look, *, by_timer: bool) -> None:
        """A group is another one after a turn."""
        gone = before.members - now.members
        self._when(
            before.state is State.COMPLETING and before.leader in gone,
            "a leader is gone before its assignment",
        )
        self._when(
            before.state is State.PREPARING and now.state is State.COMPLETING and bool(gone) and by_timer,
            "a round closes without those who did not come",
        )
        self._when(
            before.state is State.PREPARING and now.state is State.EMPTY, "everybody is gone in a round"
        )

    def crashed(self, looks: dict[str, Look], *, writing: bool) -> None:
        """The process dies."""
        self._when(writing, "crash with a write under way")
        for look in looks.values():
            self._when(look.joins, "crash with joins open")
            self._when(look.state is State.COMPLETING, "crash between barrier and assignment")
            self._when(look.pending, "crash with ids handed out")
            self._when(look.has_suspected_members, "crash with a suspect")

    def dropped(self, looks: dict[str, Look]) -> None:
        """The slot is not served any more, because a write failed."""
        for look in looks.values():
            self._when(look.joins, "store error with joins open")
            self._when(look.state is State.COMPLETING, "store error while the assignment is awaited")

    def loaded(self, groups: Groups) -> None:
        """The log was read."""
        cut = any(group.reserved_generation > group.generation for group in groups.groups.values())
        self._when(cut, "the log is read in mid-round")

    def compacted(self, groups: Groups) -> None:
        """The log was compacted."""
        cut = any(group.reserved_generation > group.generation for group in groups.groups.values())
        self._when(cut, "the log is compacted in mid-round")

    def answered(self, slot: Slot, group_id: str, reply: Message) -> None:
        """An answer leaves."""
        match reply:
            case pb.JoinGroupResponse():
                self._when(reply.skip_assignment, "a static leader comes back and is not asked again")
                self._when(reply.error_code == pb.GROUP_MAX_SIZE_REACHED, "a member finds its group full")
                self._when(reply.error_code == pb.FENCED_INSTANCE_ID, "a fenced static member speaks")
            case pb.CommitOffsetsResponse():
                self._committed(slot, reply, group_id)
            case _:
                pass

    def _committed(self, slot: Slot, reply: pb.CommitOffsetsResponse, group_id: str) -> None:
        name = REFUSED_COMMITS.get(reply.error_code)
        if name is not None:
            self.met[name] += 1
        self._when(
            reply.error_code == pb.REQUEST_TIMED_OUT, "a commit is answered before its write has ended"
        )
        if reply.error_code != pb.NONE:
            return
        codes = {each.error_code for topic in reply.topics for each in topic.partitions}
        group = slot.groups.groups.get(group_id)
        self._when(pb.ILLEGAL_GENERATION in codes, "a commit for a partition that another one has is refused")
        self._when(
            pb.NONE in codes and group is not None and group.state is State.PREPARING,
            "a commit counts while a round is open",
        )

    def _when(self, condition: bool, name: str) -> None:
        if condition:
            self.met[name] += 1


def nothing() -> None:
    """Nothing to look at afterwards."""
