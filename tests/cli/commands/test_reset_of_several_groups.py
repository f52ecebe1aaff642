"""Resets of several groups, of which one fails half-way: the error names those that are reset already."""

from typing import cast

import pytest

from rota.records import TopicPartition
from rota_cli.clusters.model import EMPTY, Committed, Group
from rota_cli.clusters.port import Cluster, Offsets, Records
from rota_cli.clusters.port import Groups as GroupsPort
from rota_cli.commands.reset import GroupPlan, execute_all
from rota_cli.commands.reset_plan import OffsetChange
from rota_cli.errors import Failure, group_not_empty

ORDERS = TopicPartition("orders", 0)


class Groups:
    """Committed offsets of groups; one group has got a member since it was described."""

    def __init__(self, with_member: str) -> None:
        self.with_member = with_member
        self.committed: dict[str, dict[TopicPartition, Committed]] = {}

    def alter(self, group_id: str, offsets: Offsets) -> None:
        """Set offsets, as an engine does of a group without members."""
        if group_id == self.with_member:
            raise group_not_empty(group_id)
        self.committed[group_id] = {partition: Committed(offset) for partition, offset in offsets.items()}

    def offsets(self, group_id: str) -> dict[TopicPartition, Committed]:
        """Return what was set."""
        return self.committed[group_id]


def run(groups: Groups, *names: str) -> None:
    """Reset these groups to offset 3."""
    cluster = Cluster(cast("Records", None), cast("GroupsPort", groups))
    changes = [OffsetChange(ORDERS, 7, 3)]
    execute_all(cluster, [GroupPlan(Group(name, EMPTY, "", "", ()), changes, None, None) for name in names])


def test_all_are_reset_in_their_order() -> None:
    groups = Groups("none")
    run(groups, "b", "a")
    assert list(groups.committed) == ["b", "a"]


def test_the_error_names_the_groups_that_are_reset_already() -> None:
    groups = Groups("c")
    with pytest.raises(Failure, match=r"^group c has members: stop .*; reset before this group: a, b$"):
        run(groups, "a", "b", "c", "d")
    assert list(groups.committed) == ["a", "b"]


def test_the_first_groups_error_is_its_own() -> None:
    groups = Groups("a")
    with pytest.raises(Failure, match=r"runs them$"):
        run(groups, "a", "b")
    assert groups.committed == {}
