"""
The core of the fetches over the sidecar's own connections: decides which partitions are fetched from which broker. Pure.

`reading.py` is the shell. In each turn it describes the topics that `topics_to_describe` names, sends a Fetch request for what
`ready` returns for a broker, and passes each answer back: `described`, `fetched`, or their failures. After each of them `results`
yields what the answers mean for requests. Times are in milliseconds of a monotonic clock.

    no leader known --described--> ready --begin--> in flight --fetched--> ready
                                                             --an error of the leader--> no leader known, after a backoff
                                                             --an error for the user--> halted, until the next request

A partition is fetched by its topic's id, which the first description in a delivery epoch determines: a topic that was deleted and
created again is another one. A partition without a request is prefetched up to the limits of `tracks.py`.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.delivery.events import FetchError, Read, ReadFailed
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.engines.kafka.fetch_errors import message_of
from rota_sidecar.engines.kafka.metadata import NO_LEADER, Described, Leader, Metadata
from rota_sidecar.engines.kafka.python_client.record_set import Decoded
from rota_sidecar.engines.kafka.settings import Address
from rota_sidecar.engines.kafka.tracks import AHEAD_BYTES_MAX, Track
from rota_sidecar.engines.records import FetchRequest

# Before a partition is fetched, or its leader looked up, again after an error.
RETRY_MS = 200
# A broker may not know a new topic yet: a topic is missing if it is so in two descriptions, this long apart.
RECHECK_MS = 2_000
# Errors that end a fetch, by their codes. After any other error the leader is looked up again.
FINAL_ERRORS: Mapping[int, FetchError] = {
    pb.OFFSET_OUT_OF_RANGE: FetchError.OUT_OF_RANGE,
    pb.CORRUPT_MESSAGE: FetchError.CORRUPT,
    pb.TOPIC_AUTHORIZATION_FAILED: FetchError.DENIED,
    pb.CLUSTER_AUTHORIZATION_FAILED: FetchError.DENIED,
}
# Errors of a broker that does not have the topic with this id. Its description decides.
NOT_THE_TOPIC = (pb.UNKNOWN_TOPIC_OR_PARTITION, pb.UNKNOWN_TOPIC_ID, pb.INCONSISTENT_TOPIC_ID)
MISSING = (pb.UNKNOWN_TOPIC_OR_PARTITION, pb.INVALID_TOPIC_EXCEPTION)
UNKNOWN_EPOCH = -1


@dataclass(eq=False, slots=True)
class PartitionFetch:
    """
    A partition that is fetched, in one delivery epoch.

    Invariant: at most one Fetch request for it is in flight; `topic_id`, once known, never changes.
    """

    partition: Partition
    track: Track
    topic_id: bytes = b""
    # None: to be looked up.
    leader: Leader | None = None
    # The highest known: older descriptions are ignored.
    leader_epoch: int = UNKNOWN_EPOCH
    # Leader epoch of the last batch read. The leader compares it with its log, which may have been truncated.
    fetched_epoch: int = UNKNOWN_EPOCH
    is_in_flight: bool = False
    # True after a failure that the next request may find gone.
    is_halted: bool = False
    # True after an error that the topic's deletion may have caused.
    is_suspect: bool = False
    # True: the topic or the partition was missing in the last description.
    is_missing: bool = False
    retry_at_ms: int = 0
    low: int = 0
    high: int = 0
    failure: ReadFailed | None = None


class Part(NamedTuple):
    """A partition in the response to a Fetch request."""

    error_code: int
    low: int
    # The offset after the last record that readers of this isolation level get.
    high: int
    # True: the log was truncated, and has other records before this offset than were read.
    is_truncated: bool = False
    # None: the bytes of the response were not decoded, as others before it took the memory.
    decoded: Decoded | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """A Fetch request for one broker. Invariant: its partitions are in flight until `fetched` or `fetch_failed`."""

    node: int
    fetches: Sequence[PartitionFetch]
    # Positions of the partitions when the request was sent.
    offsets: Sequence[int]

    @property
    def is_urgent(self) -> bool:
        """Return true if the broker should answer at once, also without records."""
        return any(not fetch.track.is_known for fetch in self.fetches)


class Fetcher:
    """Invariant: `_partitions` has the delivery epoch of each fetch, and `_ahead_bytes` is the sum of their prefetched bytes."""

    def __init__(self) -> None:
        # Addresses of the brokers, by their ids.
        self.addresses: Mapping[int, Address] = {}
        self._fetches: dict[Partition, PartitionFetch] = {}
        self._partitions: dict[int, Partition] = {}
        # Partitions that may have a result.
        self._changed: dict[Partition, None] = {}
        self._describing: set[str] = set()
        self._ahead_bytes = 0

    # Requests

    def set_request(self, request: FetchRequest) -> None:
        """Fetch a partition from an offset on: continue where its last result ended, or begin anew."""
        fetch = self._fetches.get(request.partition)
        same_epoch = fetch is not None and fetch.track.delivery_epoch == request.delivery_epoch
        if fetch is None or not same_epoch or fetch.track.front != request.offset:
            topic_id = fetch.topic_id if fetch is not None and same_epoch else b""
            if fetch is not None:
                self._remove(fetch)
            fetch = PartitionFetch(request.partition, Track(request), topic_id)
            self._fetches[request.partition] = fetch
            self._partitions[request.delivery_epoch] = request.partition
        fetch.track.set_request(request)
        fetch.is_halted = False
        self._changed[request.partition] = None

    def stop(self, delivery_epoch: int) -> None:
        """Forget the fetch of a delivery epoch; an answer that is in flight is ignored."""
        partition = self._partitions.get(delivery_epoch)
        if partition is not None:
            self._remove(self._fetches[partition])

    def _remove(self, fetch: PartitionFetch) -> None:
        del self._fetches[fetch.partition]
        del self._partitions[fetch.track.delivery_epoch]
        self._ahead_bytes -= fetch.track.ahead_bytes

    def results(self) -> Iterator[Read | ReadFailed]:
        """Yield the results of requests, each once. Requests may be set and stopped meanwhile."""
        changed, self._changed = self._changed, {}
        for partition in changed:
            fetch = self._fetches.get(partition)
            found = None if fetch is None else self._result_of(fetch)
            if found is not None:
                yield found

    def _result_of(self, fetch: PartitionFetch) -> Read | ReadFailed | None:
        track = fetch.track
        failure, fetch.failure = fetch.failure, None
        if failure is not None and track.request is not None:
            track.request = None
            return failure
        if not track.is_known:
            return None
        before = track.ahead_bytes
        read = track.take_read(fetch.low, fetch.high)
        self._ahead_bytes += track.ahead_bytes - before
        return read

    # Descriptions of topics

    def topics_to_describe(self, now_ms: int) -> Sequence[str]:
        """Return the topics of partitions whose leader is looked up now, and mark them."""
        names = {
            fetch.partition.topic
            for fetch in self._fetches.values()
            if fetch.leader is None and not fetch.is_halted and fetch.retry_at_ms <= now_ms
        }
        found = sorted(names - self._describing)
        self._describing.update(found)
        return found

    def described(self, names: Collection[str], metadata: Metadata, now_ms: int) -> None:
        """Take the leaders of these topics' partitions from a description."""
        self._describing.difference_update(names)
        self.addresses = metadata.brokers
        topics = {each.name: each for each in metadata.topics}
        for fetch in self._looked_up(names):
            self._describe(fetch, topics.get(fetch.partition.topic), now_ms)

    def describe_failed(self, names: Collection[str], retry_at_ms: int) -> None:
        """Look the leaders of these topics' partitions up again, from that time on."""
        self._describing.difference_update(names)
        for fetch in self._looked_up(names):
            fetch.retry_at_ms = retry_at_ms

    def _looked_up(self, names: Collection[str]) -> Sequence[PartitionFetch]:
        return [
            each for each in self._fetches.values() if each.leader is None and each.partition.topic in names
        ]

    def _describe(self, fetch: PartitionFetch, found: Described | None, now_ms: int) -> None:
        if found is None or found.error_code in MISSING:
            self._miss(fetch, now_ms)
        elif found.error_code in FINAL_ERRORS:
            self._fail(fetch, FINAL_ERRORS[found.error_code])
        elif found.error_code:
            fetch.retry_at_ms = now_ms + RETRY_MS
        elif fetch.topic_id and fetch.topic_id != found.topic.topic_id:
            self._fail(fetch, FetchError.OTHER_TOPIC)
        elif fetch.partition.number >= len(found.leaders):
            self._miss(fetch, now_ms)
        else:
            fetch.topic_id = found.topic.topic_id
            fetch.is_missing = fetch.is_suspect = False
            self._lead(fetch, found.leaders[fetch.partition.number], now_ms)

    def _lead(self, fetch: PartitionFetch, leader: Leader, now_ms: int) -> None:
        if leader.node == NO_LEADER or leader.node not in self.addresses or leader.epoch < fetch.leader_epoch:
            fetch.retry_at_ms = now_ms + RETRY_MS
            return
        fetch.leader, fetch.leader_epoch = leader, leader.epoch

    def _miss(self, fetch: PartitionFetch, now_ms: int) -> None:
        if fetch.is_missing or fetch.is_suspect:
            fetch.is_missing = False
            self._fail(fetch, FetchError.UNKNOWN_TOPIC)
        else:
            fetch.is_missing = True
            fetch.retry_at_ms = now_ms + RECHECK_MS

    # Fetches

    def ready(self, now_ms: int) -> Mapping[int, Sequence[PartitionFetch]]:
        """Return the partitions to fetch now, by the broker that leads them, and those first that had no records for longest."""
        found: dict[int, list[PartitionFetch]] = {}
        for fetch in self._fetches.values():
            if fetch.leader is not None and fetch.retry_at_ms <= now_ms and self._is_wanted(fetch):
                found.setdefault(fetch.leader.node, []).append(fetch)
        return found

    def _is_wanted(self, fetch: PartitionFetch) -> bool:
        return not (fetch.is_in_flight or fetch.is_halted or fetch.track.is_full(self._ahead_bytes))

    def begin(self, node: int, fetches: Sequence[PartitionFetch]) -> Plan:
        """Mark partitions as in flight, and return the request for them."""
        for fetch in fetches:
            fetch.is_in_flight = True
        return Plan(node, fetches, [fetch.track.position for fetch in fetches])

    def wake_at_ms(self, now_ms: int) -> int | None:
        """Return the time of the next retry; None: none is due later than now."""
        times = [
            fetch.retry_at_ms
            for fetch in self._fetches.values()
            if fetch.retry_at_ms > now_ms and not (fetch.is_halted or fetch.is_in_flight)
        ]
        return min(times, default=None)

    def fetched(self, plan: Plan, parts: Mapping[tuple[bytes, int], Part], now_ms: int) -> None:
        """Take the response to a request, by topic id and partition number."""
        for fetch, offset in zip(plan.fetches, plan.offsets, strict=True):
            fetch.is_in_flight = False
            if self._fetches.get(fetch.partition) is not fetch:
                continue
            part = parts.get((fetch.topic_id, fetch.partition.number))
            if part is None:
                self._retry(fetch, now_ms + RETRY_MS)
            elif part.error_code:
                self._on_error(fetch, part, now_ms)
            elif part.is_truncated:
                self._fail(fetch, FetchError.OUT_OF_RANGE)
            else:
                self._add(fetch, offset, part)

    def fetch_failed(self, plan: Plan, retry_at_ms: int) -> None:
        """Look up the leaders of a request's partitions again, from that time on: its broker did not answer."""
        for fetch in plan.fetches:
            fetch.is_in_flight = False
            self._retry(fetch, retry_at_ms)

    def _on_error(self, fetch: PartitionFetch, part: Part, now_ms: int) -> None:
        final = FINAL_ERRORS.get(part.error_code)
        if final is not None:
            self._fail(fetch, final, "the broker reports it" if final is FetchError.CORRUPT else "")
            return
        fetch.is_suspect = fetch.is_suspect or part.error_code in NOT_THE_TOPIC
        self._retry(fetch, now_ms + RETRY_MS)

    def _retry(self, fetch: PartitionFetch, retry_at_ms: int) -> None:
        fetch.leader = None
        fetch.retry_at_ms = retry_at_ms

    def _fail(self, fetch: PartitionFetch, fetch_error: FetchError, why: str = "") -> None:
        """Fail the request; without one, the partition is not prefetched before the next request, which repeats the fetch."""
        track = fetch.track
        fetch.is_halted = True
        if track.request is not None:
            message = message_of(fetch_error, fetch.partition, track.position, why)
            fetch.failure = ReadFailed(track.delivery_epoch, fetch_error, message)
            self._changed[fetch.partition] = None
        # The next request begins with the description of the topic, which may have changed.
        fetch.leader = None

    def _add(self, fetch: PartitionFetch, offset: int, part: Part) -> None:
        fetch.low, fetch.high, fetch.retry_at_ms = part.low, part.high, 0
        found = part.decoded
        if found is None:
            return
        if found.problem and found.next_offset == offset:
            self._fail(fetch, FetchError.CORRUPT, found.problem)
            return
        if found.batches:
            fetch.track.append(found.batches)
            self._ahead_bytes += sum(batch.size for batch in found.batches)
        if found.next_offset > offset:
            fetch.fetched_epoch = found.leader_epoch
            # To the end: the broker fills a response in the order of the request.
            self._fetches[fetch.partition] = self._fetches.pop(fetch.partition)
        fetch.track.advance(found.next_offset)
        self._changed[fetch.partition] = None


def bytes_max(fetch: PartitionFetch) -> int:
    """Return the bytes of records in memory that a fetch of the partition may add, beyond its last batch."""
    request = fetch.track.request
    return max(AHEAD_BYTES_MAX, 0 if request is None else request.bytes_max)
