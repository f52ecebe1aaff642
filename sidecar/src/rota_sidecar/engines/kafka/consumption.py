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
from rota_sidecar.engines.records import Wanted

MESSAGES_AT_ONCE = 1_000
# How soon a new wish is seen while nothing comes.
POLL_S = 0.02
# Of who has just been given something the next wish comes very soon. While something lies there for it, it is waited
# for: so often, and each time for so long, for other partitions may have something too.
WISH_S = 0.002
WISH_WAITS_MAX = 10
IDLE_S = 0.5
AGAIN_S = 1.0
# Between two looks whether Kafka is back, in polls.
POLLS_BETWEEN_LOOKS = 50
LOOK_S = 0.5
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
class Doubt:
    """Some topic is not there, or not for us: librdkafka does not say which."""


@dataclass(frozen=True, slots=True)
class Complaint:
    """Nothing can be read for now: one sentence. Empty: it is over."""

    sentence: str


News = Read | Failed | Doubt | Complaint
Tell = Callable[[Sequence[News]], None]
"""Called in the thread."""


class Consumption:
    """Starts with the first wish."""

    def __init__(self, configure: Callable[[], Config], tell: Tell, *, with_keys: bool) -> None:
        self._configure = configure
        self._tell = tell
        self._with_keys = with_keys
        self._thread = threading.Thread(target=self._run, name="rota-records", daemon=True)
        self._wishes: deque[tuple[Partition, Wanted | None]] = deque()
        self._wished = threading.Event()
        self._closed = threading.Event()
        # Of the thread alone.
        self._tracks: dict[Partition, Track] = {}
        # Those with something that nobody has taken yet.
        self._holding: set[Partition] = set()
        self._ahead_bytes = 0
        self._wish_waits = 0
        # Of each topic that is or was read: so many partitions at least.
        self._counts: dict[str, int] = {}
        self._news: list[News] = []
        self._complained = False
        # What may be the matter, until a look tells; and what was said of a connection last.
        self._suspicion = ""
        self._reason = ""
        self._quiet_polls = 0

    def want(self, partition: Partition, wanted: Wanted | None) -> None:
        """Read it from there, once; None: nothing is wanted of it any more."""
        self._wishes.append((partition, wanted))
        self._wished.set()
        if self._thread.ident is None:
            self._thread.start()

    def close(self) -> None:
        """End the thread; waits for that."""
        self._closed.set()
        self._wished.set()
        if self._thread.ident is not None:
            self._thread.join()

    # The thread

    def _run(self) -> None:
        consumer = self._made()
        if consumer is None:
            return
        try:
            while not self._closed.is_set():
                self._obey(consumer)
                self._speak()
                self._read(consumer)
                self._hold_back(consumer)
                self._speak()
        finally:
            consumer.close()

    def _made(self) -> Consumer | None:
        """Tries until it succeeds: files may be mended. None when it was closed before."""
        while not self._closed.is_set():
            try:
                return Consumer({**TUNING, **self._configure(), "error_cb": self._heard})
            except Refused as refused:
                self._complain(str(refused))
            except KafkaException as error:
                self._complain(
                    f"Kafka's client cannot be set up ({reason_of(error.args[0])}): check its files"
                )
            self._speak()
            self._closed.wait(AGAIN_S)
        return None

    def _speak(self) -> None:
        news, self._news = self._news, []
        if news:
            self._tell(news)

    # Wishes

    def _obey(self, consumer: Consumer) -> None:
        if not self._tracks:
            self._wished.wait(IDLE_S)
        self._wished.clear()
        if self._wishes:
            self._heed(consumer)

    def _heed(self, consumer: Consumer) -> None:
        before: dict[Partition, Track | None] = {}
        paused: list[Partition] = []
        while self._wishes:
            partition, wanted = self._wishes.popleft()
            track = self._tracks.get(partition)
            if wanted is not None and track is not None and track.front == wanted.offset:
                track.want(wanted)
                self._give(consumer, partition, track)
                if track.is_paused:
                    paused.append(partition)
                continue
            before.setdefault(partition, track)
            self._drop(partition)
            if wanted is not None:
                self._tracks[partition] = Track(wanted)
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
        gone = {each: old for each, old in changed.items() if old is not None}
        come = [
            TopicPartition(*each, self._tracks[each].position) for each in changed if each in self._tracks
        ]
        if gone:
            _unassign(consumer, gone)
        if come:
            self._see_growth(consumer, come)
            consumer.incremental_assign(come)

    def _see_growth(self, consumer: Consumer, come: Sequence[TopicPartition]) -> None:
        """librdkafka remembers for minutes how many partitions a topic had: ask anew for one that it may not know."""
        counts: dict[str, int] = {}
        for each in come:
            counts[each.topic] = max(counts.get(each.topic, 0), each.partition + 1)
        for topic, count in counts.items():
            known = self._counts.get(topic, 0)
            self._counts[topic] = max(known, count)
            # Of a topic that is new here it asks by itself.
            if known and count > known:
                try:
                    consumer.list_topics(topic, timeout=LOOK_S)
                except KafkaException as error:
                    self._reason = reason_of(error.args[0])

    def _resume(self, consumer: Consumer, wanted: Sequence[Partition]) -> None:
        there = [
            each
            for each in wanted
            if (track := self._tracks.get(each)) is not None
            and track.is_paused
            and not track.is_full(self._ahead_bytes)
        ]
        for each in there:
            self._tracks[each].is_paused = False
        if there:
            consumer.resume([TopicPartition(*each) for each in there])

    def _hold_back(self, consumer: Consumer) -> None:
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
            if self._holding and self._wish_waits < WISH_WAITS_MAX:
                # librdkafka's wait cannot be ended by a wish.
                self._wish_waits += not self._wished.wait(WISH_S)
                return
            first = consumer.poll(POLL_S)
        if first is None:
            self._look(consumer)
            return
        self._wish_waits = 0
        messages = [first, *consumer.consume(MESSAGES_AT_ONCE - 1, 0)]
        errors = list(map(Message.error, messages))
        if any(errors):
            self._take(consumer, readable(messages, errors))
            for message, error in zip(messages, errors, strict=True):
                if error is not None:
                    self._judge(consumer, message, error)
        else:
            self._take(consumer, messages)

    def _take(self, consumer: Consumer, messages: Sequence[Message]) -> None:
        if not messages:
            return
        self._is_well()
        for partition, run in by_partition(messages).items():
            track = self._tracks.get(partition)
            if track is None:
                continue
            batches = batches_of(run, with_keys=self._with_keys)
            track.took(batches)
            self._ahead_bytes += sum(batch.size for batch in batches)
            self._holding.add(partition)
            self._give(consumer, partition, track)

    def _give(self, consumer: Consumer, partition: Partition, track: Track) -> None:
        if not track.is_known or track.wanted is None:
            return
        low, high = consumer.get_watermark_offsets(TopicPartition(*partition), cached=True)
        before = track.ahead_bytes
        read = track.give(low, high)
        self._ahead_bytes += track.ahead_bytes - before
        if not track.ahead_bytes:
            self._holding.discard(partition)
        if read is not None:
            self._news.append(read)

    # Errors

    def _judge(self, consumer: Consumer, message: Message, error: KafkaError) -> None:
        topic, number, offset = message.topic(), message.partition(), message.offset()
        if topic is None or number is None:
            self._heard(error)
            return
        partition = Partition(topic, number)
        track = self._tracks.get(partition)
        if track is None:
            return
        if error.code() == KafkaError._PARTITION_EOF:
            self._is_well()
            track.came_to_the_end(track.position if offset is None else offset)
            self._give(consumer, partition, track)
            return
        fetch_error = FETCH_ERRORS.get(error.code())
        if fetch_error is None:
            # librdkafka tries again by itself.
            self._suspect(f"{topic}-{number}: {reason_of(error)}")
            return
        self._drop(partition)
        _unassign(consumer, {partition: track})
        self._news.append(Failed(track.delivery_epoch, partition, fetch_error, track.position))

    def _heard(self, error: KafkaError) -> None:
        """What is wrong with no partition by its name."""
        code = error.code()
        if code in UNKNOWN or code in DENIED:
            self._news.append(Doubt())
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
        if not self._complained and not self._suspicion:
            self._suspicion = reason
            self._quiet_polls = 0

    def _complain(self, sentence: str) -> None:
        if not self._complained:
            self._complained = True
            self._news.append(Complaint(sentence))

    def _is_well(self) -> None:
        self._suspicion = self._reason = ""
        if self._complained:
            self._complained = False
            self._news.append(Complaint(""))

    def _look(self, consumer: Consumer) -> None:
        """Whether Kafka answers, while nothing comes: at the end of a partition nothing does, also when it is back."""
        if not (self._complained or self._suspicion) or not self._tracks:
            return
        self._quiet_polls += 1
        if self._quiet_polls % POLLS_BETWEEN_LOOKS:
            return
        partition = next(iter(self._tracks))
        try:
            consumer.get_watermark_offsets(TopicPartition(*partition), timeout=LOOK_S)
        except KafkaException:
            reason = self._reason or self._suspicion
            self._complain(
                f"no records can be read from Kafka now ({reason}): check that it runs, and lets us in"
            )
        else:
            self._is_well()


def readable(messages: Sequence[Message], errors: Sequence[KafkaError | None]) -> list[Message]:
    """The records among these; of a partition none behind its trouble: librdkafka goes on after a damaged batch."""
    troubled: set[tuple[str | None, int | None]] = set()
    found: list[Message] = []
    for message, error in zip(messages, errors, strict=True):
        place = message.topic(), message.partition()
        if error is not None and error.code() in FETCH_ERRORS:
            troubled.add(place)
        elif error is None and place not in troubled:
            found.append(message)
    return found


def _unassign(consumer: Consumer, gone: Mapping[Partition, Track]) -> None:
    paused = [TopicPartition(*each) for each, track in gone.items() if track.is_paused]
    if paused:
        # librdkafka remembers it beyond the assignment: assigned again, the partition would give nothing.
        consumer.resume(paused)
    consumer.incremental_unassign([TopicPartition(*each) for each in gone])
