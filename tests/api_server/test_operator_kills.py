"""
An operator that is killed after any of its writes, or whose API server misbehaves, ends with the objects of an undisturbed run.

Each sabotage has namespaces of its own, side by side, and that of watches meets all. No write rests on a state that is older than one
that the operator had been served, and none says again what another had replaced.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import grpc
import pytest

from rota_operator.cluster.api import REQUEST_S
from rota_operator.status.status import WRITE_INTERVAL_MS
from rota_proto.coordinator.v1.admin_pb2 import DescribeGroupsRequest
from rota_proto.coordinator.v1.admin_pb2_grpc import AdminStub
from tests.api_server.adopting import delete_all_groups
from tests.api_server.operator_kills import (
    GROUP,
    OTHER_TOPIC,
    Run,
    Scenario,
    State,
    comparable,
    delete_groups,
    differences,
    scenarios,
    set_up,
    states_of,
    take_steps,
)
from tests.support.cluster import Cluster
from tests.support.cluster.api_faults import GONE, Fault
from tests.support.cluster.api_proxy import ApiProxy, proxied
from tests.support.cluster.operator_process import OperatorProcess
from tests.support.coordinator import Coordinator
from tests.support.processes import ProcessFailed, steady_ms, wait_for

# Limits of time are reached only by what hangs.
pytestmark = [pytest.mark.api_server, pytest.mark.timeout(1_200)]

POINTS = 3
# A status may be written once more, and some more often.
MORE_WRITES = 4
# A status that changed is written within this time; then nothing is left to write.
AT_REST_MS = WRITE_INTERVAL_MS + 2_000
# Final states are read when nothing was written for this time, and again after the next write or after some time: the proxy does not
# see what the garbage collector deletes.
QUIET_MS, AGAIN_MS = 1_000, 5_000
WITHIN_S = 300
# A request that hangs is given up by the operator meanwhile.
SABOTAGE_S, SABOTAGE_SOAK_S = REQUEST_S + 2, 60.0
# After the end of the sabotage.
CONVERGED_S = 30.0


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
    api_server: Cluster, outside_coordinator: Coordinator, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Rig]:
    """An operator for all namespaces."""
    folder: Path = tmp_path_factory.mktemp("kills")
    outside_coordinator.make_topic(OTHER_TOPIC, 2)
    with proxied(api_server.kubeconfig, folder) as proxy:
        operator = OperatorProcess(folder, proxy.kubeconfig)
        operator.start()
        yield Rig(api_server, proxy, operator, outside_coordinator)
        delete_all_groups(api_server)
        operator.stop()


class Rest:
    """Tells when runs are at rest: no write for `quiet_ms`. To be asked often."""

    def __init__(self, proxy: ApiProxy, runs: Sequence[Run], quiet_ms: int = AT_REST_MS) -> None:
        self._proxy = proxy
        self._quiet_ms = quiet_ms
        self._last = {run.namespace: (-1, steady_ms()) for run in runs}
        # Number of writes, and time, of the last read.
        self._read = (-1, 0)

    def reached(self) -> set[str]:
        """Return the namespaces without a write for that time."""
        now_ms = steady_ms()
        for namespace, (writes, _) in self._last.items():
            if (found := len(self._proxy.writes(namespace))) != writes:
                self._last[namespace] = (found, now_ms)
        return {name for name, (_, since_ms) in self._last.items() if now_ms - since_ms >= self._quiet_ms}

    def are_to_be_read(self) -> bool:
        """Return whether all runs are at rest, and have not been read since; they are read then."""
        at_rest = self.reached()
        writes, now_ms = sum(writes for writes, _ in self._last.values()), steady_ms()
        is_known = writes == self._read[0] and now_ms - self._read[1] < AGAIN_MS
        if is_known or len(at_rest) < len(self._last):
            return False
        self._read = (writes, now_ms)
        return True


def wait(what: str, rig: Rig, holds: Callable[[], bool]) -> None:
    def holds_and_operator_runs() -> bool:
        rig.operator.check()
        return holds()

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


class Undisturbed:
    """A run of each scenario that nothing disturbs, beside others; they are set up by the constructor."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._runs = [Run(each, f"undisturbed-{each.name}") for each in scenarios(rig.coordinator.address)]
        self._before: Mapping[str, int] = {}
        self._rest = Rest(rig.proxy, self._runs)
        self._expected: dict[str, Expected] = {}
        set_up(rig.cluster, self._runs)

    def end(self, beside: Callable[[], bool], what: str) -> Mapping[str, Expected]:
        """
        Take the steps until all runs are at rest and `beside` holds, which is called meanwhile; return the outcome of each scenario.

        A second call only waits until `beside` holds.
        """
        if not self._expected:
            wait("undisturbed runs are set up", self._rig, partial(have_settled, self._rig, self._runs))
            self._before = {
                run.namespace: len(self._rig.proxy.state_writes(run.namespace)) for run in self._runs
            }
        try:
            wait(what, self._rig, lambda: all([beside(), self._have_ended()]))
        except ProcessFailed as late:
            raise AssertionError(
                {run.namespace: self._rig.proxy.writes(run.namespace) for run in self._runs}
            ) from late
        return self._expected

    def _have_ended(self) -> bool:
        if self._expected:
            return True
        take_steps(self._rig.cluster, self._runs)
        if any(run.steps for run in self._runs) or not self._rest.are_to_be_read():
            return False
        states = states_of(self._rig.cluster, self._runs)
        if any(has_orphans(each) for each in states.values()):
            return False
        finals = final_states(self._rig, self._runs, states)
        for run in self._runs:
            writes = self._rig.proxy.state_writes(run.namespace)[self._before[run.namespace] :]
            assert 0 < len(writes) <= run.scenario.writes + MORE_WRITES, writes
            self._expected[run.scenario.name] = Expected(writes, finals[run.namespace])
        return True


