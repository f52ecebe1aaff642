"""
The member of a group as a state machine: `step` takes one event and returns the actions that it causes.

Called by `membership.driver` and by the simulation. They perform the actions in order and post a Tick at `alarm`.
"""

from collections.abc import Mapping, Sequence
from typing import assert_never

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.member import events as on
from rota_sidecar.core.member import liveness, offsets, rounds
from rota_sidecar.core.member import states as st
from rota_sidecar.core.member.actions import Action, CoordinatorRegained, DeleteMembership
from rota_sidecar.core.member.config import MemberConfig, Strategy, Subscription
from rota_sidecar.core.member.core import LEAVE_TIMEOUT_MS, Core, PendingEnd
from rota_sidecar.core.member.identity import Identity
from rota_sidecar.core.member.liveness import Alarm
from rota_sidecar.core.member.partitions import Partition, Tenure
from rota_sidecar.core.member.reactions import Api, Reaction, error_message, reaction


class Member:
    """A member of one group."""

    def __init__(
        self, config: MemberConfig, subscription: Subscription, strategies: tuple[Strategy, ...]
    ) -> None:
        self._core = Core(config, subscription, strategies)

    @property
    def group_id(self) -> str:
        """Id of the member's group."""
        return self._core.config.group_id

    @property
    def state(self) -> st.State:
        """Current state; logs and metrics show the name of its class."""
        return self._core.state

    @property
    def is_static(self) -> bool:
        """True for a static member, which keeps its place in the group when it ends."""
        return self._core.config.instance_id is not None

    @property
    def identity(self) -> Identity:
        """Member id and generation as the coordinator knows them."""
        return self._core.identity

    @property
    def held(self) -> Mapping[Partition, Tenure]:
        """Owned partitions, each with its tenure."""
        return self._core.owned.held

    @property
    def watched(self) -> frozenset[str] | None:
        """Topics whose partition counts the driver has to describe periodically; None: all topics."""
        return self._core.subscription.watched(leads=self._core.identity.leads)

    @property
    def missing(self) -> Sequence[str]:
        """Subscribed topics that do not exist; empty before the first description of topics."""
        return self._core.subscription.missing

    @property
    def alarm(self) -> Alarm | None:
        """Time of the next Tick; None: no timer runs. Changes with every step."""
        return liveness.alarm(self._core)

    def step(self, event: on.Event, now_ms: int) -> Sequence[Action]:
        """Handle an event; return the actions to perform, in order. `now_ms` is monotonic, from any origin."""
        core = self._core
        core.now_ms, core.actions = now_ms, []
        if not isinstance(event, on.ResponseReceived):
            # A process that resumes after a suspension handles old events: its partitions are lost, whatever they say.
            # A response is handled first, because it may be the one that extends the session.
            liveness.check_session(core)
        _handle(core, event)
        rounds.rejoin_if_changed(core)
        return core.actions


def _handle(core: Core, event: on.Event) -> None:
    match event:
        case on.Start() | on.End() | on.Subscribe() | on.OfferStrategies() | on.Rebalance():
            _handle_command(core, event)
        case on.CoordinatorFound() | on.ResponseReceived() | on.CallFailed() | on.AssignmentComputed():
            _handle_outcome(core, event)
        case on.Commit() | on.Fetch():
            offsets.request(core, event)
        case on.TopicsDescribed() | on.RatesMeasured() | on.RebalanceNoticed() | on.CoordinatorLost():
            _handle_observation(core, event)
        case on.PartitionsReleased():
            rounds.finish_revocation(core, event.revocation, gracefully=True)
        case on.HeartbeatRequested():
            liveness.heartbeat_now(core)
        case on.Tick():
            liveness.tick(core)
        case _:
            assert_never(event)


def _handle_command(core: Core, command: on.Command) -> None:
    match command:
        case on.Start():
            if isinstance(core.state, st.Down):
                core.saved = command.saved
                if command.saved is not None:
                    core.identity = Identity(command.saved.member_id)
                core.state = st.Discover(core.search())
        case on.End():
            _end(core, command)
        case on.Subscribe():
            core.subscription.subscribe(command.subscription)
        case on.OfferStrategies():
            core.subscription.strategies = command.strategies
        case on.Rebalance():
            rounds.rejoin_as_leader(core, command.reason)
        case _:
            assert_never(command)


def _end(core: Core, command: on.End) -> None:
    ending = PendingEnd(
        core.now_ms + command.within_ms,
        command.reason,
        command.final,
        command.leave_static,
        min(command.within_ms, LEAVE_TIMEOUT_MS),
        command.is_succeeded,
    )
    match core.state:
        case st.Stopped():
            return
        case st.Down(leave_call=leave_call):
            if command.final:
                if command.is_succeeded:
                    core.actions.append(DeleteMembership())
                core.state = st.Stopped(leave_call, command.reason, failed=False)
                if leave_call is None:
                    core.finish_leaving()
        case _:
            core.ending = ending
            rounds.begin_ending(core, ending)


