"""
Scenarios in which an operator is killed, and the state that is compared afterwards. Called by `test_operator_kills`.

A scenario has manifests that are applied before, and steps. All runs of all scenarios share one operator, each in a namespace of its
own: kubectl applies the step of all of them at once. After the n-th write request to a run's namespace the proxy cuts it off, and
when all runs are cut off the process is killed: for each run exactly n writes have been carried out.
"""

import copy
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from tests.api_server.adopting import KINDS, REVISION, TOPIC, consumer_group, paused, workload
from tests.support.cluster import Cluster
from tests.support.cluster.manifests import Manifest

GROUP, TARGET, SECOND_TARGET = "orders", "enricher", "second"
OTHER_TOPIC = "payments"
# Paths of what is compared, by kind.
COMPARED = {
    "ConsumerGroup": "apis/rota.dev/v1alpha1/consumergroups",
    "Deployment": "apis/apps/v1/deployments",
    "StatefulSet": "apis/apps/v1/statefulsets",
    "ConfigMap": "api/v1/configmaps",
    "PodDisruptionBudget": "apis/policy/v1/poddisruptionbudgets",
}
# Every namespace has it.
OF_KUBERNETES = "ConfigMap/kube-root-ca.crt"
# By kind and name.
State = dict[str, Any]


class Step(NamedTuple):
    """Manifests that kubectl applies or deletes. A step after that of a deletion begins when no ConsumerGroup is left."""

    verb: Literal["apply", "delete"]
    manifests: tuple[Manifest, ...]


class Scenario(NamedTuple):
    """Changes of one ConsumerGroup."""

    name: str
    before: tuple[Manifest, ...]
    steps: tuple[Step, ...]
    # Number of the operator's writes, those of Events aside.
    writes: int


@dataclass(slots=True, eq=False)
class Run:
    """A scenario in a namespace of its own."""

    scenario: Scenario
    namespace: str
    # Number of writes after which the operator is killed; None: it is not.
    point: int | None = None
    steps: list[Step] = field(default_factory=list)


def scenarios(coordinator: str) -> list[Scenario]:
    """The ten scenarios of groups at this coordinator."""
    # Adoption raises its grace period, so there is more to undo.
    scaled = workload(KINDS[0], TARGET, terminationGracePeriodSeconds=5)
    target = paused(scaled)
    second = workload(KINDS[1], SECOND_TARGET)

    def group(**spec: object) -> Manifest:
        return consumer_group(GROUP, coordinator, KINDS[0], TARGET, **{"replicas": 0, **spec})

    def applied(*manifests: Manifest) -> Step:
        return Step("apply", manifests)

    budget: Manifest = {"podDisruptionBudget": {"maxUnavailable": 1}}
    delete = Step("delete", (group(),))
    is_deleting: Manifest = {"deletionPolicy": "DeleteGroup"}
    found = [
        ("create", (target,), (applied(group(**budget)),), 7),
        ("scale", (scaled, group()), (applied(group(replicas=3)),), 3),
        ("change-topics", (target, group()), (applied(group(topics=[TOPIC, OTHER_TOPIC])),), 3),
        ("suspend", (target, group()), (applied(group(suspend=True)),), 2),
        ("resume", (target, group(suspend=True)), (applied(group()),), 2),
        ("change-assignor", (target, group()), (applied(group(assignment={"strategy": "range"})),), 2),
        ("delete-retain", (target, group(**budget)), (delete,), 3),
        ("delete-group", (target, group(**is_deleting)), (delete,), 3),
        ("recreate", (target, group()), (delete, applied(group(**budget))), 10),
        (
            "second-workload",
            (target, second, group()),
            (applied(group(scaleTargetRef={"kind": KINDS[1], "name": SECOND_TARGET})),),
            5,
        ),
    ]
    return [Scenario(*each) for each in found]


def in_namespace(manifests: Iterable[Manifest], namespace: str) -> list[Manifest]:
    """Manifests for a namespace."""
    return [{**each, "metadata": {**each["metadata"], "namespace": namespace}} for each in manifests]


def set_up(cluster: Cluster, runs: Sequence[Run]) -> None:
    """Create the runs' namespaces, and what their scenarios find."""
    namespaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": run.namespace}} for run in runs
    ]
    kubectl(cluster, "create", namespaces)
    kubectl(
        cluster,
        "create",
        [each for run in runs for each in in_namespace(run.scenario.before, run.namespace)],
        # For the steps, which apply.
        "--save-config",
    )
    for run in runs:
        run.steps = list(run.scenario.steps)


