"""A leader knows what its assignment was planned for, and a member whether it was planned for what it wants."""

from collections.abc import Mapping

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.consumer_protocol.offers import JoinOffer, metadata_for
from rota_sidecar.core.member import actions as do
from rota_sidecar.core.member import events as on
from rota_sidecar.core.member.config import Subscription
from tests.sidecar.core.member.driven import OTHER_ID, Driven, names


def test_the_leader_goes_to_another_round_when_a_topic_grows() -> None:
    driven = Driven().join(0, leads=True)
    assert driven.step(on.TopicsDescribed({"orders": 6})) == []
    assert names(driven.step(on.TopicsDescribed({"orders": 7}))) == ["JoinGroup"]


def test_others_leave_a_topic_that_grows_to_the_leader() -> None:
    driven = Driven().join(0)
    assert driven.step(on.TopicsDescribed({"orders": 7})) == []


def returned_leader(planned: Mapping[str, int] | None) -> Driven:
    """A static leader that is handed the assignment that there is, with what its plan was made for."""
    driven = Driven(instance_id="one")
    driven.planned = planned
    driven.start()
    driven.find()
    assert names(driven.answer_join(leads=True, skip_assignment=True)) == ["SyncGroup"]
    return driven


def test_a_static_leader_that_returns_sees_topics_grow_while_it_runs() -> None:
    driven = returned_leader({"orders": 6})
    assert names(driven.answer_sync(0)) == ["Joined", "SaveMembership", "Assign"]
    assert driven.step(on.TopicsDescribed({"orders": 6})) == []
    assert names(driven.step(on.TopicsDescribed({"orders": 7}))) == ["JoinGroup"]


def test_a_static_leader_that_returns_sees_topics_that_grew_while_it_was_away() -> None:
    late = returned_leader({"orders": 6})
    late.answer_sync(0)
    assert names(late.step(on.TopicsDescribed({"orders": 7}))) == ["JoinGroup"]
    early = returned_leader({"orders": 6})
    early.step(on.TopicsDescribed({"orders": 7}))
    assert names(early.answer_sync(0)) == ["Joined", "SaveMembership", "Assign", "JoinGroup"]


def test_a_static_leader_that_returns_watches_the_topics_of_the_whole_group() -> None:
    driven = Driven(instance_id="one")
    driven.planned = {"orders": 6, "bills": 0}
    driven.start()
    driven.find()
    bills = pb.Member(member_id=OTHER_ID, metadata=metadata_for("cooperative-sticky", JoinOffer(["bills"])))
    unreadable = pb.Member(member_id="odd", metadata=b"\x00")
    driven.answer_join(leads=True, skip_assignment=True, others=[bills, unreadable])
    driven.step(on.TopicsDescribed({"orders": 6}))
    assert names(driven.answer_sync(0)) == ["Joined", "SaveMembership", "Assign"], (
        "bills were not looked at yet"
    )
    assert driven.member.watched == frozenset({"orders", "bills"})
    assert driven.step(on.TopicsDescribed({"orders": 6})) == []
    assert names(driven.step(on.TopicsDescribed({"orders": 6, "bills": 1}))) == ["JoinGroup"]


def test_a_leader_that_cannot_know_what_its_assignment_was_planned_for_plans_again() -> None:
    driven = returned_leader(None)
    assert names(driven.answer_sync(0)) == ["Joined", "SaveMembership", "Assign", "JoinGroup"]
    driven.answer_join(leads=True)
    driven.answer_lead()
    assert names(driven.answer_sync(0)) == ["Joined", "SaveMembership", "Assign"]


def test_a_leader_that_returns_twice_still_sees_topics_grow() -> None:
    first = returned_leader({"orders": 6})
    first.answer_sync(0)
    again = Driven(instance_id="one")
    again.planned = first.planned
    again.start(first.last(do.SaveMembership).saved)
    again.find()
    assert names(again.answer_sync(0)) == ["Joined", "SaveMembership", "Assign"]
    assert names(again.step(on.TopicsDescribed({"orders": 7}))) == ["JoinGroup"]


def test_a_leader_that_planned_with_newer_numbers_than_it_last_looked_at_does_not_plan_again() -> None:
    driven = Driven()
    driven.start()
    driven.step(on.TopicsDescribed({"orders": 6}))
    driven.find()
    driven.answer_join(leads=True)
    driven.answer_lead(7)
    assert names(driven.answer_sync(0)) == ["Joined", "SaveMembership", "Assign"]


def test_a_static_member_that_returns_with_other_topics_goes_to_another_round() -> None:
    driven = Driven(instance_id="one", subscription=Subscription(("bills", "orders")))
    driven.start()
    driven.find()
    driven.answer_join()
    assert names(driven.answer_sync(0, subscribed=["orders"])) == [
        "Joined",
        "SaveMembership",
        "Assign",
        "JoinGroup",
    ]
    driven.answer_join()
    assert names(driven.answer_sync(0, subscribed=["orders", "bills"])) == [
        "Joined",
        "SaveMembership",
        "Assign",
    ]
