"""An operator that starts with 200 ConsumerGroups has reconciled all of them soon, and stays small."""

from pathlib import Path
from typing import Any

import pytest

from tests.api_server.adopting import Shop, consumer_group, paused, ready_of, workload
from tests.support.cluster import Cluster
from tests.support.cluster.bulk import create_all, remove_finalizers
from tests.support.cluster.operator_process import OperatorProcess
from tests.support.coordinator import Coordinator
from tests.support.processes import peak_mib, processor_s, steady_ms, wait_for

pytestmark = [pytest.mark.api_server, pytest.mark.timeout(600)]

GROUPS = 200
# Of one core. How long the API server takes beside it depends on the machine, so that time is reported only.
CPU_MAX_S = 30
# A run that does not end.
WITHIN_S = 400
MEMORY_MAX_MIB = 250


def test_200_groups_without_pods_are_reconciled_at_little_cost(
    api_server: Cluster,
    outside_coordinator: Coordinator,
    namespace: str,
    tmp_path: Path,
    report: list[str],
) -> None:
    shop = Shop(api_server, namespace, outside_coordinator.address)
    names = [f"enricher-{number}" for number in range(GROUPS)]
    manifests = [paused(workload("Deployment", name)) for name in names]
    manifests += [consumer_group(name, shop.coordinator, "Deployment", name) for name in names]
    assert create_all(api_server.kubeconfig, namespace, manifests) == {}

    operator = OperatorProcess(tmp_path, api_server.kubeconfig, f"--namespace={namespace}")
    began_ms = steady_ms()
    operator.start()
    awaited = names[0]

    def are_reconciled() -> bool:
        """Read one group, and all of them when it is reconciled: all at each poll would cost the API server more than the operator does."""
        nonlocal awaited
        operator.check()
        if not is_reconciled(shop.get(f"consumergroup/{awaited}")):
            return False
        groups = shop.get("consumergroups")["items"]
        assert len(groups) == GROUPS
        left = [each["metadata"]["name"] for each in groups if not is_reconciled(each)]
        awaited = left[-1] if left else awaited
        return not left

    wait_for(f"{GROUPS} groups are reconciled", are_reconciled, within_s=WITHIN_S, poll_s=0.5)
    took_s = (steady_ms() - began_ms) / 1000
    memory_mib, cpu_s = peak_mib(operator.pid), processor_s(operator.pid)
    adopted = shop.kubectl("get", "deployments", "--selector=rota.dev/consumer-group", "--output=name")
    operator.stop()
    # So that the namespace can be deleted without an operator.
    remove_finalizers(api_server.kubeconfig, namespace, "ConsumerGroup", names)
    report.append(
        f"{GROUPS} groups without pods reconciled in {took_s:.1f} s from the operator's start: "
        f"{cpu_s:.1f} s of CPU, {memory_mib:.0f} MiB"
    )
    assert len(adopted.splitlines()) == GROUPS
    assert cpu_s <= CPU_MAX_S
    assert memory_mib <= MEMORY_MAX_MIB


def is_reconciled(group: Any) -> bool:  # noqa: ANN401  an object as it is stored
    """Return whether the status of a group says that it has a workload without pods."""
    return bool(ready_of(group).get("reason") == "ScaledToZero")
