"""The order of members in `range` and `roundrobin`: it stays when a static member comes back under a new id."""

from collections.abc import Mapping

from rota_sidecar.core.assignors.model import Subscriber


def member_order(members: Mapping[str, Subscriber]) -> list[str]:
    """Static members by instance id, then dynamic ones by member id."""

    def rank(name: str) -> tuple[bool, str]:
        instance_id = members[name].instance_id
        return (True, name) if instance_id is None else (False, instance_id)

    return sorted(members, key=rank)
