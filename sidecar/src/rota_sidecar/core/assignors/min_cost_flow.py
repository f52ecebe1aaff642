"""
Decides, on counts, how many partitions of each cell the members of each cohort get, so that as many as possible are near.

A cohort is the members with one subscription in one rack, a cell the partitions of one class with replicas in the same
racks. Counts are a flow from cells to cohorts, and what is to be least is, in this order: the sum of the members'
squared loads, the number of far partitions, the number that leave a cohort. A flow can be improved exactly if the
residual graph has a cycle of negative cost; each such cycle is an exchange of partitions between cohorts, and is
performed until there is none. So a plan that is fed back as claims stays as it is: any other one has at least as many
far partitions, and moves some besides.

Loads change only along cycles that leave the sum of squares alone: one cohort passes its extra partition to another.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

# Relaxations of arcs, a few seconds' worth. A thousand members with as many subscriptions in three racks take a tenth.
# What is there after so many is balanced, and only less near.
WORK_MAX = 20_000_000


@dataclass(slots=True)
class CellFlow:
    """A cell's partitions, by cohort; cohorts that may take it have an entry. Sum of `wanted` = the cell's size."""

    claimed: Counter[int]
    wanted: dict[int, int]
    # The cohorts whose rack has no replica of these partitions.
    far: frozenset[int]


class MinCostFlow:
    """
    Improves `wanted` of some lots. Invariant: `loads` changes as the sum of `wanted` by cohort does.

    Nodes of the residual graph are cohorts, then lots, then levels: loads at which extra partitions are passed on.
    """

    def __init__(self, sizes: Sequence[int], loads: list[int], flows: Sequence[CellFlow]) -> None:
        """`sizes` and `loads` are the number of members and of partitions of each cohort, also of other lots."""
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
        """Exchange until nothing improves, or WORK_MAX is spent."""
        while self._balance_loads(range(len(self._flows))) or self._cancel_cycles():
            if self._work > WORK_MAX:
                return

    def _least(self, cohort: int) -> int:
        """The load of the cohort's members without an extra partition."""
        return self._loads[cohort] // self._sizes[cohort]

    def _most(self, cohort: int) -> int:
        return -(-self._loads[cohort] // self._sizes[cohort])

    def _balance_loads(self, flows: Iterable[int]) -> bool:
        """Move partitions from members who have two more to others who could take them; says whether any moved."""
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
        Perform exchanges; says whether there were any. Ends early when members are out of balance.

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
        """Where arcs of the residual graph lead from a node, and their costs."""
        if node < self._first_flow:
            yield from self._arcs_of_cohort(node)
        elif node < self._first_level:
            yield from self._arcs_of_flow(self._flows[node - self._first_flow])
        else:
            for cohort in self._flows_of:
                if self._loads[cohort] and self._first_level + self._most(cohort) == node:
                    yield cohort, 0

    def _arcs_of_cohort(self, cohort: int) -> Iterator[tuple[int, int]]:
        """One partition less: of a lot, or of those at the level above its members' least load."""
        for number in self._flows_of[cohort]:
            flow = self._flows[number]
            if flow.wanted[cohort]:
                far = self._far_cost if cohort in flow.far else 0
                yield self._first_flow + number, (flow.wanted[cohort] <= flow.claimed[cohort]) - far
        yield self._first_level + self._least(cohort) + 1, 0

    def _arcs_of_flow(self, flow: CellFlow) -> Iterator[tuple[int, int]]:
        """One partition more for each cohort whose members stay in balance with all who may take it."""
        highest = 1 + min(map(self._least, flow.wanted))
        for cohort, count in flow.wanted.items():
            if self._most(cohort) <= highest:
                far = self._far_cost if cohort in flow.far else 0
                yield cohort, far - (count < flow.claimed[cohort])

    def _push_flow(self, cycle: Sequence[int]) -> list[int]:
        """Exchange as much as the cycle takes; the lots of the cohorts whose load it changed."""
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
        """How many partitions an arc takes before its cost changes."""
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
    """The cycle that an arc closes, beginning with its end; empty if it closes none."""
    path = [node]
    while path[-1] != end:
        if path[-1] not in before:
            return []
        path.append(before[path[-1]])
    return path[::-1]
