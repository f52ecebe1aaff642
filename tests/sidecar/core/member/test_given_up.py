"""A dynamic member ends without leaving its group, and another process goes on as the same member; or it leaves."""

import pytest

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.member import actions as do
from rota_sidecar.core.member import events as on
from rota_sidecar.core.member.identity import Identity
from tests.sidecar.core.member.driven import MEMBER_ID, Driven, names

pytestmark = pytest.mark.unit


def test_a_dynamic_member_gives_its_membership_up_and_its_successor_goes_on_in_the_same_generation() -> None:
    driven = Driven().join(0, 1, leads=True)
    identity = driven.member.identity
    driven.end(is_succeeded=True)
    assert names(driven.give_up()) == ["Revoked", "DeleteMembership", "GiveUpMembership", "Ended"]
    given_up = driven.last(do.GiveUpMembership).saved
    assert (given_up.member_id, given_up.generation, given_up.leads) == (MEMBER_ID, identity.generation, True)
    assert driven.member.identity == Identity(), "it is used no more"
    successor = Driven()
    successor.generation, successor.planned = driven.generation, driven.planned
    successor.start(given_up)
    successor.find()
    _, request = successor.sent(pb.SyncGroupRequest)
    assert (request.member_id, request.generation_id) == (MEMBER_ID, identity.generation)
    assert "Assign" in names(successor.answer_sync(0, 1))
    assert successor.member.identity.leads


def test_a_membership_that_may_still_be_used_is_not_given_up() -> None:
    left = ["LeaveGroup", "DeleteMembership"]
    driven = Driven().join(0)
    driven.end(is_succeeded=True, within_s=5)
    assert names(driven.pass_time(5))[-2:] == left, "a commit may still be under way"
    driven = Driven().join(0)
    driven.commit()
    driven.end(is_succeeded=True)
    assert names(driven.give_up())[-2:] == left, "its commit is not answered"
    driven = Driven().join(0)
    driven.end(is_succeeded=True)
    driven.step(on.CoordinatorLost("it went away"))
    assert names(driven.give_up()) == ["Revoked", "DeleteMembership", "Ended"]
    driven = Driven()
    driven.start()
    driven.find()
    driven.refuse_join(pb.MEMBER_ID_REQUIRED, MEMBER_ID)
    assert names(driven.end(is_succeeded=True)) == ["DeleteMembership", *left], "it is in no generation"
