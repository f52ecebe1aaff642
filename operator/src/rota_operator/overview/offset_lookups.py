"""
Decides which offsets of one group its sidecars look up, and when, where the operator cannot ask the engine for them.

`cluster.offset_orders` asks for the next query, sends it as an order to a sidecar, and returns the answer. A lookup consists of three
queries: committed offsets first, so that records which arrive meanwhile count as lag, then log starts, then log ends. Listings, which
cover all topics that the group consumes, alternate with lookups of partitions without an owner. Times are milliseconds of one clock.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from rota_operator.overview.assignment import Partition
from rota_operator.overview.offsets import PartitionOffsets
from rota_proto.fleet.v1 import fleet_pb2 as pb

# Between two queries of one group.
QUERY_INTERVAL_MS = 2_000
# Between two listings; topics get partitions meanwhile.
LISTING_INTERVAL_MS = 30_000
# After a listing that a sidecar refused, for instance because brokers do not answer.
LISTING_RETRY_MS = 5_000
# Between two lookups of one partition.
LOOKUP_INTERVAL_MS = 10_000
# A sidecar that did not answer is not asked for this long.
SIDECAR_RETRY_MS = 30_000
# Of one query; the rest is in the next lookup.
PARTITIONS_MAX = 2_000
KINDS = (pb.OFFSET_KIND_COMMITTED, pb.OFFSET_KIND_START, pb.OFFSET_KIND_END)
# Number in an error that says that the whole topic does not exist.
ALL_PARTITIONS = -1
NEVER_MS = -1


@dataclass(frozen=True, slots=True, eq=False)
class OffsetQuery:
    """Query for one sidecar; compared by identity."""

    sidecar: str
    kind: pb.OffsetKind.ValueType
    # Empty: all partitions of the topics that the group consumes.
    partitions: tuple[Partition, ...] = ()

    def request(self) -> pb.QueryOffsets:
        """Return the query as Fleet has it."""
        topics: dict[str, list[int]] = {}
        for each in self.partitions:
            topics.setdefault(each.topic, []).append(each.number)
        named = [pb.TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in topics.items()]
        return pb.QueryOffsets(topics=named, what=self.kind)


@dataclass(frozen=True, slots=True)
class FoundOffsets:
    """Result of a lookup. A partition whose log end was not found is in neither field unless it does not exist."""

    offsets: Mapping[Partition, PartitionOffsets]
    # Partitions without an owner that a listing did not find.
    missing: frozenset[Partition] = frozenset()
    # A listing that holds all partitions of the group's topics, each with all its offsets.
    is_complete: bool = False

    @property
    def has_committed(self) -> bool:
        """True if any of the partitions has a committed offset."""
        return any(each.committed is not None for each in self.offsets.values())


@dataclass(slots=True)
class Lookup:
    """A lookup under way."""

    # Empty: a listing.
    partitions: tuple[Partition, ...]
    # Known partitions without an owner when it was started.
    unowned: frozenset[Partition]
    found: list[Mapping[Partition, int]] = field(default_factory=list)
    errors: set[Partition] = field(default_factory=set)

    @property
    def kind(self) -> pb.OffsetKind.ValueType:
        """Kind of offsets that the next query asks for."""
        return KINDS[len(self.found)]

    def add(self, answer: pb.OrderAnswer) -> bool:
        """Add the answer to the next query; returns whether it was the last one."""
        self.found.append({Partition(each.topic, each.partition): each.offset for each in answer.offsets})
        self.errors |= {Partition(each.topic, each.partition) for each in answer.errors}
        return len(self.found) == len(KINDS)

    def result(self) -> FoundOffsets:
        """Return what the answers say together."""
        committed, starts, ends = self.found
        asked = ends.keys() & set(self.partitions) if self.partitions else ends.keys()
        offsets = {
            each: PartitionOffsets(committed.get(each), starts.get(each), ends[each]) for each in asked
        }
        if self.partitions:
            return FoundOffsets(offsets)
        # A partition that failed alone may exist.
        failed = {each for each in self.errors if each.number != ALL_PARTITIONS}
        return FoundOffsets(offsets, self.unowned - offsets.keys() - failed, bool(ends) and not failed)


@dataclass(slots=True)
class SidecarRecord:
    """Queries of one sidecar."""

    asked_ms: int = NEVER_MS
    # The last query that failed; a later one that succeeds clears it.
    failed_ms: int = NEVER_MS
    # Not asked before then.
    retry_ms: int = NEVER_MS


class OffsetLookups:
    """
    Lookups of one group.

    Invariant: at most one query is unanswered, and queries are at least QUERY_INTERVAL_MS apart.
    """

    def __init__(self) -> None:
        self._lookup: Lookup | None = None
        self._asked: OffsetQuery | None = None
        self._next_ms = NEVER_MS
        self._listing_ms = NEVER_MS
        # By partition without an owner: its last lookup.
        self._looked_up_ms: dict[Partition, int] = {}
        self._sidecars: dict[str, SidecarRecord] = {}

    def is_due(self, now_ms: int) -> bool:
        """Return whether `next` may return a query."""
        return self._asked is None and now_ms >= self._next_ms

    def next(
        self, sidecars: Collection[str], unowned: Collection[Partition], now_ms: int
    ) -> OffsetQuery | None:
        """
        Return the query to send now, if there is one; the caller passes its answer to `answered`.

        `sidecars` are those that are connected, `unowned` the known partitions without an owner.
        """
        if not self.is_due(now_ms):
            return None
        self._next_ms = now_ms + QUERY_INTERVAL_MS
        sidecar = self._choose(sidecars, now_ms)
        if sidecar is None:
            return None
        if self._lookup is None:
            self._lookup = self._start(frozenset(unowned), now_ms)
        if self._lookup is None:
            return None
        self._sidecars.setdefault(sidecar, SidecarRecord()).asked_ms = now_ms
        self._asked = OffsetQuery(sidecar, self._lookup.kind, self._lookup.partitions)
        return self._asked

    def answered(self, query: OffsetQuery, answer: pb.OrderAnswer, now_ms: int) -> FoundOffsets | None:
        """Add the answer to a query, or one without an id if there was none in time; returns the result of a lookup that is done."""
        lookup = self._lookup
        if query is not self._asked or lookup is None:
            return None
        self._asked = None
        if not answer.order_id or answer.error:
            self._fail(query, lookup, now_ms, is_answered=bool(answer.order_id))
            return None
        self._sidecars[query.sidecar].failed_ms = NEVER_MS
        if not lookup.add(answer):
            return None
        self._lookup = None
        found = lookup.result()
        if not lookup.partitions:
            self._listing_ms = now_ms + LISTING_INTERVAL_MS
        self._looked_up_ms |= dict.fromkeys(lookup.partitions or found.offsets.keys(), now_ms)
        return found

    def _fail(self, query: OffsetQuery, lookup: Lookup, now_ms: int, *, is_answered: bool) -> None:
        """Drop the lookup: its first answers would be outdated once another sidecar has answered."""
        self._lookup = None
        record = self._sidecars[query.sidecar]
        record.failed_ms = now_ms
        if not is_answered:
            record.retry_ms = now_ms + SIDECAR_RETRY_MS
        elif lookup.partitions:
            # The other partitions first.
            self._looked_up_ms |= dict.fromkeys(lookup.partitions, now_ms)
        else:
            self._listing_ms = now_ms + LISTING_RETRY_MS

    def _choose(self, sidecars: Collection[str], now_ms: int) -> str | None:
        """Return the sidecar to ask: of those that have not failed, or else failed first, the one that was not asked for longest."""
        self._sidecars = {
            name: each
            for name, each in self._sidecars.items()
            if name in sidecars or now_ms < max(each.retry_ms, each.failed_ms + SIDECAR_RETRY_MS)
        }
        records = {name: self._sidecars.get(name, SidecarRecord()) for name in sidecars}
        return min(
            (name for name, each in records.items() if now_ms >= each.retry_ms),
            key=lambda name: (records[name].failed_ms, records[name].asked_ms, name),
            default=None,
        )

    def _start(self, unowned: frozenset[Partition], now_ms: int) -> Lookup | None:
        """Return the next lookup: a listing if one is due, else the partitions that were looked up longest ago."""
        self._looked_up_ms = {each: at_ms for each, at_ms in self._looked_up_ms.items() if each in unowned}
        if now_ms >= self._listing_ms:
            return Lookup((), unowned)
        due = [
            each
            for each in unowned
            if each not in self._looked_up_ms or now_ms - self._looked_up_ms[each] >= LOOKUP_INTERVAL_MS
        ]
        due.sort(key=lambda each: (self._looked_up_ms.get(each, NEVER_MS), each))
        return Lookup(tuple(due[:PARTITIONS_MAX]), unowned) if due else None
