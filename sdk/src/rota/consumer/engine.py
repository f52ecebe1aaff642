"""
What a consumer does on its event loop: keeps attached, feeds the core, waits for what comes, asks the sidecar.

`Consumer` calls it from its thread, `AsyncConsumer` from the loop that it is on. What the application's own code does,
listeners and deserializers above all, is called by those two.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TypeVar

from typing_extensions import override

from rota import errors
from rota.connection import until
from rota.consumer import words
from rota.consumer.absence import Absence
from rota.consumer.asking import Asking
from rota.consumer.attaching import Attaching
from rota.consumer.core import NONE, Core, Finished, Kind, Rebalance, Tenure
from rota.consumer.link import Attachment, Hearer, Link
from rota.consumer.options import Options
from rota.consumer.outgoing import Outgoing
from rota.consumer.portions import Portion
from rota.consumer.refusals import Refusals
from rota.consumer.sidecars import Sidecar, Subscription
from rota.consumer.taking import Give, Taking
from rota.metadata import GroupMetadata
from rota.offsets import OffsetAndMetadata
from rota.records import TopicPartition
from rota_proto.sidecar.v1 import sidecar_pb2 as pb

log = logging.getLogger("rota.consumer")
POSITIONS_S = 5.0
COMMITS_MAX = 1_000

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
Answer = TypeVar("Answer")
OnCommit = Callable[[Offsets, errors.RotaError | None], object]


class Engine(Hearer):
    """One consumer; to be made and used on a running loop."""

    def __init__(self, options: Options, sidecar: Sidecar, clock: Callable[[], float]) -> None:
        self._options = options
        self._sidecar = sidecar
        self._clock = clock
        self.core = Core(options.max_buffered_records)
        hello = pb.AttachRequest.Hello(
            client_id=options.client_id,
            commits_itself=not options.enable_auto_commit,
            takes_errors=True,
        )
        self._attaching = Attaching(sidecar, hello, self, self._greet, self._gone)
        self._outgoing = Outgoing(self._attaching)
        self.asking = Asking(self._open, clock)
        self.subscription = Subscription()
        self.by_hand = False
        self._was_attached = False
        self._group_id = options.group_id
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._is_woken = False
        self._ends = False
        self.taking = Taking(self.core, self._room)
        self._absence = Absence(clock, options.default_api_timeout_ms / 1000)
        self._refusals = Refusals()
        self._committing = asyncio.Lock()
        self._commits_waiting: set[asyncio.Task[None]] = set()
        # Commits with an outcome, of which the application was not told yet.
        self.outcomes: deque[tuple[OnCommit | None, Offsets, errors.RotaError | None]] = deque()

    async def _open(self) -> Link:
        return await self._sidecar.open(self.subscription)

    # What the sidecar says

    async def _greet(self, attachment: Attachment, link: Link) -> None:
        settings = attachment.settings
        self._check(settings)
        self._group_id = settings.group_id
        within_s = self._options.default_api_timeout_ms / 1000
        if self.by_hand and self._was_attached:
            await self._read_by_hand(link, within_s)
        elif self.subscription and (self._was_attached or not self._sidecar.begins_subscribed):
            await self.asking.subscribe(self.subscription, within_s)
        self._was_attached = True
        self._absence.end()
        await self._grant()

    def _check(self, settings: pb.AttachResponse.Attached) -> None:
        if self._group_id and settings.group_id != self._group_id:
            raise errors.SidecarFailed(
                f"the sidecar is a member of group {settings.group_id!r}, and group_id is {self._group_id!r}: "
                "leave group_id out, or use the sidecar of that group"
            )
        if settings.ordering not in (pb.ORDERING_PARTITION, pb.ORDERING_UNSPECIFIED):
            raise errors.SidecarFailed(
                f"the sidecar delivers with {pb.Ordering.Name(settings.ordering)}, and a consumer reads partitions in "
                "order: set the ordering of the group to 'partition', or use @rota.handler"
            )

    async def _read_by_hand(self, link: Link, within_s: float) -> None:
        """A sidecar that was started anew knows nothing of what this consumer assigned to itself."""
        partitions = list(self.core.held)
        await self.asking.assign(partitions, within_s)
        if self.core.paused:
            await self.asking.pause(self.core.paused, within_s)
        positions = self.core.reached()
        if positions:
            void = await self.asking.seek(positions, within_s)
            for partition, offset in positions.items():
                self.core.sought(partition, offset, void)

    @override
    async def hear_event(self, event: pb.AttachResponse.Event) -> None:
        rebalance = words.rebalance_of(event, self._clock())
        self.core.heard(rebalance)
        for event_id in self.core.silent():
            await self._outgoing.send(words.acknowledgement(event_id))
        self._news.set()

    @override
    async def hear_error(self, error: pb.AttachResponse.PartitionError) -> None:
        failure = words.failure_of(error)
        if error.kind in words.RAISED:
            self.core.failed(failure)
            self._news.set()
        elif not self._sidecar.logs_here:
            log.warning("%s", failure.error)

    @override
    async def hear_records(self, delivery: pb.DeliverResponse) -> None:
        for part in delivery.partitions:
            for portion in words.portions_of(part):
                self.core.received(portion, part.tenure.number)
        self._refusals.log(delivery)
        self.taking.came()
        self._news.set()
        while self.core.buffer.size >= self._options.buffer_memory and not self._ends:
            self._room.clear()
            await self._room.wait()

    def _gone(self, error: errors.RotaError) -> None:
        self._absence.failed(error)
        self._outgoing.forget()
        self.core.disconnected(str(error))
        self._room.set()
        self._news.set()

    # Polling

    async def first_step(
        self, records_max: int, deadline_s: float, give: Give | None = None
    ) -> Rebalance | list[Portion]:
        """
        What was returned is finished, what waits of paused partitions goes back; then a step.

        In one go: from an application's thread each question costs two changes between threads.
        """
        number = self.taking.begin()
        self._begin()
        await self._finish()
        if surplus := self.core.surplus():
            await self.seek(surplus, self._options.default_api_timeout_ms / 1000, moved=False)
        await self._grant()
        return await self._step(number, records_max, deadline_s, give)

    async def step(
        self, records_max: int, deadline_s: float, give: Give | None = None
    ) -> Rebalance | list[Portion]:
        """
        What the application is told next, or the next records; none when there are none before the deadline.

        Records that come while it waits go to `give`, which spares turns of the loop; then nothing is returned.
        """
        return await self._step(self.taking.begin(), records_max, deadline_s, give)

    async def _step(
        self, number: int, records_max: int, deadline_s: float, give: Give | None
    ) -> Rebalance | list[Portion]:
        while self.taking.is_heard(number):
            self._raise_trouble()
            event = self.core.due()
            if event is not None:
                await self._begin_telling(event)
                return event
            if (error := self.core.failure()) is not None:
                raise error
            if taken := self.taking.take(records_max):
                return taken
            left_s = deadline_s - self._clock()
            if left_s <= 0 or not await self._more(number, left_s, records_max, give):
                break
        return []

    async def _more(self, number: int, within_s: float, records_max: int, give: Give | None) -> bool:
        """Whether there is something for this step to look at, before the deadline."""
        self._news.clear()
        if give is not None:
            self.taking.wait(records_max, give)
        try:
            async with asyncio.timeout(within_s):
                await self._news.wait()
        except TimeoutError:
            return False
        finally:
            given = self.taking.stop(number)
        return not given

    def _raise_trouble(self) -> None:
        if self._is_woken:
            self._is_woken = False
            raise errors.WokenUp("somebody called wakeup() on this consumer")
        if self._attaching.failed is not None:
            raise self._attaching.failed.with_traceback(None)
        self._absence.check()

    async def _begin_telling(self, event: Rebalance) -> None:
        if event.kind is not Kind.ASSIGNED or not event.partitions:
            self.core.begin(event, {})
            return
        try:
            positions = await self.asking.positions(event.partitions, POSITIONS_S)
            self.core.begin(event, positions)
            if not self._options.enable_auto_commit:
                await self._return_to_commits(positions)
        except errors.RotaError as error:
            log.debug("where partitions begin is asked again when somebody wants to know: %s", error)
            self.core.begin(event, {})

    async def _return_to_commits(self, positions: Mapping[TopicPartition, int]) -> None:
        """
        What an application before this one has read under the same sidecar, and did not commit, comes again.

        It has said that it was done with it when it polled again; its own commit counts.
        """
        if positions:
            committed = await self.asking.committed(positions, POSITIONS_S)
            moved = {
                place: each.offset for place, each in committed.items() if each.offset != positions[place]
            }
            if moved:
                await self.seek(moved, POSITIONS_S, moved=False)

    async def told(self, event: Rebalance) -> None:
        """The listener has returned: let the sidecar go on."""
        if self.core.end(event):
            await self._outgoing.send(words.acknowledgement(event.event_id))
        await self._grant()

    def wake(self) -> None:
        """The poll that waits, or else the next one, raises WokenUp."""
        self._is_woken = True
        self._news.set()

    async def _grant(self) -> None:
        if self._attaching.is_attached and (more := self.core.credit()):
            await self._outgoing.send(words.credit(more))

    def _begin(self) -> None:
        if not self._attaching.runs:
            self._attaching.begin(self.subscription)

    # What the application wants

    async def subscribe(self, subscription: Subscription, within_s: float) -> None:
        """Read these as a member of the group."""
        self.subscription = subscription
        self.core.subscribe()
        if self._attaching.runs:
            await self.asking.subscribe(subscription, within_s)
        else:
            self._begin()

    async def assign(self, partitions: Collection[TopicPartition], within_s: float) -> None:
        """Read these, outside of the group's assignment."""
        self.subscription = Subscription()
        self.by_hand = True
        await self._finish()
        await self._outgoing.flush()
        gone = self.core.held.keys() - set(partitions)
        self.core.assign(partitions)
        self._begin()
        if partitions or gone:
            await self.asking.assign(list(partitions), within_s)

    async def unsubscribe(self, within_s: float) -> None:
        """Be no member, read nothing."""
        was_by_hand, self.by_hand, self.subscription = self.by_hand, False, Subscription()
        self.core.assign(())
        if not self._attaching.runs:
            return
        if was_by_hand:
            await self.asking.assign((), within_s)
        else:
            await self.asking.subscribe(self.subscription, within_s)

    async def _finish(self) -> None:
        self.taking.settle()
        if finished := self.core.finish():
            await self._outgoing.finish(finished)

    async def seek(
        self, offsets: Mapping[TopicPartition, int], within_s: float, *, moved: bool = True
    ) -> None:
        """Return records from there on."""

        async def ask(there: Collection[TopicPartition], left_s: float) -> int:
            await self._outgoing.flush()
            return await self.asking.seek({each: offsets[each] for each in there}, left_s)

        void = await self._ask_about_what_stays(offsets, ask, within_s)
        for partition, offset in offsets.items():
            self.core.sought(partition, offset, void, moved=moved)
        self._room.set()
        await self._grant()

    async def pause(self, partitions: Collection[TopicPartition], within_s: float) -> None:
        """Return nothing of these."""
        await self._ask_about_what_stays(partitions, self.asking.pause, within_s)
        self.core.paused.update(partitions)

    async def resume(self, partitions: Collection[TopicPartition], within_s: float) -> None:
        """Return what comes of these again."""
        await self._ask_about_what_stays(partitions, self.asking.resume, within_s)
        self.core.paused.difference_update(partitions)
        self._news.set()

    async def _ask_about_what_stays(
        self,
        partitions: Collection[TopicPartition],
        ask: Callable[[Collection[TopicPartition], float], Awaitable[Answer]],
        within_s: float,
    ) -> Answer | None:
        """
        The answer; None when the sidecar has none of these any more.

        The application still has what it was not told to have lost: that it says what is to become of it is no mistake.
        """
        deadline_s = self._clock() + within_s
        while True:
            there = list(partitions) if self.by_hand else self.core.there(partitions)
            if not there:
                return None
            left_s = max(deadline_s - self._clock(), 0)
            try:
                return await ask(there, left_s)
            except (errors.IllegalGeneration, errors.UnknownTopicOrPartition):
                if self.by_hand or not await self._hears_of_a_loss(there, left_s):
                    raise

    async def _hears_of_a_loss(self, partitions: Collection[TopicPartition], within_s: float) -> bool:
        """The sidecar says so in an event, which may be behind its answer."""
        try:
            async with asyncio.timeout(within_s):
                while len(self.core.there(partitions)) == len(partitions):
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            return False
        return True

    async def position(self, partition: TopicPartition, within_s: float) -> int:
        """The next offset that is returned."""
        self._begin()

        async def look() -> int:
            if (known := self.core.position(partition)) is not None:
                return known
            if not self.by_hand and not self.core.there([partition]):
                raise errors.IllegalGeneration(f"{partition.topic}[{partition.partition}]")
            found = await self.asking.positions([partition], within_s)
            # Records that came meanwhile know better.
            if (known := self.core.position(partition, found.get(partition))) is not None:
                return known
            raise errors.CoordinatorNotAvailable(
                f"{partition.topic}[{partition.partition}] has no position yet"
            )

        return await until(look, deadline_s=self._clock() + within_s, clock=self._clock)

    def group_metadata(self) -> GroupMetadata:
        """What this member is to its group, as far as the application may speak for it."""
        tenure = (None if self.by_hand else self.core.tenure) or Tenure(NONE, "", NONE, NONE)
        return GroupMetadata(
            group_id=self._group_id,
            incarnation=tenure.incarnation,
            generation_id=tenure.generation_id,
            member_id=tenure.member_id,
            group_instance_id=self._options.group_instance_id,
        )

    # Commits

    async def commit(self, offsets: Offsets | None, within_s: float) -> None:
        """Commit these, or as far as the application has come; asked again while that may help."""
        wanted = self.wanted(offsets)
        deadline_s = self._clock() + within_s
        if self._commits_waiting:
            # A commit that was asked for before must not come behind this one.
            await asyncio.wait(self._commits_waiting, timeout=within_s)
        async with self._committing:
            for tenure, some in self._tenures(wanted).items():

                async def ask(tenure: int = tenure, some: Offsets = some) -> None:
                    if self._tenures(some).keys() != {tenure}:
                        raise errors.IllegalGeneration(", ".join(f"{each[0]}[{each[1]}]" for each in some))
                    refused = await self._commit_in(tenure, some, max(deadline_s - self._clock(), 0))
                    if refused is not None:
                        raise refused

                await until(ask, deadline_s=deadline_s, clock=self._clock)
        if wanted:
            self.outcomes.append((None, wanted, None))

    async def _commit_in(self, tenure: int, offsets: Offsets, within_s: float) -> errors.RotaError | None:
        await self._outgoing.flush()
        refused = await self.asking.commit(offsets, tenure, within_s)
        self._committed(offsets)
        return refused

    def _committed(self, offsets: Offsets) -> Sequence[Finished]:
        return self.core.committed({partition: each.offset for partition, each in offsets.items()})

    def wanted(self, offsets: Offsets | None) -> Offsets:
        """What a commit is about."""
        self.taking.settle()
        if offsets is not None:
            return dict(offsets)
        return {partition: OffsetAndMetadata(offset) for partition, offset in self.core.reached().items()}

    def _tenures(self, offsets: Offsets) -> Mapping[int, Offsets]:
        """By the tenure in which their partitions were received; 0 = whatever the sidecar has now."""
        if self.by_hand:
            return {0: offsets} if offsets else {}
        tenures = self.core.tenures(offsets)
        for topic, partition in tenures.get(NONE, ()):
            raise errors.IllegalGeneration(f"{topic}[{partition}]")
        return {number: {each: offsets[each] for each in some} for number, some in tenures.items()}

    def commit_later(self, offsets: Offsets | None, callback: OnCommit | None) -> None:
        """Commit after the commits before; a later call reports the outcome."""
        if len(self._commits_waiting) >= COMMITS_MAX:
            raise errors.BufferExhausted(
                f"{COMMITS_MAX:,} commits wait for their outcome: commit less often, or with commit()"
            )
        wanted = self.wanted(offsets)
        # Before the answer: the next poll may come first.
        task = asyncio.create_task(self._commit_once(wanted, self._committed(wanted), callback))
        self._commits_waiting.add(task)
        task.add_done_callback(self._commits_waiting.discard)

    async def _commit_once(
        self, wanted: Offsets, said: Sequence[Finished], callback: OnCommit | None
    ) -> None:
        failed: errors.RotaError | None = None
        left = set(wanted)
        async with self._committing:
            try:
                within_s = self._options.default_api_timeout_ms / 1000
                for tenure, some in self._tenures(wanted).items():
                    refused = await self._commit_in(tenure, some, within_s)
                    left -= some.keys()
                    failed = failed or refused
            except errors.RotaError as error:
                failed = error
        # These are done, though the sidecar has not taken their offsets.
        if unsaid := [each for each in said if each.partition in left]:
            await self._outgoing.finish(unsaid)
        self.outcomes.append((callback, wanted, failed))
        self._news.set()

    # The end

    async def finish(self, within_s: float, *, commits: bool) -> None:
        """What was returned is done; where the consumer commits by itself, that is committed. Nothing else is returned."""
        self.taking.begin()
        await self._finish()
        if commits and self.core.reached() and self._absence.error is None and self._attaching.runs:
            try:
                await self.commit(None, within_s)
            except errors.RotaError as error:
                log.warning(
                    "the last offsets could not be committed, and their records come again: %s", error
                )

    async def close(self, within_s: float) -> None:
        """Wait for commits, go in good order, end the consumer's own sidecar."""
        self._ends = True
        self._room.set()
        if self._commits_waiting:
            await asyncio.wait(self._commits_waiting, timeout=within_s)
        await self._outgoing.flush()
        await self._attaching.end()
        await self._sidecar.close()
