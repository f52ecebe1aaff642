"""Runner of handlers: takes records from the sidecar, runs their handlers, sends the verdicts, and shuts down cleanly."""

import asyncio
import logging
import math
import traceback
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from typing_extensions import override

from rota import errors
from rota.consumer import messages
from rota.consumer.batch_slice import BatchSlice
from rota.consumer.core import RebalanceKind
from rota.consumer.reconnection import ReconnectingAttachment
from rota.consumer.rejection_log import RejectionLog
from rota.consumer.sidecar_client import SidecarClient
from rota.consumer.sidecars import Sidecar, Subscription
from rota.consumer.transport import Attachment, SidecarListener, Transport
from rota.handlers.handler import DeadLetter, Handler, Retry, Skip
from rota.handlers.lanes import Job, Lanes
from rota.handlers.threads import DaemonThreads
from rota.records import Record, TopicPartition
from rota_proto.sidecar.v1 import sidecar_pb2 as pb

log = logging.getLogger("rota.handler")
ROOM = 1_000
WITHIN_S = 60.0
# Startup grace: a sidecar that starts beside the application needs a moment.
STARTUP_GRACE_S = 3.0
REASON_LENGTH_MAX = 500
PACKAGE = str(Path(__file__).parent.parent)
ORDERINGS = {
    "partition": pb.ORDERING_PARTITION,
    "key": pb.ORDERING_KEY,
    "unordered": pb.ORDERING_UNORDERED,
}
NAMES = {number: name for name, number in ORDERINGS.items()}


class PendingRevocation(NamedTuple):
    """Partitions to release as soon as none of their records is in flight."""

    event_id: int
    partitions: Collection[TopicPartition]


