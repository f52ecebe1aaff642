"""The member core: what it does next, one rule for each test."""

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.consumer_protocol.offers import member_data_of, subscriber_of
from rota_sidecar.core.member import actions as do
from rota_sidecar.core.member import events as on
from rota_sidecar.core.member.config import Strategy, Subscription
from rota_sidecar.core.member.identity import JoinMetadata, SavedMembership
from tests.sidecar.core.member.driven import (
    COOPERATIVE,
    EAGER,
    HEARTBEAT_MS,
    INCARNATION,
    MEMBER_ID,
    REBALANCE_MS,
    SESSION_MS,
    Driven,
    given,
    names,
)


def test_it_finds_joins_twice_syncs_and_has_its_partitions() -> None:
    driven = Driven()
    assert names(driven.start()) == ["FindCoordinator"]
    assert names(driven.find()) == ["JoinGroup"]
    assert names(driven.refuse_join(pb.MEMBER_ID_REQUIRED, MEMBER_ID)) == ["SaveMembership", "JoinGroup"]
    assert driven.sent(pb.JoinGroupRequest)[1].member_id == MEMBER_ID
    assert names(driven.answer_join()) == ["SyncGroup"]
    assert names(driven.answer_sync(0, 1)) == ["Joined", "SaveMembership", "Assign"]
    assert driven.last(do.Assign).partitions == given(0, 1)
    assert driven.last(do.Joined).incarnation == INCARNATION


def test_the_leader_plans_for_everybody() -> None:
    driven = Driven()
    driven.start()
    driven.find()
    assert names(driven.answer_join(leads=True)) == ["ComputeAssignment"]
    assert names(driven.answer_lead()) == ["SyncGroup"]
    assert len(driven.sent(pb.SyncGroupRequest)[1].assignments) == 1


def test_it_heartbeats_in_its_interval() -> None:
    driven = Driven().join(0)
    assert names(driven.pass_time(HEARTBEAT_MS / 1000)) == ["Heartbeat"]
    assert driven.pass_time(0.5) == []
    driven.answer_heartbeat()
    assert names(driven.pass_time(HEARTBEAT_MS / 1000)) == ["Heartbeat"]


def test_a_cooperative_member_keeps_everything_while_it_joins_again() -> None:
    driven = Driven().join(0, 1)
    actions = driven.step(on.RebalanceNoticed(MEMBER_ID, driven.generation))
    assert names(actions) == ["JoinGroup"]
    metadata = driven.sent(pb.JoinGroupRequest)[1].protocols[0].metadata
    said = subscriber_of("cooperative-sticky", metadata, None)
    assert {topic: list(numbers) for topic, numbers in said.owned.items()} == {"orders": [0, 1]}
    assert said.generation == 1
    assert set(driven.member.held) == given(0, 1)


def test_an_eager_member_lets_everything_go_first() -> None:
    driven = Driven(EAGER).join(0, 1)
    assert names(driven.step(on.RebalanceNoticed(MEMBER_ID, driven.generation))) == ["Revoke"]
    assert names(driven.give_up()) == ["Revoked", "JoinGroup"]
    assert not driven.member.held


def test_what_is_taken_is_let_go_before_anything_is_added_and_then_it_joins_again() -> None:
    driven = Driven().join(0, 1)
    kept = driven.member.held[next(iter(given(1)))]
    driven.step(on.RebalanceNoticed(MEMBER_ID, driven.generation))
    driven.answer_join()
    assert names(driven.answer_sync(1, 2)) == ["Joined", "SaveMembership", "Revoke"]
    assert driven.last(do.Revoke).partitions == given(0)
    assert names(driven.give_up()) == ["Revoked", "Assign", "JoinGroup"]
    assert driven.last(do.Assign).partitions == given(2)
    assert driven.member.held[next(iter(given(1)))] == kept, "what stays, stays in its tenure"


def test_an_application_that_does_not_let_go_loses_what_it_has_before_the_others_stop_waiting() -> None:
    driven = Driven(EAGER).join(0)
    driven.step(on.RebalanceNoticed(MEMBER_ID, driven.generation))
    began_ms = driven.now_ms
    while not any(isinstance(action, do.Lost) for action in driven.done):
        driven.pass_time(HEARTBEAT_MS / 1000)
        if driven.state == "Revoking":
            driven.answer_heartbeat(pb.REBALANCE_IN_PROGRESS)
    assert driven.now_ms - began_ms < REBALANCE_MS
    assert names(driven.done)[-2:] == ["Lost", "JoinGroup"]


