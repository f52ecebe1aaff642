"""A group is scaled as it was decided: victims drain before the number falls, and what others do meanwhile is left alone."""

import asyncio
from typing import Any

import pytest

from rota_operator.autoscaling.decision import Reason
from rota_operator.cluster.errors import Conflict, Forbidden
from rota_operator.cluster.group_autoscaler import start_ms_of
from rota_operator.reconcile.scaling import DELETION_COST, VICTIM_COST
from rota_operator.spec.status import Scaling
from tests.operator.cluster.scaled_world import PARTITIONS, POLL_MS, ScaledWorld

# As many samples as a decision needs: the first one has no rate.
SAMPLES = 4


def started(ready_at: str, *, is_ready: bool = True) -> Any:  # noqa: ANN401
    condition = {"type": "Ready", "status": str(is_ready), "lastTransitionTime": ready_at}
    others = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"}
    return {
        "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"},
        "status": {"conditions": [others, condition]},
    }


def test_more_load_scales_up_at_once_and_is_recorded_for_the_next_leader() -> None:
    world = ScaledWorld(1)

    async def story() -> None:
        world.arrival_rate = 22.0
        await world.poll(SAMPLES)
        assert world.acts == ["scale 3"]
        record = world.autoscaler.state.scaling
        assert (record.recommendation, record.needed_replicas) == (3, 3)
        assert record.decisions[0].reason == Reason.LOAD_ABOVE_TARGET
        assert record.last_scale_time is not None
        (message,) = world.said("Scaled")
        assert message.startswith("scaled Deployment orders from 1 to 3 replicas: LoadAboveTarget: ")
        assert world.autoscaler.state.problem == ""

    world.run(story)


def test_the_start_of_pods_that_are_there_is_known_before_the_first_growth() -> None:
    world = ScaledWorld(1)
    (pod,), ready = world.pods.values(), started("2026-01-01T00:00:07Z")
    pod["metadata"] |= ready["metadata"]
    world.unlisted = [Forbidden("pods is forbidden", "list", "pods")]

    async def story() -> None:
        await world.poll()
        pod["status"] = ready["status"]
        world.arrival_rate = 22.0
        await world.poll(SAMPLES)
        assert (world.decisions[0].inputs.start_ms, world.decisions[-1].inputs.start_ms) == (None, 7_000)
        assert world.acts == ["scale 3"]
        assert world.said("ScaleFailed") == []

    world.run(story)


def test_nothing_is_scaled_before_the_status_holds_a_decision() -> None:
    """Until then the plan applies the number in the spec."""
    world = ScaledWorld(1)
    world.is_recorded = False

    async def story() -> None:
        world.arrival_rate = 22.0
        await world.poll(SAMPLES)
        assert world.acts == []
        world.is_recorded = True
        await world.poll()
        assert world.acts == ["scale 3"]

    world.run(story)


def test_a_dry_run_asks_for_nothing_and_says_once_what_it_would_do() -> None:
    world = ScaledWorld(1, dryRun=True)

    async def story() -> None:
        world.arrival_rate = 22.0
        await world.poll(SAMPLES + 2)
        assert world.acts == []
        (message,) = world.said("ScalingRecommended")
        assert message.startswith(
            "would scale Deployment orders from 1 to 3 replicas (dry run): LoadAboveTarget"
        )
        assert [each.dry_run for each in world.autoscaler.state.scaling.decisions] == [True] * 3
        world.put_replicas(2)
        await world.poll()
        assert world.said("ReplicasChanged") == []

    world.run(story)


def test_a_deployment_loses_the_pods_whose_leaving_moves_least_once_they_have_drained() -> None:
    world = ScaledWorld(3)
    first, second, third = world.pods
    world.owners = [first, second, second, first]

    async def story() -> None:
        drained = world.drained = asyncio.get_running_loop().create_future()
        world.arrival_rate = 15.0
        await world.poll(SAMPLES)
        assert world.acts == [f"drain {third}"]
        await world.poll()
        assert world.acts == [f"drain {third}"], "one change is under way"
        drained.set_result("")
        await world.settle()
        assert world.acts[1:] == [f"cost of {third}: lowest", "scale 2"]
        (message,) = world.said("Scaled")
        assert message.startswith("scaled Deployment orders from 3 to 2 replicas: LoadBelowTarget")
        world.pods.pop(third)
        await world.poll()
        assert len(world.acts) == 3

    world.run(story)


