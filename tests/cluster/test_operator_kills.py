"""An operator that is killed after any of its writes ends, in its next life, with the objects of an undisturbed run."""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import grpc
import pytest

from rota_operator.status.status import WRITE_INTERVAL_MS
from rota_proto.coordinator.v1.admin_pb2 import DescribeGroupsRequest
from rota_proto.coordinator.v1.admin_pb2_grpc import AdminStub
from tests.cluster.adopting import delete_all_groups
from tests.cluster.operator_kills import (
    GROUP,
    OTHER_TOPIC,
    Run,
    State,
    comparable,
    differences,
    scenarios,
    set_up,
    states_of,
    take_steps,
)
from tests.support.cluster import Cluster
from tests.support.cluster.api_proxy import ApiProxy, proxied
from tests.support.cluster.operator_process import OperatorProcess
from tests.support.coordinator import Coordinator
from tests.support.processes import ProcessFailed, steady_ms, wait_for

# Limits of time are reached only by what hangs.
pytestmark = [pytest.mark.cluster, pytest.mark.soak("operator-kills"), pytest.mark.timeout(1_200)]

POINTS, MOST_WRITES = 3, 16
# A status that changed is written within this time; then nothing is left to write.
AT_REST_MS = WRITE_INTERVAL_MS + 2_000
WITHIN_S = 300


class Rig(NamedTuple):
    """The operator behind its proxy."""

    cluster: Cluster
    proxy: ApiProxy
    operator: OperatorProcess
    coordinator: Coordinator


class Expected(NamedTuple):
    """Outcome of an undisturbed run: its writes, by method and resource, and its final state."""

    writes: list[str]
    state: State


@pytest.fixture(scope="module")
def rig(
    without_operator: Cluster, outside_coordinator: Coordinator, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Rig]:
    """An operator for all namespaces."""
    folder: Path = tmp_path_factory.mktemp("kills")
    outside_coordinator.make_topic(OTHER_TOPIC, 2)
    with proxied(without_operator.kubeconfig, folder) as proxy:
        operator = OperatorProcess(folder, proxy.kubeconfig)
        operator.start()
        yield Rig(without_operator, proxy, operator, outside_coordinator)
        delete_all_groups(without_operator)
        operator.stop()


class Rest:
    """Tells when runs are at rest: no write for AT_REST_MS."""

    def __init__(self, proxy: ApiProxy, runs: Sequence[Run]) -> None:
        self._proxy = proxy
        self._last = {run.namespace: (-1, steady_ms()) for run in runs}

    def reached(self) -> set[str]:
        """Return the namespaces without a write for AT_REST_MS. To be called often."""
        now_ms = steady_ms()
        for namespace, (writes, _) in self._last.items():
            if (found := len(self._proxy.writes(namespace))) != writes:
                self._last[namespace] = (found, now_ms)
        return {name for name, (_, since_ms) in self._last.items() if now_ms - since_ms >= AT_REST_MS}


def wait(what: str, rig: Rig, holds: Callable[[], bool]) -> None:
    def holds_and_operator_runs() -> bool:
        rig.operator.check()
        return holds()

    # Each poll reads and compares all objects.
    wait_for(what, holds_and_operator_runs, within_s=WITHIN_S, poll_s=1)


def has_settled(state: State) -> bool:
    """
    Return True if the group has been adopted, and its initial offsets are committed: its lag is known.

    Initial offsets are committed once, so a step that comes before or after them has another outcome.
    """
    group = state.get(f"ConsumerGroup/{GROUP}")
    return group is None or group.get("status", {}).get("lag", {}).get("total") == 0


def has_orphans(state: State) -> bool:
    """Return True until the garbage collector has deleted what a deleted group owned; it learns of a new kind within 30 s."""
    uids = {each["metadata"]["uid"] for key, each in state.items() if key.startswith("ConsumerGroup/")}
    owners = (owner for each in state.values() for owner in each["metadata"].get("ownerReferences", ()))
    return any(owner["kind"] == "ConsumerGroup" and owner["uid"] not in uids for owner in owners)


