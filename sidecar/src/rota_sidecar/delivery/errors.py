"""What the coordinator may answer to a commit or a look-up, and what that says about asking again."""

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.delivery.core import Error

# It passes by itself.
TRANSIENT = frozenset(
    {
        pb.COORDINATOR_LOAD_IN_PROGRESS,
        pb.COORDINATOR_NOT_AVAILABLE,
        pb.NOT_COORDINATOR,
        pb.REBALANCE_IN_PROGRESS,
        pb.REQUEST_TIMED_OUT,
        pb.UNSTABLE_OFFSET_COMMIT,
    }
)
# The membership under which it was said is over; the member knows, and says so.
FENCED = frozenset({pb.FENCED_INSTANCE_ID, pb.ILLEGAL_GENERATION, pb.UNKNOWN_MEMBER_ID})


def name_of(error: Error) -> str:
    """As Kafka calls it."""
    return pb.ErrorCode.Name(error) if error in pb.ErrorCode.values() else str(error)
