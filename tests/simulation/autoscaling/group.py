"""
A consumer group in virtual time: partitions, pods, rebalances and records, in steps of STEP_S, or shorter ones.

Each step takes the events that are due (a pod joins, a pod leaves, a rebalance was ordered), lets the real assignor plan the partitions'
owners, and then
processes what has arrived. Records are a fluid; a pod processes those of its partitions one after the other, and no partition is processed
while it moves. Pods finish their records before they leave, and commit every COMMIT_S, each in a phase of its own.
"""

import random
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from rota_sidecar.core.assignors.load_aware import LoadAwareSticky
from rota_sidecar.core.assignors.model import NO_GENERATION, Group, Subscriber, Topic
from rota_sidecar.core.assignors.sticky import CooperativeSticky
from tests.simulation.autoscaling.figures import (
    COMMIT_S,
    IN_CLUSTER,
    NODE_SPREAD,
    RECORDS_PER_S,
    SIDECAR_START_S,
    Range,
    Setting,
)
from tests.simulation.autoscaling.shares import fair_shares
from tests.simulation.autoscaling.traces import DEFAULT_STRATEGY, PARTITIONS, STEP_S, Trace

TOPIC = "orders"
ASSIGNORS: Mapping[str, type[CooperativeSticky | LoadAwareSticky]] = {
    each.name: each for each in (CooperativeSticky, LoadAwareSticky)
}
# Weight of the newest rate in the sidecars' average, which has a look every STEP_S.
RATE_WEIGHT = 0.3
# Time for which arrived and processed records are kept: what a view shows is up to one commit and one look old.
ENDS_KEPT_S = 15
ARRIVED, PROCESSED = 0, 1
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
    # As they were at the end of the step before.
    done_before: float = 0.0
    busy_before_s: float = 0.0

    def counters(self, interval_s: float, step_s: int) -> tuple[float, float]:
        """Return the records done and the busy time of its last report, which it sends at intervals from its start on."""
        share = self.phase * COMMIT_S % interval_s / step_s
        done = self.done - share * (self.done - self.done_before)
        return done, self.busy_s - share * (self.busy_s - self.busy_before_s)


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

    def __init__(
        self,
        trace: Trace,
        replicas: int,
        chance: random.Random,
        strategy: str = DEFAULT_STRATEGY,
        setting: Setting = IN_CLUSTER,
        step_s: int = STEP_S,
    ) -> None:
        self.trace = trace
        self.setting = setting
        self.step_s = step_s
        self._rate_weight = 1 - (1 - RATE_WEIGHT) ** (step_s / STEP_S)
        self.now_s = 0.0
        # Desired number.
        self.replicas = replicas
        self.pods: list[Pod] = []
        self.generation = 0
        self.rebalances: list[Rebalance] = []
        self.arrived = [0.0] * PARTITIONS
        self.processed = [0.0] * PARTITIONS
        # Ends of the last steps: arrived and processed records, the newest last.
        begin = [0.0] * PARTITIONS, [0.0] * PARTITIONS
        self._ends: deque[tuple[list[float], list[float]]] = deque([begin], maxlen=ENDS_KEPT_S // step_s)
        # Processed when the last owner took it over: the former one has committed that.
        self._taken_over = [0.0] * PARTITIONS
        self._owners: list[Pod | None] = [None] * PARTITIONS
        self._paused_s = [0.0] * PARTITIONS
        # Ends of steps at which a partition that lags had received so many records.
        self._marks: list[deque[tuple[float, float]]] = [deque() for _ in range(PARTITIONS)]
        self.strategy = strategy
        self._assignor = ASSIGNORS[strategy]()
        # As sidecars average them.
        self._rates = [0.0] * PARTITIONS
        # A rebalance was ordered, and has not begun.
        self._is_ordered = False
        self._chance = chance
        self._next_number = 0
        self.pod_seconds = 0.0
        self.add_pods(replicas)
        for pod in self.pods:
            pod.joins_s = 0.0
        self._rebalance(self._due(self.step_s))
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
            joins_s = base_s + self.draw(self.setting.pod_spread_s) + self.draw(SIDECAR_START_S)
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

    def order_rebalance(self) -> None:
        """Let the leader join again: the group rebalances with the members that it has."""
        self._is_ordered = True

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
        """Rebalance once for all joins and leaves that come while a rebalance lasts, and for an order at the begin of the step."""
        while due or self._is_ordered:
            begin_s = self.now_s if self._is_ordered else max(due[0][0], self.now_s)
            self._is_ordered = False
            pause_s = self.draw(self.setting.pause_s)
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
            subscribers = {name: self._subscriber(members[name], lists) for name, lists in owned.items()}
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
                self._taken_over[partition] = self.processed[partition]

    def _subscriber(self, pod: Pod, owned: Sequence[int]) -> Subscriber:
        """Return a member as it joins, with the rates of what it owns and has revoked; not each strategy looks at them."""
        lists = {TOPIC: owned} if owned else {}
        if not self.generation:
            return Subscriber((TOPIC,), lists, NO_GENERATION)
        rates = {TOPIC: [self._rates[each] for each in owned]} if owned else {}
        former = {each: self._rates[each] for each in pod.partitions if each not in owned}
        return Subscriber(
            (TOPIC,), lists, self.generation, rates=rates, former={TOPIC: former} if former else {}
        )

    # --------------------------------------------------------------------------------------- records

    def step(self, arrivals: Sequence[float]) -> None:
        """Go on by one step."""
        if self._is_ordered or any(each.state is not PodState.RUNNING for each in self.pods):
            self._rebalance(self._due(self.now_s + self.step_s))
        begin_s, self.now_s = self.now_s, self.now_s + self.step_s
        self.pod_seconds += self.step_s * len(self.pods)
        arrived, processed = self.arrived, self.processed
        for partition, records in enumerate(arrivals):
            arrived[partition] += records
            self._rates[partition] += self._rate_weight * (records / self.step_s - self._rates[partition])
        for pod in self.pods:
            pod.done_before, pod.busy_before_s = pod.done, pod.busy_s
        for pod, capacity, is_limited in self._capacities(begin_s):
            self._process(pod, capacity, begin_s, is_limited=is_limited)
        for partition, marks in enumerate(self._marks):
            if arrived[partition] - processed[partition] >= 1:
                self._mark(partition, begin_s, arrivals[partition])
            elif marks:
                marks.clear()
        self._ends.append((arrived.copy(), processed.copy()))

    def _mark(self, partition: int, begin_s: float, records: float) -> None:
        """Note when the records of a partition that lags have arrived, as far as they may be uncommitted."""
        marks, arrived = self._marks[partition], self.arrived[partition]
        if not marks:
            marks.append((begin_s, arrived - records))
        marks.append((self.now_s, arrived))
        while len(marks) > 1 and marks[1][1] <= self._ends[0][PROCESSED][partition]:
            marks.popleft()

    def _capacities(self, begin_s: float) -> Iterator[tuple[Pod, float, bool]]:
        """Yield the records that each pod can process within a step, and whether the downstream system bounds them."""
        capacities = []
        for pod in self.pods:
            if pod.state is not PodState.RUNNING or not pod.partitions:
                continue
            idle_s = min(self._paused_s[each] for each in pod.partitions) - begin_s
            capacities.append((pod, pod.rate * max(0.0, self.step_s - max(0.0, idle_s))))
        limit = self.trace.downstream_rate
        if limit is None:
            yield from ((pod, capacity, False) for pod, capacity in capacities)
            return
        wanted = [
            min(capacity, sum(self.arrived[each] - self.processed[each] for each in pod.partitions))
            for pod, capacity in capacities
        ]
        given = fair_shares(wanted, limit * self.step_s)
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
                records = min(records, pod.rate * max(0.0, self.step_s - idle_s))
            wanted.append(records)
        total = sum(wanted)
        given = wanted if total <= capacity else fair_shares(wanted, capacity)
        for partition, records in zip(pod.partitions, given, strict=True):
            self.processed[partition] += records
        done = min(total, capacity)
        pod.done += done
        # A downstream system at its limit answers more slowly.
        pod.busy_s += self.step_s if is_limited else done / pod.rate

    # ----------------------------------------------------------------------------------- observation

    def backlog(self) -> float:
        """Return the number of records that are not processed."""
        return sum(self.arrived) - sum(self.processed)

    def in_work(self) -> float:
        """Return the number of records that applications worked on in the last step, in the mean; the model counts them as processed."""
        return sum(each.busy_s - each.busy_before_s for each in self.pods) / self.step_s

    def lags(self) -> list[int]:
        """Return the numbers of uncommitted records, by partition."""
        return [int(self.arrived[each]) - self.committed(each) for each in range(PARTITIONS)]

    def ended(self, partition: int, age_s: float = 0.0) -> int:
        """Return the end offset of a partition, as it was so long ago."""
        return int(self._before(ARRIVED, partition, age_s))

    def committed(self, partition: int, age_s: float = 0.0) -> int:
        """Return the committed offset of a partition, as it was so long ago."""
        pod = self._owners[partition]
        if pod is None or pod.state is PodState.DRAINING:
            return int(self._before(PROCESSED, partition, age_s))
        ago_s = pod.phase * COMMIT_S
        while ago_s < age_s:
            ago_s += COMMIT_S
        return int(max(self._before(PROCESSED, partition, ago_s), self._taken_over[partition]))

    def _before(self, which: int, partition: int, ago_s: float) -> float:
        """Return the arrived or processed records of a partition, as they were so long ago."""
        steps, into_s = divmod(ago_s, self.step_s)
        last = len(self._ends) - 1 - int(steps)
        if last < 1:
            return self._ends[0][which][partition]
        after, before = self._ends[last][which][partition], self._ends[last - 1][which][partition]
        return after - into_s / self.step_s * (after - before)

    def uncommitted_s(self, partition: int, age_s: float = 0.0) -> float:
        """Return the age of the first record that was not committed so long ago; 0: there was none."""
        committed = self.committed(partition, age_s)
        if committed >= self.ended(partition, age_s):
            return 0.0
        # It arrives as the whole record.
        offset, ends = committed + 1, self._ends
        if self._marks[partition] and offset <= ends[0][ARRIVED][partition]:
            return self._age_s(partition, offset)
        for steps in range(len(ends) - 1):
            after, before = ends[-1 - steps][ARRIVED][partition], ends[-2 - steps][ARRIVED][partition]
            if before < offset <= after:
                return self.step_s * (steps + (after - offset) / (after - before))
        return float(self.step_s * len(ends))

    def owner(self, partition: int) -> Pod | None:
        """Return the owner of a partition."""
        return self._owners[partition]

    def age_s(self, partition: int) -> float:
        """Return the age of the oldest record of a partition that is not processed, in seconds; 0: there is none."""
        return self._age_s(partition, self.processed[partition])

    def _age_s(self, partition: int, offset: float) -> float:
        """Return the age of the record at an offset of a partition that lags."""
        marks = self._marks[partition]
        if len(marks) < 2:
            return 0.0
        later = 1
        while later < len(marks) - 1 and marks[later][1] <= offset:
            later += 1
        (began_s, before), (ended_s, after) = marks[later - 1], marks[later]
        share = (offset - before) / (after - before) if after > before else 0.0
        return self.now_s - (began_s + max(0.0, min(1.0, share)) * (ended_s - began_s))

    def oldest_s(self) -> float:
        """Return the age of the oldest record that is not processed."""
        return max((self.age_s(each) for each in range(PARTITIONS) if self._marks[each]), default=0.0)
