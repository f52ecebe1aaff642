"""
Known bugs of members, each put into the shipping core of the sidecar: the simulation must catch every one of them.

The bugs of coordinators are in zoo.py.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol
from unittest.mock import patch

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.consumer_protocol.offers import JoinOffer, metadata_for
from rota_sidecar.core.consumer_protocol.user_data import fingerprint_of_plan
from rota_sidecar.core.member import actions as do
from rota_sidecar.core.member import liveness, offsets, rounds
from rota_sidecar.core.member.core import Core
from rota_sidecar.core.member.heartbeat_timer import HeartbeatTimer
from rota_sidecar.core.member.owned_partitions import OwnedPartitions
from rota_sidecar.core.member.partitions import Offset, Partition
from rota_sidecar.core.member.requests import Requests
from rota_sidecar.core.member.subscription_state import SubscriptionState
from rota_sidecar.membership import leader


class Bug(Protocol):
    """Puts a bug in place, for as long as its block lasts."""

    def __call__(self) -> AbstractContextManager[object]: ...


def replaced(target: object, name: str, wrong: object) -> Bug:
    """The bug of having this in that place."""
    return lambda: patch.object(target, name, wrong)


def verdicts_of_any_tenure_count(
    self: OwnedPartitions, offsets: Mapping[Partition, Offset]
) -> tuple[dict[Partition, Offset], frozenset[Partition]]:
    return dict(offsets), frozenset()


def joins_with_everything_in_hand(core: Core, reason: str) -> None:
    core.reason = reason
    core.join()


def does_not_say_what_it_keeps(
    self: Requests, strategy: str, subscription: SubscriptionState, owned: OwnedPartitions
) -> bytes:
    return metadata_for(strategy, JoinOffer(subscription.topics, generation=owned.owned_generation))


def counts_two_sessions(self: HeartbeatTimer) -> None:
    ACKNOWLEDGED(self)
    self.alive_until_ms += self._config.session_timeout_ms


def goes_to_no_other_round(core: Core, reason: str) -> None:
    pass


def keeps_the_newest_incarnation_it_hears_of(
    order: do.ComputeAssignment, members: leader.RoundMembers, wall_ms: int
) -> int:
    known = max(members.incarnations.values(), default=-1)
    return known if known >= 0 else wall_ms


def stays_with_a_lost_coordinator(self: Core, reason: str) -> None:
    self.heartbeat_timer.failed(self.now_ms)


def takes_what_it_sees_for_what_was_planned(self: SubscriptionState, fingerprint: bytes) -> None:
    # As Kafka's consumer does, when a static leader comes back.
    SET_PLAN_FINGERPRINT(
        self, fingerprint if self.topic_partitions is None else fingerprint_of_plan(self.topic_partitions)
    )


# What is replaced, for those that only change a part of it.
ACKNOWLEDGED = HeartbeatTimer.acknowledged
SET_PLAN_FINGERPRINT = SubscriptionState.set_plan_fingerprint

ZOO_MEMBERS: dict[str, Bug] = {
    "verdicts of any tenure count": replaced(OwnedPartitions, "split", verdicts_of_any_tenure_count),
    "joins with everything in hand": replaced(rounds, "rejoin", joins_with_everything_in_hand),
    "does not say what it keeps": replaced(Requests, "_metadata", does_not_say_what_it_keeps),
    "counts no silence": replaced(liveness, "_session_may_expire", lambda core: False),
    "counts two sessions": replaced(HeartbeatTimer, "acknowledged", counts_two_sessions),
    "goes to no other round": replaced(rounds, "rejoin", goes_to_no_other_round),
    "never comes again": replaced(rounds, "_rejoin_reason", lambda core, data: ""),
    "keeps the newest incarnation it hears of": replaced(
        leader, "incarnation_for", keeps_the_newest_incarnation_it_hears_of
    ),
    "nobody looks at topics that grow": replaced(SubscriptionState, "_check_plan_age", lambda self: None),
    "a leader that comes back takes what it sees for what was planned": replaced(
        SubscriptionState, "set_plan_fingerprint", takes_what_it_sees_for_what_was_planned
    ),
    "commits nothing": replaced(offsets, "_commit_error", lambda core: pb.REBALANCE_IN_PROGRESS),
    "stays with a lost coordinator": replaced(Core, "lose_coordinator", stays_with_a_lost_coordinator),
}
