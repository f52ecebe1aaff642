"""Commits and fetches: what may be asked now, what was asked, and what its answer means to the member."""

from collections.abc import Mapping
from dataclasses import dataclass

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.member.actions import Committed, Fetched
from rota_sidecar.core.member.identity import Identity
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.core.member.reactions import Api, Error, Reaction, reaction

# As many as may wait at once; who asks for more is told to come again.
CALLS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class CommitCall:
    """A commit under way, and what of it was refused before it was sent."""

    request: int
    identity: Identity
    sent: frozenset[Partition]
    refused: Mapping[Partition, Error]


@dataclass(frozen=True, slots=True)
class FetchCall:
    """A fetch under way."""

    request: int


class OffsetCalls:
    """Those under way."""

    def __init__(self) -> None:
        self._calls: dict[int, CommitCall | FetchCall] = {}

    @property
    def are_too_many(self) -> bool:
        return len(self._calls) >= CALLS_MAX

    def begin(self, number: int, call: CommitCall | FetchCall) -> None:
        """It is under way."""
        self._calls[number] = call

    def fail(self, number: int, error: Error) -> Committed | Fetched | None:
        """It has no answer; None for a call that is none of these."""
        match self._calls.pop(number, None):
            case CommitCall() as call:
                return Committed(call.request, dict.fromkeys(call.sent, error) | dict(call.refused))
            case FetchCall() as call:
                return Fetched(call.request, error)
            case None:
                return None

    def committed(
        self, number: int, response: pb.CommitOffsetsResponse
    ) -> tuple[Committed, CommitCall] | None:
        """The outcome of a commit that was asked for."""
        call = self._calls.pop(number, None)
        if not isinstance(call, CommitCall):
            return None
        # An answer that says nothing of a partition has not committed it.
        unsaid = response.error_code or pb.UNKNOWN_SERVER_ERROR
        errors: dict[Partition, Error] = dict.fromkeys(call.sent, unsaid)
        for topic in response.topics:
            for each in topic.partitions:
                errors[Partition(topic.name, each.index)] = each.error_code
        return Committed(call.request, errors | dict(call.refused)), call

    def fetched(self, number: int, response: pb.FetchOffsetsResponse) -> Fetched | None:
        """The outcome of a fetch that was asked for."""
        call = self._calls.pop(number, None)
        if not isinstance(call, FetchCall):
            return None
        return Fetched(call.request, response.error_code, response.topics)


def most_severe(api: Api, errors: frozenset[Error]) -> tuple[Reaction, Error]:
    """What to do about an answer with several errors, and for which of them."""
    found = [(reaction(api, error), error) for error in sorted(errors)]
    return max(found, key=lambda each: each[0].value, default=(Reaction.NOTHING, pb.NONE))