def test_a_heartbeat_that_says_rebalance_extends_the_session() -> None:
    driven = Driven(EAGER).join(0)
    driven.pass_time(HEARTBEAT_MS / 1000)
    assert names(driven.answer_heartbeat(pb.REBALANCE_IN_PROGRESS)) == ["Revoke"]
    assert driven.state == "Revoking"


def test_a_notice_of_another_generation_or_member_changes_nothing() -> None:
    driven = Driven().join(0)
    assert driven.step(on.RebalanceNoticed(MEMBER_ID, driven.generation - 1)) == []
    assert driven.step(on.RebalanceNoticed("somebody", driven.generation)) == []


def test_an_unknown_member_loses_everything_and_comes_as_somebody_new() -> None:
    driven = Driven().join(0)
    driven.pass_time(HEARTBEAT_MS / 1000)
    assert names(driven.answer_heartbeat(pb.UNKNOWN_MEMBER_ID)) == ["Lost", "DeleteMembership", "JoinGroup"]
    assert driven.sent(pb.JoinGroupRequest)[1].member_id == ""


def test_an_old_generation_loses_everything_and_keeps_its_id() -> None:
    driven = Driven().join(0)
    driven.pass_time(HEARTBEAT_MS / 1000)
    assert names(driven.answer_heartbeat(pb.ILLEGAL_GENERATION)) == ["Lost", "SaveMembership", "JoinGroup"]
    assert driven.sent(pb.JoinGroupRequest)[1].member_id == MEMBER_ID


def test_who_lost_its_membership_tells_no_generation_that_a_leader_could_rely_on() -> None:
    # Found by the simulation: the group had been deleted and born again, and had come to the same generation as the
    # one that the member knew; its leader took the member's incarnation, which was lower than the last one.
    driven = Driven().join(0)
    driven.pass_time(HEARTBEAT_MS / 1000)
    driven.answer_heartbeat(pb.UNKNOWN_MEMBER_ID)
    (protocol,) = driven.sent(pb.JoinGroupRequest)[1].protocols
    known = member_data_of("cooperative-sticky", protocol.metadata)
    assert (known.generation, known.incarnation) == (-1, INCARNATION)


def test_what_was_said_to_who_it_was_before_is_not_obeyed() -> None:
    driven = Driven().join(0)
    driven.pass_time(HEARTBEAT_MS / 1000)
    late, _ = driven.sent(pb.HeartbeatRequest)
    driven.commit()
    late_commit, _ = driven.sent(pb.CommitOffsetsRequest)
    driven.step(on.RebalanceNoticed(MEMBER_ID, driven.generation))
    driven.answer_join()
    driven.answer_sync(0)
    refused = pb.HeartbeatResponse(error_code=pb.UNKNOWN_MEMBER_ID)
    assert driven.step(on.ResponseReceived(late, refused)) == []
    answer = pb.CommitOffsetsResponse(error_code=pb.UNKNOWN_MEMBER_ID)
    assert names(driven.step(on.ResponseReceived(late_commit, answer))) == ["Committed"]
    assert driven.state == "Stable"


def test_a_fenced_member_ends_and_never_comes_back_as_that_instance() -> None:
    driven = Driven(instance_id="one").join(0)
    driven.pass_time(HEARTBEAT_MS / 1000)
    actions = driven.answer_heartbeat(pb.FENCED_INSTANCE_ID)
    assert names(actions) == ["Lost", "DeleteMembership", "Ended"]
    ended = driven.last(do.Ended)
    assert ended.failed
    assert "FENCED_INSTANCE_ID" in ended.reason


def test_a_heartbeat_that_is_requested_is_sent_at_once_unless_one_is_under_way() -> None:
    driven = Driven().join(0)
    assert names(driven.step(on.HeartbeatRequested())) == ["Heartbeat"]
    assert driven.step(on.HeartbeatRequested()) == []
    driven.answer_heartbeat(pb.REBALANCE_IN_PROGRESS)
    assert driven.state in ("Revoking", "Joining")
    driven = Driven().join(0)
    driven.step(on.CoordinatorLost("it went away"))
    assert driven.step(on.HeartbeatRequested()) == []


def test_a_lost_coordinator_is_found_again_and_nothing_is_given_up() -> None:
    driven = Driven().join(0)
    assert names(driven.step(on.CoordinatorLost("it went away"))) == ["Problem", "FindCoordinator"]
    assert driven.state == "Rediscover"
    assert set(driven.member.held) == given(0)
    assert names(driven.find()) == ["CoordinatorRegained", "Heartbeat"]
    driven.answer_heartbeat()
    assert driven.state == "Stable"


