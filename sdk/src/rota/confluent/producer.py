"""
`rota.confluent.Producer`: a `rota.Producer` with the methods of confluent-kafka's.

Outcomes arrive in the producer's thread and wait in a queue, from which `poll` and `flush` take them and call the application.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue
from threading import Lock
from types import TracebackType
from typing import Any, Self, TypedDict, Unpack

from rota import errors
from rota.clocks import system_clocks
from rota.confluent.messages import Message, TopicPartition, milliseconds, offsets_in, settings_of
from rota.metadata import GroupMetadata
from rota.parameters import PRODUCER
from rota.producer import api
from rota.producer.futures import SendFuture
from rota.records import Headers

OnDelivery = Callable[[errors.RotaError | None, Message], object]
"""Function of the error, None for a record that was written, and the message."""
TURN_S = 0.1
GivenHeaders = Mapping[str, bytes | None] | Headers


class ProduceOptions(TypedDict, total=False):
    """Further arguments of `produce`: the callback under its other name, a timestamp in ms (0: now), and headers."""

    callback: OnDelivery
    timestamp: int
    headers: GivenHeaders


class Producer:
    """
    Sends records to topics, from any thread.

    >>> producer = Producer({"bootstrap.servers": "rota://127.0.0.1:7070"})        # doctest: +SKIP
    >>> producer.produce("orders", b"value", key=b"key", on_delivery=report)       # doctest: +SKIP
    >>> producer.flush()                                                           # doctest: +SKIP

    Invariant: each record is counted by `len` until its outcome has left the queue.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        settings = settings_of(config, PRODUCER)
        self._on_delivery: OnDelivery | None = settings.pop("on_delivery", None)
        self._producer = api.Producer(settings.pop("bootstrap_servers", ""), **settings)
        self._clock = system_clocks().monotonic_s
        self._outcomes: SimpleQueue[tuple[SendFuture, Message, OnDelivery | None]] = SimpleQueue()
        self._pending = 0
        self._counting = Lock()

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = -1,
        on_delivery: OnDelivery | None = None,
        **options: Unpack[ProduceOptions],
    ) -> None:
        """
        Queue a record for sending; `poll` or `flush` calls back with its outcome. Text is sent as UTF-8.

        Raises BufferError if the buffer stays full for `max.block.ms`.
        """
        callback = on_delivery or options.get("callback") or self._on_delivery
        given = options.get("headers") or ()
        headers = tuple(given.items()) if isinstance(given, Mapping) else tuple(given)
        message = Message.produced(topic, _encoded(key), _encoded(value), headers)
        try:
            future = self._producer.send(
                topic,
                message.value(),
                message.key(),
                partition=None if partition < 0 else partition,
                timestamp_ms=options.get("timestamp") or None,
                headers=headers or None,
            )
        except errors.BufferExhausted as error:
            raise BufferError(str(error)) from error
        with self._counting:
            self._pending += 1
        future.add_done_callback(lambda done: self._outcomes.put((done, message, callback)))

    def poll(self, timeout: float | None = None) -> int:
        """Call back for the outcomes that are known; wait up to `timeout` seconds for the first. Returns their number."""
        served = self._serve(self._deadline_s(timeout))
        while served and self._serve(-math.inf):
            served += 1
        return served

    def flush(self, timeout: float | None = None) -> int:
        """Wait up to `timeout` seconds for the outcomes of all records, and call back. Returns the number that is left."""
        deadline_s = self._deadline_s(timeout)
        try:
            self._producer.flush(None if deadline_s == math.inf else max(deadline_s - self._clock(), 0))
        except errors.TimedOut:
            # The number of records that are left says so.
            deadline_s = -math.inf
        while self._serve(deadline_s):
            pass
        return len(self)

    def _deadline_s(self, timeout: float | None) -> float:
        return self._clock() + milliseconds(timeout) / 1000

    def _serve(self, deadline_s: float) -> int:
        """Call back for one outcome; return 1, or 0 if there is none until the deadline or nothing to wait for."""
        while len(self):
            left_s = max(deadline_s - self._clock(), 0)
            try:
                # In turns: another thread may take the last outcome.
                outcome = self._outcomes.get(timeout=min(left_s, TURN_S))
            except Empty:
                if not left_s:
                    return 0
            else:
                self._call_back(*outcome)
                return 1
        return 0

    def _call_back(self, future: SendFuture, message: Message, callback: OnDelivery | None) -> None:
        with self._counting:
            self._pending -= 1
        if callback is None:
            return
        error = future.exception()
        if error is None:
            written = future.result()
            message = message.with_outcome(written.partition, written.offset, written.timestamp_ms, None)
        else:
            message = message.with_outcome(-1, -1, -1, error)
        callback(error, message)

    def __len__(self) -> int:
        return self._pending

    # Transactions

    def init_transactions(self, timeout: float | None = None) -> None:
        """Initialize transactions, once before the first; waits for `max.block.ms`, whatever the timeout."""
        self._producer.init_transactions()

    def begin_transaction(self) -> None:
        """Begin a transaction."""
        self._producer.begin_transaction()

    def commit_transaction(self, timeout: float | None = None) -> None:
        """Commit the transaction; waits for `max.block.ms`, whatever the timeout."""
        self._producer.commit_transaction()

    def abort_transaction(self, timeout: float | None = None) -> None:
        """Abort the transaction; waits for `max.block.ms`, whatever the timeout."""
        self._producer.abort_transaction()

    def send_offsets_to_transaction(
        self, positions: Sequence[TopicPartition], group_metadata: GroupMetadata, timeout: float | None = None
    ) -> None:
        """Commit a group's offsets with the transaction: the next offset to read, by partition."""
        self._producer.send_offsets_to_transaction(offsets_in(positions), group_metadata)

    # Shutdown

    def close(self) -> None:
        """Flush, call back, and close; a second call does nothing."""
        self._producer.close()
        self.poll(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _encoded(given: str | bytes | None) -> bytes | None:
    return given.encode() if isinstance(given, str) else given
