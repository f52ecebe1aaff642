"""Order of members in `range` and `roundrobin`: a static member keeps its position when it rejoins under a new member id."""

from collections.abc import Mapping

from rota_sidecar.core.assignors.model import Subscriber


def member_order(members: Mapping[str, Subscriber]) -> list[str]:
    """Return static members by instance id, then dynamic ones by member id."""

    def rank(name: str) -> tuple[bool, str]:
        instance_id = members[name].instance_id
        return (True, name) if instance_id is None else (False, instance_id)

    return sorted(members, key=rank)
