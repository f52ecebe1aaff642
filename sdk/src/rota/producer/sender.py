"""
Sends batches: takes them from the accumulator, sends them to a Rota log, and completes them with their outcome.

Runs on one event loop. Invariant: a partition is part of one request at a time, which keeps its order when answers are lost
or late; up to `max_in_flight` requests for different partitions are in flight together.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rota import errors
from rota.clocks import Clocks
from rota.connection import Connection
from rota.producer.accumulator import Accumulator, Queue
from rota.producer.batches import NO_OFFSET, Batch
from rota.producer.compressor import Compressor
from rota.producer.sequences import (
    NO_IDENTITY,
    SEQUENCE_MASK,
    AttemptResult,
    Identity,
    Sequences,
    attempt_result,
)
from rota_proto.log.columns import CODEC, Columns, pack
from rota_proto.log.v1 import log_pb2 as pb

Taken = Sequence[tuple[Queue, list[Batch]]]
"""Content of one request: the batches of each partition, in order."""

# Interval of the search for expired batches.
EXPIRY_CHECK_S = 0.5

log = logging.getLogger("rota.producer")


@dataclass(frozen=True, slots=True)
class SenderConfig:
    """Retries, timeouts in seconds, and concurrency of a sender."""

    acks: pb.Acks.ValueType
    # Of the batches: a compression of rota_proto.log.compression, 0 for none.
    codec: int
    max_in_flight: int
    retries: int
    backoff_first_s: float
    backoff_max_s: float
    request_timeout_s: float
    delivery_timeout_s: float


@dataclass(slots=True, eq=False)
class PartitionData:
    """The batches of one partition in a request; retried unchanged until they have an outcome."""

    queue: Queue
    batches: Sequence[Batch]
    identity: Identity
    first: int
    # The part of `request` for this partition.
    message: pb.ProduceRequest.Partition
    request: pb.ProduceRequest
    attempts: int = 0
    # The log rejected its sequence numbers: they and the identity are renewed.
    refused: bool = False

    @property
    def count(self) -> int:
        """Number of records."""
        return sum(batch.count for batch in self.message.batches)


class Sender:
    """The sender of one producer."""

    def __init__(
        self,
        connection: Connection,
        accumulator: Accumulator,
        config: SenderConfig,
        clocks: Clocks,
        identify: Callable[[Identity], Awaitable[Identity]],
    ) -> None:
        """Create a sender; `identify` returns the identity to send with, a new one if the given identity was abandoned."""
        self._connection = connection
        self._accumulator = accumulator
        self._config = config
        self._clock = clocks.monotonic_s
        self._identify = identify
        self._abandoned_identity = NO_IDENTITY
        self._sequences = Sequences()
        self._compressor = Compressor(config.codec)
        self._woken = asyncio.Event()
        self._requests: dict[asyncio.Task[None], Taken] = {}
        self._interruption: errors.RotaError | None = None
        # Called with every failed batch, which fails the transaction.
        self.on_failure: Callable[[errors.RotaError], None] | None = None

    def wake(self) -> None:
        """Wake the sender; called on the event loop."""
        self._woken.set()

    async def run(self) -> None:
        """Send until cancelled."""
        look_s = 0.0
        while True:
            self._woken.clear()
            now_s = self._clock()
            if now_s >= look_s:
                self._fail(self._accumulator.expired(now_s), self._timeout_error())
                look_s = now_s + min(EXPIRY_CHECK_S, self._config.delivery_timeout_s / 4)
            next_s: float | None = None
            if len(self._requests) < self._config.max_in_flight:
                taken, next_s = self._accumulator.take(now_s)
                if taken:
                    self._start(taken)
                    continue
            await self._sleep(min(look_s, next_s or look_s) - now_s)

    async def _sleep(self, within_s: float) -> None:
        """Sleep until woken or for `within_s`; without limit while the buffer is empty."""
        if not self._accumulator.incomplete(close=False):
            await self._woken.wait()
            return
        handle = asyncio.get_running_loop().call_later(max(within_s, 0), self._woken.set)
        await self._woken.wait()
        handle.cancel()

    def _start(self, taken: Taken) -> None:
        request = asyncio.get_running_loop().create_task(self._send(taken))
        self._requests[request] = taken
        request.add_done_callback(self._ended)

    def _ended(self, request: asyncio.Task[None]) -> None:
        # Here, and not at the end of the task: a task that is cancelled before its first step never runs its
        # end.
        taken = self._requests.pop(request)
        error = self._failure_of(request)
        # Batches with an outcome keep it.
        self._fail((batch for _, batches in taken for batch in batches), error)
        self._accumulator.release(queue for queue, _ in taken)
        self._woken.set()

    def _failure_of(self, request: asyncio.Task[None]) -> errors.RotaError:
        """Return the error for batches that a request left without an outcome."""
        unforeseen = errors.UnknownServerError("the producer failed to send the records")
        if request.cancelled():
            return self._interruption or unforeseen
        error = request.exception()
        if isinstance(error, errors.RotaError):
            return error
        if error is not None:
            log.critical("a request failed unexpectedly", exc_info=error)
        return unforeseen

    async def _send(self, taken: Taken) -> None:
        """Send until every batch has an outcome."""
        identity: Identity | None = None
        while identity is None:
            taken = [(queue, batches) for queue, batches in taken if not self._is_expired(batches)]
            if not taken:
                return
            identity = await self._identity(min(self._left_s(batches) for _, batches in taken))
        partitions = list(self._partition_data(taken, identity))
        await self._compress(partitions)
        backoff_s = self._config.backoff_first_s
        while partitions := [data for data in partitions if not self._is_expired(data.batches, data)]:
            left_s = min(self._left_s(data.batches) for data in partitions)
            partitions = await self._attempt(partitions, min(self._config.request_timeout_s, left_s))
            if partitions:
                left_s = max(min(self._left_s(data.batches) for data in partitions), 0)
                await asyncio.sleep(min(backoff_s * random.uniform(0.8, 1.2), left_s))
                backoff_s = min(backoff_s * 2, self._config.backoff_max_s)
                partitions = [await self._renewed(data) for data in partitions]

    def _left_s(self, batches: Sequence[Batch]) -> float:
        return batches[0].created_s + self._config.delivery_timeout_s - self._clock()

    def _is_expired(self, batches: Sequence[Batch], data: PartitionData | None = None) -> bool:
        """Return whether the delivery timeout of batches is over, after failing them."""
        if self._left_s(batches) > 0:
            return False
        if data is not None and data.attempts:
            # They may be in the log: the next records cannot reuse their numbers.
            self._abandon_identity(data)
        self._fail(batches, self._timeout_error())
        return True

    async def _identity(self, within_s: float) -> Identity | None:
        """Return the identity to send with; None if it is not known in time."""
        try:
            async with asyncio.timeout(within_s):
                return await self._identify(self._abandoned_identity)
        except TimeoutError:
            return None

    def _partition_data(self, taken: Taken, identity: Identity) -> Iterator[PartitionData]:
        request = pb.ProduceRequest()
        for queue, batches in taken:
            try:
                yield self._data_of(queue, batches, identity, request)
            except ValueError as error:
                where = f"{queue.topic}[{queue.partition}]"
                self._fail(batches, errors.InvalidArgument(f"a record for {where} cannot be sent: {error}"))

    def _data_of(
        self, queue: Queue, batches: Sequence[Batch], identity: Identity, request: pb.ProduceRequest
    ) -> PartitionData:
        """Add the batches of a partition to a request; ValueError, and nothing is added, if one cannot be encoded."""
        first = sequence = self._sequences.first(queue, identity)
        message = request.partitions.add(topic=queue.topic, index=queue.partition)
        try:
            for batch in batches:
                self._add(message, batch, identity, sequence)
                sequence = sequence + len(batch.values) & SEQUENCE_MASK
        except ValueError:
            del request.partitions[-1]
            raise
        return PartitionData(queue, batches, identity, first, message, request)

    def _add(
        self, message: pb.ProduceRequest.Partition, batch: Batch, identity: Identity, sequence: int
    ) -> None:
        base_ms = batch.timestamps_ms[0]
        count = len(batch.values)
        columns = Columns(batch.values, batch.keys, batch.timestamps_ms, batch.header_column())
        # Made where it stays: protobuf copies a message that is put into another one twice.
        message.batches.add(
            base_timestamp_ms=base_ms,
            max_timestamp_ms=max(batch.timestamps_ms),
            count=count,
            codec=CODEC,
            payload=pack(columns, count, base_ms),
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=sequence if identity != NO_IDENTITY else -1,
            transactional=bool(identity.transactional_id),
        )

    async def _compress(self, partitions: Sequence[PartitionData]) -> None:
        await self._compressor.compress([batch for data in partitions for batch in data.message.batches])

    async def _renewed(self, data: PartitionData) -> PartitionData:
        """Return the data for the next attempt: unchanged, unless the log rejected its sequence numbers."""
        identity = await self._identity(self._left_s(data.batches)) if data.refused else None
        if identity is None:
            return data
        renewed = self._data_of(data.queue, data.batches, identity, pb.ProduceRequest())
        await self._compress([renewed])
        renewed.attempts = data.attempts
        return renewed

    async def _attempt(self, partitions: Sequence[PartitionData], within_s: float) -> list[PartitionData]:
        """Send once; return the data to retry."""
        request = _request(partitions)
        request.acks = self._config.acks
        request.transactional_id = partitions[0].identity.transactional_id
        if self._config.acks == pb.ACKS_NONE:
            for data in partitions:
                self._written(data, NO_OFFSET)
        for data in partitions:
            data.attempts += 1
        try:
            response = await self._connection.ask(self._connection.log.Produce, request, within_s=within_s)
        except errors.RotaError as error:
            return [data for data in partitions if self._needs_retry(data, NO_OFFSET, error)]
        answers = {(answer.topic, answer.index): answer for answer in response.partitions}
        return [data for data in partitions if self._needs_retry(data, *_outcome(data, answers))]

    def _needs_retry(self, data: PartitionData, offset: int, error: errors.RotaError | None) -> bool:
        """Complete the batches that have an outcome in this response; return True if the data must be retried."""
        if self._config.acks == pb.ACKS_NONE:
            return False
        match attempt_result(error, data.identity):
            case AttemptResult.WRITTEN:
                self._written(data, offset)
                return False
            case AttemptResult.ALREADY_WRITTEN:
                self._written(data, NO_OFFSET)
                return False
            case AttemptResult.RETRY if data.attempts <= self._config.retries:
                return True
            case AttemptResult.RETRY_WITH_NEW_IDENTITY if data.attempts <= self._config.retries:
                self._abandoned_identity = data.identity
                data.refused = True
                return True
            case _:
                assert error is not None
                if error.retriable:
                    # It may be in the log: the next records cannot reuse its numbers.
                    self._abandon_identity(data)
                self._fail(data.batches, error)
                return False

    def _written(self, data: PartitionData, offset: int) -> None:
        self._sequences.written(data.queue, data.identity, data.first, data.count)
        for batch in data.batches:
            count = len(batch.values)
            self._accumulator.complete(batch, offset)
            offset = offset if offset < 0 else offset + count

    def _abandon_identity(self, data: PartitionData) -> None:
        if data.identity != NO_IDENTITY and not data.identity.transactional_id:
            self._abandoned_identity = data.identity

    def _timeout_error(self) -> errors.RotaError:
        return errors.TimedOut(
            f"not delivered within delivery_timeout_ms ({self._config.delivery_timeout_s * 1000:.0f}) from "
            f"{self._connection.address}: check whether the server is running, and send again"
        )

    def _fail(self, batches: Iterable[Batch], error: errors.RotaError) -> None:
        failed = [batch for batch in batches if not batch.done]
        for batch in failed:
            self._accumulator.complete(batch, NO_OFFSET, error)
        if failed and self.on_failure is not None:
            self.on_failure(error)

    async def interrupt(self, error: errors.RotaError) -> None:
        """Fail all batches without an outcome with this error, whether or not they are in the log."""
        for request in tuple(self._requests):
            request.cancel()
        self._interruption = error
        await asyncio.gather(*self._requests, return_exceptions=True)
        self._interruption = None
        for batch in self._accumulator.drop_all():
            self._accumulator.complete(batch, NO_OFFSET, error)

    def close(self) -> None:
        """End the threads that compress; called after `interrupt`."""
        self._compressor.close()


def _request(partitions: Sequence[PartitionData]) -> pb.ProduceRequest:
    """Return the request that has exactly these partitions; a new one with copies if some of its partitions are not sent again."""
    request = partitions[0].request
    if len(request.partitions) == len(partitions) and all(data.request is request for data in partitions):
        return request
    return pb.ProduceRequest(partitions=[data.message for data in partitions])


def _outcome(
    data: PartitionData, answers: Mapping[tuple[str, int], pb.ProduceResponse.Partition]
) -> tuple[int, errors.RotaError | None]:
    """Extract offset or error of one partition from a response."""
    where = f"{data.queue.topic}[{data.queue.partition}]"
    answer = answers.get((data.queue.topic, data.queue.partition))
    if answer is None:
        return NO_OFFSET, errors.UnknownServerError(f"{where} is missing in the server's answer")
    if answer.error_code == errors.UnsupportedCompressionType.code:
        # The remedy in the message of a server without compression is that of another error.
        return NO_OFFSET, errors.UnsupportedCompressionType(where)
    if answer.error_code:
        return NO_OFFSET, errors.error_of(answer.error_code, where, answer.error_message)
    return answer.base_offset, None