class Runner(SidecarListener):
    """The handlers of one process; created and used on a running event loop."""

    def __init__(
        self, handlers: Sequence[Handler], sidecar: Sidecar, client_id: str, clock: Callable[[], float]
    ) -> None:
        self._handlers = {topic: each for each in handlers for topic in each.topics}
        self._first = handlers[0]
        self._sidecar = sidecar
        self._subscription = Subscription(tuple(self._handlers))
        hello = pb.AttachRequest.Hello(client_id=client_id, takes_errors=True)
        self._attachment = ReconnectingAttachment(sidecar, hello, self, self._on_attached, self._on_detached)
        self._client = SidecarClient(self._open, clock)
        self._was_attached = False
        # Until then a missing sidecar is not logged. Later each disconnect is logged once.
        self._warn_from_s = clock() + STARTUP_GRACE_S
        self._clock = clock
        self._lanes = Lanes(
            in_order=self._first.ordering == "partition", room=max(ROOM, 2 * self._first.concurrency)
        )
        # By partition that is assigned and not being revoked: the number of its tenure.
        self._tenures: dict[TopicPartition, int] = {}
        self._rejections = RejectionLog()
        self._pool = DaemonThreads(self._first.concurrency, "rota-handler")
        self._tasks: dict[asyncio.Task[None], Job] = {}
        self._revocations: list[PendingRevocation] = []
        self._requests: deque[pb.DeliverRequest] = deque()
        self._has_requests = asyncio.Event()
        self._is_stopping = asyncio.Event()
        # Time limit for records in flight when the runner is stopped.
        self.finish_s = math.inf
        # Called after each request to the sidecar; True ends the run.
        self.is_done: Callable[[], bool] = lambda: False

    async def run(self) -> None:
        """Run handlers until `stop`; raises SidecarFailed when the sidecar is gone for good."""
        sending = asyncio.create_task(self._send())
        self._attachment.begin(self._subscription)
        try:
            await self._is_stopping.wait()
            self._lanes.stop()
            await self._finish()
            await self._flush()
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            await self._attachment.end()
            await self._sidecar.close()
            self._pool.shutdown()
        if self._attachment.failed is not None:
            raise self._attachment.failed

    async def _finish(self) -> None:
        if not self._tasks:
            return
        within_s = None if math.isinf(self.finish_s) else self.finish_s
        _, late = await asyncio.wait(self._tasks, timeout=within_s)
        for task in late:
            job = self._tasks[task]
            log.warning(
                "%s[%d] at offset %d: the handler did not return within %g s of the stop; the process exits, "
                "and the record will be delivered again",
                *job.topic_partition,
                job.record.offset,
                self.finish_s,
            )
            task.cancel()

    def stop(self) -> None:
        """Begin no more records, and end when those in flight are done, or after `finish_s`."""
        self._is_stopping.set()

    # Events of the sidecar

    async def _open(self) -> Transport:
        return await self._sidecar.open(self._subscription)

    async def _on_attached(self, attachment: Attachment, transport: Transport) -> None:
        settings = attachment.settings
        wanted = (ORDERINGS[self._first.ordering], self._first.concurrency)
        if (settings.ordering, settings.concurrency) != wanted:
            raise errors.SidecarFailed(
                f"the sidecar delivers with ordering {NAMES.get(settings.ordering, 'unknown')!r} and concurrency "
                f"{settings.concurrency}, the handlers want {self._first.ordering!r} and {self._first.concurrency}: "
                "make them equal, in @rota.handler or in the group's settings"
            )
        if self._was_attached or not self._sidecar.begins_subscribed:
            await self._client.subscribe(self._subscription, WITHIN_S)
        self._was_attached = True
        self._warn_from_s = 0
        await self._send_credit()

    @override
    async def on_event(self, event: pb.AttachResponse.Event) -> None:
        rebalance = messages.rebalance_of(event, 0)
        if rebalance.kind is not RebalanceKind.ASSIGNED:
            for topic_partition in rebalance.partitions:
                self._tenures.pop(topic_partition, None)
        match rebalance.kind:
            case RebalanceKind.ASSIGNED:
                self._tenures.update(dict.fromkeys(rebalance.partitions, event.tenure.number))
                self._enqueue(messages.acknowledgement(event.event_id))
            case RebalanceKind.REVOKING | RebalanceKind.LOST:
                if rebalance.kind is RebalanceKind.LOST:
                    log.warning("partitions were lost, other members get their records: %s", rebalance.reason)
                self._lanes.stop(rebalance.partitions)
                self._revocations.append(PendingRevocation(event.event_id, rebalance.partitions))
                self._acknowledge_idle()
            case RebalanceKind.REVOKED:
                # The deadline may have passed before the running jobs were done: their verdicts are too late.
                self._lanes.forget(rebalance.partitions)

    @override
    async def on_partition_error(self, error: pb.AttachResponse.PartitionError) -> None:
        if not self._sidecar.logs_here:
            log.warning("%s", messages.failure_of(error).error)

    @override
    async def on_committed(self, committed: pb.AttachResponse.Committed) -> None:
        """Do nothing: handlers do not observe commits."""

    @override
    async def on_records(self, delivery: pb.DeliverResponse) -> None:
        self._rejections.log(delivery)
        if self._is_stopping.is_set():
            # In transit during the revocation: without a verdict it goes back, and is delivered to the next
            # owner.
            return
        jobs: list[Job] = []
        for part in delivery.partitions:
            if part.partition.topic in self._handlers:
                found = [
                    job
                    for batch_slice in messages.slices_of(part)
                    for job in _jobs_of(batch_slice, self._lanes.attachment)
                ]
                if self._tenures.get(messages.partition_of(part.partition)) == part.tenure.number:
                    jobs += found
                else:
                    # The revocation has overtaken them on the other stream: they are delivered to the next owner.
                    self._lanes.drop(len(found))
        self._begin(self._lanes.on_records(jobs))

    def _on_detached(self, error: errors.RotaError) -> None:
        if self._attachment.failed is not None:
            self._is_stopping.set()
        elif not self._is_stopping.is_set() and self._clock() >= self._warn_from_s:
            self._warn_from_s = math.inf
            log.warning("%s", error)
        self._lanes.on_disconnect()
        self._tenures.clear()
        self._revocations.clear()
        self._requests.clear()

    def _acknowledge_idle(self) -> None:
        for revocation in list(self._revocations):
            if self._lanes.is_idle(revocation.partitions):
                self._revocations.remove(revocation)
                self._lanes.forget(revocation.partitions)
                self._enqueue(messages.acknowledgement(revocation.event_id))

    # Processing

    def _begin(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            task = asyncio.create_task(self._work(job))
            self._tasks[task] = job
            task.add_done_callback(self._tasks.pop)

    async def _work(self, job: Job) -> None:
        judgement = await self._verdict_on(job)
        if self._lanes.is_current(job):
            judgements = pb.DeliverRequest.Judgements(judgements=[judgement])
            self._enqueue(pb.DeliverRequest(judgements=judgements))
        begun = self._lanes.on_verdict(job, is_retry=judgement.verdict == pb.RETRY)
        if not self._is_stopping.is_set():
            self._begin(begun)
        self._acknowledge_idle()

    async def _verdict_on(self, job: Job) -> pb.DeliverRequest.Judgement:
        judgement = pb.DeliverRequest.Judgement(
            partition=pb.TopicPartition(
                topic=job.topic_partition.topic, partition=job.topic_partition.partition
            ),
            delivery_epoch=job.delivery_epoch,
            offset=job.record.offset,
            verdict=pb.ACK,
        )
        try:
            await self._call(self._handlers[job.topic_partition.topic], job)
        except Retry as retry:
            judgement.verdict = pb.RETRY
            judgement.reason = retry.reason
            if retry.after is not None:
                judgement.retry_after_ms = int(retry.after * 1000)
        except DeadLetter as dead_letter:
            judgement.verdict, judgement.reason = pb.DEAD_LETTER, dead_letter.reason
        except Skip as skip:
            judgement.verdict, judgement.reason = pb.SKIP, skip.reason
        except Exception as error:
            log.warning(
                "%s[%d] at offset %d will be retried: %s",
                *job.topic_partition,
                job.record.offset,
                one_line(error),
            )
            log.debug("full traceback", exc_info=error)
            judgement.verdict = pb.RETRY
            judgement.reason = f"{type(error).__name__}: {error}"
        judgement.reason = judgement.reason[:REASON_LENGTH_MAX]
        return judgement

    async def _call(self, handler: Handler, job: Job) -> None:
        if handler.is_async:
            await handler(_deserialized(handler, job))  # type: ignore[misc]
            return
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._pool, lambda: handler(_deserialized(handler, job)))

    # Requests to the sidecar

    def _enqueue(self, request: pb.DeliverRequest) -> None:
        self._requests.append(request)
        self._has_requests.set()

    async def _send(self) -> None:
        while True:
            await self._has_requests.wait()
            self._has_requests.clear()
            await self._flush()

    async def _flush(self) -> None:
        """Send queued requests in order; consecutive verdicts are merged."""
        while self._requests:
            request = self._requests.popleft()
            while (
                self._requests and request.HasField("judgements") and self._requests[0].HasField("judgements")
            ):
                request.judgements.MergeFrom(self._requests.popleft().judgements)
            await self._attachment.send(request)
        await self._send_credit()
        if self.is_done():
            self.stop()

    async def _send_credit(self) -> None:
        if self._attachment.is_attached and (more := self._lanes.credit()):
            await self._attachment.send(messages.credit(more))


