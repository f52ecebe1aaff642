"""The same rules once more, one partition at a time: slow, and without any of the core's ideas."""

from collections.abc import Mapping

from rota_sidecar.core.assignors.model import Group
from tests.sidecar.core.assignors.groups import Partition, Spread, everything

UNOWNED = ""


def holders(group: Group) -> dict[Partition, str]:
    """Return the owner of each claimed partition; UNOWNED where two claims are equally new."""
    found: dict[Partition, str] = {}
    for partition in everything(group):
        topic, number = partition
        claimants = {
            name: max(member.generation, -1)
            for name, member in group.members.items()
            if number in list(member.owned.get(topic, ()))
        }
        if claimants:
            newest = max(claimants.values())
            winners = [name for name, generation in claimants.items() if generation == newest]
            found[partition] = winners[0] if len(winners) == 1 else UNOWNED
    return found


def claims_that_count(group: Group) -> Spread:
    """Return the partitions of subscribed topics that members own."""
    found: Spread = {name: set() for name in group.members}
    for partition, name in holders(group).items():
        if name != UNOWNED and partition[0] in group.members[name].topics:
            found[name].add(partition)
    return found


def most_that_can_stay(group: Group) -> int:
    """With equal subscriptions: the reference's formula."""
    had = {name: len(partitions) for name, partitions in claims_that_count(group).items()}
    each, more = divmod(len(everything(group)), len(had))
    return sum(min(count, each) for count in had.values()) + min(
        more, sum(count > each for count in had.values())
    )


def balanced(group: Group) -> Spread:
    """Give what is free to who has least; then move one partition after the other while that evens out."""
    found = claims_that_count(group)
    takers = {p: sorted(n for n, m in group.members.items() if p[0] in m.topics) for p in everything(group)}
    owned = set().union(*found.values())
    for partition in sorted(takers.keys() - owned, key=lambda p: (len(takers[p]), p)):
        found[min(takers[partition], key=lambda name: (len(found[name]), name))].add(partition)
    while _one_moves(found, takers):
        pass
    return found


def _one_moves(found: Spread, takers: Mapping[Partition, list[str]]) -> bool:
    for partition, able in sorted(takers.items()):
        holder = next(name for name, partitions in found.items() if partition in partitions)
        lightest = min(able, key=lambda name: (len(found[name]), name))
        if len(found[holder]) - len(found[lightest]) > 1:
            found[holder].remove(partition)
            found[lightest].add(partition)
            return True
    return False


def could_be_lighter(group: Group, found: Spread) -> list[str]:
    """Return each partition whose owner has two more than another member that could take it."""
    return [
        f"{partition} of {holder} could go to {other}"
        for holder, partitions in found.items()
        for partition in partitions
        for other, member in group.members.items()
        if partition[0] in member.topics and len(found[holder]) - len(found[other]) > 1
    ]
