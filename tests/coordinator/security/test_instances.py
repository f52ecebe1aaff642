"""A static member's instance belongs to one pod, until that pod is gone, or its successor of the same name is there."""

import pytest

from rota_coordinator.core.group.answers import Request
from rota_coordinator.security.instances import INSTANCES_OF_POD_MAX, Instance, Instances, instances_of
from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_service.pod_tokens import Pod

FIRST: Instance = ("shop.orders", "orders-1")
SECOND: Instance = ("shop.orders", "orders-2")
A = Pod("shop", "a", "uid of a", "orders")
B = Pod("shop", "b", "uid of b", "orders")
SUCCESSOR = A._replace(uid="uid of the next a")


def connected(*pods: Pod) -> Instances:
    instances = Instances()
    for pod in pods:
        instances.begin_call(pod)
    return instances


def test_an_instance_belongs_to_the_pod_that_uses_it_first() -> None:
    instances = connected(A, B)
    assert instances.claim(FIRST, A)
    assert not instances.claim(FIRST, B)
    assert instances.claim(FIRST, A)
    assert instances.claim(SECOND, B)
    assert instances.claim(("shop.other", "orders-1"), B), "it is one of its group only"


def test_an_instance_is_free_when_its_pod_has_no_call_left() -> None:
    instances = connected(A, A, B)
    assert instances.claim(FIRST, A)
    instances.end_call(A)
    assert not instances.claim(FIRST, B)
    instances.end_call(A)
    assert instances.claim(FIRST, B)


def test_a_new_pod_of_the_same_name_is_the_successor() -> None:
    instances = connected(A)
    assert instances.claim(FIRST, A)
    instances.begin_call(SUCCESSOR)
    assert instances.claim(FIRST, SUCCESSOR)
    assert not instances.claim(FIRST, A), "of the two only the newer one exists"
    assert not instances.claim(SECOND, A)
    instances.end_call(A)
    assert instances.claim(FIRST, SUCCESSOR)
    instances.end_call(SUCCESSOR)
    instances.begin_call(B)
    assert instances.claim(FIRST, B)


def test_a_pod_of_the_same_name_in_another_namespace_is_no_successor() -> None:
    stranger = A._replace(namespace="bank", uid="uid of a stranger")
    instances = connected(A, stranger)
    assert instances.claim(FIRST, A)
    assert not instances.claim(FIRST, stranger)


def test_a_predecessor_that_held_nothing_takes_nothing() -> None:
    instances = connected(A, SUCCESSOR)
    assert not instances.claim(FIRST, A)
    assert instances.claim(FIRST, SUCCESSOR)


def test_a_client_that_is_no_pod_takes_no_instance_of_a_pod() -> None:
    instances = connected(A)
    assert instances.claim(FIRST, None)
    assert instances.claim(FIRST, A), "such a client holds none"
    assert not instances.claim(FIRST, None)


def test_the_instances_of_a_pod_are_bounded() -> None:
    instances = connected(A)
    claims = [instances.claim(("shop.orders", str(number)), A) for number in range(INSTANCES_OF_POD_MAX + 1)]
    assert claims == [True] * INSTANCES_OF_POD_MAX + [False]
    assert instances.claim(("shop.orders", "0"), A)
    instances.end_call(A)
    assert len(instances) == 0


@pytest.mark.parametrize(
    ("request_", "named"),
    [
        (pb.JoinGroupRequest(group_id="g", group_instance_id="i"), [("g", "i")]),
        (pb.JoinGroupRequest(group_id="g"), []),
        (pb.SyncGroupRequest(group_id="g", group_instance_id="i"), [("g", "i")]),
        (pb.HeartbeatRequest(group_id="g", group_instance_id=""), [("g", "")]),
        (pb.CommitOffsetsRequest(group_id="g", group_instance_id="i"), [("g", "i")]),
        (pb.TxnCommitOffsetsRequest(group_id="g", group_instance_id="i"), [("g", "i")]),
        (
            pb.LeaveGroupRequest(
                group_id="g",
                members=[
                    pb.LeavingMember(group_instance_id="i"),
                    pb.LeavingMember(member_id="m"),
                    pb.LeavingMember(group_instance_id="j"),
                ],
            ),
            [("g", "i"), ("g", "j")],
        ),
        (pb.FetchOffsetsRequest(group_id="g"), []),
        (admin.DescribeGroupsRequest(group_ids=["g"]), []),
    ],
)
def test_the_instances_that_a_request_names(request_: Request, named: list[Instance]) -> None:
    assert list(instances_of(request_)) == named
