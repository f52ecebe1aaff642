"""
A consumer group in virtual time: partitions, pods, rebalances and records, in steps of STEP_S.

Each step takes the events of pods that are due (a pod joins, a pod leaves), lets the real assignor plan the partitions' owners, and then
processes what has arrived. Records are a fluid; a pod processes those of its partitions one after the other, and no partition is processed
while it moves. Pods finish their records before they leave, and commit every COMMIT_S, each in a phase of its own.
"""

import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from rota_sidecar.core.assignors.model import NO_GENERATION, Group, Subscriber, Topic
from rota_sidecar.core.assignors.sticky import CooperativeSticky
from tests.simulation.autoscaling.figures import (
    COMMIT_S,
    NODE_SPREAD,
    PAUSE_S,
    POD_SPREAD_S,
    RECORDS_PER_S,
    SIDECAR_START_S,
    Range,
)
from tests.simulation.autoscaling.shares import fair_shares
from tests.simulation.autoscaling.traces import PARTITIONS, STEP_S, Trace

TOPIC = "orders"
# Rounds of the cooperative protocol until no partition is withheld.
ROUNDS_MAX = 3


class PodState(Enum):
    """State of a pod, in the order in which it passes them."""

    STARTING = "starting"
    RUNNING = "running"
    # Finishes its records, and starts no others.
    DRAINING = "draining"


@dataclass
class Pod:
    """A pod of the group's workload, until it has left."""

    name: str
    number: int
    # Records per second while it is busy.
    rate: float
    # Time since its last commit at the end of a step, as a share of COMMIT_S.
    phase: float
    joins_s: float
    state: PodState = PodState.STARTING
    # Set once it is to go; it is counted until then.
    leaves_s: float | None = None
    partitions: list[int] = field(default_factory=list)
    done: float = 0.0
    busy_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Rebalance:
    """A rebalance that has happened, with its duration."""

    begin_s: float
    pause_s: float
    generation: int

    @property
    def end_s(self) -> float:
        return self.begin_s + self.pause_s