def points_of(scenario: Scenario, draw: random.Random, *, in_soak: bool) -> Sequence[int]:
    """Draw the numbers of writes after which the operator is killed; in a soak all of them."""
    if in_soak:
        return range(1, scenario.writes + MORE_WRITES + 1)
    return draw.sample(range(1, scenario.writes + 1), min(POINTS, scenario.writes))


def are_at_their_points(rig: Rig, runs: Sequence[Run], rest: Rest) -> bool:
    """Take steps that are due; return whether each run is cut off after its writes, or has no more of them."""
    take_steps(rig.cluster, runs)
    at_rest = rest.reached()
    return all(rig.proxy.is_cut(run.namespace) or run.namespace in at_rest for run in runs)


def await_final_states(rig: Rig, runs: Sequence[Run], expected: Mapping[str, Expected]) -> None:
    """Take the remaining steps, and wait until all final states are as expected. Raises AssertionError with the differences."""
    found: dict[str, list[str]] = {}
    rest = Rest(rig.proxy, runs, QUIET_MS)

    def are_equal() -> bool:
        take_steps(rig.cluster, runs)
        if any(run.steps for run in runs) or not rest.are_to_be_read():
            return False
        finals = final_states(rig, runs, states_of(rig.cluster, runs))
        for run in runs:
            found[f"{run.namespace} after {run.point} writes"] = differences(
                expected[run.scenario.name].state, finals[run.namespace]
            )
        return not any(found.values())

    try:
        wait("final states are equal", rig, are_equal)
    except ProcessFailed as late:
        raise AssertionError({name: each for name, each in found.items() if each} or str(late)) from late


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


@pytest.fixture(scope="module")
def undisturbed(rig: Rig) -> Undisturbed:
    """Return the runs that those of both tests are compared with."""
    return Undisturbed(rig)


@pytest.mark.soak("operator-kills")
def test_a_kill_after_any_write_ends_in_the_objects_of_an_undisturbed_run(
    rig: Rig,
    undisturbed: Undisturbed,
    seed: int,
    in_soak: bool,
    report: list[str],
    counters: Counter[str],
) -> None:
    draw = random.Random(seed)
    runs = [
        Run(each, f"kill-{each.name}-{number}", point)
        for each in scenarios(rig.coordinator.address)
        for number, point in enumerate(points_of(each, draw, in_soak=in_soak))
    ]
    set_up(rig.cluster, runs)
    wait("all runs are set up", rig, partial(have_settled, rig, runs))
    for run in runs:
        assert run.point is not None
        rig.proxy.cut_after(run.namespace, run.point)
    expected = undisturbed.end(
        partial(are_at_their_points, rig, runs, Rest(rig.proxy, runs)), "all runs reach their points"
    )

    cut = [run for run in runs if rig.proxy.is_cut(run.namespace)]
    rig.operator.kill()
    rig.proxy.reconnect()
    rig.operator.start()
    await_final_states(rig, runs, expected)
    delete_groups(rig.cluster, runs)
    counters["kills at a write"] += len(cut)
    total = sum(len(each.writes) for each in expected.values())
    report.append(
        f"operator killed after {len(cut)} of {total} writes of {len(expected)} scenarios: same objects"
    )


@pytest.mark.soak("sabotage")
def test_whatever_the_api_server_answers_the_objects_are_those_of_an_undisturbed_run_soon_after(
    rig: Rig,
    undisturbed: Undisturbed,
    seed: int,
    in_soak: bool,
    report: list[str],
    counters: Counter[str],
) -> None:
    faults, draw = list(Fault), random.Random(seed)
    found = scenarios(rig.coordinator.address)
    # Each scenario with one of the faults; in a soak with each.
    runs = {
        Run(scenario, f"sabotage-{scenario.name}-{fault}"): fault
        for number, scenario in enumerate(draw.sample(found, len(found)))
        for fault in (faults if in_soak else [faults[number % len(faults)]])
    }
    set_up(rig.cluster, [*runs])
    expected = undisturbed.end(partial(have_settled, rig, [*runs]), "all runs are set up")

    began_s = rig.proxy.faults.begin(seed, {run.namespace: fault for run, fault in runs.items()})
    ends_s = began_s + (SABOTAGE_SOAK_S if in_soak else SABOTAGE_S)
    wait("every sabotage happens", rig, partial(has_passed, rig, [*runs], ends_s))
    rig.proxy.faults.end()
    ended_s = steady_ms() / 1000
    await_final_states(rig, [*runs], expected)

    late = {run.namespace: rig.proxy.last_write_s(run.namespace) - ended_s for run in runs}
    assert max(late.values()) <= CONVERGED_S, late
    assert rig.proxy.served.outdated == []
    assert [each for run in runs for each in rig.proxy.served.returns(run.namespace)] == []
    injected = rig.proxy.faults.counts.total()
    counters["sabotaged scenarios"] += len(runs)
    counters["injected faults"] += injected
    report.append(
        f"API server sabotaged {injected} times in {len(runs)} runs of {len(found)} scenarios: "
        f"same objects {max(0.0, *late.values()):.0f} s after its end"
    )


def has_passed(rig: Rig, runs: Sequence[Run], ends_s: float) -> bool:
    """Take steps that are due; return whether the time has passed, and each fault has happened."""
    take_steps(rig.cluster, runs)
    return steady_ms() / 1000 >= ends_s and rig.proxy.faults.counts.keys() >= {*Fault, GONE}


def have_settled(rig: Rig, runs: Sequence[Run]) -> bool:
    return all(has_settled(each) for each in states_of(rig.cluster, runs, ["ConsumerGroup"]).values())
