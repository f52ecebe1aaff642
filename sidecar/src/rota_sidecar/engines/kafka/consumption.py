"""
librdkafka's consumer, and the one thread that it is used in. `reading.py` says what is wanted and hears what comes.

Partitions are assigned by hand, one by one as they are wanted: the consumer never joins a group and never commits. What
nobody wants for now is read ahead a little, and then paused.
"""

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from rota_sidecar.core.delivery.events import FetchError, Read
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.engines.kafka.batching import batches_of, by_partition
from rota_sidecar.engines.kafka.librdkafka import DENIED, FETCH_ERRORS, UNKNOWN, Config, reason_of
from rota_sidecar.engines.kafka.tracks import Track
from rota_sidecar.engines.port import Refused
from rota_sidecar.engines.records import FetchRequest

MESSAGES_AT_ONCE = 1_000
# How soon a new wish is seen while nothing comes.
POLL_S = 0.02
# Of who has just been given something the next wish comes very soon. While something lies there for it, it is waited
# for: so often, and each time for so long, for other partitions may have something too.
NEXT_FETCH_S = 0.002
NEXT_FETCH_WAITS_MAX = 10
IDLE_S = 0.5
RETRY_S = 1.0
# Between two looks whether Kafka is back, in polls.
POLLS_BETWEEN_PROBES = 50
PROBE_TIMEOUT_S = 0.5
TUNING: Config = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "allow.auto.create.topics": False,
    # Where the log ends is said: so nobody takes markers behind the last record for records that are still to come.
    "enable.partition.eof": True,
    # A batch that a disk has damaged is an error, and not records that nobody wrote.
    "check.crcs": True,
    # Whoever reads decides what an offset means that is not there.
    "auto.offset.reset": "error",
    "topic.metadata.propagation.max.ms": 5_000,
    # A partition that is wanted anew waits for the answer to what was asked before.
    "fetch.wait.max.ms": 200,
    "fetch.error.backoff.ms": 200,
    # A broker that is silent for so long is given up; none is asked for anything that takes longer.
    "socket.timeout.ms": 15_000,
    # Memory: what lies in librdkafka's queue, what one answer brings, and of one partition.
    "queued.max.messages.kbytes": 8 << 10,
    "queued.min.messages": 20_000,
    "fetch.max.bytes": 4 << 20,
    "fetch.message.max.bytes": 512 << 10,
    # As long as the queue is full; the default of a second would leave it empty most of the time.
    "fetch.queue.backoff.ms": 10,
}


@dataclass(frozen=True, slots=True)
class Failed:
    """A partition that is read no longer."""

    delivery_epoch: int
    partition: Partition
    fetch_error: FetchError
    offset: int


@dataclass(frozen=True, slots=True)
class TopicSuspected:
    """Some topic is not there, or not for us: librdkafka does not say which."""


@dataclass(frozen=True, slots=True)
class Outage:
    """Nothing can be read for now: one sentence. Empty: it is over."""

    message: str


ConsumerEvent = Read | Failed | TopicSuspected | Outage
PostEvents = Callable[[Sequence[ConsumerEvent]], None]
"""Called in the thread."""


