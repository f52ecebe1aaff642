"""Kafka's `roundrobin`: all partitions by topic and number, dealt one by one around those who take their topic."""

from array import array
from bisect import bisect_left
from collections.abc import Sequence

from rota_sidecar.core.assignors.index import Roll, call_roll
from rota_sidecar.core.assignors.model import Group, Plan
from rota_sidecar.core.assignors.order import in_order
from rota_sidecar.core.assignors.share import Share


class RoundRobin:
    """Has no memory: what a member had plays no part."""

    name = "roundrobin"
    cooperative = False

    def assign(self, group: Group) -> Plan:
        roll = call_roll(group, in_order(group.members))
        flats = _in_turn(roll)
        return {name: Share(roll.table, flats[member]) for member, name in enumerate(roll.ids)}


def _in_turn(roll: Roll) -> Sequence[Sequence[int]]:
    offsets, members = roll.table.offsets, range(len(roll.ids))
    if len(roll.classes) == 1 and len(roll.classes[0].members) == len(members):
        return [range(member, roll.table.total, len(members)) for member in members]
    found = [array("i") for _ in members]
    cursor = 0
    for topic, size in enumerate(roll.table.sizes):
        ring = roll.classes[roll.class_of[topic]].members
        width = len(ring)
        start = bisect_left(ring, cursor)
        for turn in range(min(size, width)):
            found[ring[(start + turn) % width]].extend(
                range(offsets[topic] + turn, offsets[topic + 1], width)
            )
        cursor = ring[(start + size - 1) % width] + 1
    return found
