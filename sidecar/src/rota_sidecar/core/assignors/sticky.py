"""
Members keep what they have, as far as balance allows: Kafka's `sticky` and `cooperative-sticky`, and ours by load.

Balance comes first: no member has two more than another one that could take one of them. Among balanced plans the one is
chosen in which members keep most partitions.
"""

from array import array
from collections.abc import Mapping, Sequence

from rota_sidecar.core.assignors.balance import balance
from rota_sidecar.core.assignors.flat_assignment import FlatAssignment
from rota_sidecar.core.assignors.index import index_group
from rota_sidecar.core.assignors.model import Group, Plan
from rota_sidecar.core.assignors.moves import Moves, merged
from rota_sidecar.core.assignors.ownership import Ownership, resolve_ownership


class Sticky:
    """Eager: members revoke all partitions, and get most of them back."""

    name = "sticky"
    cooperative = False

    def assign(self, group: Group) -> Plan:
        ownership = resolve_ownership(index_group(group))
        return plan(ownership, balance(ownership), self.cooperative)


class CooperativeSticky(Sticky):
    """Cooperative: a moving partition is revoked in one rebalance and assigned in the next."""

    name = "cooperative-sticky"
    cooperative = True


def plan(ownership: Ownership, moves: Moves, cooperative: bool) -> Plan:
    """Return the plan after the moves; a cooperative one withholds partitions that another member still owns."""
    group_index = ownership.group_index
    held = dict(ownership.held)
    for member, given_up in moves.given_up.items():
        held.update(dict.fromkeys(given_up, member))
    found: dict[str, Mapping[str, Sequence[int]]] = {}
    for member, name in enumerate(group_index.ids):
        if ownership.lists[member] is not None and member not in moves.given and member not in moves.given_up:
            found[name] = group_index.subscribers[member].owned
            continue
        given = moves.given.get(member, [])
        if cooperative and held:
            given = [[flat for flat in part if held.get(flat, member) == member] for part in given]
        kept: Sequence[int] = ownership.flat_numbers(member)
        lost = moves.given_up.get(member)
        if lost:
            kept = [flat for flat in kept if flat not in lost]
        flats = merged([kept, *given])
        found[name] = FlatAssignment(
            group_index.table, flats if isinstance(flats, range) else array("i", flats)
        )
    return found
