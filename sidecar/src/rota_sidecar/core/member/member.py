"""
The member: what it does next, whatever happens.

Called by the sidecar's shell and by the simulation: they feed events, perform the actions in order, and send a Tick
when the alarm says so.
"""

from collections.abc import Mapping, Sequence
from typing import assert_never

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.member import events as on
from rota_sidecar.core.member import liveness, offsets, rounds
from rota_sidecar.core.member import states as st
from rota_sidecar.core.member.actions import Action
from rota_sidecar.core.member.config import MemberConfig, Strategy, Subscription
from rota_sidecar.core.member.core import GOODBYE_TIMEOUT_MS, Core, Ending
from rota_sidecar.core.member.identity import Identity
from rota_sidecar.core.member.liveness import Alarm
from rota_sidecar.core.member.partitions import Partition, Tenure
from rota_sidecar.core.member.reactions import Api, Reaction, reaction, sentence


class Member:
    """A member of one group."""

    def __init__(
        self, config: MemberConfig, subscription: Subscription, strategies: tuple[Strategy, ...]
    ) -> None:
        self._core = Core(config, subscription, strategies)

    @property
    def state(self) -> st.State:
        """Where it is; the name of its class is what people are told."""
        return self._core.state

    @property
    def identity(self) -> Identity:
        """Who it is to its coordinator."""
        return self._core.identity

    @property
    def held(self) -> Mapping[Partition, Tenure]:
        """What it has."""
        return self._core.holdings.held

    @property
    def watched(self) -> frozenset[str] | None:
        """The topics that it has to be told about, as often as they are looked at; None for all."""
        return self._core.interests.watched(leads=self._core.identity.leads)

    @property
    def missing(self) -> Sequence[str]:
        """The topics that it subscribes to and that do not exist, as far as it has looked."""
        return self._core.interests.missing

    @property
    def alarm(self) -> Alarm | None:
        """When it wants a Tick. Ask after every step."""
        return liveness.alarm(self._core)

    def step(self, event: on.Event, now_ms: int) -> Sequence[Action]:
        """What is to be done about the event. `now_ms` never falls; what it counts from is no matter."""
        core = self._core
        core.now_ms, core.actions = now_ms, []
        if not isinstance(event, on.Answered):
            # A process that was frozen wakes with old events: what it had is not its own any more, whatever they say.
            # An answer comes first, for it may be the one that kept the member alive.
            liveness.notice_silence(core)
        _handle(core, event)
        rounds.rejoin_if_told(core)
        return core.actions


def _handle(core: Core, event: on.Event) -> None:
    match event:
        case on.Start() | on.End() | on.Subscribe() | on.OfferStrategies():
            _heed(core, event)
        case on.Found() | on.Answered() | on.Failed() | on.Led():
            _resume(core, event)
        case on.Commit():
            offsets.commit(core, event)
        case on.Fetch():
            offsets.fetch(core, event)
        case on.TopicsSeen() | on.RatesMeasured() | on.Noticed() | on.CoordinatorGone():
            _look(core, event)
        case on.GivenUp():
            rounds.let_go(core, event.revocation, in_good_order=True)
        case on.Tick():
            liveness.tick(core)
        case _:
            assert_never(event)


def _heed(core: Core, wish: on.Wish) -> None:
    match wish:
        case on.Start():
            if isinstance(core.state, st.Down):
                core.remembered = wish.remembered
                if wish.remembered is not None:
                    core.identity = Identity(wish.remembered.member_id)
                core.state = st.Discover(core.search())
        case on.End():
            _end(core, wish)
        case on.Subscribe():
            core.interests.subscribe(wish.subscription)
        case on.OfferStrategies():
            core.interests.strategies = wish.strategies
        case _:
            assert_never(wish)


def _end(core: Core, wish: on.End) -> None:
    ending = Ending(
        core.now_ms + wish.within_ms,
        wish.reason,
        wish.final,
        wish.leave_static,
        min(wish.within_ms, GOODBYE_TIMEOUT_MS),
    )
    match core.state:
        case st.Stopped():
            return
        case st.Down(goodbye=goodbye):
            if wish.final:
                core.state = st.Stopped(goodbye, wish.reason, failed=False)
                if goodbye is None:
                    core.say_goodbye_no_more()
        case _:
            core.ending = ending
            rounds.wind_up(core, ending)


