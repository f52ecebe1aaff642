"""
One application that is attached: what it is told, what it is handed, how much it takes, and how it ended.

`streams` and `calls` speak for it; deliveries speak to it, and are never held up by it.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
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

# That were not read yet. An application that is wrong so often, and does not look, is not held up for long.
REFUSALS_MAX = 10_000
REFUSALS_PER_MESSAGE = 1_000


class Attachment(Application):
    """To be made on a running loop."""

    def __init__(
        self, deliveries: Deliveries, slicer: BatchSlicer, *, reads_itself: bool, takes_errors: bool
    ) -> None:
        self.reads_itself = reads_itself
        self._takes_errors = takes_errors
        # Given by the deliveries.
        self.session = 0
        # Its last word came: it goes in good order.
        self.is_clean = False
        self.event_queue = EventQueue()
        # Of the last ASSIGNED: that of the present generation.
        self.tenure: Tenure | None = None
        self._deliveries = deliveries
        self._outgoing = Outgoing(slicer)
        self._allowance = Allowance()
        self._refusals: deque[do.Refuse] = deque()
        self._news = asyncio.Event()
        # Who takes the records now: a Deliver stream, or a Poll that waits.
        self._taker = ""
        self._ended: asyncio.Future[Refusal | None] = asyncio.get_running_loop().create_future()

    # -------------------------------------------------------------------------------------------- from deliveries

    @override
    def on_assignment_event(self, event: do.AssignmentEvent) -> None:
        if event.kind is do.Kind.ASSIGNED:
            self.tenure = event.tenure
        else:
            # What has no verdict yet goes back: then it need not be sent either.
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
    def deliver(self, deliveries: Sequence[do.Deliver]) -> None:
        for deliver in deliveries:
            self._allowance.dispatched(*self._outgoing.put(deliver))
        self._news.set()

    @override
    def refuse(self, refusals: Sequence[do.Refuse]) -> None:
        self._refusals += refusals
        self._news.set()
        if len(self._refusals) > REFUSALS_MAX:
            self.end(
                resource_exhausted(
                    f"{REFUSALS_MAX} judgements were refused, and nobody reads why: attach anew"
                )
            )

    @override
    def close(self, reason: str) -> None:
        self.end(Refusal(grpc.StatusCode.UNAVAILABLE, reason))

    # -------------------------------------------------------------------------------------------- from the application

    def acknowledge(self, event_id: int) -> None:
        """It has done what an event asked for. Raises a Refusal."""
        event = self.event_queue.acknowledged(event_id)
        if event is not None:
            self._deliveries.on_application_event(on.Acknowledged(event))

    def grant(self, records: int) -> None:
        """It takes so many more. Raises a Refusal."""
        if self._allowance.outstanding + records > CREDIT_MAX:
            raise invalid_argument(
                f"{records} more records of credit would be more than {CREDIT_MAX}: give it as records are done"
            )
        self._allowance.grant(records)
        self._release_credit()

    def on_verdicts(self, judgements: Sequence[pb.DeliverRequest.Judgement]) -> None:
        """Its verdicts."""
        self._deliveries.on_application_event(judged_of(judgements))

    def drop_void(self, partitions: frozenset[Partition], delivery_epoch: int) -> None:
        """It has sought elsewhere: what was handed out up to this ledger, and has not left yet, never does."""
        self._drop(self._outgoing.drop(lambda part: _is_void(part, partitions, delivery_epoch)))

    # -------------------------------------------------------------------------------------------- to the application

    def begin(self, taker: str) -> None:
        """Somebody takes the records from now on. Raises a Refusal."""
        if self._taker:
            raise failed_precondition(
                f"a {self._taker} takes the records of this attachment already: one takes them at a time"
            )
        if self.reads_itself:
            raise failed_precondition(
                "this application reads by itself: attach without reads_itself to get records"
            )
        self._taker = taker

    def finish(self) -> None:
        """Nobody takes them any more."""
        self._taker = ""

    async def next(self) -> pb.DeliverResponse:
        """What there is for the stream, as soon as there is something."""
        while True:
            self._news.clear()
            if self._refusals:
                some = list(islice(self._refusals, REFUSALS_PER_MESSAGE))
                for _ in some:
                    self._refusals.popleft()
                return refusals_to(some)
            if partitions := self._take(CREDIT_MAX):
                return pb.DeliverResponse(partitions=partitions)
            await self._news.wait()

    async def poll(self, records_max: int, within_s: float) -> Sequence[pb.PartitionRecords]:
        """Up to so many records, as soon as there are any; none when none come in time."""
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
        """It is over, in good order or because of this; the first word counts."""
        if not self._ended.done():
            self._ended.set_result(refusal)

    @property
    def ended(self) -> "asyncio.Future[Refusal | None]":
        """Why, or None for an end in good order."""
        return self._ended

    # --------------------------------------------------------------------------------------------

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
            # The application gave credit for records that it sees, not for these.
            self._allowance.sent(size)
            self._allowance.grant(records)
            self._release_credit()

    def _release_credit(self) -> None:
        records = self._allowance.release()
        if records:
            self._deliveries.on_application_event(on.Credit(records))


def _is_void(part: Part, partitions: frozenset[Partition], delivery_epoch: int) -> bool:
    return part.partition in partitions and part.delivery_epoch <= delivery_epoch
