"""Rebalances: join, sync, apply the assignment, revoke, and join again."""

from rota_proto.consumer_protocol import Malformed
from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.consumer_protocol.assignment import decode_assignment
from rota_sidecar.core.consumer_protocol.offers import topics_of
from rota_sidecar.core.consumer_protocol.user_data import (
    AssignmentData,
    decode_assignment_data,
    fingerprint_of_topics,
)
from rota_sidecar.core.member import actions as do
from rota_sidecar.core.member import states as st
from rota_sidecar.core.member.core import Core, PendingEnd
from rota_sidecar.core.member.identity import NO_GENERATION, Identity
from rota_sidecar.core.member.partitions import Partition, flatten
from rota_sidecar.core.member.reactions import Api, Error, Reaction, error_message, reaction


def join_or_resume(core: Core) -> None:
    """Resume the saved membership with SyncGroup, or join."""
    saved, core.saved = core.saved, None
    if core.ending is not None and not core.owned.held:
        core.end_now(core.ending)
    elif saved is not None and saved.generation != NO_GENERATION:
        core.identity = Identity(saved.member_id, saved.generation, saved.strategy, leads=saved.leads)
        core.joined_with, core.subscription.group_topics = saved.join_metadata, saved.group_topics
        # In a generation that still lasts, the coordinator answers immediately with the present assignment.
        core.sync()
    else:
        core.join()


def on_join_response(core: Core, state: st.Joining, response: pb.JoinGroupResponse) -> None:
    """Handle the response to JoinGroup: sync, or react to the error."""
    error = response.error_code
    match reaction(Api.JOIN, error):
        case Reaction.NOTHING:
            _begin_generation(core, response)
        case Reaction.ADOPT_MEMBER_ID:
            core.identity = Identity(response.member_id)
            core.save_membership()
            core.join_later(state.attempt, core.reason)
        case Reaction.RETRY:
            core.join_later(state.attempt + 1, core.reason)
        case Reaction.REDISCOVER:
            core.lose_coordinator(error_message(core.config.group_id, error))
        case other:
            lose_membership(core, other, error, state.attempt)


def _begin_generation(core: Core, response: pb.JoinGroupResponse) -> None:
    core.heartbeat_timer.call = None
    core.identity = Identity(
        response.member_id,
        response.generation_id,
        response.protocol_name,
        leads=response.leader == response.member_id,
    )
    if core.identity.leads and response.skip_assignment:
        # A static leader that restarted gets the present plan; its assignment holds the plan's fingerprint.
        core.subscription.group_topics = topics_of(each.metadata for each in response.members)
    if not core.identity.leads or response.skip_assignment:
        core.sync(leader=response.leader)
        return
    call = core.call()
    core.state = st.Syncing(call, core.now_ms, response.leader, plans=True)
    core.actions.append(
        do.ComputeAssignment(
            call,
            response.member_id,
            response.protocol_name,
            response.generation_id,
            response.members,
            core.config.request_timeout_ms,
        )
    )


def on_sync_response(core: Core, state: st.Syncing, response: pb.SyncGroupResponse) -> None:
    """Handle the response to SyncGroup: apply the assignment, or react to the error."""
    error = response.error_code
    match reaction(Api.SYNC, error):
        case Reaction.NOTHING if core.now_ms >= state.sent_ms + core.config.session_timeout_ms:
            # The response may be a session old. The coordinator answers a second sync immediately with the present state.
            core.sync(leader=state.leader)
        case Reaction.NOTHING:
            _on_assignment(core, state, response)
        case Reaction.RETRY:
            core.join_later(1, error_message(core.config.group_id, error))
        case Reaction.REJOIN:
            core.join_later(0, "the group rebalances again")
        case Reaction.REDISCOVER:
            core.lose_coordinator(error_message(core.config.group_id, error))
        case other:
            lose_membership(core, other, error, 0)


def _on_assignment(core: Core, state: st.Syncing, response: pb.SyncGroupResponse) -> None:
    try:
        assignment = decode_assignment(response.assignment)
    except Malformed as error:
        core.fail(
            f"the leader of group {core.config.group_id}, member {state.leader or 'unknown'}, sent an invalid "
            f"assignment ({error}): check which client that is",
            leave=True,
        )
        return
    identity = core.identity
    data = decode_assignment_data(assignment.user_data)
    incarnation = data.incarnation
    core.subscription.set_plan_fingerprint(data.planned)
    core.identity = Identity(
        identity.member_id, identity.generation, identity.strategy, incarnation, identity.leads
    )
    given = flatten(assignment.partitions)
    core.owned.record_assignment(given, identity.generation, incarnation)
    core.heartbeat_timer.begin(state.sent_ms, core.now_ms)
    core.clear_problem()
    core.actions.append(
        do.Joined(
            identity.member_id,
            identity.generation,
            incarnation,
            identity.strategy,
            identity.leads,
            state.leader,
        )
    )
    core.save_membership()
    _apply_assignment(core, given, _rejoin_reason(core, data))


