"""Commits and fetches for deliveries: sent while the member is in a generation, refused immediately otherwise."""

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.member import actions as do
from rota_sidecar.core.member import events as on
from rota_sidecar.core.member import rounds
from rota_sidecar.core.member import states as st
from rota_sidecar.core.member.core import Core
from rota_sidecar.core.member.offset_calls import CommitCall, FetchCall, most_severe
from rota_sidecar.core.member.partitions import Partition
from rota_sidecar.core.member.reactions import Api, Error, Reaction, error_message


def request(core: Core, event: on.OffsetRequest) -> None:
    """Handle a request of the deliveries."""
    if isinstance(event, on.Commit):
        _commit(core, event)
    else:
        _fetch(core, event)


def _commit(core: Core, event: on.Commit) -> None:
    """Send a commit; offsets of tenures that have ended are refused with ILLEGAL_GENERATION."""
    refusal = _commit_error(core)
    mine, late = core.owned.split(event.offsets)
    if refusal != pb.NONE:
        core.actions.append(do.Committed(event.request, dict.fromkeys(event.offsets, refusal)))
        return
    refused: dict[Partition, Error] = dict.fromkeys(late, pb.ILLEGAL_GENERATION)
    if not mine:
        core.actions.append(do.Committed(event.request, refused))
        return
    call = core.call()
    core.offset_calls.begin(call, CommitCall(event.request, core.identity, frozenset(mine), refused))
    core.actions.append(
        do.SendRequest(call, core.requests.commit(core.identity, mine), core.config.request_timeout_ms)
    )


def _commit_error(core: Core) -> Error:
    """Return the error with which a commit is refused now; NONE: it may be sent."""
    if core.offset_calls.are_too_many:
        return pb.COORDINATOR_LOAD_IN_PROGRESS
    match core.state:
        case st.Stable() | st.Revoking():
            return pb.NONE
        case st.Joining() | st.Syncing():
            return pb.REBALANCE_IN_PROGRESS
        case st.Discover() | st.Rediscover():
            return pb.NOT_COORDINATOR
        case st.Down() | st.Stopped():
            return pb.UNKNOWN_MEMBER_ID


def _fetch(core: Core, event: on.Fetch) -> None:
    """Fetch committed offsets; that needs a coordinator, and no generation."""
    if core.offset_calls.are_too_many:
        core.actions.append(do.Fetched(event.request, pb.COORDINATOR_LOAD_IN_PROGRESS))
    elif not core.is_connected:
        core.actions.append(do.Fetched(event.request, pb.NOT_COORDINATOR))
    else:
        call = core.call()
        core.offset_calls.begin(call, FetchCall(event.request))
        core.actions.append(
            do.SendRequest(call, core.requests.fetch(event.partitions), core.config.request_timeout_ms)
        )


def on_response(
    core: Core, number: int, response: pb.CommitOffsetsResponse | pb.FetchOffsetsResponse
) -> None:
    """Return the outcome of a commit or fetch, and react to errors that concern the membership."""
    if isinstance(response, pb.CommitOffsetsResponse):
        _committed(core, number, response)
    else:
        _fetched(core, number, response)


def _committed(core: Core, number: int, response: pb.CommitOffsetsResponse) -> None:
    found = core.offset_calls.committed(number, response)
    if found is None:
        return
    outcome, call = found
    core.actions.append(outcome)
    # An error of an earlier generation does not concern the present one.
    is_current = call.identity.generation == core.identity.generation
    if is_current and isinstance(core.state, st.Stable | st.Revoking):
        sent = frozenset(outcome.errors[partition] for partition in call.sent)
        _react(core, Api.COMMIT, sent | {response.error_code})


def _fetched(core: Core, number: int, response: pb.FetchOffsetsResponse) -> None:
    outcome = core.offset_calls.fetched(number, response)
    if outcome is None:
        return
    core.actions.append(outcome)
    if core.is_connected:
        _react(core, Api.FETCH, frozenset({response.error_code}))


def _react(core: Core, api: Api, errors: frozenset[Error]) -> None:
    what, error = most_severe(api, errors)
    match what:
        case Reaction.NOTHING:
            return
        case Reaction.REDISCOVER:
            core.lose_coordinator(error_message(core.config.group_id, error))
        case Reaction.REJOIN:
            if isinstance(core.state, st.Stable):
                rounds.rejoin(core, "the group rebalances")
        case other:
            rounds.lose_membership(core, other, error, 0)
