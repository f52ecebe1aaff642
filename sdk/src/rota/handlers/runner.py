"""Runs handlers: takes records from the sidecar, has them worked on, gives the verdicts, goes in good order."""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

from typing_extensions import override

from rota import errors
from rota.consumer import words
from rota.consumer.asking import Asking
from rota.consumer.attaching import Attaching
from rota.consumer.core import Kind
from rota.consumer.link import Attachment, Hearer, Link
from rota.consumer.portions import Portion
from rota.consumer.refusals import Refusals
from rota.consumer.sidecars import Sidecar, Subscription
from rota.handlers.failures import line_of
from rota.handlers.handler import DeadLetter, Handler, Retry, Skip
from rota.handlers.lanes import Job, Lanes
from rota.handlers.threads import DaemonThreads
from rota.records import Record, TopicPartition
from rota_proto.sidecar.v1 import sidecar_pb2 as pb

log = logging.getLogger("rota.handler")
ROOM = 1_000
WITHIN_S = 60.0
# A sidecar that starts beside the application needs a moment.
PATIENCE_S = 3.0
REASON_LENGTH_MAX = 500
ORDERINGS = {
    "partition": pb.ORDERING_PARTITION,
    "key": pb.ORDERING_KEY,
    "unordered": pb.ORDERING_UNORDERED,
}
NAMES = {number: name for name, number in ORDERINGS.items()}


class Leaving(NamedTuple):
    """Partitions that go as soon as nothing of them is worked on."""

    event_id: int
    partitions: Collection[TopicPartition]


