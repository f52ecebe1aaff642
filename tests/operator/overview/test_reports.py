"""Problems that sidecars report are shown in one message each, with the partitions that they concern."""

from rota_operator.overview.reports import problems_of
from rota_proto.fleet.v1 import fleet_pb2 as pb


def partition(number: int, problem: str = "") -> pb.PartitionReport:
    return pb.PartitionReport(topic="orders", partition=number, problem=problem)


def test_partitions_with_the_same_problem_share_a_message() -> None:
    report = pb.SidecarReport(
        member=pb.MemberReport(problems=["topic x does not exist: create it"]),
        partitions=[partition(0, "seek"), partition(1), partition(2, "denied"), partition(3, "seek")],
    )
    assert problems_of(report) == (
        "topic x does not exist: create it",
        "orders-0, orders-3: seek",
        "orders-2: denied",
    )


def test_a_message_names_no_more_than_twenty_partitions() -> None:
    (said,) = problems_of(pb.SidecarReport(partitions=[partition(number, "seek") for number in range(25)]))
    assert said.endswith("orders-19 and 5 more: seek")


def test_nothing_is_said_where_nothing_is_wrong() -> None:
    assert problems_of(pb.SidecarReport(partitions=[partition(0)])) == ()
