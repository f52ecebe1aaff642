"""Every request of the contract is validated."""

from rota_proto.sidecar.v1 import sidecar_pb2 as pb
from rota_sidecar.application.wellformed import FAULTS


def test_every_request_that_says_anything_is_looked_at() -> None:
    service = pb.DESCRIPTOR.services_by_name["Consumer"]
    requests = {method.input_type.name for method in service.methods if method.input_type.fields}
    assert requests == {kind.DESCRIPTOR.name for kind in FAULTS}
    assert len(requests) == 15