class Consumption:
    """Starts with the first wish."""

    def __init__(self, configure: Callable[[], Config], post: PostEvents, *, with_keys: bool) -> None:
        self._configure = configure
        self._post = post
        self._with_keys = with_keys
        self._thread = threading.Thread(target=self._run, name="rota-records", daemon=True)
        self._requests: deque[tuple[Partition, FetchRequest | None]] = deque()
        self._requested = threading.Event()
        self._closed = threading.Event()
        # Of the thread alone.
        self._tracks: dict[Partition, Track] = {}
        # Those with something that nobody has taken yet.
        self._holding: set[Partition] = set()
        self._ahead_bytes = 0
        self._next_fetch_waits = 0
        # Of each topic that is or was read: so many partitions at least.
        self._counts: dict[str, int] = {}
        self._events: list[ConsumerEvent] = []
        self._is_outage_reported = False
        # What may be the matter, until a look tells; and what was said of a connection last.
        self._suspected_reason = ""
        self._reason = ""
        self._quiet_polls = 0

    def set_request(self, partition: Partition, request: FetchRequest | None) -> None:
        """Read it from there, once; None: nothing is wanted of it any more."""
        self._requests.append((partition, request))
        self._requested.set()
        if self._thread.ident is None:
            self._thread.start()

    def close(self) -> None:
        """End the thread; waits for that."""
        self._closed.set()
        self._requested.set()
        if self._thread.ident is not None:
            self._thread.join()

    # The thread

    def _run(self) -> None:
        consumer = self._create_consumer()
        if consumer is None:
            return
        try:
            while not self._closed.is_set():
                self._handle_requests(consumer)
                self._post_events()
                self._read(consumer)
                self._pause_full(consumer)
                self._post_events()
        finally:
            consumer.close()

    def _create_consumer(self) -> Consumer | None:
        """Tries until it succeeds: files may be mended. None when it was closed before."""
        while not self._closed.is_set():
            try:
                return Consumer({**TUNING, **self._configure(), "error_cb": self._on_error})
            except Refused as refused:
                self._report_outage(str(refused))
            except KafkaException as error:
                self._report_outage(
                    f"Kafka's client cannot be set up ({reason_of(error.args[0])}): check its files"
                )
            self._post_events()
            self._closed.wait(RETRY_S)
        return None

    def _post_events(self) -> None:
        events, self._events = self._events, []
        if events:
            self._post(events)

    # Wishes

    def _handle_requests(self, consumer: Consumer) -> None:
        if not self._tracks:
            self._requested.wait(IDLE_S)
        self._requested.clear()
        if self._requests:
            self._apply_requests(consumer)

    def _apply_requests(self, consumer: Consumer) -> None:
        before: dict[Partition, Track | None] = {}
        paused: list[Partition] = []
        while self._requests:
            partition, request = self._requests.popleft()
            track = self._tracks.get(partition)
            if request is not None and track is not None and track.front == request.offset:
                track.set_request(request)
                self._emit(consumer, partition, track)
                if track.is_paused:
                    paused.append(partition)
                continue
            before.setdefault(partition, track)
            self._drop(partition)
            if request is not None:
                self._tracks[partition] = Track(request)
        if before:
            self._assign(consumer, before)
        if paused:
            self._resume(consumer, paused)

    def _drop(self, partition: Partition) -> None:
        track = self._tracks.pop(partition, None)
        if track is not None:
            self._ahead_bytes -= track.ahead_bytes
            self._holding.discard(partition)

    def _assign(self, consumer: Consumer, changed: dict[Partition, Track | None]) -> None:
        removed = {each: old for each, old in changed.items() if old is not None}
        added = [
            TopicPartition(*each, self._tracks[each].position) for each in changed if each in self._tracks
        ]
        if removed:
            _unassign(consumer, removed)
        if added:
            self._refresh_metadata(consumer, added)
            consumer.incremental_assign(added)

    def _refresh_metadata(self, consumer: Consumer, added: Sequence[TopicPartition]) -> None:
        """librdkafka remembers for minutes how many partitions a topic had: ask anew for one that it may not know."""
        counts: dict[str, int] = {}
        for each in added:
            counts[each.topic] = max(counts.get(each.topic, 0), each.partition + 1)
        for topic, count in counts.items():
            known = self._counts.get(topic, 0)
            self._counts[topic] = max(known, count)
            # Of a topic that is new here it asks by itself.
            if known and count > known:
                try:
                    consumer.list_topics(topic, timeout=PROBE_TIMEOUT_S)
                except KafkaException as error:
                    self._reason = reason_of(error.args[0])

    def _resume(self, consumer: Consumer, partitions: Sequence[Partition]) -> None:
        resumed = [
            each
            for each in partitions
            if (track := self._tracks.get(each)) is not None
            and track.is_paused
            and not track.is_full(self._ahead_bytes)
        ]
        for each in resumed:
            self._tracks[each].is_paused = False
        if resumed:
            consumer.resume([TopicPartition(*each) for each in resumed])

    def _pause_full(self, consumer: Consumer) -> None:
        """Pause what has been read far enough ahead."""
        full = [
            each
            for each in self._holding
            if not self._tracks[each].is_paused and self._tracks[each].is_full(self._ahead_bytes)
        ]
        for each in full:
            self._tracks[each].is_paused = True
        if full:
            consumer.pause([TopicPartition(*each) for each in full])

    # Messages

    def _read(self, consumer: Consumer) -> None:
        first = consumer.poll(0)
        if first is None and self._tracks:
            if self._holding and self._next_fetch_waits < NEXT_FETCH_WAITS_MAX:
                # librdkafka's wait cannot be ended by a wish.
                self._next_fetch_waits += not self._requested.wait(NEXT_FETCH_S)
                return
            first = consumer.poll(POLL_S)
        if first is None:
            self._probe(consumer)
            return
        self._next_fetch_waits = 0
        messages = [first, *consumer.consume(MESSAGES_AT_ONCE - 1, 0)]
        errors = list(map(Message.error, messages))
        if any(errors):
            self._add_messages(consumer, readable(messages, errors))
            for message, error in zip(messages, errors, strict=True):
                if error is not None:
                    self._on_message_error(consumer, message, error)
        else:
            self._add_messages(consumer, messages)

    def _add_messages(self, consumer: Consumer, messages: Sequence[Message]) -> None:
        if not messages:
            return
        self._end_outage()
        for partition, run in by_partition(messages).items():
            track = self._tracks.get(partition)
            if track is None:
                continue
            batches = batches_of(run, with_keys=self._with_keys)
            track.append(batches)
            self._ahead_bytes += sum(batch.size for batch in batches)
            self._holding.add(partition)
            self._emit(consumer, partition, track)

    def _emit(self, consumer: Consumer, partition: Partition, track: Track) -> None:
        if not track.is_known or track.request is None:
            return
        low, high = consumer.get_watermark_offsets(TopicPartition(*partition), cached=True)
        before = track.ahead_bytes
        read = track.take_read(low, high)
        self._ahead_bytes += track.ahead_bytes - before
        if not track.ahead_bytes:
            self._holding.discard(partition)
        if read is not None:
            self._events.append(read)

    # Errors

    def _on_message_error(self, consumer: Consumer, message: Message, error: KafkaError) -> None:
        topic, number, offset = message.topic(), message.partition(), message.offset()
        if topic is None or number is None:
            self._on_error(error)
            return
        partition = Partition(topic, number)
        track = self._tracks.get(partition)
        if track is None:
            return
        if error.code() == KafkaError._PARTITION_EOF:
            self._end_outage()
            track.reach_end(track.position if offset is None else offset)
            self._emit(consumer, partition, track)
            return
        fetch_error = FETCH_ERRORS.get(error.code())
        if fetch_error is None:
            # librdkafka tries again by itself.
            self._suspect(f"{topic}-{number}: {reason_of(error)}")
            return
        self._drop(partition)
        _unassign(consumer, {partition: track})
        self._events.append(Failed(track.delivery_epoch, partition, fetch_error, track.position))

    def _on_error(self, error: KafkaError) -> None:
        """What is wrong with no partition by its name."""
        code = error.code()
        if code in UNKNOWN or code in DENIED:
            self._events.append(TopicSuspected())
        elif code == KafkaError.GROUP_AUTHORIZATION_FAILED:
            # librdkafka looks for the group's coordinator, though nobody needs it.
            return
        elif code in (KafkaError._TRANSPORT, KafkaError._RESOLVE):
            # One broker of several, or a connection that had nothing to do.
            self._reason = reason_of(error)
        else:
            self._suspect(reason_of(error))

    def _suspect(self, reason: str) -> None:
        """It may have passed before anybody notices: connections end and are made again."""
        if not self._is_outage_reported and not self._suspected_reason:
            self._suspected_reason = reason
            self._quiet_polls = 0

    def _report_outage(self, message: str) -> None:
        if not self._is_outage_reported:
            self._is_outage_reported = True
            self._events.append(Outage(message))

    def _end_outage(self) -> None:
        self._suspected_reason = self._reason = ""
        if self._is_outage_reported:
            self._is_outage_reported = False
            self._events.append(Outage(""))

    def _probe(self, consumer: Consumer) -> None:
        """Whether Kafka answers, while nothing comes: at the end of a partition nothing does, also when it is back."""
        if not (self._is_outage_reported or self._suspected_reason) or not self._tracks:
            return
        self._quiet_polls += 1
        if self._quiet_polls % POLLS_BETWEEN_PROBES:
            return
        partition = next(iter(self._tracks))
        try:
            consumer.get_watermark_offsets(TopicPartition(*partition), timeout=PROBE_TIMEOUT_S)
        except KafkaException:
            reason = self._reason or self._suspected_reason
            self._report_outage(
                f"no records can be read from Kafka now ({reason}): check that it runs, and lets us in"
            )
        else:
            self._end_outage()


def readable(messages: Sequence[Message], errors: Sequence[KafkaError | None]) -> list[Message]:
    """The records among these; of a partition none behind its trouble: librdkafka goes on after a damaged batch."""
    failed: set[tuple[str | None, int | None]] = set()
    found: list[Message] = []
    for message, error in zip(messages, errors, strict=True):
        partition = message.topic(), message.partition()
        if error is not None and error.code() in FETCH_ERRORS:
            failed.add(partition)
        elif error is None and partition not in failed:
            found.append(message)
    return found


def _unassign(consumer: Consumer, removed: Mapping[Partition, Track]) -> None:
    paused = [TopicPartition(*each) for each, track in removed.items() if track.is_paused]
    if paused:
        # librdkafka remembers it beyond the assignment: assigned again, the partition would give nothing.
        consumer.resume(paused)
    consumer.incremental_unassign([TopicPartition(*each) for each in removed])
