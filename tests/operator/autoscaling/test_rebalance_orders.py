"""The order to rebalance goes to the leader of the group, or to all if it is not known."""

from collections.abc import Mapping

import pytest

from rota_operator.autoscaling.rebalance_orders import rebalance_problem, rebalance_receivers
from rota_proto.fleet.v1 import fleet_pb2 as pb


def reports(**leads: bool) -> Mapping[str, pb.SidecarReport]:
    return {name: pb.SidecarReport(member=pb.MemberReport(leads=each)) for name, each in leads.items()}


def test_the_leader_gets_it() -> None:
    assert rebalance_receivers(reports(a=False, b=True)) == ["b"]


def test_all_get_it_if_none_says_that_it_leads() -> None:
    assert rebalance_receivers(reports(b=False, a=False)) == ["a", "b"]
    assert rebalance_receivers({}) == []


@pytest.mark.parametrize(
    ("errors", "problem"),
    [
        ({}, "no sidecar of the group reports"),
        ({"a": "", "b": "it is old"}, ""),
        ({"a": "it is old"}, "a: it is old"),
        ({"a": "it is old", "b": "no answer", "c": "no answer"}, "a and 2 more: it is old"),
    ],
)
def test_one_answer_without_an_error_is_enough(errors: Mapping[str, str], problem: str) -> None:
    assert rebalance_problem(errors) == problem
