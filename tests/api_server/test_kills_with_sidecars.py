"""
An operator that is killed within an instance's hand-over or a change of strategy: the next one goes on, with real sidecars.

The sidecars are processes of this machine, of pods that no node runs. Two groups of static members get their instances, and pass one
on; three groups change their strategy. Each write of that is refused in one of the groups, and carried out in another one, but not
answered, and the operator is killed meanwhile: first at the writes of the beginning, then at those of the end.
"""

import signal
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest

from rota_operator.reconcile.strategy import written_in
from rota_proto.coordinator.v1 import admin_pb2 as admin
from rota_proto.coordinator.v1.admin_pb2_grpc import AdminStub
from tests.api_server.adopting import KINDS, Shop, consumer_group, delete_all_groups, workload
from tests.api_server.pod_sidecars import attach_once, start_sidecar
from tests.support.cluster import Cluster
from tests.support.cluster.api_proxy import ApiProxy, proxied
from tests.support.cluster.held_writes import HeldWrites
from tests.support.cluster.operator_process import OperatorProcess
from tests.support.coordinator import Coordinator
from tests.support.ports import free_port
from tests.support.processes import Process, steady_ms, wait_for

# Limits of time are reached only by what hangs.
pytestmark = [pytest.mark.api_server, pytest.mark.soak("hand-over-kills"), pytest.mark.timeout(600)]

WITHIN_S, POLL_S = 120, 0.5
# From the moment at which the operator is back; on a machine that has nothing else to do.
NAMELESS_S = 10
# Before and after a write is carried out.
BEFORE, AFTER = "names-before", "names-after"
STRATEGY_BEFORE, STRATEGY_AFTER, ORDER = "strategy-before", "strategy-after", "strategy-order"
STATIC, CHANGING = (BEFORE, AFTER), (STRATEGY_BEFORE, STRATEGY_AFTER, ORDER)
# Of each group.
REPLICAS = {BEFORE: 2, AFTER: 2, STRATEGY_BEFORE: 1, STRATEGY_AFTER: 1, ORDER: 2}
FORMER, NEW = ("range",), ("cooperative-sticky",)


class Member(NamedTuple):
    """A member of a group as its coordinator describes it."""

    pod: str
    instance: str


class Pod(NamedTuple):
    """A pod, and its sidecar."""

    group: str
    name: str
    sidecar: Process