class ModelGroup:
    """Invariant: each partition has at most one owner, and processed <= arrived."""

    def __init__(self, trace: Trace, replicas: int, chance: random.Random) -> None:
        self.trace = trace
        self.now_s = 0.0
        # Desired number.
        self.replicas = replicas
        self.pods: list[Pod] = []
        self.generation = 0
        self.rebalances: list[Rebalance] = []
        self.arrived = [0.0] * PARTITIONS
        self.processed = [0.0] * PARTITIONS
        self._done_last = [0.0] * PARTITIONS
        self._owners: list[Pod | None] = [None] * PARTITIONS
        self._paused_s = [0.0] * PARTITIONS
        # Ends of steps at which a partition that lags had received so many records.
        self._marks: list[deque[tuple[float, float]]] = [deque() for _ in range(PARTITIONS)]
        self._assignor = CooperativeSticky()
        self._chance = chance
        self._next_number = 0
        self.pod_seconds = 0.0
        self.add_pods(replicas)
        for pod in self.pods:
            pod.joins_s = 0.0
        self._rebalance(self._due(STEP_S))
        # The group was there before the trace begins.
        self.rebalances.clear()
        self._paused_s = [0.0] * PARTITIONS

    # ------------------------------------------------------------------------------------------ pods

    def draw(self, figure: Range) -> float:
        """Draw a figure."""
        return self._chance.uniform(*figure)

    def add_pods(self, count: int) -> None:
        """Start pods; those of one change start at nearly the same time."""
        base_s = self.now_s + self.draw(self.trace.pod_start_s)
        for _ in range(count):
            rate = RECORDS_PER_S * (1 + self._chance.uniform(-NODE_SPREAD, NODE_SPREAD))
            joins_s = base_s + self.draw(POD_SPREAD_S) + self.draw(SIDECAR_START_S)
            pod = Pod(f"orders-{self._next_number}", self._next_number, rate, self._chance.random(), joins_s)
            self._next_number += 1
            self.pods.append(pod)

    def remove(self, pod: Pod, leaves_s: float) -> None:
        """Let a pod finish and leave at a time; one that has not joined goes at once."""
        if pod.state is PodState.STARTING:
            self.pods.remove(pod)
            return
        pod.state = PodState.DRAINING
        pod.leaves_s = leaves_s

    def staying(self) -> list[Pod]:
        """Return the pods that are not to go, oldest first."""
        return [each for each in self.pods if each.leaves_s is None]

    def members(self) -> list[Pod]:
        """Return the pods that are in the group."""
        return [each for each in self.pods if each.state is not PodState.STARTING]

    def is_rebalancing(self) -> bool:
        """Return whether the last rebalance still lasts."""
        return bool(self.rebalances) and self.rebalances[-1].end_s > self.now_s

    def _due(self, end_s: float) -> list[tuple[float, Pod]]:
        """Return joins and leaves before a time, in their order."""
        found = []
        for pod in self.pods:
            if pod.state is PodState.STARTING and pod.joins_s < end_s:
                found.append((pod.joins_s, pod))
            elif pod.leaves_s is not None and pod.leaves_s < end_s:
                found.append((pod.leaves_s, pod))
        return sorted(found, key=lambda each: (each[0], each[1].number))

    def _rebalance(self, due: list[tuple[float, Pod]]) -> None:
        """Rebalance once for all joins and leaves that come while a rebalance lasts."""
        while due:
            begin_s = max(due[0][0], self.now_s)
            pause_s = self.draw(PAUSE_S)
            together = [pod for at_s, pod in due if at_s <= begin_s + pause_s]
            due = due[len(together) :]
            for pod in together:
                if pod.state is PodState.STARTING:
                    pod.state = PodState.RUNNING
                elif pod in self.pods:
                    self.pods.remove(pod)
            self._assign(begin_s + pause_s)
            self.generation += 1
            self.rebalances.append(Rebalance(begin_s, pause_s, self.generation))

    def _assign(self, until_s: float) -> None:
        """Plan owners as the members' leader does; partitions that move are processed again at a time."""
        members = {each.name: each for each in self.members()}
        topics = {TOPIC: Topic(PARTITIONS)}
        owned = {name: sorted(pod.partitions) for name, pod in members.items()}
        for _ in range(ROUNDS_MAX):
            subscribers = {
                name: Subscriber((TOPIC,), {TOPIC: lists} if lists else {}, self.generation or NO_GENERATION)
                for name, lists in owned.items()
            }
            plan = self._assignor.assign(Group(subscribers, topics))
            owned = {name: list(lists.get(TOPIC, ())) for name, lists in plan.items()}
            if sum(map(len, owned.values())) == PARTITIONS:
                break
        before, self._owners = self._owners, [None] * PARTITIONS
        for pod in self.pods:
            pod.partitions = owned.get(pod.name, [])
            for partition in pod.partitions:
                self._owners[partition] = pod
        for partition, owner in enumerate(self._owners):
            if owner is not before[partition]:
                self._paused_s[partition] = until_s
                # The former owner has committed when it gave the partition up.
                self._done_last[partition] = 0.0

    # --------------------------------------------------------------------------------------- records

    def step(self, arrivals: Sequence[float]) -> None:
        """Go on by STEP_S."""
        if any(each.state is not PodState.RUNNING for each in self.pods):
            self._rebalance(self._due(self.now_s + STEP_S))
        begin_s, self.now_s = self.now_s, self.now_s + STEP_S
        self.pod_seconds += STEP_S * len(self.pods)
        arrived, processed, done_last = self.arrived, self.processed, self._done_last
        for partition, records in enumerate(arrivals):
            arrived[partition] += records
            done_last[partition] = 0.0
        for pod, capacity, is_limited in self._capacities(begin_s):
            self._process(pod, capacity, begin_s, is_limited=is_limited)
        for partition, marks in enumerate(self._marks):
            if arrived[partition] - processed[partition] >= 1:
                self._mark(partition, begin_s, arrivals[partition])
            elif marks:
                marks.clear()

    def _mark(self, partition: int, begin_s: float, records: float) -> None:
        """Note when the records of a partition that lags have arrived."""
        marks, arrived = self._marks[partition], self.arrived[partition]
        if not marks:
            marks.append((begin_s, arrived - records))
        marks.append((self.now_s, arrived))
        while len(marks) > 1 and marks[1][1] <= self.processed[partition]:
            marks.popleft()

    def _capacities(self, begin_s: float) -> Iterator[tuple[Pod, float, bool]]:
        """Yield the records that each pod can process within a step, and whether the downstream system bounds them."""
        capacities = []
        for pod in self.pods:
            if pod.state is not PodState.RUNNING or not pod.partitions:
                continue
            idle_s = min(self._paused_s[each] for each in pod.partitions) - begin_s
            capacities.append((pod, pod.rate * max(0.0, STEP_S - max(0.0, idle_s))))
        limit = self.trace.downstream_rate
        if limit is None:
            yield from ((pod, capacity, False) for pod, capacity in capacities)
            return
        wanted = [
            min(capacity, sum(self.arrived[each] - self.processed[each] for each in pod.partitions))
            for pod, capacity in capacities
        ]
        given = fair_shares(wanted, limit * STEP_S)
        for (pod, capacity), want, got in zip(capacities, wanted, given, strict=True):
            is_limited = got < want - 1e-9
            yield pod, got if is_limited else capacity, is_limited

    def _process(self, pod: Pod, capacity: float, begin_s: float, *, is_limited: bool) -> None:
        """Process records of a pod's partitions, the same number of each as long as there are some."""
        wanted = []
        for partition in pod.partitions:
            records = self.arrived[partition] - self.processed[partition]
            idle_s = self._paused_s[partition] - begin_s
            if idle_s > 0:
                records = min(records, pod.rate * max(0.0, STEP_S - idle_s))
            wanted.append(records)
        total = sum(wanted)
        given = wanted if total <= capacity else fair_shares(wanted, capacity)
        for partition, records in zip(pod.partitions, given, strict=True):
            self.processed[partition] += records
            self._done_last[partition] = records
        done = min(total, capacity)
        pod.done += done
        # A downstream system at its limit answers more slowly.
        pod.busy_s += STEP_S if is_limited else done / pod.rate

    # ----------------------------------------------------------------------------------- observation

    def backlog(self) -> float:
        """Return the number of records that are not processed."""
        return sum(self.arrived) - sum(self.processed)

    def lags(self) -> list[int]:
        """Return the numbers of uncommitted records, by partition."""
        return [int(self.arrived[each]) - self.committed(each) for each in range(PARTITIONS)]

    def committed(self, partition: int) -> int:
        """Return the committed offset of a partition."""
        pod = self._owners[partition]
        share = 0.0 if pod is None or pod.state is PodState.DRAINING else pod.phase * COMMIT_S / STEP_S
        return int(self.processed[partition] - share * self._done_last[partition])

    def owner(self, partition: int) -> Pod | None:
        """Return the owner of a partition."""
        return self._owners[partition]

    def age_s(self, partition: int) -> float:
        """Return the age of the oldest record of a partition that is not processed, in seconds; 0: there is none."""
        marks = self._marks[partition]
        if len(marks) < 2:
            return 0.0
        (began_s, before), (ended_s, after) = marks[0], marks[1]
        share = (self.processed[partition] - before) / (after - before) if after > before else 0.0
        return self.now_s - (began_s + max(0.0, min(1.0, share)) * (ended_s - began_s))

    def oldest_s(self) -> float:
        """Return the age of the oldest record that is not processed."""
        return max((self.age_s(each) for each in range(PARTITIONS) if self._marks[each]), default=0.0)
