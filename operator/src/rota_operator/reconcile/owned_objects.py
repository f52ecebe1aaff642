"""Decides about the objects that a ConsumerGroup owns: its ConfigMap and its PodDisruptionBudget, both named `rota-<name>`."""

from collections.abc import Iterator, Mapping
from typing import Any

from rota_operator.reconcile.actions import (
    Action,
    ApplyConfigMap,
    ApplyDisruptionBudget,
    DeleteDisruptionBudget,
)
from rota_operator.reconcile.decision import Refusal
from rota_operator.reconcile.group import Group, Identity
from rota_operator.reconcile.observed import Object, Observed
from rota_operator.reconcile.settings import config_map_data
from rota_operator.spec.conditions import Reason
from rota_operator.spec.model import KIND, ConsumerGroupSpec


def name_problem(observed: Observed, group: Group) -> Refusal | None:
    """Return a refusal if an object of another owner has the name of one that is needed."""
    needed = [("ConfigMap", observed.config_map)]
    if group.spec.pod_disruption_budget is not None:
        needed.append(("PodDisruptionBudget", observed.disruption_budget))
    for kind, found in needed:
        if found is not None and not _is_named_owner(found, group.identity):
            return Refusal(
                Reason.NAME_TAKEN,
                f"{kind} {group.identity.objects_name} belongs to another owner; rename it, or this ConsumerGroup",
            )
    return None


def config_map_actions(observed: Observed, group: Group, spec: ConsumerGroupSpec) -> Iterator[Action]:
    """Yield what brings the ConfigMap up to date; `spec` is that of the sidecars."""
    found, data = observed.config_map, config_map_data(spec, observed.settings)
    if found is None or not _is_owner(found, group.identity) or found.get("data") != data:
        yield ApplyConfigMap(group.identity.objects_name, data)


def disruption_budget_actions(observed: Observed, group: Group, target: Object) -> Iterator[Action]:
    """Yield what brings the PodDisruptionBudget up to date."""
    found, wanted = observed.disruption_budget, group.spec.pod_disruption_budget
    if wanted is None:
        if found is not None and _is_owner(found, group.identity):
            yield DeleteDisruptionBudget(group.identity.objects_name)
        return
    spec = {"maxUnavailable": wanted.max_unavailable, "selector": target["spec"]["selector"]}
    if (
        found is None
        or not _is_owner(found, group.identity)
        or any(found["spec"].get(name) != value for name, value in spec.items())
    ):
        yield ApplyDisruptionBudget(group.identity.objects_name, spec)


def _owners(found: Object) -> Iterator[Mapping[str, Any]]:
    yield from found["metadata"].get("ownerReferences") or ()


def _is_owner(found: Object, identity: Identity) -> bool:
    return any(each.get("uid") == identity.uid for each in _owners(found))


def _is_named_owner(found: Object, identity: Identity) -> bool:
    """Return whether this ConsumerGroup, or an earlier one with its name, owns an object."""
    return any(each.get("kind") == KIND and each.get("name") == identity.name for each in _owners(found))