def _handle_observation(
    core: Core, event: on.TopicsDescribed | on.RatesMeasured | on.RebalanceNoticed | on.CoordinatorLost
) -> None:
    match event:
        case on.TopicsDescribed():
            core.subscription.update_topics(event.partitions, leads=core.identity.leads)
            core.report_missing_topics()
            if isinstance(core.state, st.Joining) and core.state.call is None and core.state.retry_ms is None:
                core.join(core.state.attempt)
        case on.RatesMeasured():
            core.owned.rates = event.rates
        case on.RebalanceNoticed():
            is_meant = (event.member_id, event.generation) == (
                core.identity.member_id,
                core.identity.generation,
            )
            if is_meant and isinstance(core.state, st.Stable):
                rounds.rejoin(core, "the group rebalances")
        case on.CoordinatorLost():
            if core.is_connected:
                core.lose_coordinator(event.reason)
        case _:
            assert_never(event)


def _handle_outcome(core: Core, outcome: on.Outcome) -> None:
    match outcome:
        case on.CoordinatorFound():
            _found(core, outcome)
        case on.ResponseReceived():
            _answered(core, outcome)
        case on.CallFailed():
            _failed(core, outcome)
        case on.AssignmentComputed():
            state = core.state
            if isinstance(state, st.Syncing) and state.plans and state.call == outcome.call:
                core.subscription.record_planned_topics(outcome.partitions)
                core.sync(outcome.assignments, state.leader)
        case _:
            assert_never(outcome)


def _found(core: Core, event: on.CoordinatorFound) -> None:
    match core.state:
        case st.Discover(search=search) | st.Rediscover(search=search) if search.call == event.call:
            pass
        case _:
            return
    match reaction(Api.FIND, event.error):
        case Reaction.NOTHING:
            core.is_connected = True
            if isinstance(core.state, st.Rediscover):
                core.state = core.state.back
                core.actions.append(CoordinatorRegained())
                core.heartbeat_timer.trigger_now(core.now_ms)
                liveness.send_heartbeat(core)
            else:
                rounds.join_or_resume(core)
        case Reaction.RETRY:
            _search_later(core, error_message(core.config.group_id, event.error))
        case _:
            core.fail(error_message(core.config.group_id, event.error), leave=False)


def _search_later(core: Core, reason: str) -> None:
    core.report_problem(reason)
    match core.state:
        case st.Discover(search=search):
            core.state = st.Discover(core.search_later(search))
        case st.Rediscover(search=search, back=back):
            core.state = st.Rediscover(core.search_later(search), back)
        case _:
            pass


def _answered(core: Core, event: on.ResponseReceived) -> None:
    response = event.response
    match response:
        case pb.JoinGroupResponse():
            if isinstance(core.state, st.Joining) and core.state.call == event.call:
                rounds.on_join_response(core, core.state, response)
        case pb.SyncGroupResponse():
            if isinstance(core.state, st.Syncing) and core.state.call == event.call and not core.state.plans:
                rounds.on_sync_response(core, core.state, response)
        case pb.HeartbeatResponse():
            if core.heartbeat_timer.call == event.call:
                liveness.on_heartbeat_response(core, response)
        case pb.CommitOffsetsResponse() | pb.FetchOffsetsResponse():
            offsets.on_response(core, event.call, response)
        case _:
            _finish_leave_call(core, event.call)


def _finish_leave_call(core: Core, call: int) -> None:
    if isinstance(core.state, st.Down | st.Stopped) and core.state.leave_call == call:
        core.finish_leaving()


def _failed(core: Core, event: on.CallFailed) -> None:
    outcome = core.offset_calls.fail(event.call, pb.NOT_COORDINATOR)
    if outcome is not None:
        core.actions.append(outcome)
    _finish_leave_call(core, event.call)
    if outcome is None and event.call not in _calls_under_way(core):
        return
    if event.refused:
        core.fail(event.reason, leave=not _searches(core))
    elif _searches(core):
        _search_later(core, event.reason)
    elif core.is_connected:
        core.lose_coordinator(event.reason)


def _calls_under_way(core: Core) -> set[int | None]:
    """Return the call that the state of the member waits for."""
    match core.state:
        case st.Discover(search=search) | st.Rediscover(search=search):
            return {search.call}
        case st.Joining(call=call) | st.Syncing(call=call):
            return {call}
        case st.Stable() | st.Revoking():
            return {core.heartbeat_timer.call}
        case st.Down() | st.Stopped():
            return set()


def _searches(core: Core) -> bool:
    return isinstance(core.state, st.Discover | st.Rediscover)
