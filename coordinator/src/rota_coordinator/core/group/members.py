"""The members of one group, and what is derived from them alone: protocol election, member identities, sizes."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from rota_coordinator.core.group.effects import Call
from rota_coordinator.core.group.hashing import java_hash_slot
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.coordinator.v1.coordinator_pb2 import ErrorCode, JoinGroupRequest
from rota_proto.coordinator.v1.records_pb2 import GroupMember

# Messages that identify a member, which may be static.
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
    """Member of a group. The group's record holds its durable part; sessions and parked calls are lost with the process."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    # (name, metadata) in order of preference. After loading: the elected protocol only.
    protocols: Protocols
    # Names of `protocols`.
    offers: frozenset[str] = field(init=False, repr=False, compare=False)
    # Upper bound, in bytes, of its entry in the leader's join response.
    entry_bytes: int = field(init=False, repr=False, compare=False)
    # Bytes of all its protocols, names included.
    offer_bytes: int = field(init=False, repr=False, compare=False)
    assignment: bytes = b""
    # True until its first round is complete.
    is_new: bool = True
    joining: Call | None = None
    syncing: Call | None = None
    session_deadline_ms: int = 0
    # Milliseconds by which stalls of the coordinator extended its session since its last request.
    compensated_ms: int = 0
    # End of the grace period after its session expired; a heartbeat before it keeps the member. None: not expired.
    grace_until_ms: int | None = None

    def __post_init__(self) -> None:
        self._offer(self.protocols)

    @property
    def ids_bytes(self) -> int:
        """The bytes of its ids. A static member that returns gets an id of the same length."""
        return len(self.member_id.encode()) + len((self.instance_id or "").encode())

    def _offer(self, protocols: Protocols) -> None:
        self.protocols = protocols
        self.offers = names_of(protocols)
        self.entry_bytes = entry_bytes(self.ids_bytes, protocols)
        self.offer_bytes = protocol_bytes(protocols)

    def update(self, request: JoinGroupRequest) -> None:
        """Update the member from its join."""
        self.client_id = request.client_id
        self.session_timeout_ms = request.session_timeout_ms
        self.rebalance_timeout_ms = request.rebalance_timeout_ms
        self._offer(offered(request))

    def apply_record(self, written: GroupMember, protocol: str) -> None:
        """
        Update the member from the group's record.

        A live record leaves the member's protocols unchanged, so it keeps all that it offers. While a log is loaded, a
        later record contains newer metadata, of the elected protocol only.
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
    """Return the instance id of a message; None: the field is unset. An empty instance id is a value."""
    return message.group_instance_id if message.HasField("group_instance_id") else None


def offered(request: JoinGroupRequest) -> Protocols:
    """Return the protocols of a join; equal when names, order and metadata are equal."""
    return tuple((protocol.name, protocol.metadata) for protocol in request.protocols)


def names_of(protocols: Protocols) -> frozenset[str]:
    """Return the names of the protocols, without duplicates."""
    return frozenset(name for name, _ in protocols)


def protocol_bytes(protocols: Protocols) -> int:
    """Return the bytes of the protocols, names included."""
    return sum([len(name.encode()) + len(metadata) for name, metadata in protocols])


def entry_bytes(ids_bytes: int, protocols: Protocols) -> int:
    """Return an upper bound, in bytes, of a member's entry in the leader's join response, for any elected protocol."""
    return ENTRY_REST_BYTES + ids_bytes + max((len(metadata) for _, metadata in protocols), default=0)


@dataclass(slots=True)
class Sizes:
    """Sums over all members of a group, kept up to date so that a join does not add them up."""

    # Upper bound, in bytes, of the entries in the leader's join response.
    entries: int = 0
    # Bytes of the protocols that members offer.
    offers: int = 0
    # Names of the protocols that a member offers -> number of members that offer exactly these.
    names: Counter[frozenset[str]] = field(default_factory=Counter)

    def add(self, member: Member, sign: int = 1) -> None:
        """Add a member to the sums, or subtract it with sign -1."""
        self.entries += sign * member.entry_bytes
        self.offers += sign * member.offer_bytes
        self.names[member.offers] += sign
        if not self.names[member.offers]:
            del self.names[member.offers]


@dataclass(slots=True)
class Members:
    """
    The members by id, in the order in which they joined.

    Invariant: `sizes` are the sums over exactly these members; so only `update` and `apply_record` change a member's
    protocols.
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
        """Add a member; the first one becomes the leader."""
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
        """Update a member from its join."""
        self.sizes.add(member, -1)
        member.update(request)
        self.sizes.add(member)

    def apply_record(self, written: GroupMember, protocol: str) -> None:
        """Update a member from the group's record."""
        member = self.by_id[written.member_id]
        self.sizes.add(member, -1)
        member.apply_record(written, protocol)
        self.sizes.add(member)

    def rename(self, member: Member, member_id: str) -> None:
        """Give a returning static member its new id; its position in the order of members stays."""
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
        """Return the member that a request identifies, or the error."""
        if instance_id is not None:
            holder = self.instances.get(instance_id)
            if holder is None:
                return pb.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return pb.FENCED_INSTANCE_ID
        return self.by_id.get(member_id, pb.UNKNOWN_MEMBER_ID)

    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of any member, in ms."""
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def candidates(self) -> frozenset[str]:
        """Return the protocols that every member offers."""
        return frozenset.intersection(*self.sizes.names) if self.by_id else frozenset()

    def accept(self, protocols: Protocols) -> bool:
        """
        Return whether a joining member shares a protocol with all members; its own earlier entry counts as a member.
        """
        if not self.by_id:
            return bool(protocols)
        candidates = self.candidates()
        return any(name in candidates for name, _ in protocols)

    def elect_protocol(self) -> str:
        """
        Return the elected protocol: each member votes for its first candidate; ties are broken in Java's hash order.
        """
        candidates = self.candidates()
        votes = Counter(next(name for name, _ in member.protocols if name in candidates) for member in self)
        most = max(votes.values())
        return min((name for name, count in votes.items() if count == most), key=java_hash_slot)