def take_steps(cluster: Cluster, runs: Sequence[Run]) -> None:
    """Take the next step of each run whose last one is done."""
    due = [run for run in runs if run.steps and is_last_step_done(cluster, run)]
    for verb in ("apply", "delete"):
        manifests = [
            each
            for run in due
            if run.steps[0].verb == verb
            for each in in_namespace(run.steps[0].manifests, run.namespace)
        ]
        if manifests:
            kubectl(cluster, verb, manifests, *(("--wait=false",) if verb == "delete" else ()))
    for run in due:
        run.steps.pop(0)


def is_last_step_done(cluster: Cluster, run: Run) -> bool:
    """Return whether the next step of a run may be taken."""
    taken = len(run.scenario.steps) - len(run.steps)
    if taken == 0 or run.scenario.steps[taken - 1].verb == "apply":
        return True
    return not cluster.get("consumergroups", namespace=run.namespace)["items"]


def delete_groups(cluster: Cluster, runs: Sequence[Run]) -> None:
    """Delete the ConsumerGroups of runs, and do not wait for it."""
    group = {"apiVersion": "rota.dev/v1alpha1", "kind": "ConsumerGroup", "metadata": {"name": GROUP}}
    groups = [each for run in runs for each in in_namespace([group], run.namespace)]
    kubectl(cluster, "delete", groups, "--wait=false", "--ignore-not-found")


def kubectl(cluster: Cluster, verb: str, manifests: Sequence[Manifest], *flags: str) -> None:
    """Run a command on manifests of several namespaces."""
    document = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
    cluster.kubectl(verb, *flags, "--filename", "-", input=json.dumps(document))


def states_of(cluster: Cluster, runs: Sequence[Run], kinds: Iterable[str] = COMPARED) -> dict[str, State]:
    """Objects of these kinds of each run's namespace, by the namespace. Costs the API server much: all objects are read."""
    found: dict[str, State] = {run.namespace: {} for run in runs}
    for kind in kinds:
        path = COMPARED[kind]
        # kubectl would read and write each object.
        for each in json.loads(cluster.kubectl("get", "--raw", f"/{path}"))["items"]:
            state = found.get(each["metadata"]["namespace"])
            key = f"{kind}/{each['metadata']['name']}"
            if state is not None and key != OF_KUBERNETES:
                state[key] = each
    return found


def comparable(state: State, namespace: str) -> State:
    """Leave out of a state what two equal runs differ in: uids, versions, times, the namespace, and what controllers count."""
    state = copy.deepcopy(state)
    uids = [each["metadata"]["uid"] for key, each in state.items() if key.startswith("ConsumerGroup/")]
    for key, found in state.items():
        metadata = found["metadata"]
        for name in ("uid", "resourceVersion", "creationTimestamp"):
            metadata.pop(name)
        # Whether the Deployment's controller has seen the template before its adoption is a matter of chance.
        (metadata.get("annotations") or {}).pop(REVISION, None)
        managers = [{**each, "time": ""} for each in metadata.get("managedFields", ())]
        # The controllers' own part of the status belongs to them.
        ours = [each for each in managers if each["manager"] != "kube-controller-manager"]
        metadata["managedFields"] = sorted(ours, key=lambda each: json.dumps(each, sort_keys=True))
        if not key.startswith("ConsumerGroup/"):
            found.pop("status", None)
        for condition in (found.get("status") or {}).get("conditions", ()):
            condition.pop("lastTransitionTime")
    text = json.dumps(state, sort_keys=True).replace(namespace, "NAMESPACE")
    for uid in uids:
        text = text.replace(uid, "UID")
    compared: State = json.loads(text)
    return compared


def differences(expected: Any, found: Any, path: str = "") -> list[str]:  # noqa: ANN401  any JSON
    """Describe where two values of JSON differ."""
    if isinstance(expected, dict) and isinstance(found, dict):
        return [
            each
            for name in sorted(expected.keys() | found.keys())
            for each in differences(expected.get(name), found.get(name), f"{path}.{name}")
        ]
    return [] if expected == found else [f"{path}: {found!r} instead of {expected!r}"]
