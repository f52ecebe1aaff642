"""
`load-aware-sticky`: balances the arrival rates of the members' partitions, and moves few partitions for it.

The owner of a partition, or its last owner, reports its arrival rate. A partition without a measurement weighs as much as the
mean of the others; an idle one a hundredth of it, because it costs something too. Partitions without an owner are always
assigned, the heaviest first. Owned partitions move only from the most loaded member to the least loaded one that may take
them, and only within a budget. Racks are ignored.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush, heapreplace
from itertools import chain

from rota_sidecar.core.assignors.balance import balance
from rota_sidecar.core.assignors.index import GroupIndex, index_group
from rota_sidecar.core.assignors.model import Group, Plan, Subscriber
from rota_sidecar.core.assignors.moves import Moves
from rota_sidecar.core.assignors.ownership import Ownership, resolve_ownership
from rota_sidecar.core.assignors.sticky import plan

# Members whose loads differ by less than this part of the mean load are not balanced, because rates are never exact.
HYSTERESIS_PERCENT = 5
IDLE_PERCENT = 1
# Weights are whole numbers, so that the order of sums changes nothing.
_UNITS = 1024


class LoadAwareSticky:
    """Balances by load. Cooperative: a moving partition is revoked in one rebalance and assigned in the next."""

    name = "load-aware-sticky"
    cooperative = True

    def __init__(self, max_moved_percent: int = 100) -> None:
        if not 0 <= max_moved_percent <= 100:
            raise ValueError(
                f"max_moved_percent is {max_moved_percent}; it must be 0 to 100, the share of all partitions that may "
                "move in a rebalance"
            )
        self._max_moved_percent = max_moved_percent

    def assign(self, group: Group) -> Plan:
        ownership = resolve_ownership(replace(index_group(group), racks=()))
        # Rounded up: small groups are balanced too, unless nothing may move.
        budget = -(-ownership.group_index.table.total * self._max_moved_percent // 100)
        return plan(ownership, self._moves(ownership, budget), self.cooperative)

    def _moves(self, ownership: Ownership, budget: int) -> Moves:
        known = _known_weights(ownership.group_index)
        if not known:
            moves = balance(ownership)
            if sum(map(len, moves.given_up.values())) <= budget:
                return moves
        scales = _LoadBalancer(ownership, known)
        scales.assign_unowned()
        scales.relieve(budget)
        return scales.moves


def _known_weights(group_index: GroupIndex) -> dict[int, int]:
    """Return measured weights by flat number; of two measurements the larger one counts."""
    found: dict[int, int] = {}
    for subscriber in group_index.subscribers:
        for name, number, rate in _measured(subscriber):
            topic = group_index.table.index.get(name)
            if topic is not None and rate >= 0 and 0 <= number < group_index.table.sizes[topic]:
                flat = group_index.table.offsets[topic] + number
                found[flat] = max(found.get(flat, 0), round(rate * _UNITS))
    return found


def _measured(subscriber: Subscriber) -> Iterator[tuple[str, int, float]]:
    for name, rates in subscriber.rates.items():
        # Rates that did not fit into the user data are unknown.
        for number, rate in zip(subscriber.owned.get(name, ()), rates, strict=False):
            yield name, number, rate
    for name, by_number in subscriber.former.items():
        for number, rate in by_number.items():
            yield name, number, rate


class _LoadBalancer:
    """Loads of the members while partitions are assigned and moved. Invariant: a load is the sum of the member's weights."""

    def __init__(self, ownership: Ownership, known: Mapping[int, int]) -> None:
        self.moves = Moves()
        self._ownership = ownership
        self._group_index = ownership.group_index
        self._mean = max(sum(known.values()) // len(known), 1) if known else _UNITS
        idle = max(self._mean * IDLE_PERCENT // 100, 1)
        self._weights = {flat: max(weight, idle) for flat, weight in known.items()}
        members = range(len(self._group_index.ids))
        self._counts = [ownership.count(member) for member in members]
        self._loads = [sum(map(self._weight, ownership.flat_numbers(member))) for member in members]
        # Of overloaded members: movable partitions by class, sorted by weight.
        self._movable: dict[int, list[tuple[int, list[tuple[int, int]]]]] = {}
        # Least loaded member of each class, until the next move.
        self._receivers: dict[int, int] = {}

    def _weight(self, flat: int) -> int:
        return self._weights.get(flat, self._mean)

    def assign_unowned(self) -> None:
        """Assign partitions without an owner, the heaviest first, each to the least loaded member."""
        given: dict[int, array[int]] = {}
        rings: list[list[tuple[int, int, int]]] = []
        for each in self._group_index.classes:
            ring = [(self._loads[member], self._counts[member], member) for member in each.members]
            heapify(ring)
            rings.append(ring)
        free = list(chain.from_iterable(self._ownership.free))
        free.sort(key=lambda flat: (-self._weight(flat), flat))
        for flat in free:
            member = self._least_loaded(rings[self._class_of(flat)])
            given.setdefault(member, array("i")).append(flat)
            self._loads[member] += self._weight(flat)
            self._counts[member] += 1
        for member, flats in given.items():
            self.moves.given[member].append(sorted(flats))

    def _least_loaded(self, ring: list[tuple[int, int, int]]) -> int:
        while True:
            load, count, member = ring[0]
            now = self._loads[member], self._counts[member]
            if (load, count) == now:
                return member
            heapreplace(ring, (*now, member))

    def _class_of(self, flat: int) -> int:
        return self._group_index.class_of[self._group_index.table.topic_of(flat)]

    def relieve(self, budget: int) -> None:
        """Move partitions from the most loaded members until loads differ little or the budget is spent."""
        total = sum(self._loads)
        least_gap = total * HYSTERESIS_PERCENT // (100 * max(len(self._loads), 1))
        moved = 1
        while moved:
            moved = self._pass(budget, least_gap)
            budget -= moved

    def _pass(self, budget: int, least_gap: int) -> int:
        """Visit members from the heaviest to the lightest; return the number of moved partitions."""
        heaviest = [(-load, member) for member, load in enumerate(self._loads)]
        heapify(heaviest)
        moved = 0
        while heaviest and moved < budget:
            load, member = heappop(heaviest)
            if -load != self._loads[member]:
                continue
            receiver = self._relieve_one(member, least_gap)
            if receiver is not None:
                moved += 1
                heappush(heaviest, (-self._loads[member], member))
                heappush(heaviest, (-self._loads[receiver], receiver))
        return moved

    def _relieve_one(self, member: int, least_gap: int) -> int | None:
        """Make the move that equalizes a member and the least loaded other one most; return the receiver."""
        best: tuple[int, list[tuple[int, int]], int, int] | None = None
        for number, movable in self._movable_of(member):
            receiver = self._receiver(number)
            gap = self._loads[member] - self._loads[receiver]
            if gap <= least_gap:
                continue
            for position in _nearest(movable, gap):
                weight = movable[position][0]
                relief = min(weight, gap - weight)
                if relief > 0 and (best is None or relief > best[0]):
                    best = relief, movable, position, receiver
        if best is None:
            return None
        _, movable, position, receiver = best
        self._move(*movable.pop(position), member, receiver)
        return receiver

    def _receiver(self, number: int) -> int:
        """Return the least loaded member of a class."""
        found = self._receivers.get(number)
        if found is None:
            # The first of equal ones: members are in the order of their ids.
            found = self._receivers[number] = min(
                self._group_index.classes[number].members, key=self._loads.__getitem__
            )
        return found

    def _move(self, weight: int, flat: int, member: int, receiver: int) -> None:
        self.moves.given_up[member].add(flat)
        self.moves.given[receiver].append([flat])
        self._loads[member] -= weight
        self._loads[receiver] += weight
        self._receivers.clear()

    def _movable_of(self, member: int) -> Sequence[tuple[int, list[tuple[int, int]]]]:
        found = self._movable.get(member)
        if found is None:
            by_class: dict[int, list[tuple[int, int]]] = {}
            for flat in self._ownership.flat_numbers(member):
                by_class.setdefault(self._class_of(flat), []).append((self._weight(flat), flat))
            found = self._movable[member] = sorted(
                (number, sorted(each)) for number, each in by_class.items()
            )
        return found


def _nearest(movable: Sequence[tuple[int, int]], gap: int) -> Iterable[int]:
    """Yield the indexes of the weights next to half of a gap, above and below."""
    above = bisect_left(movable, (gap // 2, -1))
    if above < len(movable):
        yield above
    if above:
        yield bisect_left(movable, (movable[above - 1][0], -1))