def _look(core: Core, event: on.TopicsSeen | on.RatesMeasured | on.Noticed | on.CoordinatorGone) -> None:
    match event:
        case on.TopicsSeen():
            core.interests.look(event.partitions, leads=core.identity.leads)
            core.look_for_missing()
            if isinstance(core.state, st.Joining) and core.state.call is None and core.state.retry_ms is None:
                core.join(core.state.attempt)
        case on.RatesMeasured():
            core.holdings.rates = event.rates
        case on.Noticed():
            is_meant = (event.member_id, event.generation) == (
                core.identity.member_id,
                core.identity.generation,
            )
            if is_meant and isinstance(core.state, st.Stable):
                rounds.rejoin(core, "the group rebalances")
        case on.CoordinatorGone():
            if core.is_connected:
                core.lose_coordinator(event.reason)
        case _:
            assert_never(event)


def _resume(core: Core, outcome: on.Outcome) -> None:
    match outcome:
        case on.Found():
            _found(core, outcome)
        case on.Answered():
            _answered(core, outcome)
        case on.Failed():
            _failed(core, outcome)
        case on.Led():
            state = core.state
            if isinstance(state, st.Syncing) and state.plans and state.call == outcome.call:
                core.interests.plan(outcome.partitions)
                core.sync(outcome.assignments, state.leader)
        case _:
            assert_never(outcome)


def _found(core: Core, event: on.Found) -> None:
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
                core.pulse.hurry(core.now_ms)
                liveness.beat(core)
            else:
                rounds.enter(core)
        case Reaction.RETRY:
            _search_later(core, sentence(core.config.group_id, event.error))
        case _:
            core.fail(sentence(core.config.group_id, event.error), leave=False)


def _search_later(core: Core, reason: str) -> None:
    core.complain(reason)
    match core.state:
        case st.Discover(search=search):
            core.state = st.Discover(core.search_later(search))
        case st.Rediscover(search=search, back=back):
            core.state = st.Rediscover(core.search_later(search), back)
        case _:
            pass


def _answered(core: Core, event: on.Answered) -> None:
    response = event.response
    match response:
        case pb.JoinGroupResponse():
            if isinstance(core.state, st.Joining) and core.state.call == event.call:
                rounds.joined(core, core.state, response)
        case pb.SyncGroupResponse():
            if isinstance(core.state, st.Syncing) and core.state.call == event.call and not core.state.plans:
                rounds.synced(core, core.state, response)
        case pb.HeartbeatResponse():
            if core.pulse.call == event.call:
                liveness.heard(core, response)
        case pb.CommitOffsetsResponse() | pb.FetchOffsetsResponse():
            offsets.answered(core, event.call, response)
        case _:
            _said_goodbye(core, event.call)


def _said_goodbye(core: Core, call: int) -> None:
    if isinstance(core.state, st.Down | st.Stopped) and core.state.goodbye == call:
        core.say_goodbye_no_more()


def _failed(core: Core, event: on.Failed) -> None:
    outcome = core.offset_calls.fail(event.call, pb.NOT_COORDINATOR)
    if outcome is not None:
        core.actions.append(outcome)
    _said_goodbye(core, event.call)
    if outcome is None and event.call not in _awaited(core):
        return
    if event.refused:
        core.fail(event.reason, leave=not _searches(core))
    elif _searches(core):
        _search_later(core, event.reason)
    elif core.is_connected:
        core.lose_coordinator(event.reason)


def _awaited(core: Core) -> set[int | None]:
    """The calls that the member itself waits for."""
    match core.state:
        case st.Discover(search=search) | st.Rediscover(search=search):
            return {search.call}
        case st.Joining(call=call) | st.Syncing(call=call):
            return {call}
        case st.Stable() | st.Revoking():
            return {core.pulse.call}
        case st.Down() | st.Stopped():
            return set()


def _searches(core: Core) -> bool:
    return isinstance(core.state, st.Discover | st.Rediscover)
