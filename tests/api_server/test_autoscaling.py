"""
Rota scales groups itself: status, Events, another autoscaler, and an operator that is killed within a scale-down.

The sidecars are processes of this machine, of pods that no node runs, and nothing is produced: a group needs one replica. Of two groups
with two replicas the pod that owns the fewest partitions drains. In one group the operator is killed between the drain and the change of
the number, in the other one after it.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rota_operator.reconcile.scaling import DELETION_COST, VICTIM_COST
from tests.api_server.adopting import Shop, consumer_group, delete_all_groups, workload
from tests.api_server.pod_sidecars import attach_once, start_sidecar
from tests.api_server.test_autoscalers import autoscaler
from tests.support.cluster import Cluster
from tests.support.cluster.api_proxy import ApiProxy, proxied
from tests.support.cluster.operator_process import OperatorProcess
from tests.support.coordinator import Coordinator
from tests.support.ports import free_port
from tests.support.processes import Process, wait_for

pytestmark = [pytest.mark.api_server, pytest.mark.timeout(300)]

WITHIN_S, POLL_S = 120, 0.5
# The number has not fallen; it has.
BEFORE, AFTER = "killed-before", "killed-after"
# Another autoscaler is there before the group.
THEIRS = "theirs"
REPLICAS = 2
AUTOSCALING = {"enabled": True, "pollingInterval": 1, "minChangeIntervalSeconds": 0}
DRAINED = "Fleet ordered a drain"


class Stage:
    """The groups, the sidecars of their pods, and one life of the operator after the other."""

    def __init__(
        self, shop: Shop, proxy: ApiProxy, operator: OperatorProcess, folder: Path, fleet: str
    ) -> None:
        self.shop = shop
        self.held = proxy.held
        self.operator = operator
        self.sidecars: dict[str, Process] = {}
        self._folder = folder
        self._fleet = fleet

    def wait(self, what: str, holds: Any) -> None:  # noqa: ANN401  whatever can be asked
        def holds_and_operator_runs() -> bool:
            self.operator.check()
            return bool(holds())

        wait_for(what, holds_and_operator_runs, within_s=WITHIN_S, poll_s=POLL_S)

    def pods(self, group: str) -> dict[str, Any]:
        """Pods of a group that are adopted and are not being deleted, by their names."""
        return {
            each["metadata"]["name"]: each
            for each in self.shop.get("pods")["items"]
            if each["metadata"]["labels"]["app"] == group
            if "initContainers" in each["spec"] and "deletionTimestamp" not in each["metadata"]
        }

    def start_sidecars(self, group: str) -> None:
        """Start the sidecars of a group's pods, once these are there."""
        self.wait(f"pods of {group}", lambda: len(self.pods(group)) == REPLICAS)
        for name, pod in self.pods(group).items():
            folder = self._folder / name
            folder.mkdir()
            self.sidecars[name] = start_sidecar(self.shop, pod, self._fleet, folder)
            attach_once(folder)

    def stop_ended(self) -> None:
        """End the sidecars of pods that are gone, as the kubelet would."""
        there = {**self.pods(BEFORE), **self.pods(AFTER)}
        for name in self.sidecars.keys() - there.keys():
            self.sidecars.pop(name).stop()

    def status(self, group: str) -> dict[str, Any]:
        return dict(self.shop.get(f"cg/{group}").get("status") or {})

    def replicas(self, group: str) -> int:
        return int(self.shop.get(f"deployment/{group}")["spec"]["replicas"])

    def events(self, group: str, reason: str) -> list[str]:
        """Messages of a ConsumerGroup's Events."""
        return [
            each["message"]
            for each in self.shop.get("events")["items"]
            if (each["involvedObject"]["name"], each["reason"]) == (group, reason)
        ]

    def was_drained(self, pod: str) -> bool:
        return DRAINED in self.sidecars[pod].log.read_text()


def group_of(shop: Shop, name: str, **spec: object) -> Any:  # noqa: ANN401  a manifest
    return consumer_group(name, shop.coordinator, "Deployment", name, **spec)


