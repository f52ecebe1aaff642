"""A reset in the spec becomes a plan, and the plan the group's offsets: exactly once, over each crash in between, and members resume."""

import asyncio
from typing import Any

import pytest

from rota_operator.cluster import offset_resets, reset_execution
from rota_operator.cluster.kinds import CONFIG_MAP
from rota_operator.offset_resets import execution
from rota_operator.overview.assignment import Partition
from rota_operator.resets.targets import LogRange
from rota_proto.fleet.v1 import fleet_pb2 as pb
from tests.operator.cluster.reset_world import KEY, Killed, Kills, Sidecar, World

Json = Any
PLAN, UNDO = "orders-reset-replay-1", "orders-reset-replay-1-undo"
A, B, C, D = (Partition("orders", number) for number in range(4))


def reset(request_id: str = "replay-1", *, dry_run: bool = False, **to: Json) -> Json:
    return {"requestId": request_id, "dryRun": dry_run, "to": to or {"earliest": True}}


def run(world: World) -> str:
    return asyncio.run(world.run())


def offsets_when(world: World, phase: str) -> dict[Partition, int]:
    """Committed offsets when a phase was written for the first time."""
    return next(offsets for written, offsets in world.history if written == phase)


def test_a_dry_run_writes_its_plan_and_changes_nothing() -> None:
    world = World(reset(dry_run=True))
    world.sidecars = {"a": Sidecar({A, B, C, D}, suspended=True)}
    before = dict(world.committed)
    assert run(world) == "Planned"
    assert world.committed == before
    table = world.config_map(PLAN)["plan.csv"].splitlines()
    assert table[1:] == [f"orders,{number},{50 + number},10,@{50 + number}000,@10000," for number in range(4)]
    assert world.record["planConfigMap"] == PLAN
    assert (world.record["partitions"], world.record["skippedRecords"]) == (4, 0)
    assert world.record["repeatedRecords"] == sum(40 + number for number in range(4))
    (event,) = world.events
    assert (event.type, event.reason) == ("Normal", "OffsetResetPlanned")
    assert "166 repeated: see ConfigMap orders-reset-replay-1" in event.message


def test_an_execution_sets_the_offsets_while_all_are_suspended_and_all_resume() -> None:
    world = World(reset())
    assert run(world) == "Completed"
    assert offsets_when(world, "Verifying") == dict.fromkeys((A, B, C, D), 10)
    assert offsets_when(world, "Resuming") == dict.fromkeys((A, B, C, D), 10)
    assert not any(each.suspended for each in world.sidecars.values())
    assert [phase for phase, _ in world.history] == [
        "Suspending",
        "Committing",
        "Verifying",
        "Resuming",
        "Completed",
    ]
    assert [each.reason for each in world.events] == ["OffsetResetStarted", "OffsetResetCompleted"]


def test_dry_run_execution_and_undo_bring_back_every_offset() -> None:
    world = World(reset(dry_run=True, offset=70))
    assert run(world) == "Planned"
    world.request(reset(offset=70))
    assert run(world) == "Completed"
    before = offsets_when(world, "Committing")
    assert offsets_when(world, "Resuming") == dict.fromkeys((A, B, C, D), 70)
    world.history.clear()
    world.request(reset("back", fromConfigMap=UNDO))
    assert run(world) == "Completed"
    assert offsets_when(world, "Resuming") == before


@pytest.mark.parametrize(
    ("to", "offset"),
    [
        ({"datetime": "2023-11-14T00:00:00Z"}, 30),
        ({"datetime": "1969-12-31T23:59:59.999Z"}, 30),
        ({"byDuration": "PT1H30M"}, 30),
        ({"byDuration": "PT999999H"}, 30),
        ({"earliest": True}, 10),
        ({"latest": True}, 100),
        ({"offset": 77}, 77),
        ({"offset": 1_000}, 100),
        ({"shiftBy": -5}, 45),
        ({"shiftBy": 0}, 50),
    ],
    ids=str,
)
def test_each_target_is_an_offset_of_the_plan(to: Json, offset: int) -> None:
    world = World(reset(dry_run=True, **to))
    world.sidecars = {"a": Sidecar({A}, suspended=True)}
    assert run(world) == "Planned"
    assert world.config_map(PLAN)["plan.csv"].splitlines()[1].split(",")[3] == str(offset)


def test_only_the_topics_that_are_named_are_reset() -> None:
    other = Partition("returns", 0)
    world = World({**reset(), "topics": ["orders"]})
    world.ranges[other], world.committed[other] = LogRange(0, 90), 33
    assert run(world) == "Completed"
    assert offsets_when(world, "Resuming") == {**dict.fromkeys((A, B, C, D), 10), other: 33}