def test_a_stateful_set_loses_the_highest_ordinals_and_needs_no_cost() -> None:
    world = ScaledWorld(4, "StatefulSet")

    async def story() -> None:
        world.arrival_rate = 15.0
        await world.poll(SAMPLES)
        assert world.acts == ["drain orders-3", "drain orders-2", "scale 2"]

    world.run(story)


def test_nothing_drains_during_a_rollout() -> None:
    world = ScaledWorld(3)
    world.begin_rollout()

    async def story() -> None:
        world.arrival_rate = 5.0
        await world.poll(SAMPLES)
        assert world.acts == []
        assert world.autoscaler.state.scaling.decisions[0].reason == Reason.ROLLOUT

    world.run(story)


def test_a_rollout_that_begins_meanwhile_ends_the_scale_down_and_the_pods_go_on() -> None:
    world = ScaledWorld(3)
    victim = [*world.pods][1]
    world.owners = [each for each in world.pods if each != victim] * 2

    async def story() -> None:
        world.drained = asyncio.get_running_loop().create_future()
        world.arrival_rate = 15.0
        await world.poll(SAMPLES)
        world.begin_rollout()
        await world.poll()
        assert world.acts == [f"drain {victim}", f"cost of {victim}: removed"]
        assert world.said("ScaleFailed") == [
            "Deployment orders stays at 3 replicas instead of 2: a rollout has begun"
        ]
        assert world.autoscaler.state.scaling.last_scale_time is None

    world.run(story)


def test_a_workload_that_another_client_scales_meanwhile_is_left_alone() -> None:
    world = ScaledWorld(3)

    async def story() -> None:
        drained = world.drained = asyncio.get_running_loop().create_future()
        world.arrival_rate = 15.0
        await world.poll(SAMPLES)
        world.put_replicas(4)
        drained.set_result("")
        await world.settle()
        assert not any(each.startswith("scale") for each in world.acts)
        (message,) = world.said("ScaleFailed")
        assert message.endswith("the number of replicas was changed to 4 meanwhile")

    world.run(story)


def test_a_number_that_others_change_is_said_and_overruled_by_the_next_decision() -> None:
    world = ScaledWorld(1)

    async def story() -> None:
        world.arrival_rate = 22.0
        await world.poll(SAMPLES)
        assert world.said("ReplicasChanged") == [], "it was the autoscaler's own"
        stale = world.subject()
        world.put_replicas(1)
        await world.poll()
        assert world.said("ReplicasChanged") == [
            "another client scaled Deployment orders from 3 to 1 replicas; the autoscaler's next decision may overrule it"
        ]
        assert world.acts == ["scale 3", "scale 3"]
        world.autoscaler.update(stale)
        world.spec = world.spec.model_copy(update={"replicas": 9})
        await world.poll()
        assert world.said("ReplicasChanged")[1:] == [
            "spec.replicas is 9 now, which is the initial number only; the autoscaler's number stays"
        ]

    world.run(story)


def test_a_workload_that_changes_between_read_and_write_is_read_again() -> None:
    world = ScaledWorld(1)
    world.failures = [Conflict("the object has been modified")]

    async def story() -> None:
        world.arrival_rate = 22.0
        await world.poll(SAMPLES)
        assert world.acts == ["scale 3"]

    world.run(story)


def test_a_refused_request_is_said_and_tried_again_at_the_next_decision() -> None:
    world = ScaledWorld(1)
    world.failures = [Forbidden("the operator may not patch deployments/scale", "patch", "deployments")]

    async def story() -> None:
        world.arrival_rate = 22.0
        await world.poll(SAMPLES)
        assert world.said("ScaleFailed") == [
            "Deployment orders is not scaled: the operator may not patch deployments/scale"
        ]
        await world.poll()
        assert world.acts == ["scale 3"]

    world.run(story)


