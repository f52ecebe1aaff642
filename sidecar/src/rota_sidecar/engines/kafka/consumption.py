"""
librdkafka's consumer, and the thread that owns it. Created by `reading.py`, which sets requests and receives events.

Requests enter a queue, and each turn of the thread applies them, polls, and posts the events. Partitions are assigned
manually, one by one as they are requested: the consumer never joins a group and never commits.

A partition without a request is prefetched up to a limit. From then on the thread polls only if other partitions have a
request, and sets the full ones aside: they are unassigned, and assigned again once half of what was prefetched is taken. Pauses
would be slower, because librdkafka looks at the partitions that it may fetch again once a second.
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
from rota_sidecar.engines.kafka.tracks import Track, limit_of
from rota_sidecar.engines.port import Refused, Unreachable
from rota_sidecar.engines.records import FetchRequest

MESSAGES_AT_ONCE = 1_000
# A poll without records takes this long, and a new request waits for its end.
POLL_S = 0.02
# The next request of a partition follows its last Read very soon. While prefetched records wait for it, the thread waits
# for requests instead of polling: at most so many times this long, since other partitions may have records too.
NEXT_FETCH_S = 0.002
NEXT_FETCH_WAITS_MAX = 10
IDLE_S = 0.5
RETRY_S = 1.0
# Polls without records between two probes of an outage.
POLLS_BETWEEN_PROBES = 50
PROBE_TIMEOUT_S = 0.5
# A newly assigned partition waits for the response to the fetch before it.
FETCH_WAIT_MS = 200
TUNING: Config = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "allow.auto.create.topics": False,
    # Reports the end of a partition: transaction markers behind the last record are not mistaken for records to come.
    "enable.partition.eof": True,
    # A batch that a disk has damaged is an error instead of wrong records.
    "check.crcs": True,
    # The delivery core decides about an offset out of range.
    "auto.offset.reset": "error",
    "topic.metadata.propagation.max.ms": 5_000,
    "fetch.wait.max.ms": FETCH_WAIT_MS,
    "fetch.error.backoff.ms": 200,
    # Timeout of a request. No request takes longer than this.
    "socket.timeout.ms": 15_000,
    # Memory limits: librdkafka's queue, one response, and one partition in a response.
    "queued.max.messages.kbytes": 8 << 10,
    "queued.min.messages": 20_000,
    "fetch.max.bytes": 4 << 20,
    "fetch.message.max.bytes": 512 << 10,
    # The pause while the queue is full; with the default of 1,000 ms it would be empty most of the time.
    "fetch.queue.backoff.ms": 10,
}


@dataclass(frozen=True, slots=True)
class Failed:
    """The consumption of a partition failed at `offset`; the partition is unassigned."""

    delivery_epoch: int
    partition: Partition
    fetch_error: FetchError
    offset: int


@dataclass(frozen=True, slots=True)
class TopicSuspected:
    """Some topic is unknown or unauthorized: librdkafka does not say which."""


@dataclass(frozen=True, slots=True)
class Outage:
    """An outage of all partitions begins, for the reason in `message`; empty: the outage is over."""

    message: str


ConsumerEvent = Read | Failed | TopicSuspected | Outage
PostEvents = Callable[[Sequence[ConsumerEvent]], None]
"""Callback for events, called in the consumer's thread."""


