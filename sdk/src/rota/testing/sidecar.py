"""
A sidecar in memory: the calls of `rota.sidecar.v1.Consumer` over partitions in memory, in virtual time.

It answers the application's requests at once, and sends events and records to an `ApplicationStream`. The clock stands still
while records are in flight, and otherwise advances to the next retry.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, Protocol

from rota import errors
from rota.records import TopicPartition
from rota.testing.partition import MemoryPartition, StoredRecord
from rota_proto.sidecar.v1 import sidecar_pb2 as pb

BACKOFF_MS = 500
LONG_MS = 60_000
FIRST_MS = 1_700_000_000_000
# Approximate size of a batch in bytes.
MESSAGE_BYTES = 1 << 20
MESSAGES: Mapping[int, str] = {
    pb.PARTITION_ERROR_KIND_NO_OFFSET: "nothing is committed; seek, or commit an offset",
    pb.PARTITION_ERROR_KIND_OFFSET_OUT_OF_RANGE: "the offset is not in the log; seek, or commit another one",
}

Reset = Literal["earliest", "latest", "none"]
"""Start position without a committed offset, and for a committed offset that is not in the log."""


class ApplicationStream(Protocol):
    """Receives the sidecar's events and records; called from any thread."""

    def send_event(self, event: pb.AttachResponse.Event) -> None:
        """Handle a rebalance event."""
        ...

    def send_partition_error(self, error: pb.AttachResponse.PartitionError) -> None:
        """Handle a fetch error of partitions."""
        ...

    def send_committed(self, committed: pb.AttachResponse.Committed) -> None:
        """Handle offsets that the sidecar has committed by itself."""
        ...

    def send_records(self, response: pb.DeliverResponse) -> None:
        """Handle records or rejected verdicts."""
        ...