def test_a_refused_request_of_a_scale_down_lets_the_pods_go_on() -> None:
    world = ScaledWorld(2)
    world.failures = [Forbidden("the operator may not patch deployments/scale", "patch", "deployments")]

    async def story() -> None:
        world.arrival_rate = 5.0
        await world.poll(SAMPLES)
        assert world.acts[0].startswith("drain")
        assert world.acts[-1].endswith(": removed")
        assert world.replicas == 2

    world.run(story)


def test_a_workload_that_is_gone_is_said() -> None:
    world = ScaledWorld(1)

    async def story() -> None:
        world.arrival_rate = 22.0
        await world.poll(SAMPLES - 1)
        world.workload["metadata"]["deletionTimestamp"] = "now"
        await world.poll()
        assert world.said("ScaleFailed") == [
            "Deployment orders stays at 1 replicas instead of 3: Deployment orders does not exist"
        ]

    world.run(story)


def test_a_victim_that_ends_by_itself_is_not_waited_for() -> None:
    world = ScaledWorld(2)

    async def story() -> None:
        world.drained = asyncio.get_running_loop().create_future()
        world.arrival_rate = 5.0
        await world.poll(SAMPLES)
        (victim,) = (each.removeprefix("drain ") for each in world.acts)
        world.autoscaler.tick()
        assert len(world.acts) == 1
        world.pods.pop(victim)
        world.autoscaler.tick()
        await world.settle()
        assert world.acts[-1] == "scale 1"

    world.run(story)


def test_the_next_leader_removes_costs_that_are_left_and_chooses_anew() -> None:
    world = ScaledWorld(3)
    first, second, third = world.pods
    world.owners = [first, first, second, second]
    world.pods[first]["metadata"]["annotations"] = {DELETION_COST: VICTIM_COST}

    async def story() -> None:
        world.arrival_rate = 15.0
        await world.poll(SAMPLES)
        assert world.acts == [
            f"cost of {first}: removed",
            f"drain {third}",
            f"cost of {third}: lowest",
            "scale 2",
        ]

    world.run(story)


def test_the_next_leader_waits_from_the_last_change_of_the_one_before() -> None:
    world = ScaledWorld(1, minChangeIntervalSeconds=300)

    async def story() -> None:
        world.arrival_rate = 22.0
        await world.poll(SAMPLES)
        world.start(world.autoscaler.state.scaling)
        world.pods |= {f"orders-{each}": {"metadata": {"name": f"orders-{each}"}} for each in "ab"}
        world.owners = [*world.pods, next(iter(world.pods))]
        world.arrival_rate = 95.0
        await world.poll(SAMPLES)
        assert world.acts == ["scale 3"]
        assert world.autoscaler.state.scaling.decisions[0].reason == Reason.CHANGE_INTERVAL
        await world.poll(300_000 // POLL_MS)
        assert world.acts == ["scale 3", f"scale {PARTITIONS}"]

    world.run(story)


@pytest.mark.parametrize("fallback", [None, 2])
def test_without_reports_the_number_stays_or_is_the_fallback_and_the_load_is_unknown(
    fallback: int | None,
) -> None:
    world = ScaledWorld(1, fallback={} if fallback is None else {"replicas": fallback})

    async def story() -> None:
        world.arrival_rate = 5.0
        await world.poll(SAMPLES)
        world.is_silent = True
        await world.poll()
        assert world.autoscaler.state.problem == "", "one failed sample"
        await world.poll(3)
        assert world.autoscaler.state.problem == "no sidecar of the group reports"
        assert world.acts == ([] if fallback is None else ["scale 2"])

    world.run(story)


def test_a_group_that_is_not_watched_yet_is_not_decided_on() -> None:
    world = ScaledWorld(1)
    world.is_watched = False
    world.run(world.poll)
    assert world.autoscaler.state.scaling == Scaling()


def test_a_start_takes_as_long_as_that_of_the_quickest_pod_that_is_ready() -> None:
    # The second was unready for an hour, and the last is now.
    pods = [
        started("2026-01-01T00:00:12Z"),
        started("2026-01-01T01:00:00Z"),
        started("2026-01-01T00:00:05Z", is_ready=False),
    ]
    assert start_ms_of(pods) == 12_000
    assert start_ms_of(pods[2:]) is None
    assert start_ms_of([{"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}}]) is None
    # The clocks of the node and of the API server differ.
    assert start_ms_of([started("2025-12-31T23:59:59Z")]) == 0