class Consumption:
    """
    Starts the thread with the first request. Requests and `close` are thread-safe; everything else runs in the thread.

    Invariant: the assigned partitions are the keys of `_tracks` that are not aside, `_ahead_bytes` is the sum of their prefetched
    bytes, and `_waiting` are those with a request.
    """

    def __init__(self, configure: Callable[[], Config], post: PostEvents, *, with_keys: bool) -> None:
        self._configure = configure
        self._post = post
        self._with_keys = with_keys
        self._thread = threading.Thread(target=self._run, name="rota-records", daemon=True)
        self._requests: deque[tuple[Partition, FetchRequest | None]] = deque()
        self._requested = threading.Event()
        self._closed = threading.Event()
        # Used in the thread only.
        self._tracks: dict[Partition, Track] = {}
        # Partitions with prefetched records, and those with a request.
        self._holding: set[Partition] = set()
        self._waiting: set[Partition] = set()
        self._ahead_bytes = 0
        self._next_fetch_waits = 0
        # The number of partitions that each topic is known to have at least.
        self._counts: dict[str, int] = {}
        self._events: list[ConsumerEvent] = []
        self._is_outage_reported = False
        # The reason of a suspected outage until a probe decides, and the last error of a connection.
        self._suspected_reason = ""
        self._reason = ""
        self._quiet_polls = 0

    def set_request(self, partition: Partition, request: FetchRequest | None) -> None:
        """Fetch the partition once, from the request's offset on; None: unassign it."""
        self._requests.append((partition, request))
        self._requested.set()
        if self._thread.ident is None:
            self._thread.start()

    def close(self) -> None:
        """Stop the thread and wait for its end."""
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
                full = self._full()
                if full and not self._waiting:
                    # The next records stay in librdkafka's queue, which has a limit of its own.
                    self._requested.wait(IDLE_S)
                    continue
                self._set_aside(consumer, full)
                self._read(consumer)
                self._post_events()
        finally:
            consumer.close()

    def _create_consumer(self) -> Consumer | None:
        """Create the consumer; retry until it succeeds, as its files may be corrected meanwhile. None: closed before that."""
        while not self._closed.is_set():
            try:
                return Consumer({**TUNING, **self._configure(), "error_cb": self._on_error})
            except (Refused, Unreachable) as failure:
                self._report_outage(str(failure))
            except KafkaException as error:
                self._report_outage(
                    f"the Kafka client cannot be created ({reason_of(error.args[0])}); check its certificate files"
                )
            self._post_events()
            self._closed.wait(RETRY_S)
        return None

    def _post_events(self) -> None:
        events, self._events = self._events, []
        if events:
            self._post(events)

    # Requests

    def _handle_requests(self, consumer: Consumer) -> None:
        if not self._tracks:
            self._requested.wait(IDLE_S)
        self._requested.clear()
        if self._requests:
            self._apply_requests(consumer)

    def _apply_requests(self, consumer: Consumer) -> None:
        before: dict[Partition, Track | None] = {}
        aside: list[Partition] = []
        while self._requests:
            partition, request = self._requests.popleft()
            track = self._tracks.get(partition)
            if request is not None and track is not None and track.front == request.offset:
                track.set_request(request)
                self._waiting.add(partition)
                self._emit(consumer, partition, track)
                if track.is_aside:
                    aside.append(partition)
                continue
            before.setdefault(partition, track)
            self._drop(partition)
            if request is not None:
                self._tracks[partition] = Track(request)
                self._waiting.add(partition)
        if before:
            self._assign(consumer, before)
        if aside:
            self._fetch_again(consumer, aside)

    def _drop(self, partition: Partition) -> None:
        track = self._tracks.pop(partition, None)
        if track is not None:
            self._ahead_bytes -= track.ahead_bytes
            self._holding.discard(partition)
            self._waiting.discard(partition)

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
        """Refresh the metadata of topics with new partitions: librdkafka caches the number of partitions for minutes."""
        counts: dict[str, int] = {}
        for each in added:
            counts[each.topic] = max(counts.get(each.topic, 0), each.partition + 1)
        for topic, count in counts.items():
            known = self._counts.get(topic, 0)
            self._counts[topic] = max(known, count)
            # librdkafka fetches the metadata of a new topic by itself.
            if known and count > known:
                try:
                    consumer.list_topics(topic, timeout=PROBE_TIMEOUT_S)
                except KafkaException as error:
                    self._reason = reason_of(error.args[0])

    def _full(self) -> Sequence[Partition]:
        """Return the partitions that have reached a prefetch limit."""
        limit = limit_of(len(self._holding))
        return [each for each in self._holding if self._tracks[each].is_full(self._ahead_bytes, limit)]

    def _set_aside(self, consumer: Consumer, full: Sequence[Partition]) -> None:
        assigned = {each: track for each in full if not (track := self._tracks[each]).is_aside}
        for track in assigned.values():
            track.is_aside = True
        if assigned:
            consumer.incremental_unassign([TopicPartition(*each) for each in assigned])

    def _fetch_again(self, consumer: Consumer, aside: Sequence[Partition]) -> None:
        """Assign partitions that were set aside, where enough was taken; the others wait for a later request."""
        limit = limit_of(len(self._holding)) // 2
        wanted = {
            each: track
            for each in aside
            if (track := self._tracks.get(each)) is not None
            and track.is_aside
            and not track.is_full(self._ahead_bytes, limit)
        }
        for track in wanted.values():
            track.is_aside = False
        if wanted:
            consumer.incremental_assign(
                [TopicPartition(*each, track.position) for each, track in wanted.items()]
            )

    # Messages

    def _read(self, consumer: Consumer) -> None:
        first = consumer.poll(0)
        if first is None and self._tracks:
            if self._holding and self._next_fetch_waits < NEXT_FETCH_WAITS_MAX:
                # A new request cannot interrupt librdkafka's poll.
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
            if track is None or track.is_aside:
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
            self._waiting.discard(partition)
            self._events.append(read)

    # Errors

    def _on_message_error(self, consumer: Consumer, message: Message, error: KafkaError) -> None:
        topic, number, offset = message.topic(), message.partition(), message.offset()
        if topic is None or number is None:
            self._on_error(error)
            return
        partition = Partition(topic, number)
        track = self._tracks.get(partition)
        if track is None or track.is_aside:
            return
        if error.code() == KafkaError._PARTITION_EOF:
            self._end_outage()
            track.reach_end(track.position if offset is None else offset)
            self._emit(consumer, partition, track)
            return
        fetch_error = FETCH_ERRORS.get(error.code())
        if fetch_error is None:
            # librdkafka retries by itself.
            self._suspect(f"{topic}-{number}: {reason_of(error)}")
            return
        self._drop(partition)
        _unassign(consumer, {partition: track})
        self._events.append(Failed(track.delivery_epoch, partition, fetch_error, track.position))

    def _on_error(self, error: KafkaError) -> None:
        """Handle an error that names no partition."""
        code = error.code()
        if code in UNKNOWN or code in DENIED:
            self._events.append(TopicSuspected())
        elif code == KafkaError.GROUP_AUTHORIZATION_FAILED:
            # librdkafka looks up the group's coordinator, which this consumer does not use.
            return
        elif code in (KafkaError._TRANSPORT, KafkaError._RESOLVE):
            # One broker of several, or an idle connection: no outage yet.
            self._reason = reason_of(error)
        else:
            self._suspect(reason_of(error))

    def _suspect(self, reason: str) -> None:
        """Suspect an outage. It is reported if a probe fails: lost connections are usually replaced at once."""
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
        """Probe a suspected or reported outage: at the end of a partition no record shows that Kafka is back."""
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
                f"no records can be read from Kafka ({reason}); check that it is running and accepts the login"
            )
        else:
            self._end_outage()


def readable(messages: Sequence[Message], errors: Sequence[KafkaError | None]) -> list[Message]:
    """Return the records, of each partition those before its first fetch error: librdkafka continues behind a damaged batch."""
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
    assigned = [TopicPartition(*each) for each, track in removed.items() if not track.is_aside]
    if assigned:
        consumer.incremental_unassign(assigned)
