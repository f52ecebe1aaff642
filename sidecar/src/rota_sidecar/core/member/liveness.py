"""Timers of the member: heartbeats, retries, the session timeout, and deadlines of revocations and of ending."""

from collections.abc import Iterator
from typing import NamedTuple

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.member import actions as do
from rota_sidecar.core.member import rounds
from rota_sidecar.core.member import states as st
from rota_sidecar.core.member.core import Core
from rota_sidecar.core.member.reactions import Api, Reaction, error_message, reaction

# Retries are moved by up to this share of their delay, so that members that lost a coordinator together spread out.
JITTER = 0.2


class Alarm(NamedTuple):
    """Time of the next Tick: the driver draws it uniformly from [at_ms, at_ms + spread_ms]."""

    at_ms: int
    spread_ms: int = 0


def alarm(core: Core) -> Alarm | None:
    """Return the next alarm; None: no timer runs."""
    return min(_alarms(core), default=None)


def _alarms(core: Core) -> Iterator[Alarm]:
    match core.state:
        case st.Discover(search=search) | st.Rediscover(search=search) if search.call is None:
            yield _jittered(core, search.retry_ms)
        case st.Joining(call=None, retry_ms=int(retry_ms)):
            yield _jittered(core, retry_ms)
        case _:
            pass
    if _sends_heartbeats(core) and core.heartbeat_timer.call is None:
        yield Alarm(core.heartbeat_timer.due_ms)
    if _session_may_expire(core):
        yield Alarm(core.heartbeat_timer.alive_until_ms)
    revoking = _revoking(core)
    if revoking is not None:
        yield Alarm(revoking.deadline_ms)
    if core.ending is not None:
        yield Alarm(core.ending.deadline_ms)


def _jittered(core: Core, at_ms: int) -> Alarm:
    half_ms = int(max(at_ms - core.now_ms, 0) * JITTER)
    return Alarm(at_ms - half_ms, 2 * half_ms)


def _sends_heartbeats(core: Core) -> bool:
    return isinstance(core.state, st.Stable | st.Revoking)


def _session_may_expire(core: Core) -> bool:
    """Return True if missing heartbeats end the session: not while a join or a sync is under way, which may take long."""
    match core.state:
        case st.Joining(call=int()) | st.Syncing():
            return False
        case _:
            return bool(core.owned.held)


def _revoking(core: Core) -> st.Revoking | None:
    match core.state:
        case st.Revoking() as state:
            return state
        case st.Rediscover(back=st.Revoking() as state):
            return state
        case _:
            return None


def tick(core: Core) -> None:
    """Handle all timers that are due."""
    if core.ending is not None and core.now_ms >= core.ending.deadline_ms:
        core.lose("the time limit for leaving has passed")
        core.end_now(core.ending)
        return
    revoking = _revoking(core)
    if revoking is not None and core.now_ms >= revoking.deadline_ms:
        rounds.finish_revocation(core, revoking.revocation, gracefully=False)
    _retry(core)
    if (
        _sends_heartbeats(core)
        and core.heartbeat_timer.call is None
        and core.now_ms >= core.heartbeat_timer.due_ms
    ):
        send_heartbeat(core)


def check_session(core: Core) -> None:
    """Lose all partitions if the session timeout has passed since the last heartbeat that the coordinator answered."""
    if not _session_may_expire(core) or core.now_ms < core.heartbeat_timer.alive_until_ms:
        return
    reason = f"no heartbeat of group {core.config.group_id} was answered within the session timeout"
    core.reset_generation(reason)
    if core.ending is not None:
        core.is_connected = False
        core.end_now(core.ending)
        return
    match core.state:
        case st.Stable() | st.Revoking():
            core.report_problem(reason)
            core.state = st.Discover(core.search())
        case st.Rediscover() as state:
            core.state = st.Discover(state.search)
        case _:
            pass


def _retry(core: Core) -> None:
    match core.state:
        case st.Discover(search=search) if search.call is None and _is_due(core, search.retry_ms):
            core.state = st.Discover(core.search(search.attempt))
        case st.Rediscover(search=search, back=back) if search.call is None and _is_due(
            core, search.retry_ms
        ):
            core.state = st.Rediscover(core.search(search.attempt), back)
        case st.Joining(call=None, retry_ms=int(retry_ms), attempt=attempt) if _is_due(core, retry_ms):
            core.join(attempt)
        case _:
            pass


def _is_due(core: Core, at_ms: int) -> bool:
    """Return True if a retry may be made; the jitter of the alarm may make it early."""
    return core.now_ms >= at_ms - int(core.config.backoff_max_ms * JITTER)


def send_heartbeat(core: Core) -> None:
    """Send a heartbeat."""
    call = core.call()
    core.heartbeat_timer.sent(call, core.now_ms)
    request = core.requests.heartbeat(core.identity)
    core.actions.append(do.SendRequest(call, request, core.config.heartbeat_timeout_ms))


def heartbeat_now(core: Core) -> None:
    """Send a heartbeat before it is due, unless one is under way."""
    if _sends_heartbeats(core) and core.heartbeat_timer.call is None:
        send_heartbeat(core)


def on_heartbeat_response(core: Core, response: pb.HeartbeatResponse) -> None:
    """Handle the response to the heartbeat under way."""
    error = response.error_code
    match reaction(Api.HEARTBEAT, error):
        case Reaction.NOTHING:
            core.heartbeat_timer.acknowledged()
        case Reaction.REJOIN:
            core.heartbeat_timer.acknowledged()
            if isinstance(core.state, st.Stable):
                rounds.rejoin(core, "the group rebalances")
        case Reaction.RETRY:
            core.heartbeat_timer.failed(core.now_ms)
        case Reaction.REDISCOVER:
            core.lose_coordinator(error_message(core.config.group_id, error))
        case other:
            rounds.lose_membership(core, other, error, 0)
