"""The strategies of simulated groups: Rota's own, and one under which partitions are never left in peace."""

from collections.abc import Mapping

from rota_sidecar.core.assignors.model import Assignor, Group, Plan
from rota_sidecar.core.assignors.range import Range
from rota_sidecar.core.assignors.sticky import CooperativeSticky, Sticky


class Restless:
    """Deals the partitions out another way round in every generation, so that commits meet other owners."""

    name = "restless"
    cooperative = False

    def assign(self, group: Group) -> Plan:
        generation = max((each.generation for each in group.members.values()), default=0)
        ids = sorted(group.members)
        plan: dict[str, dict[str, list[int]]] = {member_id: {} for member_id in ids}
        for name, topic in group.topics.items():
            for number in range(topic.partitions):
                plan[ids[(number + generation + 1) % len(ids)]].setdefault(name, []).append(number)
        return plan


STRATEGIES: Mapping[str, Assignor] = {
    each.name: each for each in (Restless(), Range(), Sticky(), CooperativeSticky())
}
# What a group's members offer; those with several names change their order, and so start rounds.
OFFERED = (
    ("restless",),
    ("restless",),
    ("restless",),
    ("restless", "range"),
    ("range", "sticky"),
    ("cooperative-sticky",),
    ("cooperative-sticky",),
    ("cooperative-sticky", "range"),
)
