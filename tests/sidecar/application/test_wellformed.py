"""Every request of the contract is validated."""

import math

import pytest

from rota_proto.sidecar.v1 import sidecar_pb2 as pb
from rota_sidecar.application.wellformed import FAULTS, fault

Report = pb.AttachRequest.Report
ORDERS_0 = pb.TopicPartition(topic="orders")


def test_every_request_that_says_anything_is_looked_at() -> None:
    service = pb.DESCRIPTOR.services_by_name["Consumer"]
    requests = {method.input_type.name for method in service.methods if method.input_type.fields}
    assert requests == {kind.DESCRIPTOR.name for kind in FAULTS}
    assert len(requests) == 15


@pytest.mark.parametrize(
    ("report", "message"),
    [
        (Report(positions=[Report.Position(partition=ORDERS_0, position=-1)]), "position is -1"),
        (
            Report(positions=[Report.Position(partition=ORDERS_0, timestamp_only=True)]),
            "timestamp_only without timestamp_ms",
        ),
        (Report(progress=Report.Progress(input_rows=-1)), "negative or not finite"),
        (Report(progress=Report.Progress(batch_duration_ms=-1)), "negative or not finite"),
        (Report(progress=Report.Progress(processed_rows_per_second=-0.5)), "negative or not finite"),
        (Report(progress=Report.Progress(processed_rows_per_second=math.nan)), "negative or not finite"),
        (Report(progress=Report.Progress(processed_rows_per_second=math.inf)), "negative or not finite"),
    ],
)
def test_a_report_that_makes_no_sense_is_refused(report: Report, message: str) -> None:
    assert message in fault(pb.AttachRequest(report=report))


def test_a_report_with_progress_and_a_timestamp_is_valid() -> None:
    position = Report.Position(partition=ORDERS_0, position=0, timestamp_ms=0, timestamp_only=True)
    assert fault(pb.AttachRequest(report=Report(positions=[position], progress=Report.Progress()))) == ""
