"""Commits and fetches under way, by call number, and their outcomes."""

from collections.abc import Mapping
from dataclasses import dataclass

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.member.actions import Committed, Fetched
from rota_sidecar.core.member.identity import Identity
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.core.member.reactions import Api, Error, Reaction, reaction

# Limit of calls under way; further ones fail with COORDINATOR_LOAD_IN_PROGRESS.
CALLS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class CommitCall:
    """A commit under way, with the partitions that were refused before it was sent."""

    request: int
    identity: Identity
    sent: frozenset[Partition]
    refused: Mapping[Partition, Error]


@dataclass(frozen=True, slots=True)
class FetchCall:
    """A fetch under way."""

    request: int


class OffsetCalls:
    """Commits and fetches under way. Invariant: each one leads to exactly one outcome."""

    def __init__(self) -> None:
        self._calls: dict[int, CommitCall | FetchCall] = {}

    @property
    def are_too_many(self) -> bool:
        return len(self._calls) >= CALLS_MAX

    @property
    def has_commits(self) -> bool:
        """True while the coordinator may still handle a commit of this member."""
        return any(isinstance(call, CommitCall) for call in self._calls.values())

    def begin(self, number: int, call: CommitCall | FetchCall) -> None:
        """Record a call that was sent."""
        self._calls[number] = call

    def fail(self, number: int, error: Error) -> Committed | Fetched | None:
        """Return the outcome of a call that failed; None: no commit or fetch has that number."""
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
        """Return the outcome of a commit; None: no commit under way has that number."""
        call = self._calls.pop(number, None)
        if not isinstance(call, CommitCall):
            return None
        # A partition that the response leaves out was not committed.
        unsaid = response.error_code or pb.UNKNOWN_SERVER_ERROR
        errors: dict[Partition, Error] = dict.fromkeys(call.sent, unsaid)
        for topic in response.topics:
            for each in topic.partitions:
                errors[Partition(topic.name, each.index)] = each.error_code
        return Committed(call.request, errors | dict(call.refused)), call

    def fetched(self, number: int, response: pb.FetchOffsetsResponse) -> Fetched | None:
        """Return the outcome of a fetch; None: no fetch under way has that number."""
        call = self._calls.pop(number, None)
        if not isinstance(call, FetchCall):
            return None
        return Fetched(call.request, response.error_code, response.topics)


def most_severe(api: Api, errors: frozenset[Error]) -> tuple[Reaction, Error]:
    """Return the most severe reaction to the errors of a response, and the error that causes it."""
    found = [(reaction(api, error), error) for error in sorted(errors)]
    return max(found, key=lambda each: each[0].value, default=(Reaction.NOTHING, pb.NONE))
