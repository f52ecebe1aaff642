"""What the simulation has found in the coordinator, each as the shortest story that shows it. They stay for ever."""

from rota_coordinator.group.config import GroupConfig
from rota_coordinator.group.effects import Call
from rota_coordinator.group.groups import Groups
from rota_coordinator.group.join import Joining
from rota_coordinator.group.state import State
from rota_proto.coordinator.v1 import coordinator_pb2 as pb

SESSION_MS, REBALANCE_MS = 10_000, 20_000


class Story:
    """A group of static members, told step by step."""

    def __init__(self) -> None:
        self.groups = Groups(GroupConfig(initial_rebalance_delay_ms=0, rebalance_coalesce_ms=0))
        self.now_ms = 0
        self._number = 0

    @property
    def state(self) -> State:
        return self.groups.groups["g"].state

    def member_id(self, instance: str) -> str:
        """Under which id an instance is in the group."""
        return self.groups.groups["g"].members.instances[instance]

    def join(self, instance: str, member_id: str = "") -> None:
        self._number += 1
        request = pb.JoinGroupRequest(
            group_id="g",
            member_id=member_id,
            group_instance_id=instance,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=[pb.Protocol(name="range")],
        )
        call = Call(self._number)
        self.groups.join(Joining(call, request, "/127.0.0.1", f"#{self._number}"), self.now_ms)

    def sync(self, instance: str) -> None:
        self._number += 1
        request = pb.SyncGroupRequest(
            group_id="g",
            member_id=self.member_id(instance),
            group_instance_id=instance,
            generation_id=self.groups.groups["g"].generation,
            protocol_type="consumer",
            protocol_name="range",
        )
        self.groups.handle(Call(self._number), request, self.now_ms)

    def wait(self, milliseconds: int, *instances: str) -> None:
        """Let the time pass while these members heartbeat."""
        for _ in range(milliseconds // 1_000):
            self.now_ms += 1_000
            for instance in instances:
                request = pb.HeartbeatRequest(
                    group_id="g",
                    member_id=self.member_id(instance),
                    group_instance_id=instance,
                    generation_id=self.groups.groups["g"].generation,
                )
                self.groups.handle(Call(0), request, self.now_ms)
            self.groups.pass_time("g", self.now_ms)


def two_in_a_generation() -> Story:
    story = Story()
    story.join("a")
    story.groups.pass_time("g", 0)
    story.join("b")
    story.join("a", story.member_id("a"))
    story.sync("a")
    assert story.state is State.STABLE
    return story


def test_a_static_member_that_comes_back_before_it_synced_may_still_sync() -> None:
    # It was waited for under its old id; when the wait was over the group rebalanced, with nobody missing.
    story = two_in_a_generation()
    story.join("b")
    story.sync("b")
    story.wait(2 * REBALANCE_MS, "a", "b")
    assert story.state is State.STABLE
    assert story.groups.groups["g"].generation == 2


def test_a_static_member_that_comes_back_and_never_syncs_is_given_up() -> None:
    story = two_in_a_generation()
    story.join("b")
    story.wait(REBALANCE_MS, "a", "b")
    assert story.groups.groups["g"].members.instances.keys() == {"a"}