def _rejoin_reason(core: Core, data: AssignmentData) -> str:
    """Return why the member has to join again after this assignment; empty: it stays."""
    if data.rejoins:
        # Before its restart the member owned partitions that move; they have no owner until it joins again.
        return "rejoined after a restart during which partitions moved"
    if data.subscribed and data.subscribed != fingerprint_of_topics(core.joined_with.topics):
        # A static member that restarts with other topics gets the assignment for its former subscription.
        return "the subscription changed during a restart"
    return ""


def _apply_assignment(core: Core, given: frozenset[Partition], again: str) -> None:
    """Revoke what the assignment removes, then assign what it adds; an End command comes first."""
    held = core.owned.held.keys()
    core.state = st.Stable()
    if core.ending is not None:
        begin_ending(core, core.ending)
    elif taken := frozenset(held - given):
        core.reason = "rejoined after revoking partitions that are moving"
        revoking = core.revoke(taken, st.AfterRevocation.REJOIN, core.now_ms + core.config.revoke_timeout_ms)
        core.state = st.Revoking(
            revoking.revocation, taken, revoking.deadline_ms, revoking.then, frozenset(given - held)
        )
    else:
        core.assign(frozenset(given - held))
        if again:
            rejoin(core, again)


def rejoin(core: Core, reason: str) -> None:
    """Join the next generation; revoke first what the member may not keep."""
    core.reason = reason
    held = core.owned.held
    if core.subscription.cooperative:
        topics = set(core.subscription.topics)
        going = frozenset(partition for partition in held if partition.topic not in topics)
    else:
        going = frozenset(held)
    if going:
        core.state = core.revoke(
            going, st.AfterRevocation.REJOIN, core.now_ms + core.config.revoke_timeout_ms
        )
    else:
        core.join()


def rejoin_as_leader(core: Core, reason: str) -> None:
    """
    Rejoin as the leader of a stable generation, which begins a rebalance: coordinators answer any other member that offers what it has
    offered before with the present generation.
    """
    if isinstance(core.state, st.Stable) and core.identity.leads:
        rejoin(core, reason)


def rejoin_if_changed(core: Core) -> None:
    """Rejoin if a stable member's subscription or strategies changed, or if it leads with an old plan."""
    if not isinstance(core.state, st.Stable):
        return
    if core.subscription.is_known and core.subscription.join_metadata != core.joined_with:
        rejoin(core, "the subscription or the strategies changed")
    elif core.identity.leads and core.subscription.plan_is_old:
        rejoin(core, "the partitions of the group's topics changed")


def finish_revocation(core: Core, revocation: int, *, gracefully: bool) -> None:
    """Finish a revocation. `gracefully`: the application released the partitions; else its time limit has passed."""
    match core.state:
        case st.Revoking() as revoking if revoking.revocation == revocation:
            _release(core, revoking, gracefully=gracefully)
            _after_revocation(core, revoking, gracefully=gracefully)
        case st.Rediscover(back=st.Revoking() as revoking) as state if revoking.revocation == revocation:
            _release(core, revoking, gracefully=gracefully)
            if revoking.then is st.AfterRevocation.DEPART and core.ending is not None:
                core.end_now(core.ending)
            else:
                # The added partitions are of a generation that may have ended.
                core.state = st.Discover(state.search)
        case _:
            return


def _release(core: Core, revoking: st.Revoking, *, gracefully: bool) -> None:
    gone = core.owned.end(revoking.partitions)
    if gracefully:
        core.actions.append(do.Revoked(gone))
    else:
        core.actions.append(do.Lost(gone, "the application did not release them in time"))


def _after_revocation(core: Core, revoking: st.Revoking, *, gracefully: bool) -> None:
    if revoking.then is st.AfterRevocation.DEPART and core.ending is not None:
        core.end_now(core.ending, is_settled=gracefully)
        return
    if revoking.added:
        core.assign(revoking.added)
    core.join()


def begin_ending(core: Core, ending: PendingEnd) -> None:
    """Begin to end: revoke all owned partitions, or end now if there are none."""
    held = frozenset(core.owned.held)
    match core.state:
        case st.Stable() | st.Revoking() if held:
            core.state = core.revoke(held, st.AfterRevocation.DEPART, ending.deadline_ms)
        case st.Rediscover() as state if held:
            back = core.revoke(held, st.AfterRevocation.DEPART, ending.deadline_ms)
            core.state = st.Rediscover(state.search, back)
        case st.Discover() | st.Joining() | st.Syncing() if held:
            # Records in flight can only be committed in a generation, and the next one is under way.
            return
        case state:
            core.end_now(ending, is_settled=isinstance(state, st.Stable))


def lose_membership(core: Core, what: Reaction, error: Error, attempt: int) -> None:
    """End the membership as the reaction demands, and join again unless the member stops."""
    said = error_message(core.config.group_id, error)
    match what:
        case Reaction.FORGET_MEMBER:
            core.reset_member_id(said)
        case Reaction.FORGET_GENERATION:
            core.reset_generation(said)
        case _:
            if error == pb.FENCED_INSTANCE_ID:
                core.is_fenced = True
                core.reset_member_id(said)
            core.fail(said, leave=False)
            return
    if core.ending is not None:
        core.end_now(core.ending)
    else:
        core.join_later(attempt, said)
