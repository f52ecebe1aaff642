"""`kubectl rota groups` shows what the status of a ConsumerGroup holds, and nothing as known that it does not hold."""

from tests.cli.kubectl.api_server import refusal
from tests.cli.kubectl.conftest import Kubectl, Serve
from tests.cli.kubectl.resources import NAME, PATH, STATUS, answering, condition, group

UNKNOWN = {
    "observedGeneration": 2,
    "phase": "Unknown",
    "conditions": [
        condition("Ready", "Unknown", "CoordinatorUnreachable", "the group's coordinator does not answer"),
        condition("Lagging", "Unknown", "LagUnknown"),
    ],
}
INSTANCES = "rota-orders-enricher-instances"


def test_a_group_is_described_by_its_status(serve: Serve, kubectl: Kubectl) -> None:
    server = serve(answering(group()))
    lines = kubectl("groups", "describe", NAME).lines
    assert "group:              shop.orders-enricher" in lines
    assert "ready:              True (PartitionsProgress)" in lines
    assert "last rebalance:     orders-1 joined (12 ms, 6 partitions moved)" in lines
    assert "replicas:           2, 2 ready, 2 desired" in lines
    assert [line.split()[:3] for line in lines if line.startswith(("CONDITION", "Ready", "POD", "orders-1"))] == [
        ["CONDITION", "STATUS", "REASON"],
        ["Ready", "True", "PartitionsProgress"],
        ["POD", "MEMBER-ID", "INSTANCE-ID"],
        ["orders-1", "orders-1-b2", "-"],
    ]  # fmt: skip
    # The namespace is that of the context.
    assert [each.path for each in server.sent] == [f"{PATH}/{NAME}"]


def test_a_description_is_for_programs_too(serve: Serve, kubectl: Kubectl) -> None:
    serve(answering(group()))
    data = kubectl("groups", "describe", NAME, "-o", "json").data
    assert (data["group"], data["lag_records"], data["generation"]) == ("shop.orders-enricher", 7, 4)
    assert data["last_rebalance"] == {
        "reason": "orders-1 joined",
        "duration_ms": 12,
        "moved_partitions": 6,
    }
    assert data["conditions"][0]["reason"] == "PartitionsProgress"
    assert data["members"][1] == {
        "pod": "orders-1",
        "member_id": "orders-1-b2",
        "instance_id": None,
        "partitions": 6,
        "lag_records": None,
    }
    yaml = kubectl("groups", "describe", NAME, "-o", "yaml").stdout
    assert "group: shop.orders-enricher\n" in yaml


def test_a_namespace_is_chosen_by_its_flag(serve: Serve, kubectl: Kubectl) -> None:
    server = serve(answering(group()))
    assert kubectl("groups", "members", NAME, "-n", "other").code == 4
    assert server.sent[0].path == f"{PATH.replace('/shop/', '/other/')}/{NAME}"


def test_members_of_static_membership_have_the_instances_of_the_config_map(
    serve: Serve, kubectl: Kubectl
) -> None:
    data = {"orders-enricher-0": "orders-1 u-9", "orders-enricher-1": "orders-0 u-8"}
    serve(answering(group(membership={"static": True}), **{INSTANCES: {"data": data}}))
    shown = kubectl("groups", "members", NAME, "-o", "json").data
    assert {each["pod"]: each["instance_id"] for each in shown} == {
        "orders-0": "orders-enricher-1",
        "orders-1": "orders-enricher-0",
    }


def test_instances_are_unknown_without_the_right_to_read_them(serve: Serve, kubectl: Kubectl) -> None:
    denied = refusal(403, 'configmaps "x" is forbidden: User "alice" cannot get resource "configmaps"')
    server = serve(answering(group(membership={"static": True}), **{INSTANCES: denied}))
    done = kubectl("groups", "members", NAME)
    assert done.code == 0
    assert done.stderr == (
        "instances of static members are unknown: alice may not get configmaps in namespace shop "
        f"at {server.address}: ask its administrator for this right\n"
    )


def test_the_lag_is_that_of_all_partitions_and_of_each_member(serve: Serve, kubectl: Kubectl) -> None:
    serve(answering(group({**STATUS, "unownedPartitions": 1})))
    done = kubectl("groups", "lag", NAME)
    assert [line.split() for line in done.lines] == [
        ["POD", "PARTITIONS", "LAG-RECORDS"],
        ["orders-0", "6", "7"],
        ["orders-1", "6", "-"],
    ]
    assert done.stderr == (
        "group shop.orders-enricher has a lag of 7 records, up to 5 in one partition, the oldest is 3 s old; "
        "1 partition without an owner included\n"
    )


def test_a_lag_without_records_is_zero(serve: Serve, kubectl: Kubectl) -> None:
    serve(answering(group({**STATUS, "lag": {"total": 0, "max": 0, "maxSeconds": 0}})))
    assert kubectl("groups", "lag", NAME).stderr == "group shop.orders-enricher has a lag of 0 records\n"
    assert kubectl("groups", "lag", NAME, "-o", "json").data["lag_seconds"] == 0


def test_what_the_status_does_not_hold_is_unknown_and_never_zero(serve: Serve, kubectl: Kubectl) -> None:
    serve(answering(group(UNKNOWN)))
    described = kubectl("groups", "describe", NAME)
    assert "members:            -" in described.lines
    assert "last rebalance:     -" in described.lines
    data = kubectl("groups", "lag", NAME, "-o", "json").data
    assert {data[each] for each in ("lag_records", "lag_seconds", "partition_lag_records_max")} == {None}
    assert kubectl("groups", "lag", NAME).stderr == "the lag of shop/orders-enricher is unknown: LagUnknown\n"
    assert kubectl("groups", "members", NAME).stderr == (
        "the members of shop/orders-enricher are unknown: the group's coordinator does not answer\n"
    )


def test_a_status_of_another_time_is_said(serve: Serve, kubectl: Kubectl) -> None:
    serve(answering(group({**STATUS, "observedGeneration": 1})))
    assert kubectl("groups", "describe", NAME).stderr == (
        "the status is of generation 1 of the spec, and the newest is 2: the operator has not followed the last edit yet\n"
    )
    serve(answering(group({})))
    assert kubectl("groups", "describe", NAME).stderr == (
        "the operator has written no status of shop/orders-enricher: run `kubectl rota doctor orders-enricher -n shop`\n"
    )


def test_a_list_of_members_that_is_cut_off_is_said(serve: Serve, kubectl: Kubectl) -> None:
    serve(answering(group({**STATUS, "members": 150})))
    assert kubectl("groups", "members", NAME).stderr == "the status lists 2 of 150 members\n"


def test_committed_offsets_are_not_in_the_status(serve: Serve, kubectl: Kubectl) -> None:
    serve(answering(group()))
    done = kubectl("groups", "offsets", NAME)
    assert done.code == 1
    assert done.error == (
        "the status of shop/orders-enricher holds no committed offsets by partition: run "
        "`rota groups offsets shop.orders-enricher --bootstrap-servers rota://rota-coordinator.rota:7070` "
        "where these servers can be reached"
    )
