"""
ConsumerGroups drawn from the schema by a seed, and their workloads. Called by `test_bad_input`.

Most of a drawn spec is valid by itself; the rest is wrong in some field, or names a workload that does not exist, cannot be adopted, or
is another group's. A valid one with a workload of its own gets that workload, whose pods are refused by the namespace's quota.
"""

import json
import random
from collections.abc import Sequence
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from rota_operator.spec.validation import InvalidSpec, parse_spec
from tests.api_server.adopting import LABELS, workload
from tests.operator.reconcile.test_any_manifest import BASES, SPECS, VALID
from tests.support.cluster.manifests import Manifest

# Targets that all manifests share: one that cannot be adopted, one that only the first can have, one that does not exist.
UNFIT, SHARED, MISSING = "unfit", "shared", "missing"
OWN_SHARE = 0.9
# One of so many workloads has pods before its group scales it; each is refused again and again.
REPLICATED = 4
# In drawn specs, where a coordinator is meant.
COORDINATOR = "rota:7070"


def draw_specs(count: int, seed: int) -> list[Any]:
    """Draw specs from the schema; equal seeds give equal specs."""
    found: list[Any] = []

    @hypothesis.seed(seed)
    @settings(
        max_examples=count,
        phases=[Phase.generate],
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(BASES, SPECS | VALID, st.just(None))
    def collect(base: Any, changes: Any, _: None) -> None:  # noqa: ANN401  any JSON
        found.append({**base, **changes})

    collect()
    return found[:count]


def manifests_of(specs: Sequence[Any], coordinator: str, seed: int) -> tuple[list[Manifest], list[Manifest]]:
    """Return the workloads and the ConsumerGroups of drawn specs."""
    draw = random.Random(seed)
    workloads = [workload("Deployment", UNFIT, hostNetwork=True), workload("Deployment", SHARED)]
    groups: list[Manifest] = []
    for number, drawn in enumerate(specs):
        name = f"drawn-{number}"
        spec = json.loads(json.dumps(drawn).replace(COORDINATOR, coordinator))
        target = spec.get("scaleTargetRef")
        if isinstance(target, dict) and isinstance(target.get("name"), str) and target["name"]:
            is_own = draw.random() < OWN_SHARE
            target["name"] = name if is_own else draw.choice([UNFIT, SHARED, MISSING])
            if is_own and is_valid(spec):
                replicas = int(number % REPLICATED == 0)
                workloads.append(workload(target.get("kind", "Deployment"), name, replicas=replicas))
        groups.append({
            "apiVersion": "rota.dev/v1alpha1",
            "kind": "ConsumerGroup",
            "metadata": {"name": name, "labels": LABELS},
            "spec": spec,
        })  # fmt: skip
    return workloads, groups


def is_valid(spec: Any) -> bool:  # noqa: ANN401  any JSON
    """Return whether the operator's model accepts a spec."""
    try:
        parse_spec(spec)
    except InvalidSpec:
        return False
    return True
