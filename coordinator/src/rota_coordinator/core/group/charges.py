"""Quota charges of the groups of one slot to their creators. Called by the slot after each decision about a group."""

from collections.abc import Iterable

from rota_coordinator.core.group.growth import usage
from rota_coordinator.core.group.state import Group
from rota_coordinator.core.quotas import Quotas


class GroupCharges:
    """Invariant: the creator of each group that is served is charged for the group's present usage."""

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas

    def charge(self, group_id: str, group: Group | None) -> None:
        """Charge the group's creator for its usage; None: the group does not exist any more."""
        if group is None:
            self._quotas.discharge(("group", group_id))
        else:
            self._quotas.charge(("group", group_id), group.created_by, usage(group))

    def discharge(self, group_ids: Iterable[str]) -> None:
        """Remove the charges of groups that are not served any more."""
        for group_id in group_ids:
            self._quotas.discharge(("group", group_id))