def test_a_coordinator_that_is_back_within_half_a_session_is_found_before_the_session_ends() -> None:
    # Found by the simulation, with a session of three seconds: the last attempt before the end came too early, and
    # the next one too late.
    driven = Driven(session_ms=3_000).join(0)
    driven.pass_time(HEARTBEAT_MS / 1000 - 0.01)
    driven.step(on.CoordinatorLost("it crashed"))
    back_ms = driven.now_ms + 1_500
    while driven.state == "Rediscover":
        if driven.now_ms >= back_ms:
            driven.find()
        else:
            driven.step(on.CallFailed(driven.last(do.FindCoordinator).call, "nobody there"))
        driven.pass_time(0.05)
    assert set(driven.member.held) == given(0)
    assert driven.state == "Stable"


def test_a_session_without_an_answer_of_the_coordinator_ends_the_tenure() -> None:
    driven = Driven().join(0)
    driven.step(on.CoordinatorLost("it went away"))
    began_ms = driven.now_ms
    while driven.member.held:
        driven.step(on.CallFailed(driven.last(do.FindCoordinator).call, "nobody there"))
        driven.pass_time(1)
    assert SESSION_MS - 1_000 <= driven.now_ms - began_ms <= SESSION_MS + 1_000
    assert driven.state == "Discover"
    driven.pass_time(2)
    driven.find()
    request = driven.sent(pb.JoinGroupRequest)[1]
    assert request.member_id == MEMBER_ID


def test_a_member_that_was_frozen_loses_everything_before_it_looks_at_what_waits() -> None:
    driven = Driven().join(0)
    driven.now_ms += 2 * SESSION_MS
    assert names(driven.step(on.RebalanceNoticed(MEMBER_ID, driven.generation))) == [
        "Lost",
        "SaveMembership",
        "Problem",
        "FindCoordinator",
    ]
    driven = Driven().join(0)
    driven.pass_time(HEARTBEAT_MS / 1000)
    driven.now_ms += SESSION_MS - 1
    driven.answer_heartbeat()
    assert set(driven.member.held) == given(0), "unless it was heard just before"


def test_silence_is_not_counted_while_a_join_is_under_way() -> None:
    driven = Driven().join(0)
    driven.step(on.RebalanceNoticed(MEMBER_ID, driven.generation))
    assert driven.pass_time(3 * SESSION_MS / 1000) == []
    driven.answer_join()
    driven.answer_sync(0)
    assert set(driven.member.held) == given(0)


def test_a_join_that_fails_after_a_session_ends_the_tenure() -> None:
    driven = Driven().join(0)
    driven.step(on.RebalanceNoticed(MEMBER_ID, driven.generation))
    driven.pass_time(2 * SESSION_MS / 1000)
    driven.step(on.CoordinatorLost("it went away"))
    assert "Lost" in names(driven.pass_time(0.01))


def test_an_assignment_that_took_a_session_to_come_is_asked_for_again() -> None:
    driven = Driven()
    driven.start()
    driven.find()
    driven.answer_join()
    driven.now_ms += SESSION_MS
    assert names(driven.answer_sync(0)) == ["SyncGroup"]
    assert names(driven.answer_sync(0)) == ["Joined", "SaveMembership", "Assign"]


def test_searches_wait_longer_and_longer_and_say_what_is_wrong_once() -> None:
    driven = Driven()
    driven.start()
    gaps, last_ms = [], driven.now_ms
    for _ in range(8):
        driven.step(on.CallFailed(driven.last(do.FindCoordinator).call, "nobody answers at 127.0.0.1:1"))
        while driven.member.state.search.call is None:  # type: ignore[union-attr]
            driven.pass_time(0.05)
        gaps.append(driven.now_ms - last_ms)
        last_ms = driven.now_ms
    assert gaps == sorted(gaps)
    assert gaps[-1] <= 1_250
    assert names(driven.done).count("Problem") == 1


def test_a_refused_connection_ends_it() -> None:
    driven = Driven()
    driven.start()
    actions = driven.step(on.CallFailed(driven.last(do.FindCoordinator).call, "wrong password", refused=True))
    assert names(actions) == ["Ended"]
    assert driven.last(do.Ended).failed


