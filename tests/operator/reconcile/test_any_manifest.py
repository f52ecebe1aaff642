"""Whatever a manifest says, it ends in a refusal with reason and path or in a plan that can be performed, and can be undone."""

import copy
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from rota_operator.plan.supported import UNSUPPORTED_FIELDS, Backend
from rota_operator.reconcile import actions as do
from rota_operator.reconcile.observed import WorkloadRef
from rota_operator.reconcile.spark.kinds import KINDS
from rota_operator.spec import crd
from rota_operator.spec.conditions import Reason
from rota_operator.spec.model import ConsumerGroupSpec
from rota_operator.spec.status import ConsumerGroupStatus
from rota_operator.spec.validation import Path, dotted, spec_of
from rota_operator.status.inputs import StatusInputs
from rota_operator.status.status import status_of
from tests.operator.plan.test_settings import NEEDS, OTHERS
from tests.operator.plan.test_settings import given as with_field
from tests.operator.reconcile.api_server import ApplyConflict, Stored
from tests.operator.reconcile.spark.templates import spark_group
from tests.operator.reconcile.worlds import ORDERS, World, kinds, resource, workload
from tests.operator.spec.manifests import small, whole
from tests.operator.spec.test_validation import leaves

Json = Any
Schema = Mapping[str, Any]
STRINGS = st.sampled_from(
    ["orders", "a", "", "payments", "rota://rota:7070", "kafka:9092", "shop.orders", "7", "PT1S", "é\x00"]
)
WRONG: st.SearchStrategy[Json] = (
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3) | st.just([]) | st.just({})
)


def values(schema: Schema) -> st.SearchStrategy[Json]:
    """Mostly what the schema allows, at times something else."""
    return st.integers(0, 9).flatmap(lambda number: WRONG if number == 9 else allowed(schema))


SCALARS: Mapping[str, st.SearchStrategy[Json]] = {
    "boolean": st.booleans(),
    "number": st.sampled_from([0.0, 0.1, 0.7, 1.0, 2.0]),
    "string": STRINGS,
    # A number or a percentage.
    "": st.sampled_from([1, "25%", "all"]),
}
FREE = st.dictionaries(
    st.sampled_from(["isolation.level", "cpu", "orders"]),
    st.sampled_from(["read_committed", "1", 7]),
    max_size=2,
)


def allowed(schema: Schema) -> st.SearchStrategy[Json]:
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type", ""):
        case "integer":
            low, high = schema.get("minimum", -9), schema.get("maximum", 2**40)
            return st.integers(low, high) | st.integers(low, min(low + 9, high))
        case "array":
            return st.lists(values(schema["items"]), min_size=schema.get("minItems", 0), max_size=3)
        case "object":
            return objects(schema) if "properties" in schema else FREE
        case kind:
            return SCALARS[kind]


def objects(schema: Schema) -> st.SearchStrategy[Json]:
    required = set(schema.get("required", ()))
    fields = {name: values(each) for name, each in schema["properties"].items()}
    return st.fixed_dictionaries(
        {name: each for name, each in fields.items() if name in required},
        optional={name: each for name, each in fields.items() if name not in required},
    )


# Small ones, so that many are valid: one to three parts of the schema, over a spec that is.
SCHEMA = crd.schema_of(ConsumerGroupSpec)
SPECS = st.lists(st.sampled_from(sorted(SCHEMA["properties"])), max_size=3, unique=True).flatmap(
    lambda names: st.fixed_dictionaries({name: values(SCHEMA["properties"][name]) for name in names})
)


def with_fields(paths: list[Path]) -> Json:
    """Other values than the usual ones, each of which is valid."""
    spec: Json = {**small(), "scaleTargetRef": {"name": "orders"}}
    for path in paths:
        spec = with_field(path, spec)
    return spec


