"""A rebalance that is requested: the leader of a stable generation joins again, and no other member does."""

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.member import events as on
from tests.sidecar.core.member.driven import EAGER, Driven, given, names

REQUEST = on.Rebalance("orders-0 is hot")


def test_the_leader_joins_again_with_the_reason_and_keeps_its_partitions() -> None:
    driven = Driven().join(0, 1, leads=True)
    assert names(driven.step(REQUEST)) == ["JoinGroup"]
    assert driven.sent(pb.JoinGroupRequest)[1].reason == "orders-0 is hot"
    assert set(driven.member.held) == given(0, 1)


def test_a_leader_of_an_eager_strategy_revokes_its_partitions_first() -> None:
    driven = Driven(EAGER).join(0, leads=True)
    assert names(driven.step(REQUEST)) == ["Revoke"]
    assert names(driven.give_up()) == ["Revoked", "JoinGroup"]


def test_another_member_does_nothing() -> None:
    assert Driven().join(0).step(REQUEST) == []


def test_a_request_while_the_group_rebalances_does_nothing() -> None:
    driven = Driven().join(0, leads=True)
    driven.step(REQUEST)
    assert driven.step(REQUEST) == []


def test_a_request_while_the_coordinator_is_lost_is_not_remembered() -> None:
    driven = Driven().join(0, leads=True)
    driven.step(on.CoordinatorLost("it went away"))
    assert driven.step(REQUEST) == []
    assert names(driven.find()) == ["CoordinatorRegained", "Heartbeat"]
    driven.answer_heartbeat()
    assert driven.state == "Stable"
