"""Error codes of commits and offset lookups: which ones are transient, and the advice for each."""

from collections.abc import Mapping
from typing import TypeAlias

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.member.partitions import Partition

Error: TypeAlias = pb.ErrorCode.ValueType

# Errors that pass without an operator; a retry succeeds.
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
# Errors of a generation that has ended. Either the member has lost the partition, and a Lost event follows, or it has kept
# the partition, and the next attempt is made in the present generation.
FENCED = frozenset({pb.FENCED_INSTANCE_ID, pb.ILLEGAL_GENERATION, pb.UNKNOWN_MEMBER_ID})
ADVICE = {
    pb.ILLEGAL_GENERATION: "it was reassigned, to another member or in a new tenure: continue with the present assignment",
    pb.UNKNOWN_TOPIC_OR_PARTITION: "it does not exist or is not assigned to this member: check the assignment",
    pb.OFFSET_OUT_OF_RANGE: "the offset must be 0 or higher (a seek also takes -1, the end, and -2, the start)",
    pb.OFFSET_METADATA_TOO_LARGE: "the metadata is longer than the coordinator allows: shorten it",
}


def name_of(error: Error) -> str:
    """Return Kafka's name of an error; the number of an unknown one."""
    return pb.ErrorCode.Name(error) if error in pb.ErrorCode.values() else str(error)


def message_of(errors: Mapping[Partition, Error]) -> str:
    """Return a message about the first partition with an error; empty: no partition has one."""
    failed = sorted(partition for partition, error in errors.items() if error != pb.NONE)
    if not failed:
        return ""
    first = failed[0]
    others = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
    advice = ADVICE.get(errors[first], "see the coordinator's log")
    return f"{first.topic}-{first.number}{others}: {name_of(errors[first])}, {advice}"