FIELDS = [
    path
    for path in leaves(whole())
    if path not in NEEDS and path[0] != "auth" and path != ("spark", "enabled")
]
VALID = st.lists(st.sampled_from(FIELDS), max_size=3, unique=True).map(with_fields)
BASES = st.sampled_from(
    [
        small(),
        resource()["spec"],
        {**small(), "scaleTargetRef": {"name": "orders"}},
        *(spark_group(api_version)["spec"] for api_version in KINDS),
    ]
)
TARGETS = st.sampled_from([
    {},
    {ORDERS: Stored(workload())},
    {ORDERS: Stored(workload(hostNetwork=True))},
    {ORDERS: Stored(workload()), WorkloadRef("StatefulSet", "orders"): Stored(workload(WorkloadRef("StatefulSet", "orders")))},
])  # fmt: skip
PATH = re.compile(r"(spec|metadata)\b")
# Of the spec, and not of objects that it names.
OF_THE_SPEC = {
    Reason.INVALID_SPEC,
    Reason.UNSUPPORTED_FIELD,
    Reason.IMMUTABLE_FIELD,
    Reason.TARGET_NOT_FOUND,
    Reason.INVALID_TARGET,
}


@settings(max_examples=2_000)
@given(BASES, SPECS | VALID, TARGETS, st.sampled_from([(1, 28), (1, 34), (1, 35), (1, 36)]))
def test_a_manifest_ends_in_a_refusal_with_its_path_or_in_a_plan_that_comes_to_rest(
    base: Json, changes: Json, workloads: Json, version: tuple[int, int]
) -> None:
    world = World(resource(), copy.deepcopy(workloads), version=version)
    world.group["spec"] = {**copy.deepcopy(base), **changes}
    decision = world.reconcile()
    event(decision.refusal.reason if decision.refusal else "runs")
    if decision.refusal is not None:
        assert Reason(decision.refusal.reason)
        assert decision.refusal.reason not in OF_THE_SPEC or PATH.match(decision.refusal.message), (
            decision.refusal
        )
        changes_pods = do.AdoptWorkload | do.ScaleWorkload | do.CreateApplication
        assert not any(isinstance(each, changes_pods) for each in decision.actions)
    else:
        assert kinds(world.plan()) == ["Configure"]
    inputs = StatusInputs(
        world.group, spec_of(world.group), ConsumerGroupStatus(), decision, "2026-09-21T09:00:00Z", 0
    )
    assert status_of(inputs).conditions[0].status != "True"
    before = copy.deepcopy(workloads)
    world.delete()
    for _ in range(3):
        world.reconcile()
    assert {ref: each.body for ref, each in world.workloads.items() if "replicas" not in changes} == {
        ref: each.body for ref, each in before.items() if "replicas" not in changes
    }
    assert not world.group["metadata"].get("finalizers")


VARIABLES: st.SearchStrategy[Json] = st.lists(
    st.sampled_from(["A", "B"]).map(lambda name: {"name": name, "value": "1"}),
    min_size=1,
    max_size=2,
    unique_by=lambda each: each["name"],
)
OPTIONAL: dict[str, st.SearchStrategy[Json]] = {
    "env": VARIABLES,
    "volumeMounts": st.just([{"name": "data", "mountPath": "/data"}]),
    "lifecycle": st.just({"preStop": {"exec": {"command": ["true"]}}}),
    "ports": st.just([{"containerPort": 80, "protocol": "TCP"}]),
}
CONTAINERS: st.SearchStrategy[Json] = st.lists(
    st.sampled_from(["app", "proxy", "log"]), min_size=1, max_size=3, unique=True
).flatmap(
    lambda names: st.tuples(
        *(
            st.fixed_dictionaries({"name": st.just(name), "image": st.just("shop:1")}, optional=OPTIONAL)
            for name in names
        )
    ).map(list)
)
PODS: st.SearchStrategy[Json] = st.fixed_dictionaries(
    {"containers": CONTAINERS},
    optional={
        "initContainers": st.just([{"name": "init", "image": "shop:1"}]),
        "volumes": st.just([{"name": "data", "emptyDir": {}}]),
        "terminationGracePeriodSeconds": st.sampled_from([5, 30, 40, 60, 300]),
        "imagePullSecrets": st.just([{"name": "mine"}]),
    },
)
EDITS = st.sampled_from([
    {"sidecar": {"terminationDrainSeconds": 90}},
    {"sidecar": {"terminationDrainSeconds": 5, "imagePullSecrets": ["mine", "ours"]}},
    {"topics": ["payments"], "delivery": {"ordering": "key"}},
    {"bootstrapServers": ["rota://other:7070"], "membership": {"rackTopologyKey": ""}},
    {"podDisruptionBudget": {"maxUnavailable": 1}},
])  # fmt: skip


