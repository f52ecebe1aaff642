"""Foreign statuses and annotations lend neither rights nor another identity: what is planned is the same, or refused."""

import copy
from collections.abc import Mapping
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from rota_operator.reconcile import actions as do
from rota_operator.reconcile.scaling import DELETION_COST
from rota_operator.reconcile.spark.rendering import TEMPLATE_ANNOTATION
from rota_operator.reconcile.target import LAST_APPLIED_ANNOTATION
from rota_operator.spec import crd
from rota_operator.spec.conditions import Reason
from rota_operator.spec.status import ConsumerGroupStatus
from tests.operator.reconcile.api_server import Stored
from tests.operator.reconcile.test_any_manifest import allowed
from tests.operator.reconcile.worlds import ORDERS, World, workload

Json = Any
SIDECAR = "rota-sidecar"
TEXTS = st.text(max_size=4) | st.sampled_from(
    ["0", "-1", "45", "4000000000", "{}", "[]", "null", '{"spec": {"template": {"spec": {}}}}', "bank.orders"]
)
OURS = (do.SETTINGS_ANNOTATION, do.GRACE_PERIOD_ANNOTATION, TEMPLATE_ANNOTATION)
ANNOTATIONS = st.dictionaries(st.sampled_from([*OURS, LAST_APPLIED_ANNOTATION, DELETION_COST]), TEXTS)


def valid(schema: Mapping[str, Any]) -> st.SearchStrategy[Json]:
    """Return values that the API server stores."""
    match schema.get("type", ""):
        case "array":
            return st.lists(valid(schema["items"]), max_size=2)
        case "object" if "properties" in schema:
            fields = {name: valid(each) for name, each in schema["properties"].items()}
            required = {name: fields.pop(name) for name in schema.get("required", ())}
            return st.fixed_dictionaries(required, optional=fields)
        case _:
            return allowed(schema)


STATUSES = valid(crd.schema_of(ConsumerGroupStatus))


def identity_in(world: World) -> Json:
    """Return what pods get, but for the grace period and the version of the sidecar, which give no rights."""
    pod = copy.deepcopy(dict(world.pod()))
    del pod["terminationGracePeriodSeconds"]
    for each in pod.get("initContainers", ()):
        if each["name"] == SIDECAR:
            del each["image"]
    return pod, world.config_map, world.budget


PLAIN = World()
PLAIN.reconcile()
PLANNED = identity_in(PLAIN)


@settings(max_examples=300)
@given(STATUSES, ANNOTATIONS, ANNOTATIONS)
def test_a_status_and_annotations_change_neither_rights_nor_identity(
    status: Mapping[str, Json], of_the_group: Mapping[str, str], of_the_workload: Mapping[str, str]
) -> None:
    target = workload()
    target["metadata"]["annotations"] = dict(of_the_workload)
    world = World(workloads={ORDERS: Stored(target)})
    world.group["status"] = copy.deepcopy(status)
    world.group["metadata"]["annotations"] = dict(of_the_group)
    decision = world.plan()
    event(decision.refusal.reason if decision.refusal else "runs")
    if decision.refusal is not None:
        # The status says another group id than the spec.
        assert decision.refusal.reason == Reason.IMMUTABLE_FIELD
        assert not any(isinstance(each, do.AdoptWorkload) for each in decision.actions)
        return
    for action in decision.actions:
        world.perform(action)
    assert identity_in(world) == PLANNED
    assert {each.group_id for each in decision.actions if isinstance(each, do.Configure)} == {"shop.orders"}
