"""
Delivers records to an HTTP endpoint: each record is a POST, and the response is its verdict.

Created by `process/listeners.py` instead of the gRPC service. The delivery driver sees an application that grants credit
for `concurrency` records and processes all of them at the same time.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from typing_extensions import override

from rota_proto.log.columns import MalformedPayload
from rota_sidecar.application.cloud_events import TooLarge, event_of, record_at
from rota_sidecar.application.http_client import HttpClient, NoAnswer, NotThere
from rota_sidecar.application.http_verdicts import Outcome, outcome_of
from rota_sidecar.application.port import Application, Deliveries
from rota_sidecar.config.urls import url_of
from rota_sidecar.core.delivery import actions as do
from rota_sidecar.core.delivery import events as on
from rota_sidecar.core.ledger.batches import Batch
from rota_sidecar.core.ledger.rules import Verdict
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.engines.batch_slicing import BatchSlicer, content_of

# Writes an event to the event log: its name and its message.
LogEvent = Callable[[str, str], None]


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """The URL and the timeouts of requests, in seconds."""

    url: str
    timeout_s: float = 30
    # The pause between two connection attempts.
    redial_s: float = 0.5


@dataclass(frozen=True, slots=True)
class Post:
    """A record to post: its batch and its offset."""

    delivery_epoch: int
    partition: Partition
    offset: int
    deliveries: int
    batch: Batch


class HttpDelivery(Application):
    """
    Must be created and run on a running loop, with a valid URL.

    Invariant: credit granted and posts in flight together are at most `concurrency`, as it was at the last grant.
    """

    def __init__(
        self, deliveries: Deliveries, slicer: BatchSlicer, settings: HttpSettings, log_event: LogEvent
    ) -> None:
        self._deliveries = deliveries
        self._slicer = slicer
        self._settings = settings
        self._log_event = log_event
        self._client = HttpClient(url_of(settings.url))
        # Granted and not used.
        self._credit = 0
        self._posts: set[asyncio.Task[None]] = set()
        self._busy: Counter[Partition] = Counter()
        self._revoking: list[do.AssignmentEvent] = []
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """
        Deliver until the sidecar stops. Attaches once the endpoint accepts connections: until then no record counts as
        delivered.

        Raises AttachedAlready, and unexpected exceptions of posts.
        """
        try:
            await self._wait_for_listener()
            session = self._deliveries.attach(
                self, commits_itself=False, reads_itself=False, takes_many=False
            )
            self._log_event("attached", f"records go to {self._settings.url}")
            try:
                self._grant()
                await asyncio.shield(self._ended)
            finally:
                self._deliveries.detach(session, clean=not self._posts)
        finally:
            await self._stop()

    # -------------------------------------------------------------------------------------------- from deliveries

    @override
    def on_assignment_event(self, event: do.AssignmentEvent) -> None:
        match event.kind:
            case do.Kind.REVOKING | do.Kind.LOST:
                self._revoking.append(event)
                self._acknowledge_idle()
            case do.Kind.ASSIGNED:
                self._deliveries.on_application_event(on.Acknowledged(event.event_id))
            case do.Kind.REVOKED:
                # Revoked at the deadline, with posts in flight.
                self._revoking = [each for each in self._revoking if each.partitions - event.partitions]

    @override
    def report(self, error: do.PartitionError) -> None:
        """Do nothing: a POST cannot report it, and the event log has it."""

    @override
    def on_commit(self, committed: do.OffsetsCommitted) -> None:
        """Do nothing: it attaches without `takes_commits`."""

    @override
    def deliver(self, deliveries: Sequence[do.Deliver]) -> None:
        for deliver in deliveries:
            dispatch = deliver.dispatch
            for batch_slice in dispatch.slices:
                for offset in range(batch_slice.first, batch_slice.end):
                    post = Post(
                        deliver.delivery_epoch,
                        deliver.partition,
                        offset,
                        dispatch.deliveries,
                        batch_slice.batch,
                    )
                    self._begin(post)

    @override
    def refuse(self, refusals: Sequence[do.Refuse]) -> None:
        for refusal in refusals:
            self._log_event("refused", refusal.message)

    @override
    def close(self, reason: str) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    # -------------------------------------------------------------------------------------------- posts

    def _begin(self, post: Post) -> None:
        self._credit -= 1
        self._busy[post.partition] += 1
        task = asyncio.create_task(self._process(post))
        self._posts.add(task)
        task.add_done_callback(self._done)

    async def _process(self, post: Post) -> None:
        try:
            outcome = await self._outcome(post)
        finally:
            self._busy[post.partition] -= 1
        judgement = on.Judgement(
            post.delivery_epoch,
            post.partition,
            post.offset,
            post.offset,
            outcome.verdict,
            outcome.retry_after_ms,
            outcome.reason,
        )
        self._deliveries.on_application_event(on.Judged([judgement]))
        self._acknowledge_idle()

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._posts.discard(task)
        if task.cancelled() or self._ended.done():
            return
        error = task.exception()
        if error is not None:
            self._ended.set_exception(error)
        else:
            self._grant()

    async def _outcome(self, post: Post) -> Outcome:
        try:
            columns, content = self._slicer.columns_of(post.batch), content_of(post.batch)
            record = record_at(columns, post.offset - content.base_offset, content.base_timestamp_ms)
            event = event_of(post.partition, post.offset, record, post.deliveries)
        except (MalformedPayload, TooLarge) as unfit:
            return Outcome(Verdict.DEAD_LETTER, str(unfit))
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                return await self._posted(event.headers, event.body)
        except TimeoutError:
            return Outcome(Verdict.RETRY, f"no answer within {self._settings.timeout_s:g} s")

    async def _posted(self, headers: Sequence[tuple[str, str]], body: bytes) -> Outcome:
        """Post a record. Failed connections are retried until the timeout, so that a restart of the endpoint costs no delivery."""
        while True:
            try:
                return outcome_of(await self._client.post(headers, body))
            except NoAnswer as failure:
                return Outcome(Verdict.RETRY, str(failure))
            except NotThere:
                await asyncio.sleep(self._settings.redial_s)

    # --------------------------------------------------------------------------------------------

    async def _wait_for_listener(self) -> None:
        logged = ""
        while True:
            try:
                await self._client.dial()
            except NotThere as failure:
                if str(failure) != logged:
                    logged = str(failure)
                    self._log_event("waiting", logged)
                await asyncio.sleep(self._settings.redial_s)
            else:
                return

    def _grant(self) -> None:
        """Grant credit up to `concurrency`, which may have changed."""
        records = self._deliveries.config.concurrency - len(self._posts) - self._credit
        if records > 0:
            self._credit += records
            self._deliveries.on_application_event(on.Credit(records))

    def _acknowledge_idle(self) -> None:
        """Acknowledge revocations whose partitions have no posts in flight."""
        free = [event for event in self._revoking if not any(map(self._busy.__getitem__, event.partitions))]
        for event in free:
            self._revoking.remove(event)
            self._deliveries.on_application_event(on.Acknowledged(event.event_id))

    async def _stop(self) -> None:
        posts = list(self._posts)
        for task in posts:
            task.cancel()
        await asyncio.gather(*posts, return_exceptions=True)
        self._client.close()