@pytest.fixture
def stage(
    api_server: Cluster, outside_coordinator: Coordinator, namespace: str, tmp_path: Path
) -> Iterator[Stage]:
    """Two groups of two members, and one that another autoscaler scales."""
    shop = Shop(api_server, namespace, outside_coordinator.address)
    fleet = f"127.0.0.1:{free_port()}"
    with proxied(api_server.kubeconfig, tmp_path) as proxy:
        operator = OperatorProcess(
            tmp_path, proxy.kubeconfig, f"--namespace={namespace}", f"--fleet-listen={fleet}"
        )
        operator.start()
        shop.apply(*(workload("Deployment", name) for name in (BEFORE, AFTER)))
        shop.apply(workload("Deployment", THEIRS), autoscaler(THEIRS, "ConsumerGroup", THEIRS))
        shop.apply(*(group_of(shop, name, replicas=REPLICAS) for name in (BEFORE, AFTER)))
        shop.apply(group_of(shop, THEIRS, replicas=0, autoscaling=AUTOSCALING))
        found = Stage(shop, proxy, operator, tmp_path, fleet)
        yield found
        delete_all_groups(api_server)
        operator.stop()
        for each in found.sidecars.values():
            each.stop()


def condition(stage: Stage, group: str) -> Sequence[str]:
    found = stage.shop.condition(group, "ScalingActive")
    return found["status"], found["reason"]


def test_nobody_stays_drained_by_an_operator_that_is_killed_within_a_scale_down(stage: Stage) -> None:
    for group in (BEFORE, AFTER):
        stage.start_sidecars(group)
    for group in (BEFORE, AFTER):
        stage.wait(f"members of {group}", lambda group=group: stage.status(group).get("members") == REPLICAS)
        assert condition(stage, group) == ("False", "AutoscalingDisabled")
    # Both own one partition, so the names decide.
    victims = {group: min(stage.pods(group)) for group in (BEFORE, AFTER)}
    survivors = {group: max(stage.pods(group)) for group in (BEFORE, AFTER)}
    namespace = stage.shop.namespace
    stage.held.hold(namespace, "PATCH", f"pods/{victims[BEFORE]}", is_carried_out=True)
    stage.held.hold(namespace, "PATCH", f"deployments/{AFTER}/scale", is_carried_out=True)
    stage.shop.apply(
        *(
            group_of(stage.shop, group, replicas=REPLICAS, autoscaling=AUTOSCALING)
            for group in (BEFORE, AFTER)
        )
    )
    stage.wait("both are within their scale-down", stage.held.are_reached)
    stage.operator.kill()
    stage.held.release()

    assert (stage.replicas(BEFORE), stage.replicas(AFTER)) == (REPLICAS, 1)
    cost = stage.shop.get(f"pod/{victims[BEFORE]}")["metadata"]["annotations"][DELETION_COST]
    assert cost == VICTIM_COST
    assert [stage.was_drained(victims[group]) for group in (BEFORE, AFTER)] == [True, True]

    stage.operator.start()
    for group in (BEFORE, AFTER):
        stage.wait(f"{group} is scaled", lambda group=group: [*stage.pods(group)] == [survivors[group]])
        assert not stage.was_drained(survivors[group])
    stage.stop_ended()
    decided_in_the_status(stage)
    theirs_is_seen(stage)
    another_clients_number_is_overruled(stage)


def decided_in_the_status(stage: Stage) -> None:
    """The scale-down that the second life has made, and that it goes on."""
    stage.wait("the load is known", lambda: condition(stage, BEFORE) == ("True", "MetricsKnown"))
    scaling = stage.status(BEFORE)["scaling"]
    # The first life may have written its own before it was killed.
    change, *_ = (each for each in scaling["decisions"] if each["recommendation"] != each["replicas"])
    assert (change["replicas"], change["recommendation"], change["reason"]) == (
        REPLICAS,
        1,
        "LoadBelowTarget",
    )
    assert change["inputs"]["partitions"] == REPLICAS
    assert scaling["lastScaleTime"] >= change["time"]
    stage.wait("it is desired", lambda: stage.status(BEFORE)["desiredReplicas"] == 1)
    said = f"scaled Deployment {BEFORE} from {REPLICAS} to 1 replicas: LoadBelowTarget: "
    stage.wait("it is said", lambda: any(each.startswith(said) for each in stage.events(BEFORE, "Scaled")))


def theirs_is_seen(stage: Stage) -> None:
    assert condition(stage, THEIRS) == ("False", "ForeignAutoscaler")
    message = stage.shop.condition(THEIRS, "ScalingActive")["message"]
    assert f"HorizontalPodAutoscaler {THEIRS} scales the ConsumerGroup, so Rota does not" in message


def another_clients_number_is_overruled(stage: Stage) -> None:
    stage.shop.kubectl("scale", f"deployment/{BEFORE}", f"--replicas={REPLICAS}")
    stage.wait("it is said", lambda: stage.events(BEFORE, "ReplicasChanged"))
    stage.wait("it is overruled", lambda: stage.replicas(BEFORE) == 1)
    [survivor] = stage.sidecars.keys() & stage.pods(BEFORE).keys()
    assert not stage.was_drained(survivor), "the pod that had not joined went"