def test_the_plan_of_the_dry_run_is_executed_and_no_other() -> None:
    world = World(reset(dry_run=True))
    run(world)
    # The log has gone on, and the target is edited: the plan that was reviewed counts.
    world.ranges = {each: LogRange(10, 200) for each in world.ranges}
    world.request(reset(latest=True))
    assert run(world) == "Completed"
    assert offsets_when(world, "Resuming") == dict.fromkeys((A, B, C, D), 10)


def test_a_plan_that_was_edited_is_refused_and_nothing_changes() -> None:
    world = World(reset(dry_run=True))
    run(world)
    world.config_map(PLAN)["plan.csv"] = world.config_map(PLAN)["plan.csv"].replace(",10,", ",11,", 1)
    world.request(reset())
    assert run(world) == "Rejected"
    assert "was changed after the plan was made" in world.record["message"]
    assert world.events[-1].reason == "OffsetResetRejected"
    assert min(world.committed.values()) >= 50


@pytest.mark.parametrize(
    ("world", "said"),
    [
        (World(reset(datetime="2099-01-01T00:00:00Z")), "to.datetime is in the future"),
        (World(reset(datetime="2026-02-30T00:00:00Z")), "must be a time such as"),
        (World(reset(byDuration="PT")), "must be a duration such as PT6H"),
        (World({**reset(), "topics": ["payments"]}), "does not consume topic payments"),
        (World(reset(fromConfigMap="nope")), "ConfigMap nope with the plan does not exist"),
        (World(reset(), commit_mode="external"), "reset the position in the store"),
        (World(reset(), commit_mode="transactional"), "scale the workload to 0"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_what_cannot_be_done_is_said_in_the_status_and_nothing_changes(world: World, said: str) -> None:
    assert run(world) == "Rejected"
    assert said in world.record["message"]
    assert not any(each.suspended for each in world.sidecars.values())
    assert [name for kind, name in world.objects.held if kind == CONFIG_MAP.kind] == ["rota-orders"]
    # It is tried again when the spec has changed.
    world.resource["spec"]["offsets"]["commit"]["mode"] = "periodic"
    world.request(reset())
    assert run(world) == "Completed"


def test_a_topic_that_was_made_anew_after_the_dry_run_is_not_reset() -> None:
    world = World(reset(dry_run=True))
    run(world)
    world.topic_id = "2e"
    world.request(reset())
    assert run(world) == "Rejected"
    assert "was deleted and created again" in world.record["message"]


def test_a_group_without_members_is_reset_at_its_coordinator() -> None:
    world = World(reset(latest=True))
    world.sidecars = {}
    world.committed = {A: 50}
    assert run(world) == "Completed"
    assert world.committed == dict.fromkeys((A, B, C, D), 100)
    assert world.config_map(UNDO)["plan.csv"].splitlines()[1:] == ["orders,0,100,50,@100000,@50000,"]


def test_members_that_are_no_sidecars_are_waited_for() -> None:
    world = World(reset(), foreign=("console",))
    assert run(world) == "Waiting"
    assert "such as console" in world.record["message"]
    assert not any(each.suspended for each in world.sidecars.values())
    world.foreign = ()
    assert run(world) == "Completed"


def test_nothing_is_ordered_before_the_settings_suspend_the_members() -> None:
    world = World(reset())
    world.is_reconciling = False
    orders: list[str] = []
    world.on_order = lambda pod, order: orders.append(pod)
    assert run(world) == "Suspending"
    assert orders == []
    world.is_reconciling = True
    world.reconcile()
    assert run(world) == "Completed"


def test_a_rebalance_in_between_is_redone_by_the_next_owner() -> None:
    world = World(reset())
    moved: list[str] = []

    def rebalance(pod: str, order: pb.SidecarOrder) -> None:
        if order.HasField("reset_offsets") and not moved:
            moved.append(pod)
            world.move(A, "b")

    world.on_order = rebalance
    assert run(world) == "Completed"
    assert moved
    assert offsets_when(world, "Resuming") == dict.fromkeys((A, B, C, D), 10)


def test_a_pod_that_starts_in_the_middle_is_suspended_and_set_too() -> None:
    world = World(reset())

    def start(pod: str, order: pb.SidecarOrder) -> None:
        if order.HasField("reset_offsets") and "c" not in world.sidecars:
            world.sidecars["c"] = Sidecar(set())
            world.move(D, "c")

    world.on_order = start
    assert run(world) == "Completed"
    assert offsets_when(world, "Resuming") == dict.fromkeys((A, B, C, D), 10)
    assert not world.sidecars["c"].suspended


def test_a_reset_during_a_rollout_is_finished_by_the_pods_that_are_there() -> None:
    """At each order one pod ends, and its successor starts as the settings say."""
    world = World(reset())
    successors = iter("cdefghij")

    def replace(pod: str, order: pb.SidecarOrder) -> None:
        former = world.sidecars.pop(pod) if pod in ("a", "b", "c", "d") else None
        if former is not None:
            settings = world.objects.held[CONFIG_MAP.kind, "rota-orders"]["data"]["settings.json"]
            world.sidecars[next(successors)] = Sidecar(former.partitions, suspended="true" in settings)
            world.generation += 1

    world.on_order = replace
    assert run(world) == "Completed"
    assert not {"a", "b", "c", "d"} & world.sidecars.keys()
    assert offsets_when(world, "Resuming") == dict.fromkeys((A, B, C, D), 10)
    assert not any(each.suspended for each in world.sidecars.values())


def test_a_reset_waits_while_a_pod_of_the_rollout_does_not_report_and_says_so() -> None:
    world = World(reset())
    world.sidecars["b"].connected = False
    assert run(world) == "Waiting"
    said = "1 members do not report as sidecars of this ConsumerGroup, such as b; wait for them to connect, or stop them"
    assert world.record["message"] == said
    assert (world.events[0].reason, world.events[0].message) == (
        "OffsetResetWaiting",
        f"reset replay-1: {said}",
    )
    assert world.history[-1][0] == "Waiting"
    assert not any(each.suspended for each in world.sidecars.values())
    # Its successor is there.
    world.sidecars["c"] = Sidecar(world.sidecars.pop("b").partitions)
    world.generation += 1
    assert run(world) == "Completed"


def test_members_are_left_to_the_reset_from_before_its_record_until_they_have_resumed() -> None:
    """Orders by the settings, which follow the record, would resume them in between."""
    world = World(reset())
    active: list[bool] = []
    world.objects.on_patch = lambda: active.append(world.resets.is_active(KEY))
    world.on_order = lambda pod, order: active.append(world.resets.is_active(KEY))
    assert not world.resets.is_active(KEY)
    assert run(world) == "Completed"
    assert all(active)
    assert not world.resets.is_active(KEY)


def test_a_reset_during_a_rollout_that_does_not_end_leaves_no_pod_suspended() -> None:
    """Pods of both versions run on, and the API server says nothing new."""
    world = World(reset())
    world.sidecars["old"] = Sidecar(set())
    world.move(D, "old")
    assert run(world) == "Completed"
    assert offsets_when(world, "Resuming") == dict.fromkeys((A, B, C, D), 10)
    assert not any(each.suspended for each in world.sidecars.values())


def test_an_execution_is_finished_whatever_the_spec_says_by_then() -> None:
    world = World(reset())

    def edit(pod: str, order: pb.SidecarOrder) -> None:
        if order.HasField("reset_offsets"):
            world.resource["spec"]["offsets"].pop("reset", None)

    world.on_order = edit
    assert run(world) == "Completed"
    assert offsets_when(world, "Resuming") == dict.fromkeys((A, B, C, D), 10)


def test_a_second_reset_waits_for_the_first_and_then_acts() -> None:
    world = World(reset())
    asyncio.run(world.resets.step(KEY))
    world.request(reset("replay-2", latest=True))
    assert run(world) == "Completed"
    assert world.record["requestId"] == "replay-1"
    assert run(world) == "Completed"

    async def on() -> None:
        world.resource["status"]["offsetReset"]["phase"] = "Completed"
        for _ in range(20):
            await world.resets.step(KEY)

    asyncio.run(on())
    assert world.record["requestId"] == "replay-2"
    assert world.record["phase"] == "Completed"


def test_a_request_id_acts_once_also_when_an_old_one_comes_back() -> None:
    world = World(reset())
    run(world)
    world.request(reset("replay-2", latest=True))
    asyncio.run(steps(world, 20))
    assert world.record["requestId"] == "replay-2"
    world.history.clear()
    for old in (reset(), reset("replay-2"), reset()):
        world.request(old)
        asyncio.run(steps(world, 5))
    assert world.history == []


@pytest.mark.parametrize("spec", [{}, {"offsets": {}}, {"offsets": "wrong"}])
def test_a_group_without_a_reset_is_not_looked_at(spec: Json) -> None:
    assert not offset_resets.has_reset({"spec": spec})
    assert not offset_resets.has_reset({"spec": spec, "status": {"offsetReset": {"phase": "Completed"}}})
    assert offset_resets.has_reset({"spec": spec, "status": {"offsetReset": {"phase": "Committing"}}})
    assert offset_resets.has_reset({"spec": {"offsets": {"reset": reset()}}})


async def steps(world: World, count: int) -> None:
    for _ in range(count):
        await world.resets.step(KEY)


def test_others_that_write_the_status_meanwhile_hold_up_no_reset() -> None:
    world = World(reset())
    world.objects.rivals = 5
    assert run(world) == "Completed"


def test_a_plan_that_is_deleted_in_the_middle_ends_the_next_life_of_the_operator_and_members_resume() -> None:
    world = World(reset())
    world.on_order = lambda pod, order: None
    asyncio.run(steps(world, 3))
    assert world.record["phase"] in ("Suspending", "Committing")
    del world.objects.held[CONFIG_MAP.kind, PLAN]
    world.resets = world.new_operator()
    assert run(world) == "Failed"
    assert f"ConfigMap {PLAN} with the plan does not exist" in world.record["message"]
    assert not any(each.suspended for each in world.sidecars.values())
    assert world.events[-1].reason == "OffsetResetFailed"


def test_the_plan_that_is_read_is_enough_for_this_life() -> None:
    world = World(reset())
    asyncio.run(steps(world, 3))
    del world.objects.held[CONFIG_MAP.kind, PLAN]
    assert run(world) == "Completed"


def test_an_execution_that_cannot_be_finished_is_given_up_and_members_resume(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(reset())
    world.on_order = lambda pod, order: world.sidecars["b"].partitions.discard(D)
    assert run(world) == "Committing"
    late_s = 2 * reset_execution.EXECUTION_S
    monkeypatch.setattr(execution, "loop_time", lambda: asyncio.get_running_loop().time() + late_s)
    assert run(world) == "Failed"
    assert "1 offsets are not set: orders-3" in world.record["message"]
    assert UNDO in world.record["message"]
    assert not any(each.suspended for each in world.sidecars.values())


def test_a_group_that_the_spec_suspends_stays_so() -> None:
    world = World(reset())
    world.resource["spec"]["suspend"] = True
    world.reconcile()
    assert run(world) == "Completed"
    assert all(each.suspended for each in world.sidecars.values())


def test_a_group_without_a_status_or_that_is_not_accepted_is_left_alone() -> None:
    world = World(reset())
    world.resource["status"] = {}
    asyncio.run(steps(world, 3))
    assert world.record == {}
    world.resource["status"] = {"observedGeneration": 1, "groupId": "shop.orders"}
    world.resets.decided(KEY, world.resource, is_accepted=False)
    asyncio.run(steps(world, 3))
    assert (world.record["phase"], world.record["message"]) == ("Waiting", offset_resets.NOT_ACCEPTED)


def undisturbed() -> int:
    world = World(reset())
    run(world)
    return world.kills.count


@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", range(1, undisturbed() + 1))
def test_the_operator_may_die_at_each_request(at: int, is_after: bool) -> None:
    world = World(reset(), kills=Kills(at, is_after))

    async def story() -> str:
        try:
            return await world.run()
        except Killed:
            world.resets = world.new_operator()
            return await world.run()

    assert asyncio.run(story()) == "Completed"
    assert world.kills.count >= at
    assert offsets_when(world, "Resuming") == dict.fromkeys((A, B, C, D), 10)
    assert not any(each.suspended for each in world.sidecars.values())
    # The undo plan has the offsets from before the first one was set.
    rows = [line.split(",") for line in world.config_map(UNDO)["plan.csv"].splitlines()[1:]]
    assert all(int(row[3]) >= 50 for row in rows)
    assert [each["requestId"] for each in world.record["executed"]] == ["replay-1"]


@pytest.mark.parametrize("at", range(1, 12))
def test_a_sidecar_may_die_at_each_order_and_starts_as_the_settings_say(at: int) -> None:
    world = World(reset())
    orders: list[str] = []

    def die(pod: str, order: pb.SidecarOrder) -> None:
        orders.append(pod)
        if len(orders) == at:
            settings = world.objects.held[CONFIG_MAP.kind, "rota-orders"]["data"]["settings.json"]
            # Its partitions wait for it: it comes back as the same member, in a new generation.
            world.sidecars[pod].suspended = "true" in settings
            world.generation += 1

    world.on_order = die
    assert run(world) == "Completed"
    assert offsets_when(world, "Resuming") == dict.fromkeys((A, B, C, D), 10)
    assert not any(each.suspended for each in world.sidecars.values())
