"""
Event loop side of a consumer, between the core and the sidecar. `Consumer` calls it from its thread, `AsyncConsumer` on
its own loop; listeners and deserializers are called by those two, never here.

In: the sidecar's events and records, fed to the core. Out: credit, verdicts, acknowledgements, and the unary calls.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TypeVar

from typing_extensions import override

from rota import errors
from rota.connection import retry_until
from rota.consumer import messages
from rota.consumer.batch_slice import BatchSlice
from rota.consumer.core import NO_EPOCH, Core, FinishedRange, Rebalance, RebalanceKind, Tenure
from rota.consumer.options import Options
from rota.consumer.outage import Outage
from rota.consumer.poll_handoff import OnRecords, PollHandoff
from rota.consumer.reconnection import ReconnectingAttachment
from rota.consumer.rejection_log import RejectionLog
from rota.consumer.sidecar_client import SidecarClient
from rota.consumer.sidecars import Sidecar, Subscription
from rota.consumer.transport import Attachment, SidecarListener, Transport
from rota.consumer.verdict_batcher import VerdictBatcher
from rota.metadata import GroupMetadata
from rota.offsets import OffsetAndMetadata
from rota.records import TopicPartition
from rota_proto.sidecar.v1 import sidecar_pb2 as pb

log = logging.getLogger("rota.consumer")
POSITIONS_S = 5.0
COMMITS_MAX = 1_000

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
Result = TypeVar("Result")
OnCommit = Callable[[Offsets, errors.RotaError | None], object]


class Engine(SidecarListener):
    """Serves one consumer; created and used on a running event loop."""

    def __init__(self, options: Options, sidecar: Sidecar, clock: Callable[[], float]) -> None:
        self._options = options
        self._sidecar = sidecar
        self._clock = clock
        self.core = Core(options.max_buffered_records)
        self._attachment = ReconnectingAttachment(
            sidecar, messages.hello(options), self, self._on_attached, self._on_detached
        )
        self._verdicts = VerdictBatcher(self._attachment)
        self.client = SidecarClient(self._open, clock)
        self.subscription = Subscription()
        self.is_manual = False
        # The sidecar may consume topics without a subscription of the application.
        self._sidecar_subscribes = options.sidecar_may_subscribe
        self._was_attached = False
        self._timeout_s = options.default_api_timeout_ms / 1000
        self._group_id = options.group_id
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._is_woken = False
        self._is_closing = False
        self.handoff = PollHandoff(self.core, self._room)
        self._outage = Outage(clock, self._timeout_s)
        self._rejections = RejectionLog()
        self._committing = asyncio.Lock()
        self._pending_commits: set[asyncio.Task[None]] = set()
        # Outcomes of commits whose callbacks were not called yet, in the order of the commits.
        self.commit_outcomes: deque[tuple[OnCommit | None, Offsets, errors.RotaError | None]] = deque()

    async def _open(self) -> Transport:
        return await self._sidecar.open(self.subscription)

    # Events of the sidecar

    async def _on_attached(self, attachment: Attachment, transport: Transport) -> None:
        settings = attachment.settings
        messages.check_settings(settings, self._group_id)
        self._group_id = settings.group_id
        if self.is_manual and self._was_attached:
            await self._restore_manual_assignment()
        elif self.subscription and (self._was_attached or not self._sidecar.begins_subscribed):
            await self.client.subscribe(self.subscription, self._timeout_s)
        self._was_attached = True
        self._outage.on_attached()
        await self._send_credit()

    async def _restore_manual_assignment(self) -> None:
        """Repeat assignment, pauses and positions for a sidecar that has restarted and lost them."""
        partitions = list(self.core.assigned)
        await self.client.assign(partitions, self._timeout_s)
        if self.core.paused:
            await self.client.pause(self.core.paused, self._timeout_s)
        positions = self.core.consumed_positions()
        if positions:
            void = await self.client.seek(positions, self._timeout_s)
            for partition, offset in positions.items():
                self.core.on_seek(partition, offset, void)

    @override
    async def on_event(self, event: pb.AttachResponse.Event) -> None:
        rebalance = messages.rebalance_of(event, self._clock())
        self.core.on_rebalance(rebalance)
        for event_id in self.core.acks_due():
            await self._verdicts.send(messages.acknowledgement(event_id))
        self._changed.set()

    @override
    async def on_partition_error(self, error: pb.AttachResponse.PartitionError) -> None:
        failure = messages.failure_of(error)
        if error.kind in messages.RAISED:
            self.core.on_fetch_failure(failure)
            self._changed.set()
        elif not self._sidecar.logs_here:
            log.warning("%s", failure.error)

    @override
    async def on_committed(self, committed: pb.AttachResponse.Committed) -> None:
        self.commit_outcomes.append((None, messages.committed_offsets(committed), None))

    @override
    async def on_records(self, delivery: pb.DeliverResponse) -> None:
        for part in delivery.partitions:
            for batch_slice in messages.slices_of(part):
                self.core.on_records(batch_slice, part.tenure.number)
        self._rejections.log(delivery)
        self.handoff.on_records()
        self._changed.set()
        while self.core.buffer.size >= self._options.buffer_memory and not self._is_closing:
            self._room.clear()
            await self._room.wait()

    def _on_detached(self, error: errors.RotaError) -> None:
        self._outage.on_failure(error)
        self._verdicts.forget()
        self.core.on_disconnect(str(error))
        self._room.set()
        self._changed.set()

    # Polling

    async def first_step(
        self, records_max: int, deadline_s: float, give: OnRecords | None = None
    ) -> Rebalance | list[BatchSlice]:
        """
        Finish returned records, return buffered records of paused partitions, then `step`; combined to switch threads
        once.
        """
        if not (self.subscription or self.is_manual or self._sidecar_subscribes):
            raise errors.IllegalState(
                "the consumer is not subscribed and has no partitions assigned: call subscribe() or assign() before it polls"
            )
        number = self.handoff.begin()
        self._ensure_attached()
        await self._send_finished()
        if paused_in_buffer := self.core.paused_in_buffer():
            await self.seek(paused_in_buffer, self._timeout_s, moved=False)
        await self._send_credit()
        return await self._step(number, records_max, deadline_s, give)

    async def step(
        self, records_max: int, deadline_s: float, give: OnRecords | None = None
    ) -> Rebalance | list[BatchSlice]:
        """
        Return the next rebalance to report, or records; an empty list at the deadline.

        Records that arrive while it waits are passed to `give` instead, in the same turn of the loop.
        """
        return await self._step(self.handoff.begin(), records_max, deadline_s, give)

    async def _step(
        self, number: int, records_max: int, deadline_s: float, give: OnRecords | None
    ) -> Rebalance | list[BatchSlice]:
        while self.handoff.is_current(number):
            self._raise_pending_error()
            event = self.core.next_rebalance()
            if event is not None:
                await self._begin_rebalance(event)
                return event
            if (error := self.core.next_error()) is not None:
                raise error
            if taken := self.handoff.take(records_max):
                return taken
            left_s = deadline_s - self._clock()
            if left_s <= 0 or not await self._more(number, left_s, records_max, give):
                break
        return []

    async def _more(self, number: int, within_s: float, records_max: int, give: OnRecords | None) -> bool:
        """Wait until something changes; False at the deadline, or when `give` was called."""
        self._changed.clear()
        if give is not None:
            self.handoff.wait(records_max, give)
        try:
            async with asyncio.timeout(within_s):
                await self._changed.wait()
        except TimeoutError:
            return False
        finally:
            given = self.handoff.cancel(number)
        return not given

    def _raise_pending_error(self) -> None:
        if self._is_woken:
            self._is_woken = False
            raise errors.WokenUp("the poll was interrupted by wakeup()")
        if self._attachment.failed is not None:
            raise self._attachment.failed.with_traceback(None)
        self._outage.check()

    async def _begin_rebalance(self, event: Rebalance) -> None:
        if event.kind is not RebalanceKind.ASSIGNED or not event.partitions:
            self.core.begin_rebalance(event, {})
            return
        try:
            positions = await self.client.positions(event.partitions, POSITIONS_S)
            self.core.begin_rebalance(event, positions)
            if not self._options.enable_auto_commit:
                await self._seek_to_committed(positions)
        except errors.RotaError as error:
            log.debug("the positions of assigned partitions are not known yet: %s", error)
            self.core.begin_rebalance(event, {})

    async def _seek_to_committed(self, positions: Mapping[TopicPartition, int]) -> None:
        """Seek back to the committed offsets: an earlier application at this sidecar acknowledged records without a commit."""
        if positions:
            committed = await self.client.committed(positions, POSITIONS_S)
            moved = {
                topic_partition: each.offset
                for topic_partition, each in committed.items()
                if each.offset != positions[topic_partition]
            }
            if moved:
                await self.seek(moved, POSITIONS_S, moved=False)

    async def end_rebalance(self, event: Rebalance) -> None:
        """Acknowledge a rebalance whose listener has returned."""
        if self.core.end_rebalance(event):
            await self._verdicts.send(messages.acknowledgement(event.event_id))
        await self._send_credit()

    def wake(self) -> None:
        """Make the current poll, or else the next one, raise WokenUp."""
        self._is_woken = True
        self._changed.set()

    async def _send_credit(self) -> None:
        if self._attachment.is_attached and (more := self.core.credit()):
            await self._verdicts.send(messages.credit(more))

    def _ensure_attached(self) -> None:
        if not self._attachment.runs:
            self._attachment.begin(self.subscription)

    # Calls of the application

    async def subscribe(self, subscription: Subscription, within_s: float) -> None:
        """Subscribe as a member of the group; attach first if necessary."""
        self.subscription = subscription
        self.core.subscribe()
        if self._attachment.runs:
            await self.client.subscribe(subscription, within_s)
        else:
            self._ensure_attached()

    async def assign(self, partitions: Collection[TopicPartition], within_s: float) -> None:
        """Assign partitions manually, outside of the group's assignment."""
        self.subscription = Subscription()
        self.is_manual = True
        await self._send_finished()
        await self._verdicts.flush()
        gone = self.core.assigned.keys() - set(partitions)
        self.core.assign(partitions)
        self._ensure_attached()
        if partitions or gone:
            await self.client.assign(list(partitions), within_s)

    async def unsubscribe(self, within_s: float) -> None:
        """Leave the group, or drop the manual assignment."""
        was_manual, self.is_manual, self.subscription = self.is_manual, False, Subscription()
        self._sidecar_subscribes = False
        self.core.assign(())
        if not self._attachment.runs:
            return
        if was_manual:
            await self.client.assign((), within_s)
        else:
            await self.client.subscribe(self.subscription, within_s)

    async def _send_finished(self) -> None:
        self.handoff.rewind()
        if finished := self.core.finish():
            await self._verdicts.finish(finished)

    async def seek(
        self, offsets: Mapping[TopicPartition, int], within_s: float, *, moved: bool = True
    ) -> None:
        """Continue at these offsets; records before the seek are void."""

        async def ask(there: Collection[TopicPartition], left_s: float) -> int:
            await self._verdicts.flush()
            return await self.client.seek({each: offsets[each] for each in there}, left_s)

        void = await self._call_while_assigned(offsets, ask, within_s)
        for partition, offset in offsets.items():
            self.core.on_seek(partition, offset, void, moved=moved)
        self._room.set()
        await self._send_credit()

    async def pause(self, partitions: Collection[TopicPartition], within_s: float) -> None:
        """Stop returning records of partitions."""
        await self._call_while_assigned(partitions, self.client.pause, within_s)
        self.core.paused.update(partitions)

    async def resume(self, partitions: Collection[TopicPartition], within_s: float) -> None:
        """Return records of partitions again."""
        await self._call_while_assigned(partitions, self.client.resume, within_s)
        self.core.paused.difference_update(partitions)
        self._changed.set()

    async def _call_while_assigned(
        self,
        partitions: Collection[TopicPartition],
        ask: Callable[[Collection[TopicPartition], float], Awaitable[Result]],
        within_s: float,
    ) -> Result | None:
        """Call the sidecar for the partitions it still has; None if it has none: the loss is reported by the next poll."""
        deadline_s = self._clock() + within_s
        while True:
            there = list(partitions) if self.is_manual else self.core.still_assigned(partitions)
            if not there:
                return None
            left_s = max(deadline_s - self._clock(), 0)
            try:
                return await ask(there, left_s)
            except (errors.IllegalGeneration, errors.UnknownTopicOrPartition):
                if self.is_manual or not await self._wait_for_loss(there, left_s):
                    raise

    async def _wait_for_loss(self, partitions: Collection[TopicPartition], within_s: float) -> bool:
        """Wait for the event of a loss, which may arrive after the answer; False at the timeout."""
        try:
            async with asyncio.timeout(within_s):
                while len(self.core.still_assigned(partitions)) == len(partitions):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def position(self, partition: TopicPartition, within_s: float) -> int:
        """Return the next offset to return; wait until it is known."""
        self._ensure_attached()

        async def look() -> int:
            if (known := self.core.position(partition)) is not None:
                return known
            if not self.is_manual and not self.core.still_assigned([partition]):
                raise errors.IllegalGeneration(f"{partition.topic}[{partition.partition}]")
            found = await self.client.positions([partition], within_s)
            # Records that arrived meanwhile have a newer position.
            if (known := self.core.position(partition, found.get(partition))) is not None:
                return known
            raise errors.CoordinatorNotAvailable(
                f"{partition.topic}[{partition.partition}] has no position yet"
            )

        return await retry_until(look, deadline_s=self._clock() + within_s, clock=self._clock)

    def group_metadata(self) -> GroupMetadata:
        """Return the member's identity in the newest generation whose losses were all reported."""
        tenure = (None if self.is_manual else self.core.tenure) or Tenure(NO_EPOCH, "", NO_EPOCH, NO_EPOCH)
        return GroupMetadata(
            group_id=self._group_id,
            incarnation=tenure.incarnation,
            generation_id=tenure.generation_id,
            member_id=tenure.member_id,
            group_instance_id=self._options.group_instance_id,
        )

    # Commits

    async def commit(self, offsets: Offsets | None, within_s: float) -> None:
        """Commit these offsets, or the consumed positions; retried until the timeout."""
        wanted = self.offsets_to_commit(offsets)
        deadline_s = self._clock() + within_s
        if self._pending_commits:
            # An earlier asynchronous commit must not be sent after this one.
            await asyncio.wait(self._pending_commits, timeout=within_s)
        async with self._committing:
            for tenure, some in self._by_tenure(wanted).items():

                async def ask(tenure: int = tenure, some: Offsets = some) -> None:
                    if self._by_tenure(some).keys() != {tenure}:
                        raise errors.IllegalGeneration(", ".join(f"{each[0]}[{each[1]}]" for each in some))
                    refused = await self._commit_in(tenure, some, max(deadline_s - self._clock(), 0))
                    if refused is not None:
                        raise refused

                await retry_until(ask, deadline_s=deadline_s, clock=self._clock)
        if wanted:
            self.commit_outcomes.append((None, wanted, None))

    async def _commit_in(self, tenure: int, offsets: Offsets, within_s: float) -> errors.RotaError | None:
        await self._verdicts.flush()
        refused = await self.client.commit(offsets, tenure, within_s)
        self._committed(offsets)
        return refused

    def _committed(self, offsets: Offsets) -> Sequence[FinishedRange]:
        return self.core.on_commit({partition: each.offset for partition, each in offsets.items()})

    def offsets_to_commit(self, offsets: Offsets | None) -> Offsets:
        """Return the given offsets, or else the consumed positions."""
        self.handoff.rewind()
        if offsets is not None:
            return dict(offsets)
        return {
            partition: OffsetAndMetadata(offset)
            for partition, offset in self.core.consumed_positions().items()
        }

    def _by_tenure(self, offsets: Offsets) -> Mapping[int, Offsets]:
        """Group offsets by the tenure of their partitions; 0 stands for the sidecar's current one."""
        if self.is_manual:
            return {0: offsets} if offsets else {}
        tenures = self.core.by_tenure(offsets)
        for topic, partition in tenures.get(NO_EPOCH, ()):
            raise errors.IllegalGeneration(f"{topic}[{partition}]")
        return {number: {each: offsets[each] for each in some} for number, some in tenures.items()}

    def commit_async(self, offsets: Offsets | None, callback: OnCommit | None) -> None:
        """Commit after all pending commits; a later call runs the callback."""
        if len(self._pending_commits) >= COMMITS_MAX:
            raise errors.BufferExhausted(
                f"{COMMITS_MAX:,} commits are pending: commit less often, or with commit()"
            )
        wanted = self.offsets_to_commit(offsets)
        # Before the response: the next poll may come first.
        task = asyncio.create_task(self._commit_once(wanted, self._committed(wanted), callback))
        self._pending_commits.add(task)
        task.add_done_callback(self._pending_commits.discard)

    async def _commit_once(
        self, wanted: Offsets, said: Sequence[FinishedRange], callback: OnCommit | None
    ) -> None:
        failed: errors.RotaError | None = None
        left = set(wanted)
        async with self._committing:
            try:
                for tenure, some in self._by_tenure(wanted).items():
                    refused = await self._commit_in(tenure, some, self._timeout_s)
                    left -= some.keys()
                    failed = failed or refused
            except errors.RotaError as error:
                failed = error
        # These records are done, although the sidecar did not take their offsets.
        if unsaid := [each for each in said if each.partition in left]:
            await self._verdicts.finish(unsaid)
        self.commit_outcomes.append((callback, wanted, failed))
        self._changed.set()

    # Shutdown

    async def finish(self, within_s: float, *, commits: bool) -> None:
        """Finish all returned records, and commit them if `commits`; running polls return nothing more."""
        self.handoff.begin()
        await self._send_finished()
        if (
            commits
            and self.core.consumed_positions()
            and self._outage.error is None
            and self._attachment.runs
        ):
            try:
                await self.commit(None, within_s)
            except errors.RotaError as error:
                log.warning(
                    "the last offsets could not be committed, their records will be delivered again: %s",
                    error,
                )

    async def close(self, within_s: float) -> None:
        """Wait for pending commits, detach, then stop the consumer's own sidecar."""
        self._is_closing = True
        self._room.set()
        if self._pending_commits:
            await asyncio.wait(self._pending_commits, timeout=within_s)
        await self._verdicts.flush()
        await self._attachment.end()
        await self._sidecar.close()
