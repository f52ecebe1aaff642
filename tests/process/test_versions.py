"""
Sidecars of another version at the coordinator and at the operator: fields that the receiver does not know are skipped.

Of an older version come messages without the newest fields, of a newer one messages with fields beyond them.
"""

from pathlib import Path

import grpc
import pytest

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_proto.fleet.v1 import fleet_pb2 as fleet
from tests.operator.fleet.test_server import Operator, Sidecar, report, run
from tests.support.coordinator import serving

pytestmark = pytest.mark.process

SERVICE = pb.DESCRIPTOR.services_by_name["Coordinator"]
WITHIN_S = 60
# Field 1000 with the text "x", of no message.
NEWER = bytes([0xC2, 0x3E, 0x01]) + b"x"


def as_it_is(data: bytes) -> bytes:
    """Serialize and parse nothing."""
    return data


def raw(address: str, method: str, request: bytes) -> bytes:
    """Call a method with bytes, and return the bytes of the response."""
    with grpc.insecure_channel(address) as channel:
        call = channel.unary_unary(f"/{SERVICE.full_name}/{method}", as_it_is, as_it_is)
        return call(request, timeout=WITHIN_S)


def test_the_coordinator_answers_requests_of_newer_sidecars_as_those_of_its_own_version(
    tmp_path: Path,
) -> None:
    requests = {
        "FindCoordinator": pb.FindCoordinatorRequest(group_ids=["g"]),
        "Heartbeat": pb.HeartbeatRequest(group_id="g", generation_id=1, member_id="m"),
        "SyncGroup": pb.SyncGroupRequest(group_id="g", generation_id=1, member_id="m"),
        "LeaveGroup": pb.LeaveGroupRequest(group_id="g", members=[pb.LeavingMember(member_id="m")]),
        "FetchOffsets": pb.FetchOffsetsRequest(group_id="g", all=True),
    }
    with serving(tmp_path) as coordinator:
        for method, request in requests.items():
            own = request.SerializeToString()
            assert raw(coordinator.address, method, own + NEWER) == raw(coordinator.address, method, own)


@pytest.mark.parametrize(
    "received",
    [fleet.SidecarReport.FromString(report().SerializeToString() + NEWER), report()],
    ids=["newer", "older than the field version"],
)
def test_the_operator_takes_reports_of_other_versions(received: fleet.SidecarReport) -> None:
    async def story(operator: Operator) -> None:
        sidecar = Sidecar(operator)
        sidecar.send(received, None)
        assert await sidecar.end() == (grpc.StatusCode.OK, "")
        [(_, found)] = operator.reports
        assert found == received

    run(story)
