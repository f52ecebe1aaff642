"""
The driver's membership: an attachment to the sidecar that reads itself, and the batch in flight.

A thread handles the sidecar's events in their order. `ASSIGNED` is acknowledged when the partitions' positions are known (with a
store: when its fence is raised and its positions are set), `REVOKING` when the batch in flight that has such a partition is
committed or abandoned, at its deadline in any case. Meanwhile no other batch begins with these partitions.

Spark calls `foreachBatch` in another thread, which begins and ends batches here.
"""

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from queue import SimpleQueue
from typing import NamedTuple

import grpc

from rota import GroupMetadata
from rota_proto.sidecar.v1 import sidecar_pb2 as pb
from rota_proto.sidecar.v1.sidecar_pb2_grpc import ConsumerStub
from rota_spark.core.plan import Partition, Plan, Range, current, ends
from rota_spark.sidecar_calls import NotCommitted, SidecarAway, SidecarCalls

log = logging.getLogger("rota.spark")
# Interval at which positions that the sidecar does not know yet are asked for again.
POLL_S = 0.05
CLOSE_S = 10.0

Event = pb.AttachResponse.Event


class MembershipFailed(Exception):
    """The sidecar refused or ended the attachment; the message has the remedy."""


class Member(NamedTuple):
    """The member of a group, as a sink needs it."""

    calls: SidecarCalls
    group_id: str

    def group(self, tenure: pb.Tenure) -> GroupMetadata:
        """Return the identity in a tenure, as a value to fence on."""
        return GroupMetadata(
            group_id=self.group_id,
            incarnation=tenure.incarnation,
            generation_id=tenure.generation_id,
            member_id=tenure.member_id,
        )


# Called with the partitions of an assignment and the member's identity in it, before it is acknowledged.
OnAssigned = Callable[[Collection[Partition], GroupMetadata, Member], None]


class Batch(NamedTuple):
    """The ranges of a plan that this member processes, each partition under the number of its tenure."""

    ranges: tuple[Range, ...]
    # Those of the plan that do not count: of another batch, of a partition that is leaving, from before a seek.
    dropped: tuple[Range, ...]
    tenures: Mapping[Partition, int]

    @property
    def records(self) -> int:
        return sum(each.records for each in self.ranges)