@settings(max_examples=200)
@given(PODS, st.lists(EDITS, max_size=3), st.sampled_from(["Deployment", "StatefulSet"]))
def test_a_workload_that_was_adopted_and_released_is_what_its_owner_applied(
    pod: Json, edits: Json, kind: str
) -> None:
    ref = WorkloadRef(kind, "orders")
    given = Stored(workload(ref, **pod))
    before = given.body
    world = World(resource(scaleTargetRef={"kind": kind, "name": "orders"}), {ref: given})
    for edit in [{}, *edits]:
        world.edit(**edit)
        world.reconcile()
        assert kinds(world.plan()) == ["Configure"]
    assert "rota-sidecar" in str(world.pod(ref))
    world.delete()
    world.reconcile()
    assert world.workloads[ref].body == before


def test_what_the_owner_changes_meanwhile_stays() -> None:
    world = World()
    world.reconcile()
    stored = world.workloads[ORDERS]
    stored.put(("spec", "replicas"), 9)
    stored.put(("spec", "template", "metadata", "annotations", "restartedAt"), "now")
    world.delete()
    world.reconcile()
    assert stored.body["spec"]["replicas"] == 9
    assert stored.body["spec"]["template"]["metadata"]["annotations"] == {"restartedAt": "now"}
    assert "rota" not in str(stored.body)


def test_a_field_that_the_owner_gives_the_same_value_is_not_taken_from_them() -> None:
    own = workload(volumes=[{"name": "rota-app", "emptyDir": {}}])
    world = World(workloads={ORDERS: Stored(own)})
    world.reconcile()
    world.delete()
    world.reconcile()
    assert world.workloads[ORDERS].body == Stored(own).body


def test_a_volume_of_our_name_with_another_source_is_a_conflict() -> None:
    world = World(
        workloads={ORDERS: Stored(workload(volumes=[{"name": "rota-app", "emptyDir": {"medium": "Memory"}}]))}
    )
    world.reconcile()
    own = workload()
    own["spec"]["template"]["spec"]["containers"][0]["env"].append({"name": "ROTA_SIDECAR", "value": "mine"})
    with pytest.raises(ApplyConflict, match="ROTA_SIDECAR"):
        World(workloads={ORDERS: Stored(own)}).reconcile()


AUTH = [path for path in leaves(whole()) if path[0] == "auth"]
# Seen in the status, when the group is deleted, or by whoever reads it.
ELSEWHERE = {
    ("monitoring", "alerts", "lagSeconds"), ("monitoring", "alerts", "stuckSeconds"), ("deletionPolicy",),
    ("scaleTargetRef", "apiVersion"), ("scaleTargetRef", "kind"), ("scaleTargetRef", "name"), ("sidecar", "container"),
    # Executed beside the plans.
    *(path for path in leaves(whole()) if path[:2] == ("offsets", "reset")),
    *(path for path in leaves(whole()) if path[0] == "autoscaling"),
}  # fmt: skip


@pytest.mark.parametrize("path", [path for path in (*FIELDS, *AUTH) if path not in ELSEWHERE], ids=dotted)
def test_each_field_changes_what_is_in_the_cluster_or_is_refused_with_its_path(path: Path) -> None:
    base = {**small(), "scaleTargetRef": {"name": "orders"}}
    spec = with_field(path, base)
    if path[:2] == ("auth", "tls") and path[2] in ("certSecret", "keySecret"):
        spec["auth"]["tls"] = copy.deepcopy(whole()["auth"]["tls"])
    if path[:2] == ("auth", "sasl"):
        spec["auth"]["sasl"] = copy.deepcopy(whole()["auth"]["sasl"])
    before, after = World(resource()), World(resource())
    before.group["spec"], after.group["spec"] = base, spec
    first, second = before.plan(), after.plan()
    assert first.refusal is None
    # A group has SparkApplications, or a workload.
    unsupported = (*UNSUPPORTED_FIELDS[Backend.CLUSTER], ("spark",))
    is_unsupported = any(path[: len(each)] == each for each in unsupported)
    if is_unsupported:
        assert second.refusal is not None
        assert second.refusal.message.startswith(f"spec.{dotted(path[:2])}")
    else:
        assert second.refusal is None, second.refusal
        assert replace(first, remarks=()) != replace(second, remarks=())


def test_other_values_are_there_for_each_of_them() -> None:
    assert OTHERS.keys() <= {*leaves(whole())}
