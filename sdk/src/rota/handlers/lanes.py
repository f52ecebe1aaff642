"""
Order of the handlers' jobs: which record is begun next, and which verdict it gets. Pure; the runner performs it.

With ordering `partition` the sidecar dispatches several records of a partition at once, and they wait here for each other;
otherwise it dispatches only records that may begin at once.
"""

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rota.records import Record, TopicPartition


class Job(NamedTuple):
    """A record to process, with its delivery epoch."""

    topic_partition: TopicPartition
    delivery_epoch: int
    record: Record[Any, Any]
    turn: int = 0
    # Of `Lanes.attachment` when it was dispatched: each process of the sidecar numbers its delivery epochs from 1.
    attachment: int = 0


@dataclass(slots=True)
class Lane:
    """The jobs of one partition in one delivery epoch."""

    delivery_epoch: int
    waiting: deque[Job] = field(default_factory=deque)
    # Records dispatched in this turn or an earlier one were in transit when a record before them was retried,
    # and are retried too.
    voided_turn: int = -1
    running: int = 0


class Lanes:
    """Lanes of one application. Invariant: in partition order at most one job of a lane runs."""

    def __init__(self, *, in_order: bool, room: int) -> None:
        self._in_order = in_order
        self._room = room
        self._credit = 0
        self._lanes: dict[TopicPartition, Lane] = {}
        self.running = 0
        # Number of the attachment to the sidecar; rises with each.
        self.attachment = 0

    def on_records(self, jobs: Iterable[Job]) -> list[Job]:
        """Take dispatched records; return the jobs to begin now."""
        begun: list[Job] = []
        for job in jobs:
            self._credit -= 1
            lane = self._lanes.get(job.topic_partition)
            if lane is None or lane.delivery_epoch < job.delivery_epoch:
                # A running job of an earlier epoch gets its verdict there, and changes nothing here.
                lane = self._lanes[job.topic_partition] = Lane(job.delivery_epoch)
            elif job.delivery_epoch < lane.delivery_epoch or job.turn <= lane.voided_turn:
                continue
            lane.waiting.append(job)
            begun += self._next(lane)
        return begun

    def drop(self, records: int) -> None:
        """Take dispatched records that are not processed here: their credit is used up."""
        self._credit -= records

    def _next(self, lane: Lane) -> list[Job]:
        begun: list[Job] = []
        while lane.waiting and not (self._in_order and lane.running):
            begun.append(lane.waiting.popleft())
            lane.running += 1
        self.running += len(begun)
        return begun

    def on_verdict(self, job: Job, *, is_retry: bool) -> list[Job]:
        """Take a verdict; return the jobs to begin now. In order, all jobs after a retried record are retried too."""
        self.running -= 1
        lane = self._lanes.get(job.topic_partition)
        if not self.is_current(job) or lane is None or lane.delivery_epoch != job.delivery_epoch:
            return []
        lane.running -= 1
        if self._in_order and is_retry:
            lane.voided_turn = job.turn
            lane.waiting.clear()
        return self._next(lane)

    def is_current(self, job: Job) -> bool:
        """Return whether the attachment lasts that dispatched the job; otherwise its record is dispatched again."""
        return job.attachment == self.attachment

    def stop(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Begin no more jobs of these partitions, or of any; running jobs continue."""
        for topic_partition, lane in self._lanes.items():
            if partitions is None or topic_partition in partitions:
                lane.waiting.clear()

    def is_idle(self, partitions: Collection[TopicPartition]) -> bool:
        """Return whether no job of these partitions runs."""
        return not any(
            lane.running for topic_partition, lane in self._lanes.items() if topic_partition in partitions
        )

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Drop the lanes of partitions that are no longer owned."""
        for topic_partition in partitions:
            self._lanes.pop(topic_partition, None)

    def credit(self) -> int:
        """Return the credit to grant to the sidecar now; 0 until half of the room is free."""
        held = self.running + sum(len(lane.waiting) for lane in self._lanes.values())
        more = self._room - held - self._credit
        if more * 2 < self._room:
            return 0
        self._credit += more
        return more

    def on_disconnect(self) -> None:
        """Drop everything: the sidecar is gone, and will send all records again."""
        self._lanes.clear()
        self._credit = 0
        self.attachment += 1
