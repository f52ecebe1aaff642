"""Error codes of commits and lookups: which are transient, and the advice that goes with each."""

from collections.abc import Mapping
from typing import TypeAlias

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.member.partitions import Partition

Error: TypeAlias = pb.ErrorCode.ValueType

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
# It was said in a generation that is over. Either the member has lost the partition, and says so by itself; or it has
# kept it, and the next attempt is made in the generation of now.
FENCED = frozenset({pb.FENCED_INSTANCE_ID, pb.ILLEGAL_GENERATION, pb.UNKNOWN_MEMBER_ID})
ADVICE = {
    pb.ILLEGAL_GENERATION: "it is another's by now, or in another tenure: go on with what is assigned",
    pb.UNKNOWN_TOPIC_OR_PARTITION: "it is not there, or not assigned: see what is",
    pb.OFFSET_OUT_OF_RANGE: "there is no such offset: give one from 0 on (to seek also -1, the end, or -2, the start)",
    pb.OFFSET_METADATA_TOO_LARGE: "the metadata is longer than the coordinator allows: say less",
}


def name_of(error: Error) -> str:
    """As Kafka calls it."""
    return pb.ErrorCode.Name(error) if error in pb.ErrorCode.values() else str(error)


def message_of(errors: Mapping[Partition, Error]) -> str:
    """Return a message about the first partition with an error; empty: there is none."""
    failed = sorted(partition for partition, error in errors.items() if error != pb.NONE)
    if not failed:
        return ""
    first = failed[0]
    others = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
    advice = ADVICE.get(errors[first], "see the coordinator's log")
    return f"{first.topic}-{first.number}{others}: {name_of(errors[first])}, {advice}"