class Membership:
    """
    An attachment. Invariant: a partition is in at most one batch in flight, and `REVOKING` of it is acknowledged after that.

    `on_assigned` runs on the events' thread. `on_failed` is called once, there too, if the attachment ends without `close`.
    """

    def __init__(
        self,
        calls: SidecarCalls,
        client_id: str,
        on_failed: Callable[[MembershipFailed], None],
        on_assigned: OnAssigned,
    ) -> None:
        self._calls = calls
        self._on_assigned = on_assigned
        self._on_failed = on_failed
        # With the group's name once it is attached.
        self.member = Member(calls, "")
        # Number of the tenure of each partition whose ASSIGNED was acknowledged.
        self._tenures: dict[Partition, int] = {}
        self._leaving: set[Partition] = set()
        self._in_flight: frozenset[Partition] = frozenset()
        self._changed = threading.Condition()
        self._assigned = threading.Event()
        self._closing = threading.Event()
        self._failure: MembershipFailed | None = None
        self._requests: SimpleQueue[pb.AttachRequest | None] = SimpleQueue()
        # The driver commits; the sidecar reads no records.
        hello = pb.AttachRequest.Hello(client_id=client_id, reads_itself=True, commits_itself=True)
        self._requests.put(pb.AttachRequest(hello=hello))
        self._thread = threading.Thread(target=self._run, name="rota-membership", daemon=True)

    def start(self, within_s: float) -> None:
        """Attach, and return when the member has its first assignment. Raises MembershipFailed, also after `within_s`."""
        self._thread.start()
        if not self._assigned.wait(within_s):
            self._fail(
                "the group has assigned nothing to this member in time: check that the coordinator runs"
            )
        if self._failure is not None:
            raise self._failure

    @property
    def tenures(self) -> Mapping[Partition, int]:
        """Number of the tenure of each partition."""
        with self._changed:
            return dict(self._tenures)

    def report(self, report: pb.AttachRequest.Report) -> None:
        """Send a report to the sidecar, if it is still attached."""
        self._requests.put(pb.AttachRequest(report=report))

    def begin(self, plan: Plan) -> Batch:
        """Begin a batch with those ranges of the plan that still count. Raises SidecarAway."""
        with self._changed:
            held = {each: number for each, number in self._tenures.items() if each not in self._leaving}
            self._in_flight = frozenset(each.of for each in plan.ranges) & held.keys()
        positions = self._calls.positions(self._in_flight) if self._in_flight else {}
        ranges = current(plan, {each: at for each, at in positions.items() if each in self._in_flight})
        dropped = tuple(each for each in plan.ranges if each not in ranges)
        with self._changed:
            self._in_flight = frozenset(each.of for each in ranges)
            self._changed.notify_all()
        return Batch(ranges, dropped, {each.of: held[each.of] for each in ranges})

    def commit(self, batch: Batch) -> dict[Partition, int]:
        """
        Commit the ends of a batch's ranges; return those that are committed.

        A partition that was lost meanwhile is not, nor one whose position was sought: the next batch begins where the seek says.
        """
        committed: dict[Partition, int] = {}
        try:
            ranges = current(Plan(0, batch.ranges), self._calls.positions(batch.tenures.keys()))
        except SidecarAway:
            # The commit is retried longer than a look at positions.
            ranges = batch.ranges
        for number in sorted({batch.tenures[each.of] for each in ranges}):
            offsets = ends([each for each in ranges if batch.tenures[each.of] == number])
            for part in self._commit(offsets, number):
                committed[part] = offsets[part]
        return committed

    def _commit(self, offsets: Mapping[Partition, int], tenure: int) -> Iterable[Partition]:
        try:
            self._calls.commit(offsets, tenure)
        except NotCommitted as error:
            if len(offsets) == 1:
                log.warning("the batch's records will be processed again: %s", error)
                return []
            # One partition of them is another member's by now: the others are committed one by one.
            return [each for each in offsets if self._commit({each: offsets[each]}, tenure)]
        except SidecarAway as error:
            log.warning(
                "the batch's records will be processed again: the commit was not answered (%s)", error
            )
            return []
        return list(offsets)

    def end(self) -> None:
        """End the batch in flight: it is committed, abandoned, or failed."""
        with self._changed:
            self._in_flight = frozenset()
            self._changed.notify_all()

    def close(self) -> None:
        """Detach cleanly."""
        self._closing.set()
        self.end()
        self._requests.put(pb.AttachRequest(goodbye=pb.AttachRequest.Goodbye()))
        if self._thread.ident is not None:
            self._thread.join(CLOSE_S)
        self._requests.put(None)

    def _run(self) -> None:
        try:
            attachment = ConsumerStub(self._calls.channel).Attach(iter(self._requests.get, None))
            for response in attachment:
                if response.HasField("attached"):
                    self.member = Member(self._calls, response.attached.group_id)
                elif response.HasField("event"):
                    self._handle(response.event, attachment)
            self._fail("the sidecar has ended the attachment")
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.ALREADY_EXISTS:
                self._fail(
                    "another query or application is attached to this sidecar: stop it first, or give this query a sidecar "
                    "of its own"
                )
            else:
                self._fail(f"the sidecar has ended the attachment ({error.details()}): see its log")
        except Exception as error:  # noqa: BLE001 - the thread's edge: the query has to end with it
            self._fail(f"an event of the sidecar could not be handled ({error})")

    def _fail(self, message: str) -> None:
        if self._closing.is_set() or self._failure is not None:
            return
        self._failure = MembershipFailed(message)
        self._assigned.set()
        self._on_failed(self._failure)

    def _handle(self, event: Event, attachment: grpc.RpcContext) -> None:
        partitions = [(each.topic, each.partition) for each in event.partitions]
        match event.kind:
            case pb.ASSIGNED:
                while partitions and not self._take(partitions, event.tenure):
                    # The end of the attachment is the next response.
                    if not attachment.is_active() or self._closing.wait(POLL_S):
                        return
                with self._changed:
                    self._tenures |= dict.fromkeys(partitions, event.tenure.number)
                self._acknowledge(event)
                self._assigned.set()
            case pb.REVOKING:
                self._release(partitions, event.deadline_ms / 1000)
                self._acknowledge(event)
            case pb.REVOKED | pb.LOST:
                with self._changed:
                    for each in partitions:
                        self._tenures.pop(each, None)
                        self._leaving.discard(each)
                if event.kind == pb.LOST:
                    log.warning("lost %s partitions: %s", len(partitions), event.reason)
                    self._acknowledge(event)
            case _:
                log.warning("unknown event %s of the sidecar", event.kind)

    def _take(self, partitions: Collection[Partition], tenure: pb.Tenure) -> bool:
        """Set the positions of assigned partitions; return False if that has to be tried again."""
        try:
            if not self._calls.are_known(partitions):
                return False
            self._on_assigned(partitions, self.member.group(tenure), self.member)
        except SidecarAway:
            return False
        return True

    def _release(self, partitions: Collection[Partition], within_s: float) -> None:
        with self._changed:
            self._leaving.update(partitions)
            done = self._changed.wait_for(lambda: self._in_flight.isdisjoint(partitions), within_s)
        if not done:
            log.warning(
                "the batch in flight was not done within %s s, and partitions of it go to others", within_s
            )

    def _acknowledge(self, event: Event) -> None:
        acknowledge = pb.AttachRequest.Acknowledge(event_id=event.event_id)
        self._requests.put(pb.AttachRequest(acknowledge=acknowledge))