def _jobs_of(batch_slice: BatchSlice, attachment: int) -> Iterator[Job]:
    return (
        Job(batch_slice.topic_partition, batch_slice.delivery_epoch, record, batch_slice.turn, attachment)
        for record in batch_slice
    )


def _deserialized(handler: Handler, job: Job) -> Record[Any, Any]:
    record = job.record
    if handler.key_deserializer is not None:
        record = record._replace(key=handler.key_deserializer(record.topic, record.key))
    if handler.value_deserializer is not None:
        record = record._replace(value=handler.value_deserializer(record.topic, record.value))
    return record


def one_line(error: BaseException) -> str:
    """
    Format an exception and the frames outside of this package, outermost first, as one line.

    >>> one_line(ValueError("no price"))
    'ValueError: no price'
    """
    frames = [
        f"{frame.filename}:{frame.lineno} in {frame.name}"
        for frame in application_frames(error.__traceback__)
    ]
    said = " ".join(f"{type(error).__name__}: {error}".split())
    return f"{said} ({', '.join(frames)})" if frames else said


def application_frames(trace: TracebackType | None) -> list[traceback.FrameSummary]:
    """Return the frames of the application and of the libraries that it calls."""
    frames = traceback.StackSummary.extract(traceback.walk_tb(trace), lookup_lines=False)
    return [frame for frame in frames if not Path(frame.filename).is_relative_to(PACKAGE)]
