"""
Equal shares of slots: the claims and transfers of one process, computed from one reading of the table.

Each process computes the whole plan and carries out its own part, so two processes that read the same table never
claim the same slot. Readings that differ do no harm: the store grants a slot to one process.
"""

from typing import NamedTuple

from rota_coordinator.core.slots.table import Row, Table


class Transfer(NamedTuple):
    """A slot that its owner hands over, and the new owner."""

    slot: int
    new_owner: str


class Share(NamedTuple):
    """The next actions of a process: slots to claim, and slots to hand over."""

    claim: list[int]
    give: list[Transfer]


def share(table: Table, process_id: str) -> Share:
    """Return the actions of one process that make the shares equal."""
    wanted = targets(table)
    vacant = new_owners(table, wanted)
    owned = table.owned_by(process_id)
    surplus = len(owned) - wanted.get(process_id, 0)
    if vacant or surplus <= 0:
        # Vacant slots come first: no process hands a slot over while any slot is vacant.
        return Share(claim=[slot for slot, new_owner in vacant.items() if new_owner == process_id], give=[])
    return Share(claim=[], give=[each for each in transfers(table, wanted) if each.slot in set(owned)])


def targets(table: Table) -> dict[str, int]:
    """Return the number of slots that each process should own: equal within one; larger owners keep the remainder."""
    if not table.processes:
        return {}
    held = {process_id: len(table.owned_by(process_id)) for process_id, _ in table.processes}
    least, odd = divmod(len(table.rows), len(held))
    by_size = sorted(held, key=lambda process_id: (-held[process_id], process_id))
    return {process_id: least + (index < odd) for index, process_id in enumerate(by_size)}


def new_owners(table: Table, wanted: dict[str, int]) -> dict[int, str]:
    """
    Return the process that claims each vacant slot: its named new owner while alive, else the process that lacks
    most.
    """
    missing = {process_id: wanted[process_id] - len(table.owned_by(process_id)) for process_id in wanted}
    found: dict[int, str] = {}
    unnamed: list[Row] = []
    for row in table.vacant():
        if row.new_owner in missing:
            found[row.slot] = row.new_owner
            missing[row.new_owner] -= 1
        else:
            unnamed.append(row)
    for row in unnamed:
        if missing:
            neediest = max(missing, key=lambda process_id: (missing[process_id], process_id))
            found[row.slot] = neediest
            missing[neediest] -= 1
    return found


def transfers(table: Table, wanted: dict[str, int]) -> list[Transfer]:
    """Return every transfer that makes the shares equal: the last slots of processes above their target."""
    needy = [
        process_id
        for process_id in sorted(wanted)
        for _ in range(wanted[process_id] - len(table.owned_by(process_id)))
    ]
    spare = [
        slot for process_id in sorted(wanted) for slot in table.owned_by(process_id)[wanted[process_id] :]
    ]
    return [Transfer(slot, new_owner) for slot, new_owner in zip(spare, needy, strict=False)]