def test_a_leader_whose_strategy_fails_leaves_so_that_nobody_waits_for_it() -> None:
    driven = Driven()
    driven.start()
    driven.find()
    driven.answer_join(leads=True)
    actions = driven.step(
        on.CallFailed(driven.last(do.ComputeAssignment).call, "the strategy failed", refused=True)
    )
    assert names(actions) == ["LeaveGroup", "DeleteMembership"]
    call, _ = driven.sent(pb.LeaveGroupRequest)
    assert names(driven.step(on.ResponseReceived(call, pb.LeaveGroupResponse()))) == ["Ended"]


def test_a_leader_that_cannot_reach_the_topics_tries_again() -> None:
    driven = Driven()
    driven.start()
    driven.find()
    driven.answer_join(leads=True)
    driven.step(on.CallFailed(driven.last(do.ComputeAssignment).call, "no broker answers"))
    assert driven.state == "Discover"


def test_ending_lets_go_leaves_and_says_so() -> None:
    driven = Driven().join(0, 1)
    assert names(driven.end()) == ["Revoke"]
    assert names(driven.give_up()) == ["Revoked", "LeaveGroup", "DeleteMembership"]
    call, _ = driven.sent(pb.LeaveGroupRequest)
    assert names(driven.step(on.ResponseReceived(call, pb.LeaveGroupResponse()))) == ["Ended"]
    assert not driven.last(do.Ended).failed


def test_a_static_member_stays_in_the_group_unless_it_leaves_for_good() -> None:
    driven = Driven(instance_id="one").join(0)
    driven.end()
    assert names(driven.give_up()) == ["Revoked", "Ended"]
    driven = Driven(instance_id="one").join(0)
    driven.end(leave_static=True)
    assert names(driven.give_up()) == ["Revoked", "LeaveGroup", "DeleteMembership"]


def test_a_static_member_that_another_process_succeeds_is_resumed_by_none() -> None:
    driven = Driven(instance_id="one").join(0)
    driven.end(is_succeeded=True)
    assert names(driven.give_up()) == ["Revoked", "DeleteMembership", "Ended"]
    driven = Driven(instance_id="one").join(0)
    driven.end(final=False)
    assert names(driven.give_up()) == ["Revoked"]
    assert names(driven.end(is_succeeded=True)) == ["DeleteMembership", "Ended"]


def test_an_end_in_the_middle_of_a_rebalance_waits_for_a_generation_that_can_commit() -> None:
    driven = Driven().join(0)
    driven.step(on.RebalanceNoticed(MEMBER_ID, driven.generation))
    assert driven.end() == []
    driven.answer_join()
    assert names(driven.answer_sync(0, 1)) == ["Joined", "SaveMembership", "Revoke"]
    assert names(driven.commit()) == ["CommitOffsets"]
    assert names(driven.give_up()) == ["Revoked", "LeaveGroup", "DeleteMembership"]


def test_a_round_that_lasts_longer_than_the_time_to_end_is_not_waited_for() -> None:
    driven = Driven().join(0)
    driven.step(on.RebalanceNoticed(MEMBER_ID, driven.generation))
    driven.end(within_s=5)
    assert names(driven.pass_time(6)) == ["Lost", "LeaveGroup", "DeleteMembership"]


def test_leaving_the_group_takes_no_longer_than_the_time_to_end() -> None:
    for within_s, leaving_ms in ((30, 2_000), (1, 1_000)):
        driven = Driven().join(0)
        driven.end(within_s=within_s)
        driven.give_up()
        assert driven.last(do.SendRequest).within_ms == leaving_ms


def test_with_nothing_in_hand_it_ends_in_the_middle_of_a_round() -> None:
    driven = Driven()
    driven.start()
    driven.find()
    driven.refuse_join(pb.MEMBER_ID_REQUIRED, MEMBER_ID)
    assert names(driven.end()) == ["LeaveGroup", "DeleteMembership"]


def test_a_member_that_is_down_starts_again_as_somebody_new() -> None:
    driven = Driven().join(0)
    driven.end(final=False)
    driven.give_up()
    assert driven.state == "Down"
    assert names(driven.start()) == ["FindCoordinator"]
    driven.find()
    assert driven.sent(pb.JoinGroupRequest)[1].member_id == ""


def test_after_a_crash_of_the_sidecar_it_takes_up_its_generation_without_a_round() -> None:
    first = Driven().join(0, 1)
    saved = first.last(do.SaveMembership).saved
    again = Driven()
    again.start(saved)
    assert names(again.find()) == ["SyncGroup"]
    assert names(again.answer_sync(0, 1)) == ["Joined", "SaveMembership", "Assign"]
    assert again.member.identity.member_id == MEMBER_ID


