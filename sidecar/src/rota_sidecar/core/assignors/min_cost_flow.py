"""
Minimum-cost flow by cycle canceling: the number of partitions of each cell per cohort, with as many rack-local as possible.

A cohort is the members with one subscription in one rack, a cell the partitions of one class with replicas in the same
racks. Counts are a flow from cells to cohorts, and what is to be least is, in this order: the sum of the members'
squared loads, the number of far partitions, the number that leave a cohort. A flow can be improved exactly if the
residual graph has a cycle of negative cost; each such cycle exchanges partitions between cohorts, and flow is pushed along
cycles until there is none. So a plan that is fed back as claims is stable: any other one has at least as many far
partitions, and moves some besides.

Loads change only along cycles that leave the sum of squares alone: one cohort passes its extra partition to another.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

# Relaxations of arcs, a few seconds' worth. A thousand members with as many subscriptions in three racks take a tenth.
# After that many the plan is balanced, with fewer rack-local partitions than possible.
WORK_MAX = 20_000_000


@dataclass(slots=True)
class CellFlow:
    """Flow of one cell to its cohorts. Invariant: the sum of `wanted` is the size of the cell."""

    claimed: Counter[int]
    wanted: dict[int, int]
    # Cohorts whose rack has no replica of these partitions.
    far: frozenset[int]


class MinCostFlow:
    """
    Improves `wanted` of some flows. Invariant: `loads` changes as the sum of `wanted` by cohort does.

    Nodes of the residual graph are cohorts, then cell flows, then levels: loads at which extra partitions are passed on.
    """

    def __init__(self, sizes: Sequence[int], loads: list[int], flows: Sequence[CellFlow]) -> None:
        """`sizes` and `loads` are the number of members and of partitions of each cohort, including flows that are not in `flows`."""
        self._sizes = sizes
        self._loads = loads
        self._flows = flows
        self._flows_of: dict[int, list[int]] = defaultdict(list)
        for number, flow in enumerate(flows):
            for cohort in flow.wanted:
                self._flows_of[cohort].append(number)
        self._first_flow = len(sizes)
        self._first_level = len(sizes) + len(flows)
        # One far partition outweighs all moves of a cycle, which enters and leaves each cohort once at most.
        self._far_cost = 4 * len(sizes) + 1
        self._work = 0

    def solve(self) -> None:
        """Cancel cycles until none is negative, or until WORK_MAX is spent."""
        while self._balance_loads(range(len(self._flows))) or self._cancel_cycles():
            if self._work > WORK_MAX:
                return

    def _least(self, cohort: int) -> int:
        """The load of the cohort's members without an extra partition."""
        return self._loads[cohort] // self._sizes[cohort]

    def _most(self, cohort: int) -> int:
        return -(-self._loads[cohort] // self._sizes[cohort])

    def _balance_loads(self, flows: Iterable[int]) -> bool:
        """Move partitions from members with two more to members that may take them; return True if any moved."""
        relieved = False
        for flow in map(self._flows.__getitem__, flows):
            self._work += len(flow.wanted)
            holders = [cohort for cohort, count in flow.wanted.items() if count]
            if not holders:
                continue
            heaviest = max(holders, key=lambda cohort: (self._most(cohort), cohort in flow.far))
            lightest = min(flow.wanted, key=lambda cohort: (self._least(cohort), cohort in flow.far))
            if self._most(heaviest) - self._least(lightest) > 1:
                self._move(flow, heaviest, -1)
                self._move(flow, lightest, 1)
                relieved = True
        return relieved

    def _move(self, flow: CellFlow, cohort: int, count: int) -> None:
        flow.wanted[cohort] += count
        self._loads[cohort] += count

    def _cancel_cycles(self) -> bool:
        """
        Cancel negative cycles; return True if there were any. Returns early when loads are out of balance.

        The shortest paths from anywhere by Bellman and Ford. A node that is reached from one of its own successors
        closes a negative cycle. Costs stay when that is performed: only what it changed is looked at again.
        """
        costs: Counter[int] = Counter()
        before: dict[int, int] = {}
        performed = False
        waiting = dict.fromkeys((*self._flows_of, *range(self._first_flow, self._first_level)))
        while waiting and self._work <= WORK_MAX:
            node = next(iter(waiting))
            del waiting[node]
            for end, cost in self._arcs(node):
                self._work += 1
                if costs[node] + cost >= costs[end]:
                    continue
                cycle = _cycle(before, node, end)
                if cycle:
                    performed = True
                    changed = self._push_flow(cycle)
                    if self._balance_loads(changed):
                        return True
                    before = {}
                    waiting.update(dict.fromkeys((*cycle, *(self._first_flow + flow for flow in changed))))
                    break
                costs[end] = costs[node] + cost
                before[end] = node
                waiting[end] = None
        return performed

    def _arcs(self, node: int) -> Iterator[tuple[int, int]]:
        """Yield the ends and costs of the arcs of the residual graph that leave a node."""
        if node < self._first_flow:
            yield from self._arcs_of_cohort(node)
        elif node < self._first_level:
            yield from self._arcs_of_flow(self._flows[node - self._first_flow])
        else:
            for cohort in self._flows_of:
                if self._loads[cohort] and self._first_level + self._most(cohort) == node:
                    yield cohort, 0

    def _arcs_of_cohort(self, cohort: int) -> Iterator[tuple[int, int]]:
        """Yield arcs for one partition less: of a cell, or of those at the level above the least load of the cohort."""
        for number in self._flows_of[cohort]:
            flow = self._flows[number]
            if flow.wanted[cohort]:
                far = self._far_cost if cohort in flow.far else 0
                yield self._first_flow + number, (flow.wanted[cohort] <= flow.claimed[cohort]) - far
        yield self._first_level + self._least(cohort) + 1, 0

    def _arcs_of_flow(self, flow: CellFlow) -> Iterator[tuple[int, int]]:
        """Yield arcs for one partition more, for each cohort whose members stay in balance."""
        highest = 1 + min(map(self._least, flow.wanted))
        for cohort, count in flow.wanted.items():
            if self._most(cohort) <= highest:
                far = self._far_cost if cohort in flow.far else 0
                yield cohort, far - (count < flow.claimed[cohort])

    def _push_flow(self, cycle: Sequence[int]) -> list[int]:
        """Push as much flow along a cycle as it takes; return the flows of the cohorts whose load changed."""
        steps = list(zip(cycle, [*cycle[1:], cycle[0]], strict=True))
        count = min(self._capacity(begin, end) for begin, end in steps)
        changed = []
        for begin, end in steps:
            if self._first_flow <= begin < self._first_level:
                self._move(self._flows[begin - self._first_flow], end, count)
            elif self._first_flow <= end < self._first_level:
                self._move(self._flows[end - self._first_flow], begin, -count)
            else:
                changed += self._flows_of[min(begin, end)]
        return changed

    def _capacity(self, begin: int, end: int) -> int:
        """Return the capacity of an arc: partitions until its cost changes."""
        if end >= self._first_level:
            return self._sizes[begin] - self._loads[begin] % self._sizes[begin]
        if begin >= self._first_level:
            return self._loads[end] % self._sizes[end] or self._sizes[end]
        if begin < self._first_flow:
            flow = self._flows[end - self._first_flow]
            more = flow.wanted[begin] - flow.claimed[begin]
            return more if more > 0 else flow.wanted[begin]
        flow = self._flows[begin - self._first_flow]
        less = flow.claimed[end] - flow.wanted[end]
        return less if less > 0 else sum(flow.wanted.values())


def _cycle(before: Mapping[int, int], node: int, end: int) -> list[int]:
    """Return the cycle that an arc closes, from its end on; empty: the arc closes none."""
    path = [node]
    while path[-1] != end:
        if path[-1] not in before:
            return []
        path.append(before[path[-1]])
    return path[::-1]