class MemorySidecar:
    """A group with one member. Every method may be called from any thread."""

    def __init__(
        self,
        group_id: str,
        ordering: pb.Ordering.ValueType = pb.ORDERING_PARTITION,
        concurrency: int = 64,
        retries: int = 5,
        reset: Reset = "earliest",
    ) -> None:
        self.group_id = group_id
        self.ordering = ordering
        self.concurrency = concurrency
        self.retries = retries
        self.reset = reset
        self.now_ms = FIRST_MS
        self.topics: dict[str, list[MemoryPartition]] = {}
        self.assigned: dict[TopicPartition, MemoryPartition] = {}
        # Partitions of the group's other member.
        self.owned_by_others: set[TopicPartition] = set()
        self.session = 0
        self.tenure = 0
        self.generation = 0
        self.last_delivery_epoch = 0
        self.commits_itself = False
        self._takes_errors = False
        self._takes_commits = False
        self.lock = threading.RLock()
        self._application: ApplicationStream | None = None
        self._credit = 0
        self._event_id = 0
        # Actions to run when an event is acknowledged.
        self._on_acknowledged: dict[int, Callable[[], None]] = {}
        self.subscribed: Callable[[str], bool] = lambda topic: False
        self.is_manual = False

    # Log

    def make_topic(self, topic: str, partitions: int) -> None:
        """Create a topic, or increase its number of partitions."""
        with self.lock:
            row = self.topics.setdefault(topic, [])
            row += [MemoryPartition(TopicPartition(topic, number)) for number in range(len(row), partitions)]
            self.rebalance()

    def append(self, topic_partition: TopicPartition, record: StoredRecord) -> int:
        """Append a record; return its offset."""
        with self.lock:
            partition = self.partition(topic_partition)
            partition.log.append(record)
            self.dispatch_ready()
            return len(partition.log) - 1

    def partition(self, topic_partition: TopicPartition) -> MemoryPartition:
        """Return the partition; raises UnknownTopicOrPartition."""
        row = self.topics.get(topic_partition.topic, [])
        if not 0 <= topic_partition.partition < len(row):
            raise errors.UnknownTopicOrPartition(f"{topic_partition.topic}[{topic_partition.partition}]")
        return row[topic_partition.partition]

    def all_partitions(self) -> Iterable[MemoryPartition]:
        """Return the partitions of all topics."""
        return [each for row in self.topics.values() for each in row]

    # Application

    def attach(
        self, hello: pb.AttachRequest.Hello, application: ApplicationStream
    ) -> pb.AttachResponse.Attached:
        """Attach the application; SidecarFailed if one is attached already."""
        with self.lock:
            if self._application is not None:
                raise errors.SidecarFailed(f"the member of group {self.group_id} already has an application")
            self._application = application
            self._credit = 0
            self.session += 1
            self.commits_itself = hello.commits_itself
            self._takes_errors = hello.takes_errors
            self._takes_commits = hello.takes_commits
            return pb.AttachResponse.Attached(
                session=self.session,
                group_id=self.group_id,
                ordering=self.ordering,
                concurrency=self.concurrency,
                processing_timeout_ms=LONG_MS,
                commit_mode="periodic",
            )

    def begin(self) -> None:
        """Start to send events to the attached application."""
        with self.lock:
            if self.assigned:
                self._send_assigned(list(self.assigned))
            self.rebalance()

    def detach(self, session: int) -> None:
        """Detach the application; its records in flight are requeued."""
        with self.lock:
            if session == self.session and self._application is not None:
                self._application = None
                self._on_acknowledged.clear()
                for partition in self.assigned.values():
                    partition.is_open = False
                    partition.requeue_all()
                    if self.commits_itself:
                        # Records with a verdict but without a commit are delivered again.
                        self._begin(partition)

    def on_request(self, request: pb.DeliverRequest) -> None:
        """Handle verdicts, credit, or an acknowledgement."""
        with self.lock:
            match request.WhichOneof("request"):
                case "credit":
                    self._credit += request.credit.records
                case "judgements":
                    refusals = [self._apply_verdict(each) for each in request.judgements.judgements]
                    self._send_refusals([each for each in refusals if each is not None])
                case "acknowledge":
                    self.acknowledge(request.acknowledge.event_id)
                case _:
                    pass
            self.dispatch_ready()

    def acknowledge(self, event_id: int) -> None:
        """Acknowledge an event, and run the actions that waited for it."""
        with self.lock:
            self._on_acknowledged.pop(event_id, lambda: None)()
            self.dispatch_ready()

    # Rebalances

    def target_assignment(self) -> set[TopicPartition]:
        """Return the partitions that the member should have."""
        return {
            each.topic_partition
            for each in self.all_partitions()
            if self.subscribed(each.topic_partition.topic)
            and each.topic_partition not in self.owned_by_others
        }

    def rebalance(self) -> None:
        """Move the member to its target assignment: revocations first, then assignments."""
        if self.is_manual or self._application is None:
            return
        wanted = self.target_assignment()
        going = [topic_partition for topic_partition in self.assigned if topic_partition not in wanted]
        if going:
            self._revoke(going)
        elif coming := sorted(wanted - self.assigned.keys()):
            self.assign(coming)

    def assign(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Assign partitions to the member, in a new tenure."""
        self.tenure += 1
        self.generation += 1
        taken = list(topic_partitions)
        for topic_partition in taken:
            partition = self.assigned[topic_partition] = self.partition(topic_partition)
            partition.is_open = partition.is_paused = False
            partition.tenure = self.tenure
            self._begin(partition)
        if self._application is not None:
            self._send_assigned(taken)

    def _begin(self, partition: MemoryPartition) -> None:
        if partition.committed is not None:
            self.read_from(partition, partition.committed[0])
        else:
            self._reset(partition, pb.PARTITION_ERROR_KIND_NO_OFFSET)

    def read_from(self, partition: MemoryPartition, offset: int) -> None:
        """Dispatch records from there on; records in flight are void."""
        if partition.start <= offset <= len(partition.log):
            partition.read_from(offset, self.new_delivery_epoch())
        else:
            self._reset(partition, pb.PARTITION_ERROR_KIND_OFFSET_OUT_OF_RANGE)

    def _reset(self, partition: MemoryPartition, error: pb.PartitionErrorKind.ValueType) -> None:
        end = len(partition.log) if self.reset == "latest" else partition.start
        partition.read_from(end, self.new_delivery_epoch())
        if self.reset == "none":
            partition.error = error
            self._send_partition_error(partition)

    def delete_records(self, topic_partition: TopicPartition, before: int) -> None:
        """Delete all records before this offset, as retention does."""
        with self.lock:
            partition = self.partition(topic_partition)
            partition.start = max(partition.start, min(before, len(partition.log)))
            if topic_partition in self.assigned and partition.next_offset < partition.start:
                self.read_from(partition, partition.next_offset)
            self.dispatch_ready()

    def _send_partition_error(self, partition: MemoryPartition) -> None:
        """Send a partition's error once the application has acknowledged the partition."""
        if partition.error and partition.is_open and self._application is not None and self._takes_errors:
            topic_partition = partition.topic_partition
            error = pb.AttachResponse.PartitionError(
                kind=partition.error,
                partitions=[
                    pb.TopicPartition(topic=topic_partition.topic, partition=topic_partition.partition)
                ],
                message=MESSAGES[partition.error],
                delivery_epoch=partition.delivery_epoch,
            )
            self._application.send_partition_error(error)

    def _send_assigned(self, topic_partitions: list[TopicPartition]) -> None:
        def open_them() -> None:
            for topic_partition in topic_partitions:
                if topic_partition in self.assigned:
                    self.assigned[topic_partition].is_open = True
                    self._send_partition_error(self.assigned[topic_partition])

        self._send_event(pb.ASSIGNED, topic_partitions, open_them)

    def _revoke(self, topic_partitions: list[TopicPartition]) -> None:
        for topic_partition in topic_partitions:
            self.assigned[topic_partition].is_open = False

        def release() -> None:
            for topic_partition in topic_partitions:
                if (partition := self.assigned.pop(topic_partition, None)) is not None:
                    partition.requeue_all()
                    self.commit_verdicts(partition)
            self._send_event(pb.REVOKED, topic_partitions)
            self.rebalance()

        self._send_event(pb.REVOKING, topic_partitions, release)

    def expire(self) -> None:
        """Expire the deadline of pending revocations."""
        with self.lock:
            for event_id in list(self._on_acknowledged):
                self.acknowledge(event_id)

    def lose(self, topic_partitions: Iterable[TopicPartition], reason: str) -> None:
        """Lose partitions to another member, without a revocation."""
        with self.lock:
            lost = [
                topic_partition
                for topic_partition in topic_partitions
                if self.assigned.pop(topic_partition, None) is not None
            ]
            self.owned_by_others.update(lost)
            if lost:
                self._send_event(pb.LOST, lost, reason=reason)

    def _send_event(
        self,
        kind: pb.RebalanceEventKind.ValueType,
        topic_partitions: list[TopicPartition],
        then: Callable[[], None] | None = None,
        reason: str = "",
    ) -> None:
        self._event_id += 1
        if then is not None:
            self._on_acknowledged[self._event_id] = then
        if self._application is not None:
            self._application.send_event(
                pb.AttachResponse.Event(
                    event_id=self._event_id,
                    kind=kind,
                    partitions=[
                        pb.TopicPartition(topic=each[0], partition=each[1]) for each in topic_partitions
                    ],
                    tenure=self.current_tenure(),
                    deadline_ms=LONG_MS if kind == pb.REVOKING else 0,
                    reason=reason,
                )
            )

    def current_tenure(self) -> pb.Tenure:
        """The newest tenure."""
        return pb.Tenure(
            number=self.tenure,
            member_id=f"{self.group_id}-member",
            generation_id=self.generation,
            incarnation=1,
        )

    def new_delivery_epoch(self) -> int:
        """Return a new delivery epoch; epochs are counted over all partitions."""
        self.last_delivery_epoch += 1
        return self.last_delivery_epoch

    # Records

    def _apply_verdict(self, judgement: pb.DeliverRequest.Judgement) -> pb.DeliverResponse.Refusal | None:
        topic_partition = TopicPartition(judgement.partition.topic, judgement.partition.partition)
        partition = self.assigned.get(topic_partition)
        if partition is None or partition.delivery_epoch != judgement.delivery_epoch:
            return None
        first = judgement.offset
        last = judgement.last_offset if judgement.HasField("last_offset") else first
        if not partition.has(first, last):
            return pb.DeliverResponse.Refusal(
                partition=judgement.partition,
                delivery_epoch=judgement.delivery_epoch,
                offset=first,
                message=f"{topic_partition.topic}[{topic_partition.partition}]: not all of {first} to {last} are in flight",
            )
        if judgement.verdict == pb.RETRY:
            partition.requeue_behind(first, self.ordering)
        if judgement.verdict in (pb.ACK, pb.SKIP):
            partition.complete(first, last)
        elif judgement.verdict == pb.DEAD_LETTER or partition.deliveries(first) > self.retries:
            partition.dead_letter(first, judgement.reason)
        else:
            wait_ms = judgement.retry_after_ms if judgement.HasField("retry_after_ms") else BACKOFF_MS
            partition.retry(first, self.now_ms + wait_ms)
        self.commit_verdicts(partition)
        return None

    def commit_verdicts(self, partition: MemoryPartition) -> None:
        """Commit up to the first record without a verdict, unless the application commits itself."""
        if not self.commits_itself and not self.is_manual:
            before, metadata = partition.committed or (-1, "")
            partition.committed = (partition.position, metadata)
            if self._takes_commits and self._application is not None and partition.position != before:
                topic, number = partition.topic_partition
                committed = pb.AttachResponse.Committed()
                committed.offsets.add(
                    partition=pb.TopicPartition(topic=topic, partition=number), offset=partition.position
                )
                self._application.send_committed(committed)

    def _send_refusals(self, refusals: list[pb.DeliverResponse.Refusal]) -> None:
        if refusals and self._application is not None:
            self._application.send_records(pb.DeliverResponse(refusals=refusals))

    def dispatch_ready(self) -> None:
        """Dispatch all records that may be dispatched now."""
        while self._application is not None and self._credit > 0:
            offers = self._offers()
            if offers:
                self._credit -= len(offers)
                self._application.send_records(pb.DeliverResponse(partitions=offers))
            elif not self._advance_clock():
                return

    def _offers(self) -> list[pb.PartitionRecords]:
        found: list[pb.PartitionRecords] = []
        size = 0
        for partition in self.assigned.values():
            while len(found) < self._credit and size < MESSAGE_BYTES and self._has_capacity(partition):
                offset = partition.next(self.ordering, self.now_ms)
                if offset is None:
                    break
                found.append(partition.dispatch(offset))
                size += found[-1].ByteSize()
        return found

    def _has_capacity(self, partition: MemoryPartition) -> bool:
        if self.ordering == pb.ORDERING_PARTITION:
            busy = sum(each.in_flight > 0 for each in self.assigned.values() if each is not partition)
        else:
            busy = sum(each.in_flight for each in self.assigned.values())
        return busy < self.concurrency

    def _advance_clock(self) -> bool:
        """Advance the clock to the next retry when nothing is in flight; return whether there is one."""
        if any(each.in_flight for each in self.assigned.values()):
            return False
        later = [
            due
            for each in self.assigned.values()
            if each.is_open and not each.is_paused
            for due in each.retry_times_ms
            if due > self.now_ms
        ]
        if later:
            self.now_ms = min(later)
        return bool(later)

    @property
    def is_done(self) -> bool:
        """Return whether every record of the member's partitions has its verdict."""
        with self.lock:
            return self.assigned.keys() == self.target_assignment() and all(
                each.is_done for each in self.assigned.values()
            )

    def committed(self) -> Mapping[TopicPartition, int]:
        """Return the committed offsets by partition."""
        with self.lock:
            return {
                each.topic_partition: each.committed[0]
                for each in self.all_partitions()
                if each.committed is not None
            }
