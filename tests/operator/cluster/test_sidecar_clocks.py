"""A pod whose clock is minutes off neither counts as stuck nor hides that it is."""

import pytest

from rota_operator.cluster.sidecar_clocks import OFFSET_MS_MIN, correct_times
from rota_proto.fleet.v1.fleet_pb2 import PartitionReport, SidecarReport

NOW_MS, FIVE_MINUTES_MS, AGE_MS = 1_000_000_000, 300_000, 40_000


def report(sent_ms: int) -> SidecarReport:
    """A report, made at this time of the pod's clock, of progress AGE_MS before, and of none."""
    return SidecarReport(
        sent_ms=sent_ms,
        partitions=[PartitionReport(last_progress_ms=sent_ms - AGE_MS), PartitionReport(partition=1)],
    )


@pytest.mark.parametrize("offset_ms", [FIVE_MINUTES_MS, -FIVE_MINUTES_MS])
def test_progress_of_a_pod_whose_clock_is_off_is_as_old_as_it_is(offset_ms: int) -> None:
    found = report(NOW_MS + offset_ms)
    correct_times(found, NOW_MS)
    assert NOW_MS - found.partitions[0].last_progress_ms == AGE_MS
    assert not found.partitions[1].HasField("last_progress_ms")


def test_the_way_of_a_report_and_a_sidecar_that_does_not_say_when_change_nothing() -> None:
    for sent_ms in (NOW_MS - OFFSET_MS_MIN + 1, 0):
        found = report(sent_ms)
        correct_times(found, NOW_MS)
        assert found.partitions[0].last_progress_ms == sent_ms - AGE_MS