class Stage:
    """The groups, their pods with sidecars, and one life of the operator after the other."""

    def __init__(
        self, shop: Shop, proxy: ApiProxy, operator: OperatorProcess, folder: Path, fleet: str
    ) -> None:
        self.shop = shop
        self.held: HeldWrites = proxy.held
        self.operator = operator
        self.pods: dict[str, Pod] = {}
        self._folder = folder
        self._fleet = fleet

    def wait(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait while all processes run."""

        def holds_and_all_run() -> bool:
            self.operator.check()
            for each in self.pods.values():
                each.sidecar.check_running()
            return holds()

        wait_for(what, holds_and_all_run, within_s=WITHIN_S, poll_s=POLL_S)

    def start_sidecars(self) -> None:
        """Start the sidecar of each pod that has none, once all pods are there."""
        self.wait("all pods are created", lambda: len(self._found_pods()) == sum(REPLICAS.values()))
        for pod in self._found_pods():
            name, group = pod["metadata"]["name"], pod["metadata"]["labels"]["app"]
            if name not in self.pods:
                folder = self._folder / name
                folder.mkdir()
                sidecar = start_sidecar(self.shop, pod, self._fleet, folder)
                attach_once(folder)
                self.pods[name] = Pod(group, name, sidecar)

    def delete_pod(self, name: str) -> None:
        """Delete a pod; its sidecar ends as the kubelet would end it."""
        self.shop.kubectl("delete", "pod", name, "--wait=false")
        self.pods.pop(name).sidecar.stop()

    def of(self, group: str) -> list[Pod]:
        """Pods of a group, the first one first."""
        return [each for each in self.pods.values() if each.group == group]

    def members(self) -> Mapping[str, list[Member]]:
        """Members of each group that is stable."""
        return {
            name: [Member(each.client_id, each.group_instance_id) for each in group.members]
            for name, group in zip(REPLICAS, self._described(), strict=True)
            if group.state == admin.GROUP_STATE_STABLE
        }

    def strategies(self) -> Mapping[str, str]:
        """Strategy of each group."""
        return {name: group.protocol_name for name, group in zip(REPLICAS, self._described(), strict=True)}

    def instances(self, group: str) -> Mapping[str, str]:
        """Pods of a group by their instances, as the operator has written them; empty: it has not."""
        found = [
            each["data"]
            for each in self.shop.get("configmaps")["items"]
            if each["metadata"]["name"] == f"rota-{group}-instances"
        ]
        return {name: text.partition(" ")[0] for data in found for name, text in data.items()}

    def offered(self, group: str) -> tuple[str, ...]:
        """Strategies that a sidecar of a group reads when it starts."""
        return written_in(self.shop.get(f"configmap/rota-{group}"))

    def are_named(self) -> bool:
        """Return whether each pod of the static groups is a member with an instance."""
        found = self.members()
        return all(
            {each.pod for each in found.get(group, ()) if each.instance}
            == {each.name for each in self.of(group)}
            for group in STATIC
        )

    def kill_operator(self) -> None:
        """SIGKILL, once the writes have been carried out whose answers are held back."""
        self.wait("the writes are carried out", self.held.are_reached)
        self.operator.kill()
        self.held.release()

    def start_operator(self, what: str, holds: Callable[[], bool]) -> float:
        """Start the next life of the operator; return the seconds until it holds."""
        self.operator.start()
        since_ms = steady_ms()
        self.wait(what, holds)
        return (steady_ms() - since_ms) / 1000

    def _found_pods(self) -> list[Any]:
        """Pods with a sidecar that are not being deleted."""
        return [
            each
            for each in self.shop.get("pods")["items"]
            if "initContainers" in each["spec"] and "deletionTimestamp" not in each["metadata"]
        ]

    def _described(self) -> list[admin.DescribedGroup]:
        request = admin.DescribeGroupsRequest(
            group_ids=[f"{self.shop.namespace}.{each}" for each in REPLICAS]
        )
        with grpc.insecure_channel(self.shop.coordinator) as channel:
            return list(AdminStub(channel).DescribeGroups(request, timeout=WITHIN_S).groups)


def group_of(shop: Shop, name: str, strategies: tuple[str, ...]) -> Any:  # noqa: ANN401  a manifest
    [strategy] = strategies
    return consumer_group(
        name, shop.coordinator, KINDS[0], name, replicas=REPLICAS[name],
        membership={"static": name in STATIC}, assignment={"strategy": strategy},
    )  # fmt: skip


@pytest.fixture
def stage(
    api_server: Cluster, outside_coordinator: Coordinator, namespace: str, tmp_path: Path
) -> Iterator[Stage]:
    """All groups, without members; the operator runs."""
    shop = Shop(api_server, namespace, outside_coordinator.address)
    fleet = f"127.0.0.1:{free_port()}"
    with proxied(api_server.kubeconfig, tmp_path) as proxy:
        operator = OperatorProcess(
            tmp_path, proxy.kubeconfig, f"--namespace={namespace}", f"--fleet-listen={fleet}"
        )
        operator.start()
        shop.apply(*(workload(KINDS[0], name) for name in REPLICAS))
        shop.apply(*(group_of(shop, name, FORMER) for name in REPLICAS))
        yield Stage(shop, proxy, operator, tmp_path, fleet)
        delete_all_groups(api_server)
        operator.stop()


def begin(stage: Stage) -> None:
    """Kill the operator while it writes the first instances, and the first round of a change."""
    for group in STATIC:
        stage.held.hold(
            stage.shop.namespace, "POST", f"configmaps/rota-{group}-instances", is_carried_out=group == AFTER
        )
    stage.start_sidecars()
    stage.wait(
        "members use the former strategy",
        lambda: all(
            (len(stage.members().get(group, ())), stage.strategies()[group]) == (REPLICAS[group], *FORMER)
            for group in CHANGING
        ),
    )
    # One of two sidecars gets no order in this life.
    frozen = stage.of(ORDER)[1].sidecar
    frozen.signal_with_children(signal.SIGSTOP)
    for group in (STRATEGY_BEFORE, STRATEGY_AFTER):
        stage.held.hold(
            stage.shop.namespace, "PATCH", f"configmaps/rota-{group}", is_carried_out=group == STRATEGY_AFTER
        )
    stage.shop.apply(*(group_of(stage.shop, group, NEW) for group in CHANGING))
    # It has had its order: it joins again, and the other one does not.
    stage.wait("the group rebalances", lambda: ORDER not in stage.members())
    stage.kill_operator()
    frozen.signal_with_children(signal.SIGCONT)
    assert (stage.instances(BEFORE), stage.offered(STRATEGY_BEFORE)) == ({}, FORMER)
    assert stage.instances(AFTER)
    assert {stage.offered(STRATEGY_AFTER), stage.offered(ORDER)} == {(*NEW, *FORMER)}
    found = stage.members()
    assert not any(found.get(group) for group in STATIC), "no order before its answer"


def go_on(stage: Stage) -> float:
    """Let the next operator give out the instances; kill it while it passes two on, and writes the second round."""
    for group in (STRATEGY_BEFORE, STRATEGY_AFTER):
        stage.held.hold(
            stage.shop.namespace, "PATCH", f"configmaps/rota-{group}", is_carried_out=group == STRATEGY_AFTER,
            matches=lambda body: written_in(body) == NEW,
        )  # fmt: skip
    named_s = stage.start_operator("all pods have their names", stage.are_named)
    for group in STATIC:
        assert stage.instances(group).keys() == {f"{group}-0", f"{group}-1"}
        stage.held.hold(
            stage.shop.namespace, "PATCH", f"configmaps/rota-{group}-instances", is_carried_out=group == AFTER
        )
    for group in STATIC:
        stage.delete_pod(stage.of(group)[0].name)
    stage.start_sidecars()
    stage.kill_operator()
    assert {group: stage.offered(group) for group in (STRATEGY_BEFORE, STRATEGY_AFTER)} == {
        STRATEGY_BEFORE: (*NEW, *FORMER),
        STRATEGY_AFTER: NEW,
    }
    return named_s


def test_the_next_operator_completes_what_a_killed_one_has_begun(
    stage: Stage, report: list[str], in_soak: bool
) -> None:
    begin(stage)
    named_s = [go_on(stage)]
    kept = {
        each.pod: each.instance
        for group in STATIC
        for each in stage.members()[group]
        if each.pod in stage.pods
    }
    named_s.append(stage.start_operator("all pods have their names again", stage.are_named))

    members = {group: stage.members()[group] for group in STATIC}
    for group in STATIC:
        assert sorted(each.instance for each in members[group]) == [f"{group}-0", f"{group}-1"]
        assert stage.instances(group) == {each.instance: each.pod for each in members[group]}
    now = {each.pod: each.instance for found in members.values() for each in found}
    assert kept.items() <= now.items(), "an instance was taken away"

    stage.wait("all changes are complete", partial(have_changed, stage))
    for each in stage.pods.values():
        assert "FENCED" not in each.sidecar.log.read_text()
    report.append(
        "operator killed at each write of a hand-over and of a change of strategy: all pods have their names "
        f"{named_s[0]:.1f} s and {named_s[1]:.1f} s after the next one is ready"
    )
    if in_soak:
        assert max(named_s) <= NAMELESS_S


def have_changed(stage: Stage) -> bool:
    """Return whether all groups use the new strategy, and their sidecars offer nothing else when they start."""
    strategies = stage.strategies()
    return all((strategies[group], stage.offered(group)) == (*NEW, NEW) for group in CHANGING)
