"""
Producer on a Rota log: the part that runs on an event loop.

`AsyncProducer` runs it on the application's loop, `Producer` on the background loop. Only the accumulator is used from
other threads.
"""

import asyncio
import logging
from typing import TypeVar

from rota import errors
from rota.clocks import Clocks
from rota.connection import Call, Connection, retry_until
from rota.metadata import GroupMetadata
from rota.offsets import Offsets, by_topic
from rota.producer.accumulator import Accumulator, Limits
from rota.producer.futures import completion
from rota.producer.options import FOREVER, Options
from rota.producer.sender import Sender, SenderConfig
from rota.producer.sequences import NO_IDENTITY, Identity
from rota.producer.transaction_state import Operation, State, TransactionState
from rota.security import credentials_of
from rota_proto.coordinator.v1 import coordinator_pb2 as codes
from rota_proto.log.compression import codec_of
from rota_proto.log.v1 import log_pb2 as pb

BATCH_BYTES_MAX = 1 << 20
REQUEST_BYTES_MAX = 2 << 20
"""Size of the batches in one request, exceeded by up to one batch; a message has at most 4 MiB."""

log = logging.getLogger("rota.producer")

Result = TypeVar("Result")
Request = TypeVar("Request")

FATAL = (
    errors.ProducerFenced,
    errors.ClusterAuthorizationFailed,
    errors.TransactionalIdAuthorizationFailed,
    errors.UnsupportedVersion,
    errors.NotSupported,
    errors.AuthenticationFailed,
    errors.InvalidProducerIdMapping,
)
"""Fatal errors of a transactional producer, as in Kafka."""


