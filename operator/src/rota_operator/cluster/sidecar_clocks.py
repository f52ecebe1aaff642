"""
Times in reports of sidecars, corrected by how far their clocks are off. Called by `sidecars` for each report.

A node's clock may be minutes off. The operator compares the time of a partition's last progress with its own clock: a pod that is
behind would count as stuck, one that is ahead would hide that it is.
"""

from rota_proto.fleet.v1.fleet_pb2 import SidecarReport

# Smaller differences are the report's way to the operator.
OFFSET_MS_MIN = 2_000


def correct_times(report: SidecarReport, now_ms: int) -> None:
    """Express the times in a report that has just arrived by the operator's clock; one of an older sidecar stays as it is."""
    offset_ms = now_ms - report.sent_ms
    if not report.sent_ms or abs(offset_ms) < OFFSET_MS_MIN:
        return
    for each in report.partitions:
        if each.HasField("last_progress_ms"):
            each.last_progress_ms += offset_ms
    report.sent_ms = now_ms
