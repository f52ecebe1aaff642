"""An operator at rest writes nothing, however often it compares."""

from pathlib import Path

import pytest

from rota_operator.status.status import WRITE_INTERVAL_MS
from tests.api_server.adopting import Shop, workload
from tests.support.cluster import Cluster
from tests.support.cluster.api_proxy import ApiProxy, proxied
from tests.support.cluster.operator_process import OperatorProcess
from tests.support.coordinator import Coordinator
from tests.support.processes import steady_ms, wait_for

pytestmark = [pytest.mark.api_server, pytest.mark.soak("operator-at-rest"), pytest.mark.timeout(600)]

RESYNC_S, RESYNC_IN_SOAK_S, RESYNCS = 1, 30, 2
WITHIN_S = 60
GROUP = "consumergroups/orders"


class Rest:
    """Detects that a status has had the time to be written, and nothing was."""

    def __init__(self, proxy: ApiProxy, namespace: str) -> None:
        self._proxy = proxy
        self._namespace = namespace
        self._writes = -1
        self._since_ms = 0

    def is_reached(self) -> bool:
        """Return True if no write request has come for longer than the interval of status writes."""
        writes = len(self._proxy.writes(self._namespace))
        if writes != self._writes:
            self._writes, self._since_ms = writes, steady_ms()
        return steady_ms() - self._since_ms > WRITE_INTERVAL_MS + 1_000


def test_an_operator_at_rest_writes_nothing_over_two_resyncs(
    api_server: Cluster, outside_coordinator: Coordinator, namespace: str, tmp_path: Path, in_soak: bool
) -> None:
    resync_s = RESYNC_IN_SOAK_S if in_soak else RESYNC_S
    shop = Shop(api_server, namespace, outside_coordinator.address)
    shop.apply(workload("Deployment", "enricher"))
    shop.group("orders", "Deployment", "enricher", podDisruptionBudget={"maxUnavailable": 1})
    with proxied(api_server.kubeconfig, tmp_path) as proxy:
        flags = (f"--namespace={namespace}", f"--resync-seconds={resync_s}")
        operator = OperatorProcess(tmp_path, proxy.kubeconfig, *flags)
        operator.start()
        shop.wait_ready_reason("orders", "ScaledToZero")
        rest = Rest(proxy, namespace)
        wait_for("the operator is at rest", rest.is_reached, within_s=WITHIN_S)
        writes, reads = len(proxy.writes(namespace)), proxy.reads(namespace, GROUP)
        # A reconcile begins with one read of its group; the one that runs now does not count.
        wait_for(
            "two resyncs",
            lambda: proxy.reads(namespace, GROUP) > reads + RESYNCS,
            within_s=WITHIN_S + RESYNCS * resync_s,
        )
        assert proxy.writes(namespace)[writes:] == []
        shop.delete_groups("orders")
        operator.stop()