class Runner(Hearer):
    """The handlers of one process; to be made and used on a running loop."""

    def __init__(
        self, handlers: Sequence[Handler], sidecar: Sidecar, client_id: str, clock: Callable[[], float]
    ) -> None:
        self._handlers = {topic: each for each in handlers for topic in each.topics}
        self._like = handlers[0]
        self._sidecar = sidecar
        self._subscription = Subscription(tuple(self._handlers))
        hello = pb.AttachRequest.Hello(client_id=client_id, takes_errors=True)
        self._attaching = Attaching(sidecar, hello, self, self._greet, self._gone)
        self._asking = Asking(self._open, clock)
        self._was_attached = False
        # Until then that there is no sidecar is no news. Each time that it goes it is said once.
        self._quiet_until_s = clock() + PATIENCE_S
        self._clock = clock
        self._lanes = Lanes(
            in_order=self._like.ordering == "partition", room=max(ROOM, 2 * self._like.concurrency)
        )
        self._refusals = Refusals()
        self._pool = DaemonThreads(self._like.concurrency, "rota-handler")
        self._tasks: dict[asyncio.Task[None], Job] = {}
        self._leaving: list[Leaving] = []
        self._outgoing: deque[pb.DeliverRequest] = deque()
        self._has_outgoing = asyncio.Event()
        self._ends = asyncio.Event()
        # Limit for what runs when the runner is stopped.
        self.finish_s = math.inf
        # Asked whenever the sidecar was told something; ends the run when it says yes.
        self.is_done: Callable[[], bool] = lambda: False

    async def run(self) -> None:
        """Until it is stopped; raises SidecarFailed where there is nothing to run with."""
        sending = asyncio.create_task(self._send())
        self._attaching.begin(self._subscription)
        try:
            await self._ends.wait()
            self._lanes.stop()
            await self._finish()
            await self._flush()
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            await self._attaching.end()
            await self._sidecar.close()
            self._pool.shutdown()
        if self._attaching.failed is not None:
            raise self._attaching.failed

    async def _finish(self) -> None:
        if not self._tasks:
            return
        within_s = None if math.isinf(self.finish_s) else self.finish_s
        _, late = await asyncio.wait(self._tasks, timeout=within_s)
        for task in late:
            job = self._tasks[task]
            log.warning(
                "%s[%d] at offset %d: its handler has not returned within %g s of the stop; the process ends without "
                "it, and the record is delivered again",
                *job.place,
                job.record.offset,
                self.finish_s,
            )
            task.cancel()

    def stop(self) -> None:
        """Begin nothing more, and end when what runs is done, or after `finish_s`."""
        self._ends.set()

    # What the sidecar says

    async def _open(self) -> Link:
        return await self._sidecar.open(self._subscription)

    async def _greet(self, attachment: Attachment, link: Link) -> None:
        settings = attachment.settings
        wanted = (ORDERINGS[self._like.ordering], self._like.concurrency)
        if (settings.ordering, settings.concurrency) != wanted:
            raise errors.SidecarFailed(
                f"the sidecar delivers with ordering {NAMES.get(settings.ordering, 'unknown')!r} and concurrency "
                f"{settings.concurrency}, the handlers want {self._like.ordering!r} and {self._like.concurrency}: "
                "make them equal, in @rota.handler or in the group's settings"
            )
        if self._was_attached or not self._sidecar.begins_subscribed:
            await self._asking.subscribe(self._subscription, WITHIN_S)
        self._was_attached = True
        self._quiet_until_s = 0
        await self._grant()

    @override
    async def hear_event(self, event: pb.AttachResponse.Event) -> None:
        rebalance = words.rebalance_of(event, 0)
        match rebalance.kind:
            case Kind.ASSIGNED:
                self._say(words.acknowledgement(event.event_id))
            case Kind.REVOKING | Kind.LOST:
                if rebalance.kind is Kind.LOST:
                    log.warning("partitions are lost, their records come elsewhere: %s", rebalance.reason)
                self._lanes.stop(rebalance.partitions)
                self._leaving.append(Leaving(event.event_id, rebalance.partitions))
                self._let_go()
            case Kind.REVOKED:
                # The deadline may have passed before what ran was done: its verdicts come too late.
                self._lanes.forget(rebalance.partitions)

    @override
    async def hear_error(self, error: pb.AttachResponse.PartitionError) -> None:
        if not self._sidecar.logs_here:
            log.warning("%s", words.failure_of(error).error)

    @override
    async def hear_records(self, delivery: pb.DeliverResponse) -> None:
        self._refusals.log(delivery)
        if self._ends.is_set():
            # It was on its way. Without a verdict it goes back, and comes to somebody else.
            return
        jobs = (
            job
            for part in delivery.partitions
            if part.partition.topic in self._handlers
            for portion in words.portions_of(part)
            for job in _jobs_of(portion)
        )
        self._begin(self._lanes.received(jobs))

    def _gone(self, error: errors.RotaError) -> None:
        if self._attaching.failed is not None:
            self._ends.set()
        elif not self._ends.is_set() and self._clock() >= self._quiet_until_s:
            self._quiet_until_s = math.inf
            log.warning("%s", error)
        self._lanes.lost_connection()
        self._leaving.clear()
        self._outgoing.clear()

    def _let_go(self) -> None:
        for leaving in list(self._leaving):
            if self._lanes.is_idle(leaving.partitions):
                self._leaving.remove(leaving)
                self._lanes.forget(leaving.partitions)
                self._say(words.acknowledgement(leaving.event_id))

    # Work

    def _begin(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            task = asyncio.create_task(self._work(job))
            self._tasks[task] = job
            task.add_done_callback(self._tasks.pop)

    async def _work(self, job: Job) -> None:
        judgement = await self._judgement(job)
        self._say(pb.DeliverRequest(judgements=pb.DeliverRequest.Judgements(judgements=[judgement])))
        begun = self._lanes.judged(job, comes_again=judgement.verdict == pb.RETRY)
        if not self._ends.is_set():
            self._begin(begun)
        self._let_go()

    async def _judgement(self, job: Job) -> pb.DeliverRequest.Judgement:
        judgement = pb.DeliverRequest.Judgement(
            partition=pb.TopicPartition(topic=job.place.topic, partition=job.place.partition),
            delivery_epoch=job.ledger,
            offset=job.record.offset,
            verdict=pb.ACK,
        )
        try:
            await self._call(self._handlers[job.place.topic], job)
        except Retry as retry:
            judgement.verdict = pb.RETRY
            judgement.reason = retry.reason
            if retry.after is not None:
                judgement.retry_after_ms = int(retry.after * 1000)
        except DeadLetter as letter:
            judgement.verdict, judgement.reason = pb.DEAD_LETTER, letter.reason
        except Skip as skip:
            judgement.verdict, judgement.reason = pb.SKIP, skip.reason
        except Exception as error:
            log.warning("%s[%d] at offset %d is retried: %s", *job.place, job.record.offset, line_of(error))
            log.debug("the whole traceback", exc_info=error)
            judgement.verdict = pb.RETRY
            judgement.reason = f"{type(error).__name__}: {error}"
        judgement.reason = judgement.reason[:REASON_LENGTH_MAX]
        return judgement

    async def _call(self, handler: Handler, job: Job) -> None:
        if handler.is_async:
            await handler(_readable(handler, job))  # type: ignore[misc]
            return
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._pool, lambda: handler(_readable(handler, job)))

    # What is said

    def _say(self, request: pb.DeliverRequest) -> None:
        self._outgoing.append(request)
        self._has_outgoing.set()

    async def _send(self) -> None:
        while True:
            await self._has_outgoing.wait()
            self._has_outgoing.clear()
            await self._flush()

    async def _flush(self) -> None:
        """In order; verdicts that follow each other go together."""
        while self._outgoing:
            request = self._outgoing.popleft()
            while (
                self._outgoing and request.HasField("judgements") and self._outgoing[0].HasField("judgements")
            ):
                request.judgements.MergeFrom(self._outgoing.popleft().judgements)
            await self._attaching.send(request)
        await self._grant()
        if self.is_done():
            self.stop()

    async def _grant(self) -> None:
        if self._attaching.is_attached and (more := self._lanes.credit()):
            await self._attaching.send(words.credit(more))


def _jobs_of(portion: Portion) -> Iterator[Job]:
    return (Job(portion.place, portion.ledger, record, portion.turn) for record in portion)


def _readable(handler: Handler, job: Job) -> Record[Any, Any]:
    record = job.record
    if handler.key_deserializer is not None:
        record = record._replace(key=handler.key_deserializer(record.topic, record.key))
    if handler.value_deserializer is not None:
        record = record._replace(value=handler.value_deserializer(record.topic, record.value))
    return record