def run_undisturbed(rig: Rig, runs: Sequence[Run]) -> dict[str, Expected]:
    """Take the steps; return the writes and the final state of each scenario."""
    before = {run.namespace: len(rig.proxy.state_writes(run.namespace)) for run in runs}
    rest = Rest(rig.proxy, runs)

    def is_done() -> bool:
        states = states_of(rig.cluster, runs)
        take_steps(rig.cluster, runs, states)
        at_rest = rest.reached()
        return all(
            not run.steps and run.namespace in at_rest and not has_orphans(states[run.namespace])
            for run in runs
        )

    try:
        wait("undisturbed runs end", rig, is_done)
    except ProcessFailed as late:
        raise AssertionError({run.namespace: rig.proxy.writes(run.namespace) for run in runs}) from late
    states = final_states(rig, runs, states_of(rig.cluster, runs))
    return {
        run.scenario.name: Expected(
            rig.proxy.state_writes(run.namespace)[before[run.namespace] :], states[run.namespace]
        )
        for run in runs
    }


def kill_after_points(rig: Rig, runs: Sequence[Run]) -> None:
    """Take the steps until each run is cut off at its point; kill the operator, and start it again."""
    rest = Rest(rig.proxy, runs)
    for run in runs:
        assert run.point is not None
        rig.proxy.cut_after(run.namespace, run.point)

    def is_done() -> bool:
        take_steps(rig.cluster, runs, states_of(rig.cluster, runs))
        at_rest = rest.reached()
        return all(rig.proxy.is_cut(run.namespace) or run.namespace in at_rest for run in runs)

    wait("all runs reach their points", rig, is_done)
    rig.operator.kill()
    rig.proxy.reconnect()
    rig.operator.start()


def await_final_states(rig: Rig, runs: Sequence[Run], expected: dict[str, Expected]) -> None:
    """Take the remaining steps, and wait until all final states are as expected. Raises AssertionError with the differences."""
    found: dict[str, list[str]] = {}

    def are_equal() -> bool:
        states = states_of(rig.cluster, runs)
        take_steps(rig.cluster, runs, states)
        finals = final_states(rig, runs, states)
        for run in runs:
            found[f"{run.namespace} after {run.point} writes"] = differences(
                expected[run.scenario.name].state, finals[run.namespace]
            )
        return not any(found.values())

    try:
        wait("final states are equal", rig, are_equal)
    except ProcessFailed as late:
        raise AssertionError({name: each for name, each in found.items() if each}) from late


def final_states(rig: Rig, runs: Sequence[Run], states: dict[str, State]) -> dict[str, State]:
    """States to compare, with those of the groups at their coordinator."""
    request = DescribeGroupsRequest(group_ids=[f"{run.namespace}.{GROUP}" for run in runs])
    with grpc.insecure_channel(rig.coordinator.address) as channel:
        described = AdminStub(channel).DescribeGroups(request, timeout=WITHIN_S)
    found = {each.group_id: each.state for each in described.groups}
    return {
        run.namespace: {
            **comparable(states[run.namespace], run.namespace),
            "Group": {"state": found[f"{run.namespace}.{GROUP}"]},
        }
        for run in runs
    }


def test_a_kill_after_any_write_ends_in_the_objects_of_an_undisturbed_run(
    rig: Rig, seed: int, in_soak: bool, report: list[str], counters: Counter[str]
) -> None:
    draw = random.Random(seed)
    all_scenarios = scenarios(rig.coordinator.address)
    undisturbed = [Run(each, f"kill-{each.name}-none") for each in all_scenarios]
    points = range(MOST_WRITES if in_soak else POINTS)
    killed = [Run(each, f"kill-{each.name}-{n}") for each in all_scenarios for n in points]
    set_up(rig.cluster, [*undisturbed, *killed])
    wait("all runs are set up", rig, partial(have_settled, rig, [*undisturbed, *killed]))

    expected = run_undisturbed(rig, undisturbed)
    for scenario in all_scenarios:
        writes = len(expected[scenario.name].writes)
        assert 0 < writes <= MOST_WRITES, expected[scenario.name].writes
        drawn = draw.sample(range(1, writes + 1), writes)
        of_scenario = [run for run in killed if run.scenario.name == scenario.name]
        for run, point in zip(of_scenario, drawn, strict=False):
            run.point = point
    chosen = [run for run in killed if run.point is not None]
    kill_after_points(rig, chosen)
    await_final_states(rig, chosen, expected)
    counters["kills at a write"] += len(chosen)
    total = sum(len(each.writes) for each in expected.values())
    report.append(
        f"operator killed after {len(chosen)} of {total} writes of {len(all_scenarios)} scenarios: same objects"
    )


def have_settled(rig: Rig, runs: Sequence[Run]) -> bool:
    return all(has_settled(each) for each in states_of(rig.cluster, runs).values())