def test_who_restarts_when_it_had_to_give_something_up_comes_again() -> None:
    # Found by the simulation: a static member was handed its assignment again without a round, held nothing that it
    # could have given up, and so never came for the second half; what it had held before stayed with nobody.
    again = Driven(instance_id="one")
    again.start()
    again.find()
    again.answer_join()
    assert names(again.answer_sync(0, rejoins=True)) == [
        "Joined",
        "SaveMembership",
        "Assign",
        "JoinGroup",
    ]
    giving_up = Driven().join(0, 1)
    giving_up.step(on.RebalanceNoticed(MEMBER_ID, giving_up.generation))
    giving_up.answer_join()
    assert names(giving_up.answer_sync(0, rejoins=True)) == ["Joined", "SaveMembership", "Revoke"]


def test_after_a_crash_in_an_old_generation_it_joins_under_its_id() -> None:
    again = Driven()
    again.start(
        SavedMembership(
            MEMBER_ID,
            3,
            "cooperative-sticky",
            join_metadata=JoinMetadata(("orders",), ("cooperative-sticky",)),
        )
    )
    again.find()
    assert names(again.answer_sync(error=pb.ILLEGAL_GENERATION)) == ["SaveMembership", "JoinGroup"]
    assert again.sent(pb.JoinGroupRequest)[1].member_id == MEMBER_ID


def test_after_a_crash_with_another_subscription_it_goes_to_another_round() -> None:
    again = Driven()
    again.start(
        SavedMembership(
            MEMBER_ID,
            3,
            "cooperative-sticky",
            join_metadata=JoinMetadata(("other",), ("cooperative-sticky",)),
        )
    )
    again.find()
    assert names(again.answer_sync(0)) == ["Joined", "SaveMembership", "Assign", "JoinGroup"]


def test_a_pattern_waits_for_topics_and_takes_new_ones_that_match() -> None:
    driven = Driven(subscription=Subscription(pattern="orders-.*"))
    driven.start()
    assert driven.find() == []
    assert names(driven.step(on.TopicsDescribed({"orders-a": 2, "other": 1}))) == ["JoinGroup"]
    driven.answer_join()
    driven.answer_sync()
    assert names(driven.step(on.TopicsDescribed({"orders-a": 2, "orders-b": 1}))) == ["JoinGroup"]
    metadata = driven.sent(pb.JoinGroupRequest)[1].protocols[0].metadata
    assert subscriber_of("cooperative-sticky", metadata, None).topics == ["orders-a", "orders-b"]


def test_topics_that_do_not_exist_are_named_once() -> None:
    driven = Driven().join()
    assert names(driven.step(on.TopicsDescribed({}))) == ["Problem"]
    assert "orders" in driven.last(do.Problem).message
    assert driven.step(on.TopicsDescribed({})) == []


def test_partitions_of_a_topic_that_is_not_wanted_any_more_are_let_go_before_the_round() -> None:
    driven = Driven(subscription=Subscription(("orders", "other"))).join(0)
    assert names(driven.step(on.Subscribe(Subscription(("other",))))) == ["Revoke"]
    assert names(driven.give_up()) == ["Revoked", "JoinGroup"]


def test_a_strategy_is_changed_in_two_rounds() -> None:
    driven = Driven(EAGER).join(0)
    both = (*COOPERATIVE, *EAGER)
    assert names(driven.step(on.OfferStrategies(both))) == ["Revoke"], "eager as long as an eager one may win"
    driven.give_up()
    assert [each.name for each in driven.sent(pb.JoinGroupRequest)[1].protocols] == [
        "cooperative-sticky",
        "range",
    ]
    driven.answer_join()
    driven.answer_sync(0)
    assert names(driven.step(on.OfferStrategies(COOPERATIVE))) == ["JoinGroup"], (
        "and nothing is let go any more"
    )
    driven.answer_join()
    driven.answer_sync(0)
    assert driven.state == "Stable"


def test_a_change_in_the_middle_of_a_rebalance_is_sent_in_the_next() -> None:
    driven = Driven()
    driven.start()
    driven.find()
    driven.step(on.Subscribe(Subscription(("orders", "other"))))
    driven.answer_join()
    assert names(driven.answer_sync(0)) == ["Joined", "SaveMembership", "Assign", "JoinGroup"]


def test_a_member_with_no_strategy_in_common_ends_with_advice() -> None:
    driven = Driven((Strategy("own", cooperative=False),))
    driven.start()
    driven.find()
    driven.refuse_join(pb.INCONSISTENT_GROUP_PROTOCOL)
    assert "shares no assignment strategy" in driven.last(do.Ended).reason