class RotaEngine:
    """Sends records, and holds the transaction's state. Created on a running event loop."""

    def __init__(self, address: str, options: Options, clocks: Clocks) -> None:
        self._options = options
        self._clock = clocks.monotonic_s
        self._loop = asyncio.get_running_loop()
        self._connection = Connection(address, credentials_of(options), options.client_id)
        self.accumulator = Accumulator(_limits(options), clocks, self._wake_soon)
        self._sender = Sender(self._connection, self.accumulator, _config(options), clocks, self._identify)
        self._sender.on_failure = self._on_batch_failure
        self.transaction = TransactionState()
        self._identity = NO_IDENTITY
        # True if the log may know of the open transaction.
        self._is_registered = False
        self._identifying = asyncio.Lock()
        self._topics: set[str] = set()
        self._tasks = [
            self._loop.create_task(self._sender.run()),
            self._loop.create_task(self._follow_topics()),
        ]
        for task in self._tasks:
            task.add_done_callback(self._ended)
        if options.transactional_id:
            self._refuse_sends()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        # Neither task ever returns: an exception is a bug, and no caller may wait for it in vain.
        log.critical("the producer failed unexpectedly", exc_info=task.exception())
        error = errors.RotaError.with_message(
            f"the producer failed unexpectedly, close it and see the log: {task.exception()!r}"
        )
        error.fatal = True
        self.accumulator.refusal = error
        self._tasks.append(self._loop.create_task(self._sender.interrupt(error)))

    def _wake_soon(self) -> None:
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            self._sender.wake()
        else:
            self._loop.call_soon_threadsafe(self._sender.wake)

    # Topics

    async def load_partitions(self, topic: str) -> int:
        """Fetch the number of partitions of a topic, and cache it for sends."""
        deadline_s = self._clock() + self._options.max_block_ms / 1000

        async def ask() -> int:
            request = pb.DescribeTopicsRequest(names=[topic])
            response = await self._call(self._connection.log.DescribeTopics, request, deadline_s)
            for found in response.topics:
                if found.name == topic and not found.error_code:
                    return found.partitions
                if found.name == topic:
                    raise errors.error_of(found.error_code, topic)
            raise errors.UnknownTopicOrPartition(topic)

        count = await retry_until(ask, deadline_s=deadline_s, clock=self._clock)
        self.accumulator.partitions[topic] = count
        self._topics.add(topic)
        return count

    async def _follow_topics(self) -> None:
        """Refresh the partition counts of the topics in use."""
        while True:
            await asyncio.sleep(self._options.metadata_max_age_ms / 1000)
            for topic in tuple(self._topics):
                try:
                    await self.load_partitions(topic)
                except errors.RotaError:
                    # `send` requests it again, and raises the error.
                    self._forget_topic(topic)

    def _forget_topic(self, topic: str) -> None:
        self._topics.discard(topic)
        self.accumulator.partitions.pop(topic, None)

    # Identity

    async def _identify(self, abandoned: Identity) -> Identity:
        if self._options.transactional_id:
            self._is_registered = True
            return self._identity
        if not self._options.idempotent:
            return NO_IDENTITY
        async with self._identifying:
            if self._identity in (NO_IDENTITY, abandoned):
                # The caller has a timeout of its own.
                self._identity = await self._initialized(float("inf"))
        return self._identity

    async def _initialized(self, deadline_s: float) -> Identity:
        async def ask() -> Identity:
            request = pb.InitProducerRequest(
                transactional_id=self._options.transactional_id,
                transaction_timeout_ms=self._options.transaction_timeout_ms,
            )
            response = await self._call(self._connection.log.InitProducer, request, deadline_s)
            _raise(response.error_code, self._options.transactional_id or "the producer")
            return Identity(response.producer_id, response.producer_epoch, self._options.transactional_id)

        return await retry_until(ask, deadline_s=deadline_s, clock=self._clock)

    # Waiting

    async def flush(self, timeout_s: float | None) -> None:
        """Wait until all records that were sent so far have an outcome."""
        batches = self.accumulator.incomplete(close=True)
        try:
            async with asyncio.timeout(timeout_s):
                for batch in batches:
                    await completion(batch)
        except TimeoutError:
            left = sum(not batch.done for batch in batches)
            raise errors.TimedOut(
                f"{left} batches are not sent after {timeout_s} s: flush again to wait longer"
            ) from None

    async def close(self, timeout_s: float | None) -> None:
        """Send the waiting records within the timeout, then close."""
        try:
            if self.transaction.state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR):
                await self._abort_on_close(timeout_s)
            else:
                await self.flush(timeout_s)
        finally:
            self.accumulator.refusal = errors.ProducerClosed("the producer is closed: create a new one")
            for task in self._tasks:
                task.cancel()
            await self._sender.interrupt(
                errors.ProducerClosed("the producer was closed before the record was sent")
            )
            self._sender.close()
            await self._connection.close()

    async def _abort_on_close(self, timeout_s: float | None) -> None:
        try:
            await asyncio.wait_for(self.abort(), timeout_s)
        except (errors.RotaError, TimeoutError) as error:
            # The transaction was to be aborted, and will be: the server aborts it after its timeout.
            log.warning("the transaction that was open at close could not be aborted: %s", error)

    # Transactions

    async def init_transactions(self) -> None:
        """Register the transactional id, fencing earlier producers of it."""
        self.transaction.apply(Operation.INITIALIZE)
        try:
            self._identity = await self._initialized(self._block_deadline())
        except errors.RotaError as error:
            self._on_transaction_error(error)
            raise
        self.transaction.apply(Operation.INITIALIZED)

    def begin(self) -> None:
        """Begin a transaction."""
        self.transaction.apply(Operation.BEGIN)
        self._is_registered = False
        self.accumulator.refusal = None

    async def send_offsets(self, offsets: Offsets, group: GroupMetadata) -> None:
        """Add a group's offsets to the transaction."""
        self.transaction.check(Operation.SEND_OFFSETS)
        deadline_s = self._block_deadline()
        self._is_registered = True
        try:
            await retry_until(
                lambda: self._add_group(group, deadline_s), deadline_s=deadline_s, clock=self._clock
            )
            await retry_until(
                lambda: self._commit_offsets(offsets, group, deadline_s),
                deadline_s=deadline_s,
                clock=self._clock,
            )
        except errors.RotaError as error:
            self._on_transaction_error(error)
            raise

    async def _add_group(self, group: GroupMetadata, deadline_s: float) -> None:
        request = pb.AddOffsetsToTransactionRequest(
            transactional_id=self._identity.transactional_id,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch,
            group_id=group.group_id,
            generation_id=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
        )
        response = await self._call(self._connection.log.AddOffsetsToTransaction, request, deadline_s)
        _raise(response.error_code, f"the offsets of {group.group_id}")

    async def _commit_offsets(self, offsets: Offsets, group: GroupMetadata, deadline_s: float) -> None:
        request = codes.TxnCommitOffsetsRequest(
            group_id=group.group_id,
            generation_id=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=by_topic(offsets),
            transactional_id=self._identity.transactional_id,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch,
        )
        response = await self._call(self._connection.coordinator.TxnCommitOffsets, request, deadline_s)
        _raise(response.error_code, f"the offsets of {group.group_id}")
        for topic in response.topics:
            for partition in topic.partitions:
                _raise(
                    partition.error_code, f"the offset of {group.group_id} in {topic.name}[{partition.index}]"
                )

    async def commit(self) -> None:
        """Commit the transaction."""
        self.transaction.apply(Operation.COMMIT)
        self._refuse_sends()
        deadline_s = self._block_deadline()
        try:
            await self.flush(self._options.max_block_ms / 1000)
        except errors.TimedOut as error:
            raise _undecided_commit(error) from error
        # A record that failed meanwhile has failed the transaction.
        self.transaction.apply(Operation.COMMIT)
        await self._end(commit=True, deadline_s=deadline_s)

    async def abort(self) -> None:
        """Abort the transaction."""
        self.transaction.apply(Operation.ABORT)
        self._refuse_sends()
        # Requests in flight that arrive late are rejected: the abort increases the epoch.
        await self._sender.interrupt(
            errors.TransactionAborted("the transaction was aborted before the record was sent")
        )
        await self._end(commit=False, deadline_s=self._block_deadline())

    async def _end(self, *, commit: bool, deadline_s: float) -> None:
        if self._is_registered:
            try:
                await retry_until(
                    lambda: self._request_end(commit, deadline_s), deadline_s=deadline_s, clock=self._clock
                )
            except errors.RotaError as error:
                # After a lost answer the outcome is unknown: only the same end is requested again.
                if error.retriable and commit:
                    raise _undecided_commit(error) from error
                if not error.retriable:
                    self._on_transaction_error(error)
                raise
        self._is_registered = False
        self.transaction.apply(Operation.COMPLETED)

    async def _request_end(self, commit: bool, deadline_s: float) -> None:
        request = pb.EndTransactionRequest(
            transactional_id=self._identity.transactional_id,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch,
            commit=commit,
        )
        response = await self._call(self._connection.log.EndTransaction, request, deadline_s)
        if response.producer_id > 0:
            # Also with an error: the transaction was aborted instead, and the following abort is in the next
            # epoch.
            self._identity = Identity(
                response.producer_id, response.producer_epoch, self._options.transactional_id
            )
        _raise(response.error_code, "the commit" if commit else "the abort")

    def _refuse_sends(self) -> None:
        self.accumulator.refusal = errors.IllegalState(
            "a transactional producer sends inside a transaction: call begin_transaction first"
        )

    def _on_batch_failure(self, error: errors.RotaError) -> None:
        """Fail the transaction, because a batch was not written."""
        if isinstance(error, errors.UnknownTopicOrPartition):
            for topic in tuple(self._topics):
                self._forget_topic(topic)
        if self._options.transactional_id and not isinstance(error, errors.TransactionAborted):
            self._on_transaction_error(error)

    def _on_transaction_error(self, error: errors.RotaError) -> None:
        """Fail the transaction, which leaves only abort, or the producer if the error is fatal."""
        fatal = isinstance(error, FATAL) or error.fatal
        self.transaction.apply(Operation.FAIL_PRODUCER if fatal else Operation.FAIL_TRANSACTION, error)
        try:
            self.transaction.check(Operation.SEND)
        except errors.RotaError as refusal:
            self.accumulator.refusal = refusal

    # Calls

    def _block_deadline(self) -> float:
        return self._clock() + self._options.max_block_ms / 1000

    async def _call(self, call: Call[Request, Result], request: Request, deadline_s: float) -> Result:
        within_s = min(self._options.request_timeout_ms / 1000, deadline_s - self._clock())
        return await self._connection.ask(call, request, within_s=within_s)


