"""
An attached application: its events, its records, its credit, and the end of the attachment.

`streams`, `frames` and `calls` pass on its requests. The delivery driver calls it through the interface `Application`, and never
waits for it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

import grpc
from typing_extensions import override

from rota_proto.sidecar.v1 import sidecar_pb2 as pb
from rota_sidecar.application.allowance import Allowance
from rota_sidecar.application.event_queue import EventQueue
from rota_sidecar.application.outgoing import Outgoing, Part
from rota_sidecar.application.port import Application, Deliveries
from rota_sidecar.application.refusals import (
    Refusal,
    failed_precondition,
    invalid_argument,
    resource_exhausted,
)
from rota_sidecar.application.translating import judged_of, refusals_to
from rota_sidecar.application.wellformed import CREDIT_MAX
from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.member.partitions import Partition, Tenure
from rota_sidecar.engines.batch_slicing import BatchSlicer

# Limit of unread refusals. An application that ignores this many ends its attachment.
REFUSALS_MAX = 10_000
REFUSALS_PER_MESSAGE = 1_000


class Attachment(Application):
    """
    Must be created on a running loop.

    Invariant: at most one stream or poll consumes its records; it ends once, and the first reason counts.
    """

    def __init__(
        self, deliveries: Deliveries, slicer: BatchSlicer, *, reads_itself: bool, takes_errors: bool
    ) -> None:
        self.reads_itself = reads_itself
        self._takes_errors = takes_errors
        # Set after the attachment, by the delivery driver.
        self.session = 0
        # True after a goodbye.
        self.is_clean = False
        self.event_queue = EventQueue()
        # The tenure of the last ASSIGNED event: that of the current generation.
        self.tenure: Tenure | None = None
        self._deliveries = deliveries
        self._outgoing = Outgoing(slicer)
        self._allowance = Allowance()
        self._refusals: deque[do.Refuse] = deque()
        self._news = asyncio.Event()
        self._on_news: Callable[[], None] | None = None
        # What consumes the records now, a Deliver stream or a Poll; empty: nothing.
        self._taker = ""
        self._ended: asyncio.Future[Refusal | None] = asyncio.get_running_loop().create_future()

    # -------------------------------------------------------------------------------------------- from deliveries

    @override
    def on_assignment_event(self, event: do.AssignmentEvent) -> None:
        if event.kind is do.Kind.ASSIGNED:
            self.tenure = event.tenure
        else:
            # Records without a verdict are delivered again elsewhere, so unsent ones are dropped.
            self._drop(self._outgoing.drop(lambda part: part.partition in event.partitions))
        try:
            self.event_queue.put(event, self._deliveries.now_ms())
        except Refusal as refusal:
            self.end(refusal)

    @override
    def report(self, error: do.PartitionError) -> None:
        if not self._takes_errors:
            return
        try:
            self.event_queue.put_error(error)
        except Refusal as refusal:
            self.end(refusal)

    @override
    def on_commit(self, committed: do.OffsetsCommitted) -> None:
        try:
            self.event_queue.put_commit(committed)
        except Refusal as refusal:
            self.end(refusal)

    @override
    def deliver(self, deliveries: Sequence[do.Deliver]) -> None:
        for deliver in deliveries:
            self._allowance.dispatched(*self._outgoing.put(deliver))
        self._announce()

    @override
    def refuse(self, refusals: Sequence[do.Refuse]) -> None:
        self._refusals += refusals
        self._announce()
        if len(self._refusals) > REFUSALS_MAX:
            self.end(
                resource_exhausted(
                    f"{REFUSALS_MAX} judgements were refused and the refusals not read; attach again"
                )
            )

    @override
    def close(self, reason: str) -> None:
        self.end(Refusal(grpc.StatusCode.UNAVAILABLE, reason))

    # -------------------------------------------------------------------------------------------- from the application

    def acknowledge(self, event_id: int) -> None:
        """Handle the acknowledgement of an event. Raises a Refusal."""
        event = self.event_queue.acknowledged(event_id)
        if event is not None:
            self._deliveries.on_application_event(on.Acknowledged(event))

    def grant(self, records: int) -> None:
        """Add credit. Raises a Refusal."""
        if self._allowance.outstanding + records > CREDIT_MAX:
            raise invalid_argument(
                f"{records} more records of credit exceed the limit of {CREDIT_MAX}; grant credit as records are processed"
            )
        self._allowance.grant(records)
        self._release_credit()

    def on_verdicts(self, judgements: Sequence[pb.DeliverRequest.Judgement]) -> None:
        """Post verdicts of the application."""
        self._deliveries.on_application_event(judged_of(judgements))

    def drop_void(self, partitions: frozenset[Partition], delivery_epoch: int) -> None:
        """Drop unsent records of the partitions up to this delivery epoch, because the application has sought elsewhere."""
        self._drop(self._outgoing.drop(lambda part: _is_void(part, partitions, delivery_epoch)))

    # -------------------------------------------------------------------------------------------- to the application

    def begin(self, taker: str, on_news: Callable[[], None] | None = None) -> None:
        """
        Begin to consume records, as a Deliver stream or a Poll. Raises a Refusal.

        `on_news` is called when there is something to take; it must not take it itself.
        """
        if self._taker:
            raise failed_precondition(
                f"a {self._taker} consumes the records of this attachment already; use one at a time"
            )
        if self.reads_itself:
            raise failed_precondition(
                "this application reads records itself; attach without reads_itself to get records"
            )
        self._taker = taker
        self._on_news = on_news

    def finish(self) -> None:
        """End the consumption of records by a stream or poll."""
        self._taker = ""
        self._on_news = None

    async def next(self) -> pb.DeliverResponse:
        """Return the next message of the Deliver stream, as soon as there is one."""
        while True:
            self._news.clear()
            if (message := self.take_message()) is not None:
                return message
            await self._news.wait()

    def take_message(self) -> pb.DeliverResponse | None:
        """Take the next message of the Deliver stream, if there is one: refusals first, then records."""
        if self._refusals:
            some = list(islice(self._refusals, REFUSALS_PER_MESSAGE))
            for _ in some:
                self._refusals.popleft()
            return refusals_to(some)
        if partitions := self._take(CREDIT_MAX):
            return pb.DeliverResponse(partitions=partitions)
        return None

    async def poll(self, records_max: int, within_s: float) -> Sequence[pb.PartitionRecords]:
        """Return up to `records_max` records, as soon as there are any; none after `within_s` seconds."""
        self.grant(max(records_max - self._allowance.outstanding - self._outgoing.records, 0))
        try:
            async with asyncio.timeout(within_s):
                while True:
                    self._news.clear()
                    if partitions := self._take(records_max):
                        return partitions
                    await self._news.wait()
        except TimeoutError:
            return self._take(records_max)

    # -------------------------------------------------------------------------------------------- its end

    def end(self, refusal: Refusal | None) -> None:
        """End the attachment, cleanly (None) or with a refusal; later calls have no effect."""
        if not self._ended.done():
            self._ended.set_result(refusal)

    @property
    def ended(self) -> "asyncio.Future[Refusal | None]":
        """The refusal with which the attachment ended; None: it ended cleanly."""
        return self._ended

    # --------------------------------------------------------------------------------------------

    def _announce(self) -> None:
        self._news.set()
        if self._on_news is not None:
            self._on_news()

    def _take(self, records_max: int) -> Sequence[pb.PartitionRecords]:
        while True:
            taken = self._outgoing.take(records_max)
            self._allowance.sent(taken.size)
            if taken.judgements:
                self._deliveries.on_application_event(on.Judged(taken.judgements))
                self._allowance.grant(len(taken.judgements))
            self._release_credit()
            if taken.partitions or not taken.judgements:
                return taken.partitions

    def _drop(self, dropped: tuple[int, int]) -> None:
        records, size = dropped
        if records:
            # Dropped records give their credit back: the application granted it for records that it gets.
            self._allowance.sent(size)
            self._allowance.grant(records)
            self._release_credit()

    def _release_credit(self) -> None:
        records = self._allowance.release()
        if records:
            self._deliveries.on_application_event(on.Credit(records))


def _is_void(part: Part, partitions: frozenset[Partition], delivery_epoch: int) -> bool:
    return part.partition in partitions and part.delivery_epoch <= delivery_epoch
