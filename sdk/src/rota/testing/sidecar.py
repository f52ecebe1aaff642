"""
A sidecar without a process: the words of `rota.sidecar.v1.Consumer` over partitions in memory, in virtual time.

It is told what an application says and answers at once; what it says by itself goes to a `Voice`. Time stands still while
the application has work, and else goes on to the next retry.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, Protocol

from rota import errors
from rota.records import TopicPartition
from rota.testing.partition import MemoryPartition, Stored
from rota_proto.sidecar.v1 import sidecar_pb2 as pb

BACKOFF_MS = 500
FAR_MS = 60_000
FIRST_MS = 1_700_000_000_000
# About so much goes together.
MESSAGE_BYTES = 1 << 20
MESSAGES: Mapping[int, str] = {
    pb.PARTITION_ERROR_KIND_NO_OFFSET: "nothing is committed; seek, or commit an offset",
    pb.PARTITION_ERROR_KIND_OFFSET_OUT_OF_RANGE: "the offset is not in the log; seek, or commit another one",
}

Reset = Literal["earliest", "latest", "none"]
"""Where to begin without a commit, and where what was committed is not in the log."""


class Voice(Protocol):
    """Whom the sidecar tells; any thread may call."""

    def tell(self, event: pb.AttachResponse.Event) -> None:
        """Something happens to partitions."""
        ...

    def tell_error(self, error: pb.AttachResponse.PartitionError) -> None:
        """No records of some partitions come."""
        ...

    def deliver(self, response: pb.DeliverResponse) -> None:
        """Records, or refusals."""
        ...


class MemorySidecar:
    """One group of one member. Every method may be called from any thread."""

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
        self.held: dict[TopicPartition, MemoryPartition] = {}
        # Those that somebody else of the group has.
        self.elsewhere: set[TopicPartition] = set()
        self.session = 0
        self.tenure = 0
        self.generation = 0
        self.last_ledger = 0
        self.commits_itself = False
        self._takes_errors = False
        self.lock = threading.RLock()
        self._voice: Voice | None = None
        self._credit = 0
        self._event_id = 0
        # What is to be done when an event is acknowledged.
        self._awaited: dict[int, Callable[[], None]] = {}
        self.subscribed: Callable[[str], bool] = lambda topic: False
        self.by_hand = False

    # The log

    def make_topic(self, topic: str, partitions: int) -> None:
        """Make it, or give it more partitions."""
        with self.lock:
            row = self.topics.setdefault(topic, [])
            row += [MemoryPartition(TopicPartition(topic, number)) for number in range(len(row), partitions)]
            self.rebalance()

    def append(self, place: TopicPartition, record: Stored) -> int:
        """The offset of a record that is put at the end."""
        with self.lock:
            partition = self.partition(place)
            partition.log.append(record)
            self.pump()
            return len(partition.log) - 1

    def partition(self, place: TopicPartition) -> MemoryPartition:
        """The partition; raises UnknownTopicOrPartition."""
        row = self.topics.get(place.topic, [])
        if not 0 <= place.partition < len(row):
            raise errors.UnknownTopicOrPartition(f"{place.topic}[{place.partition}]")
        return row[place.partition]

    def all_partitions(self) -> Iterable[MemoryPartition]:
        """Of all topics."""
        return [each for row in self.topics.values() for each in row]

    # The application

    def attach(self, hello: pb.AttachRequest.Hello, voice: Voice) -> pb.AttachResponse.Attached:
        """One at a time."""
        with self.lock:
            if self._voice is not None:
                raise errors.SidecarFailed(f"the member of group {self.group_id} has an application already")
            self._voice = voice
            self._credit = 0
            self.session += 1
            self.commits_itself = hello.commits_itself
            self._takes_errors = hello.takes_errors
            return pb.AttachResponse.Attached(
                session=self.session,
                group_id=self.group_id,
                ordering=self.ordering,
                concurrency=self.concurrency,
                processing_timeout_ms=FAR_MS,
                commit_mode="periodic",
            )

    def begin(self) -> None:
        """It listens now."""
        with self.lock:
            if self.held:
                self._tell_assigned(list(self.held))
            self.rebalance()

    def detach(self, session: int) -> None:
        """What it has goes back."""
        with self.lock:
            if session == self.session and self._voice is not None:
                self._voice = None
                self._awaited.clear()
                for partition in self.held.values():
                    partition.is_open = False
                    partition.give_back()
                    if self.commits_itself:
                        # What it has judged and not committed comes again.
                        self._begin(partition)

    def hear(self, request: pb.DeliverRequest) -> None:
        """Verdicts, credit, acknowledgements."""
        with self.lock:
            match request.WhichOneof("request"):
                case "credit":
                    self._credit += request.credit.records
                case "judgements":
                    refusals = [self._judge(each) for each in request.judgements.judgements]
                    self._refuse([each for each in refusals if each is not None])
                case "acknowledge":
                    self.acknowledge(request.acknowledge.event_id)
                case _:
                    pass
            self.pump()

    def acknowledge(self, event_id: int) -> None:
        """What was asked for is done."""
        with self.lock:
            self._awaited.pop(event_id, lambda: None)()
            self.pump()

    # Rebalances

    def wanted(self) -> set[TopicPartition]:
        """What the member is to have."""
        return {
            each.place
            for each in self.all_partitions()
            if self.subscribed(each.place.topic) and each.place not in self.elsewhere
        }

    def rebalance(self) -> None:
        """Give the member what it is to have: first all that goes, then what comes."""
        if self.by_hand or self._voice is None:
            return
        wanted = self.wanted()
        going = [place for place in self.held if place not in wanted]
        if going:
            self._revoke(going)
        elif coming := sorted(wanted - self.held.keys()):
            self.take(coming)

    def take(self, places: Iterable[TopicPartition]) -> None:
        """The member has these from now on, in a new tenure."""
        self.tenure += 1
        self.generation += 1
        taken = list(places)
        for place in taken:
            partition = self.held[place] = self.partition(place)
            partition.is_open = partition.is_paused = False
            partition.tenure = self.tenure
            self._begin(partition)
        if self._voice is not None:
            self._tell_assigned(taken)

    def _begin(self, partition: MemoryPartition) -> None:
        if partition.committed is not None:
            self.read_from(partition, partition.committed[0])
        else:
            self._reset(partition, pb.PARTITION_ERROR_KIND_NO_OFFSET)

    def read_from(self, partition: MemoryPartition, offset: int) -> None:
        """Hand out the records from there on; what is in hand is void."""
        if partition.start <= offset <= len(partition.log):
            partition.read_from(offset, self.new_ledger())
        else:
            self._reset(partition, pb.PARTITION_ERROR_KIND_OFFSET_OUT_OF_RANGE)

    def _reset(self, partition: MemoryPartition, error: pb.PartitionErrorKind.ValueType) -> None:
        end = len(partition.log) if self.reset == "latest" else partition.start
        partition.read_from(end, self.new_ledger())
        if self.reset == "none":
            partition.error = error
            self._tell_error(partition)

    def delete_records(self, place: TopicPartition, before: int) -> None:
        """Let all records before this offset expire."""
        with self.lock:
            partition = self.partition(place)
            partition.start = max(partition.start, min(before, len(partition.log)))
            if place in self.held and partition.handed < partition.start:
                self.read_from(partition, partition.handed)
            self.pump()

    def _tell_error(self, partition: MemoryPartition) -> None:
        """Where the application has acknowledged the partition; else it is told as soon as it does."""
        if partition.error and partition.is_open and self._voice is not None and self._takes_errors:
            place = partition.place
            error = pb.AttachResponse.PartitionError(
                kind=partition.error,
                partitions=[pb.TopicPartition(topic=place.topic, partition=place.partition)],
                message=MESSAGES[partition.error],
                delivery_epoch=partition.ledger,
            )
            self._voice.tell_error(error)

    def _tell_assigned(self, places: list[TopicPartition]) -> None:
        def open_them() -> None:
            for place in places:
                if place in self.held:
                    self.held[place].is_open = True
                    self._tell_error(self.held[place])

        self._tell(pb.ASSIGNED, places, open_them)

    def _revoke(self, places: list[TopicPartition]) -> None:
        for place in places:
            self.held[place].is_open = False

        def let_go() -> None:
            for place in places:
                if (partition := self.held.pop(place, None)) is not None:
                    partition.give_back()
                    self.commit_verdicts(partition)
            self._tell(pb.REVOKED, places)
            self.rebalance()

        self._tell(pb.REVOKING, places, let_go)

    def expire(self) -> None:
        """The deadline of whatever is being revoked is over."""
        with self.lock:
            for event_id in list(self._awaited):
                self.acknowledge(event_id)

    def lose(self, places: Iterable[TopicPartition], reason: str) -> None:
        """Somebody else has these, and nobody was asked."""
        with self.lock:
            lost = [place for place in places if self.held.pop(place, None) is not None]
            self.elsewhere.update(lost)
            if lost:
                self._tell(pb.LOST, lost, reason=reason)

    def _tell(
        self,
        kind: pb.RebalanceEventKind.ValueType,
        places: list[TopicPartition],
        then: Callable[[], None] | None = None,
        reason: str = "",
    ) -> None:
        self._event_id += 1
        if then is not None:
            self._awaited[self._event_id] = then
        if self._voice is not None:
            self._voice.tell(
                pb.AttachResponse.Event(
                    event_id=self._event_id,
                    kind=kind,
                    partitions=[pb.TopicPartition(topic=each[0], partition=each[1]) for each in places],
                    tenure=self.present_tenure(),
                    deadline_ms=FAR_MS if kind == pb.REVOKING else 0,
                    reason=reason,
                )
            )

    def present_tenure(self) -> pb.Tenure:
        """The newest one."""
        return pb.Tenure(
            number=self.tenure,
            member_id=f"{self.group_id}-member",
            generation_id=self.generation,
            incarnation=1,
        )

    def new_ledger(self) -> int:
        """Ledgers are counted over all partitions."""
        self.last_ledger += 1
        return self.last_ledger

    # Records

    def _judge(self, judgement: pb.DeliverRequest.Judgement) -> pb.DeliverResponse.Refusal | None:
        place = TopicPartition(judgement.partition.topic, judgement.partition.partition)
        partition = self.held.get(place)
        if partition is None or partition.ledger != judgement.delivery_epoch:
            return None
        first = judgement.offset
        last = judgement.last_offset if judgement.HasField("last_offset") else first
        if not partition.has(first, last):
            return pb.DeliverResponse.Refusal(
                partition=judgement.partition,
                delivery_epoch=judgement.delivery_epoch,
                offset=first,
                message=f"{place.topic}[{place.partition}]: not all of {first} to {last} are in hand",
            )
        if judgement.verdict == pb.RETRY:
            partition.call_back(first, self.ordering)
        if judgement.verdict in (pb.ACK, pb.SKIP):
            partition.settle(first, last)
        elif judgement.verdict == pb.DEAD_LETTER or partition.deliveries(first) > self.retries:
            partition.bury(first, judgement.reason)
        else:
            wait_ms = judgement.retry_after_ms if judgement.HasField("retry_after_ms") else BACKOFF_MS
            partition.retry(first, self.now_ms + wait_ms)
        self.commit_verdicts(partition)
        return None

    def commit_verdicts(self, partition: MemoryPartition) -> None:
        """As far as they go."""
        if not self.commits_itself and not self.by_hand:
            metadata = "" if partition.committed is None else partition.committed[1]
            partition.committed = (partition.position, metadata)

    def _refuse(self, refusals: list[pb.DeliverResponse.Refusal]) -> None:
        if refusals and self._voice is not None:
            self._voice.deliver(pb.DeliverResponse(refusals=refusals))

    def pump(self) -> None:
        """Hand out what may be handed out."""
        while self._voice is not None and self._credit > 0:
            offers = self._offers()
            if offers:
                self._credit -= len(offers)
                self._voice.deliver(pb.DeliverResponse(partitions=offers))
            elif not self._jump():
                return

    def _offers(self) -> list[pb.PartitionRecords]:
        found: list[pb.PartitionRecords] = []
        size = 0
        for partition in self.held.values():
            while len(found) < self._credit and size < MESSAGE_BYTES and self._has_lane(partition):
                offset = partition.next(self.ordering, self.now_ms)
                if offset is None:
                    break
                found.append(partition.hand_out(offset))
                size += found[-1].ByteSize()
        return found

    def _has_lane(self, partition: MemoryPartition) -> bool:
        if self.ordering == pb.ORDERING_PARTITION:
            busy = sum(each.in_hand > 0 for each in self.held.values() if each is not partition)
        else:
            busy = sum(each.in_hand for each in self.held.values())
        return busy < self.concurrency

    def _jump(self) -> bool:
        """To the next retry, once the application has nothing in hand; whether there was one."""
        if any(each.in_hand for each in self.held.values()):
            return False
        later = [
            due
            for each in self.held.values()
            if each.is_open and not each.is_paused
            for due in each.dues_ms
            if due > self.now_ms
        ]
        if later:
            self.now_ms = min(later)
        return bool(later)

    @property
    def is_done(self) -> bool:
        """Whether every record of what the member is to have has its verdict."""
        with self.lock:
            return self.held.keys() == self.wanted() and all(each.is_done for each in self.held.values())

    def committed(self) -> Mapping[TopicPartition, int]:
        """By partition."""
        with self.lock:
            return {
                each.place: each.committed[0] for each in self.all_partitions() if each.committed is not None
            }
