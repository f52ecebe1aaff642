"""How many partitions with the same racks go to the members of each rack, so that as many as possible are near."""

from collections import Counter, deque
from collections.abc import Mapping

from rota_sidecar.assignors.near import Racks

# From partitions with these racks to members in this rack.
Way = tuple[Racks, str]


class Flow:
    """
    A maximal flow from kinds of partitions to racks.

    A rack has room for what its members are short of, and beyond that for one more for some of its members, of which
    there are so many in all racks together.
    """

    def __init__(self, room: Mapping[str, int], more: Mapping[str, int], extras: int) -> None:
        self.ways: Counter[Way] = Counter()
        self._room = room
        self._more = more
        self._extras = extras
        self._in_rack: Counter[str] = Counter()

    def beyond_room(self, rack: str) -> int:
        """How many members of a rack get one more than others."""
        return max(0, self._in_rack[rack] - self._room.get(rack, 0))

    def fill(self, supply: Mapping[Racks, int]) -> None:
        """Send as many as possible, those with the fewest places to go first."""
        kinds = sorted(supply, key=lambda kind: (sum(self._room.get(rack, 0) for rack in kind), sorted(kind)))
        for kind in kinds:
            left = supply[kind]
            while left:
                sent = self._send(kind, left)
                if not sent:
                    break
                left -= sent

    def _send(self, kind: Racks, amount: int) -> int:
        """Along the shortest way on which something else makes room, if there is one; says how many."""
        came_from: dict[str, Racks] = {}
        reached: dict[Racks, str | None] = {kind: None}
        waiting = deque([kind])
        while waiting:
            here = waiting.popleft()
            for rack in sorted(here - came_from.keys()):
                came_from[rack] = here
                if self._open(rack):
                    return self._push(rack, came_from, reached, amount)
                for other in sorted((k for k, r in self.ways if r == rack and k not in reached), key=sorted):
                    reached[other] = rack
                    waiting.append(other)
        return 0

    def _open(self, rack: str) -> int:
        left = self._room.get(rack, 0) - self._in_rack[rack]
        if left > 0:
            return left
        taken = sum(map(self.beyond_room, self._more))
        return min(self._more.get(rack, 0) + left, self._extras - taken)

    def _push(
        self, last: str, came_from: Mapping[str, Racks], reached: Mapping[Racks, str | None], amount: int
    ) -> int:
        way: list[tuple[Racks, str, str | None]] = []
        rack: str | None = last
        while rack is not None:
            kind = came_from[rack]
            way.append((kind, rack, reached[kind]))
            rack = reached[kind]
        made_room = (self.ways[kind, before] for kind, _, before in way if before is not None)
        sent = min(amount, self._open(last), *made_room)
        for kind, into, out_of in way:
            self.ways[kind, into] += sent
            if out_of is not None:
                self.ways[kind, out_of] -= sent
        self.ways = +self.ways
        self._in_rack[last] += sent
        return sent