def _undecided_commit(error: errors.RotaError) -> errors.UndecidedCommit:
    return errors.UndecidedCommit(f"the outcome of the commit is unknown ({error}): commit again")


def _raise(code: int, where: str) -> None:
    if code:
        raise errors.error_of(code, where)


def _limits(options: Options) -> Limits:
    if options.max_request_size > BATCH_BYTES_MAX:
        raise errors.InvalidArgument(
            f"Rota's log accepts batches of at most {BATCH_BYTES_MAX:,} bytes: lower max_request_size"
        )
    return Limits(
        batch_bytes=options.batch_size,
        record_bytes=options.max_request_size,
        buffer_bytes=options.buffer_memory,
        request_bytes=REQUEST_BYTES_MAX,
        linger_s=options.linger_ms / 1000,
        delivery_timeout_s=options.delivery_timeout_ms / 1000,
    )


def _config(options: Options) -> SenderConfig:
    return SenderConfig(
        codec=codec_of(options.compression_type or "none") or 0,
        acks={0: pb.ACKS_NONE, 1: pb.ACKS_WRITTEN}.get(
            options.acks if isinstance(options.acks, int) else -1, pb.ACKS_ALL
        ),
        max_in_flight=options.max_in_flight_requests_per_connection,
        retries=int(min(options.retries, FOREVER)),
        backoff_first_s=options.retry_backoff_ms / 1000,
        backoff_max_s=options.retry_backoff_max_ms / 1000,
        request_timeout_s=options.request_timeout_ms / 1000,
        delivery_timeout_s=options.delivery_timeout_ms / 1000,
    )
