"""Over any history no membership has two users, and the group comes to as many members as are wanted."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.operator.reconcile.succession_world import World

pytestmark = pytest.mark.unit
STEPS = (
    "create", "delete", "connect", "connect", "connect", "configure", "configure", "configure", "disconnect", "join",
    "finish", "end", "die", "time out", "kill operator", "lead", "look", "look", "look", "deliver", "deliver", "deliver",
    "lose", "scale",
)  # fmt: skip
OF_POD = {
    "delete": World.delete,
    "connect": World.connect,
    "configure": World.configure,
    "disconnect": World.disconnect,
    "join": World.join_by_itself,
    "finish": World.finish,
    "end": World.end,
    "die": World.die,
}


OF_WORLD = {
    "time out": World.time_out,
    "kill operator": World.kill_operator,
    "lead": World.lead,
    "look": World.look,
}


def take(world: World, step: str, number: int) -> None:
    """Take one step; one that is impossible now changes nothing."""
    names = sorted(world.sidecars)
    if step in OF_WORLD:
        OF_WORLD[step](world)
    elif step in OF_POD and names:
        OF_POD[step](world, names[number % len(names)])
    elif step == "create" and len(names) < world.size + 3:
        world.create()
    elif step == "scale":
        world.size = 1 + number % 4
    elif step in ("deliver", "lose") and world.sent:
        (world.deliver if step == "deliver" else world.lose)(number)


def check(world: World) -> None:
    users = [each.member_id for each in world.sidecars.values() if each.member_id]
    assert len(users) == len(set(users)), "two pods use one membership"


@settings(max_examples=100)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 11)), max_size=80))
def test_a_membership_has_one_user_and_the_group_as_many_members_as_are_wanted(
    history: list[tuple[str, int]],
) -> None:
    world = World()
    world.settle()
    for step, number in history:
        take(world, step, number)
        check(world)
    world.settle()
    check(world)
    assert sorted(world.members.values()) == sorted(world.sidecars), "each pod is a member, and nothing else"
    assert len(world.sidecars) == world.size


@given(st.integers(1, 6), st.integers(1, 3))
def test_a_rollout_passes_each_membership_on(size: int, surge: int) -> None:
    world = World(size)
    world.settle()
    before, former = set(world.members), sorted(world.sidecars)
    while former:
        batch, former = former[:surge], former[surge:]
        for _ in batch:
            world.create()
        for name in sorted(world.sidecars):
            world.connect(name)
            world.configure(name)
        for name in batch:
            world.delete(name)
        for name in world.sidecars:
            world.report(world.sidecars[name])
        world.settle()
    assert set(world.members) == before, "none has joined or left"
