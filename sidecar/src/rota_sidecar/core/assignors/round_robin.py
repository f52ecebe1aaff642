"""Kafka's `roundrobin`: assigns all partitions by topic and number, one by one, to the subscribers of each topic in turn."""

from array import array
from bisect import bisect_left
from collections.abc import Sequence

from rota_sidecar.core.assignors.flat_assignment import FlatAssignment
from rota_sidecar.core.assignors.index import GroupIndex, index_group
from rota_sidecar.core.assignors.model import Group, Plan
from rota_sidecar.core.assignors.order import member_order


class RoundRobin:
    """Assignor that ignores earlier assignments."""

    name = "roundrobin"
    cooperative = False

    def assign(self, group: Group) -> Plan:
        group_index = index_group(group, member_order(group.members))
        flats = _in_turn(group_index)
        return {
            name: FlatAssignment(group_index.table, flats[member])
            for member, name in enumerate(group_index.ids)
        }


def _in_turn(group_index: GroupIndex) -> Sequence[Sequence[int]]:
    offsets, members = group_index.table.offsets, range(len(group_index.ids))
    if len(group_index.classes) == 1 and len(group_index.classes[0].members) == len(members):
        return [range(member, group_index.table.total, len(members)) for member in members]
    found = [array("i") for _ in members]
    cursor = 0
    for topic, size in enumerate(group_index.table.sizes):
        ring = group_index.classes[group_index.class_of[topic]].members
        width = len(ring)
        start = bisect_left(ring, cursor)
        for turn in range(min(size, width)):
            found[ring[(start + turn) % width]].extend(
                range(offsets[topic] + turn, offsets[topic + 1], width)
            )
        cursor = ring[(start + size - 1) % width] + 1
    return found
