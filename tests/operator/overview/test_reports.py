"""Problems that sidecars report are shown in one message each, with the partitions that they concern."""

from rota_operator.overview.reports import REPORT_VALID_MS, SidecarReports, problems_of
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


def test_a_report_says_something_new_unless_only_numbers_and_times_have_changed() -> None:
    reports, now_ms = SidecarReports(), 1_000_000

    def update(member: pb.MemberReport, *partitions: pb.PartitionReport, at_ms: int = now_ms) -> bool:
        return reports.update(pb.SidecarReport(member=member, partitions=partitions), at_ms)

    stable = pb.MemberReport(state=pb.MEMBER_STATE_STABLE, generation_id=1)
    assert update(stable, partition(0))
    moved = pb.PartitionReport(
        topic="orders", partition=0, position=9, committed=8, end=9, last_progress_ms=5
    )
    stable.records_done = 9
    assert not update(stable, moved)
    assert update(stable, partition(0, "seek"))
    assert update(stable, partition(0, "seek"), partition(1))
    stable.suspended = True
    assert update(stable, partition(0, "seek"), partition(1))
    stable.generation_id = 2
    assert update(stable, partition(0, "seek"), partition(1))
    assert not update(stable, partition(0, "seek"), partition(1), at_ms=now_ms + REPORT_VALID_MS)
    assert update(stable, partition(0, "seek"), partition(1), at_ms=now_ms + 2 * REPORT_VALID_MS + 1)
