"""The members of one group, and what follows from them alone: votes, candidates, identities."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from rota_coordinator.core.group.effects import Call
from rota_coordinator.core.group.hashing import java_hash_slot
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.coordinator_pb2 import ErrorCode, JoinGroupRequest
from rota_proto.coordinator.v1.records_pb2 import GroupMember

# Whatever speaks for, or of, a member that may be static.
Identified = (
    pb.JoinGroupRequest
    | pb.SyncGroupRequest
    | pb.HeartbeatRequest
    | pb.LeavingMember
    | pb.CommitOffsetsRequest
    | pb.TxnCommitOffsetsRequest
    | GroupMember
)
Protocols = tuple[tuple[str, bytes], ...]
# Tags and lengths of a member's entry and of its three fields.
ENTRY_REST_BYTES = 24


@dataclass(slots=True)
class Member:
    """One member. What of it is durable stands in the group's record; the rest ends with this process."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    # (name, metadata), the preferred one first. After a load: the chosen one only.
    protocols: Protocols
    # Their names. Asked of all members at every join, so it is not put together then.
    offers: frozenset[str] = field(init=False, repr=False, compare=False)
    # The bytes of its entry in the leader's join answer, at most.
    entry_bytes: int = field(init=False, repr=False, compare=False)
    # The bytes of all that it offers.
    offer_bytes: int = field(init=False, repr=False, compare=False)
    assignment: bytes = b""
    # Its first round is not complete yet.
    is_new: bool = True
    joining: Call | None = None
    syncing: Call | None = None
    session_deadline_ms: int = 0
    # How much of its silence was the coordinator's own, since it was last heard.
    compensated_ms: int = 0
    # Its session ended; it is removed at that time unless its heartbeat comes first.
    grace_until_ms: int | None = None

    def __post_init__(self) -> None:
        self._offer(self.protocols)

    @property
    def ids_bytes(self) -> int:
        """The bytes of its ids. A static member that comes back has an id of the same length."""
        return len(self.member_id.encode()) + len((self.instance_id or "").encode())

    def _offer(self, protocols: Protocols) -> None:
        self.protocols = protocols
        self.offers = names_of(protocols)
        self.entry_bytes = entry_bytes(self.ids_bytes, protocols)
        self.offer_bytes = protocol_bytes(protocols)

    def update(self, request: JoinGroupRequest) -> None:
        """Take over what a join says about the member."""
        self.client_id = request.client_id
        self.session_timeout_ms = request.session_timeout_ms
        self.rebalance_timeout_ms = request.rebalance_timeout_ms
        self._offer(offered(request))

    def apply_record(self, written: GroupMember, protocol: str) -> None:
        """
        Take over what a record says about the member.

        A round that is written now says what is known, and the member goes on offering all that it offers. While a log
        is read, a later record says what the member said later; of that only the chosen protocol was written.
        """
        self.client_id = written.client_id
        self.client_host = written.client_host
        self.session_timeout_ms = written.session_timeout_ms
        self.rebalance_timeout_ms = written.rebalance_timeout_ms
        self.assignment = written.assignment
        if (protocol, written.metadata) not in self.protocols:
            self._offer(((protocol, written.metadata),))

    def metadata(self, protocol: str) -> bytes:
        """Return the member's metadata for this protocol; empty when the member does not offer it."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")


def instance_of(message: Identified) -> str | None:
    """The instance id that a message carries, None when it carries none; an empty one is one."""
    return message.group_instance_id if message.HasField("group_instance_id") else None


def offered(request: JoinGroupRequest) -> Protocols:
    """The protocols of a join, comparable: same names, same order, same bytes."""
    return tuple((protocol.name, protocol.metadata) for protocol in request.protocols)


def names_of(protocols: Protocols) -> frozenset[str]:
    """The names of protocols; a member that offers one twice still offers one."""
    return frozenset(name for name, _ in protocols)


def protocol_bytes(protocols: Protocols) -> int:
    """The bytes of protocols, with their names."""
    return sum([len(name.encode()) + len(metadata) for name, metadata in protocols])


def entry_bytes(ids_bytes: int, protocols: Protocols) -> int:
    """The bytes of a member's entry in the leader's join answer, whichever of its protocols is elected, at most."""
    return ENTRY_REST_BYTES + ids_bytes + max((len(metadata) for _, metadata in protocols), default=0)


@dataclass(slots=True)
class Sizes:
    """Sums over all members of a group, kept so that no join adds them up again."""

    # Of their entries in the leader's join answer, at most.
    entries: int = 0
    # Of all that they offer.
    offers: int = 0

    def add(self, member: Member, sign: int = 1) -> None:
        """Count a member; with -1, take it out."""
        self.entries += sign * member.entry_bytes
        self.offers += sign * member.offer_bytes


@dataclass(slots=True)
class Members:
    """
    The members by id, in the order in which they came.

    Invariant: `sizes` is about exactly these members, as they are. So what a member offers changes through `update` and `apply_record`.
    """

    by_id: dict[str, Member] = field(default_factory=dict)
    # Static members: instance id -> member id.
    instances: dict[str, str] = field(default_factory=dict)
    leader: str = ""
    sizes: Sizes = field(default_factory=Sizes)

    def __iter__(self) -> Iterator[Member]:
        return iter(self.by_id.values())

    def __len__(self) -> int:
        return len(self.by_id)

    def add(self, member: Member) -> None:
        """Let a member in; the first one leads."""
        assert member.member_id not in self.by_id
        self.by_id[member.member_id] = member
        self.sizes.add(member)
        if member.instance_id is not None:
            assert member.instance_id not in self.instances
            self.instances[member.instance_id] = member.member_id
        if not self.leader:
            self.leader = member.member_id

    def remove(self, member: Member) -> None:
        """
        Remove a member. If it was the leader, a member that waits in the barrier becomes leader, or else the first
        one.
        """
        del self.by_id[member.member_id]
        self.sizes.add(member, -1)
        if member.instance_id is not None:
            del self.instances[member.instance_id]
        if self.leader == member.member_id:
            waiting = (other.member_id for other in self if other.joining is not None)
            self.leader = next(waiting, next(iter(self.by_id), ""))

    def update(self, member: Member, request: JoinGroupRequest) -> None:
        """Take over what a join says about a member."""
        self.sizes.add(member, -1)
        member.update(request)
        self.sizes.add(member)

    def apply_record(self, written: GroupMember, protocol: str) -> None:
        """Take over what a record says about a member."""
        member = self.by_id[written.member_id]
        self.sizes.add(member, -1)
        member.apply_record(written, protocol)
        self.sizes.add(member)

    def rename(self, member: Member, member_id: str) -> None:
        """A static member came back: the same place in the group, under a new id."""
        was_leader = self.leader == member.member_id
        self.by_id = {
            (member_id if other is member else other.member_id): other for other in self.by_id.values()
        }
        member.member_id = member_id
        assert member.instance_id is not None
        self.instances[member.instance_id] = member_id
        if was_leader:
            self.leader = member_id

    def identify(self, member_id: str, instance_id: str | None) -> Member | ErrorCode.ValueType:
        """The member that a request speaks for, or why it does not."""
        if instance_id is not None:
            holder = self.instances.get(instance_id)
            if holder is None:
                return pb.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return pb.FENCED_INSTANCE_ID
        return self.by_id.get(member_id, pb.UNKNOWN_MEMBER_ID)

    def rebalance_timeout_ms(self) -> int:
        """The longest that any member asks for."""
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def candidates(self) -> frozenset[str]:
        """The protocols that every member offers."""
        return frozenset.intersection(*(member.offers for member in self)) if self.by_id else frozenset()

    def accept(self, protocols: Protocols) -> bool:
        """Return whether a joining member shares a protocol with all; its own earlier entry counts like any other."""
        if not self.by_id:
            return bool(protocols)
        candidates = self.candidates()
        return any(name in candidates for name, _ in protocols)

    def elect_protocol(self) -> str:
        """Each member votes for its first candidate; a tie goes to the first in Java's order of hashes."""
        candidates = self.candidates()
        votes = Counter(next(name for name, _ in member.protocols if name in candidates) for member in self)
        most = max(votes.values())
        return min((name for name, count in votes.items() if count == most), key=java_hash_slot)
