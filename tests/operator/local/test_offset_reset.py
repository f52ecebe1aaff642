"""A reset that members carry out: they stop, each sets what it has, and they go on, whatever goes wrong."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

from rota_operator.local.offset_reset import OffsetResets
from rota_operator.overview.assignment import Partition
from rota_operator.overview.view import OwnedPartitions
from rota_proto.fleet.v1 import fleet_pb2 as pb

A, B = Partition("orders", 0), Partition("orders", 1)
WITHIN_S = 5


class Members:
    """Two sidecars, and what is known of them: stands for Fleet and board."""

    def __init__(self) -> None:
        self.held: dict[str, OwnedPartitions] = {
            "one": OwnedPartitions(1, frozenset({A})),
            "two": OwnedPartitions(1, frozenset({B})),
        }
        self.ordered: list[tuple[str, str]] = []
        # What each is to refuse, once.
        self.refusals: dict[tuple[str, str], str] = {}
        self.offsets: dict[Partition, int] = {}
        self.events: list[str] = []

    async def order(self, sidecar: str, order: pb.SidecarOrder, within_s: float) -> str:
        """As Fleet does."""
        kind = str(order.WhichOneof("order"))
        self.ordered.append((sidecar, kind))
        if refused := self.refusals.pop((sidecar, kind), ""):
            return refused
        for topic in order.reset_offsets.topics:
            for each in topic.offsets:
                self.offsets[Partition(each.topic, each.partition)] = each.offset
        return ""

    def owned_partitions(self, group_id: str) -> Mapping[str, OwnedPartitions]:
        """As the board does."""
        return self.held

    async def wait_for_change(self) -> None:
        """There is another generation, in which the second one has all."""
        self.held = {"one": OwnedPartitions(2, frozenset()), "two": OwnedPartitions(2, frozenset({A, B}))}

    def record_event(self, group_id: str, kind: object, message: str) -> None:
        """As the board does."""
        self.events.append(message)


def reset(members: Members, *, suspended: bool = False, group: str = "shop") -> str:
    async def run() -> str:
        replicas = {"shop": ["one", "two"]}
        resetting = OffsetResets(
            members.order,
            cast("Any", members),
            lambda name: replicas.get(name, []),
            lambda _: suspended,
        )
        async with asyncio.timeout(WITHIN_S):
            return await resetting.reset(group, {A: 5, B: 7})

    return asyncio.run(run())


def test_they_stop_set_what_they_have_and_go_on() -> None:
    members = Members()
    assert reset(members) == ""
    assert members.offsets == {A: 5, B: 7}
    kinds = ["suspend", "reset_offsets", "resume"]
    assert members.ordered == [(name, kind) for kind in kinds for name in ("one", "two")]
    assert members.events == ["reset of 2 partitions: done"]


def test_what_a_rebalance_left_undone_the_next_owner_does() -> None:
    members = Members()
    members.refusals["one", "reset_offsets"] = "this member is in generation 2: plan it again"
    assert reset(members) == ""
    assert members.offsets == {A: 5, B: 7}
    assert members.ordered.count(("two", "reset_offsets")) == 2


def test_when_somebody_does_not_stop_nothing_is_set_and_all_go_on() -> None:
    members = Members()
    members.refusals["two", "suspend"] = "two is not connected; see its log"
    assert reset(members) == "two is not connected; see its log"
    assert members.offsets == {}
    assert members.ordered[-2:] == [("one", "resume"), ("two", "resume")]


def test_who_is_not_to_read_does_not_begin_to() -> None:
    members = Members()
    assert reset(members, suspended=True) == ""
    assert "resume" not in {kind for _, kind in members.ordered}


def test_a_group_of_nobody_here_is_left_alone() -> None:
    members = Members()
    assert reset(members, group="others").startswith("group others has no running replica here")
    assert members.ordered == []
