"""
Every part of Rota as a process, and a Prometheus that scrapes them all: what the scenario is played on.

A coordinator on SQLite, an operator at an API server in memory, two static members of a StatefulSet, each a sidecar and an application.
The rules are the chart's, in which a minute is a second, but for `RANGES_S`; `for` is shortened further. Ports are chosen first,
so that Prometheus knows its targets from the start.
"""

import json
import re
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import yaml

from rota_operator.cluster.kinds import CONSUMER_GROUP, POD, STATEFUL_SET, ResourceKind
from rota_operator.reconcile.actions import CLAIM_LABEL
from tests.monitoring.kubernetes import Kubernetes
from tests.monitoring.rival import Rival, follower
from tests.support.app import App
from tests.support.cluster.operator_process import OperatorProcess
from tests.support.coordinator import QUICK, Coordinator
from tests.support.helm import CHART
from tests.support.ports import free_port
from tests.support.processes import ProcessFailed
from tests.support.prometheus.server import Job, Prometheus, running
from tests.support.records import batch, produce
from tests.support.sidecar import Deliverer

NAMESPACE, NAME, GROUP = "shop", "orders", "shop.orders"
# Its pods never start.
IDLE = "payments"
TOPIC, IDLE_TOPIC, DEAD_LETTERS = "orders", "payments", "orders-dead"
PARTITIONS = 6
PODS = ("orders-0", "orders-1")
POISON = "poison"
# Reached only by what hangs.
WITHIN_S = 180
# A scrape that takes longer fails.
SCRAPE_INTERVAL = "1s"
# Commits that fail are tried again after 10 s at most: a rule that looks back no further sees none of them in between.
RANGES_S: Mapping[str, int] = {"RotaCommitsFailing": 15}
# An alert about series that have ended must outlast scrapes that come too late.
# Longer than the range of the rule: a few commits that were fenced may be all that it sees.
FOR: Mapping[str, str] = {
    "RotaCoordinatorDown": "5s",
    "RotaOperatorFailing": "5s",
    "RotaPartitionUnowned": "5s",
    "RotaCommitsFailing": "17s",
}
DEFAULT_FOR = "500ms"
# No verdict of a phase but its own depends on it.
NEVER_S = 100_000
# How far back the records of the phase of lag are dated.
OLD_MS = 7_200_000
FLAGS = (
    f"--topics={TOPIC}",
    "--session-timeout-ms=45000",
    "--heartbeat-interval-ms=100",
    "--commit-interval-ms=100",
    f"--dead-letter-topic={DEAD_LETTERS}",
)


def shortened_rules(file: Path, durations: Mapping[str, str] = FOR, other: str = DEFAULT_FOR) -> Path:
    """Write the chart's rules with shorter times; `durations` are those of `for`, by alert, with `other` for the rest."""
    rules = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            range_s = RANGES_S.get(rule["alert"], r"\1")
            rule["expr"] = re.sub(r"\[(\d+)m\]", rf"[{range_s}s]", rule["expr"])
            if "for" in rule:
                rule["for"] = durations.get(rule["alert"], other)
    file.write_text(json.dumps(rules))
    return file


class Stage:
    """All parts, running."""

    def __init__(
        self,
        folder: Path,
        kubernetes: Kubernetes,
        coordinator: Coordinator,
        prometheus: Prometheus,
        ports: Mapping[str, int],
    ) -> None:
        self.folder = folder
        self.kubernetes = kubernetes
        self.coordinator = coordinator
        self.prometheus = prometheus
        self._fleet = f"127.0.0.1:{free_port()}"
        self.operator = OperatorProcess(
            folder, kubernetes.write_kubeconfig(folder / "kubeconfig"), f"--namespace={NAMESPACE}",
            f"--fleet-listen={self._fleet}", f"--http-listen=127.0.0.1:{ports['operator']}",
        )  # fmt: skip
        self._ports = ports
        self.sidecars: list[Deliverer] = []
        self.apps: list[App] = []

    def start(self) -> None:
        """Start what has not begun to start."""
        self.coordinator.end_start()
        for topic in (TOPIC, IDLE_TOPIC, DEAD_LETTERS):
            self.coordinator.make_topic(topic, PARTITIONS)
        self.apply_group(NAME, TOPIC)
        for pod in PODS:
            self._begin_pod(pod)
        self.operator.start()

    def _begin_pod(self, pod: str) -> None:
        labels = {"app": NAME, CLAIM_LABEL: f"uid-of-{CONSUMER_GROUP.plural}-{NAME}"}
        self.kubernetes.put(POD, NAMESPACE, {"metadata": {"name": pod, "labels": labels}})
        token = self.folder / f"{pod}.token"
        token.write_text(f"{NAMESPACE}/{pod}")
        flags = (
            *FLAGS, f"--group-instance-id={pod}", f"--client-id={pod}", f"--fleet={self._fleet}",
            f"--token-file={token}", f"--http-listen=127.0.0.1:{self._ports[pod]}", f"--state-folder={self.folder}/{pod}",
        )  # fmt: skip
        sidecar = Deliverer(self.folder, f"rota://{self.coordinator.address}", GROUP, flags, name=pod)
        sidecar.begin_start()
        rules = f"--rules={json.dumps({POISON: 'dead-letter'})}"
        app = App(self.folder, sidecar.address, ["--holds", rules], name=f"{pod}-app")
        app.start()
        self.sidecars.append(sidecar)
        self.apps.append(app)

    def apply_group(self, name: str, topic: str) -> None:
        """Create a ConsumerGroup with its StatefulSet of two pods, which run if they have the group's name."""
        ready = len(PODS) if name == NAME else 0
        self.kubernetes.put(STATEFUL_SET, NAMESPACE, stateful_set(name, ready))
        spec = {
            "bootstrapServers": [f"rota://{self.coordinator.address}"],
            "topics": [topic],
            "scaleTargetRef": {"kind": "StatefulSet", "name": name},
            "membership": {"static": True},
            "monitoring": {"alerts": {"lagSeconds": 60, "stuckSeconds": NEVER_S}},
            # Decides, and holds: no member joins.
            "autoscaling": {"enabled": name == IDLE, "dryRun": True, "pollingInterval": 1},
        }
        metadata = {"name": name, "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"}
        group = {"apiVersion": CONSUMER_GROUP.api_version, "kind": CONSUMER_GROUP.kind}
        self.kubernetes.put(CONSUMER_GROUP, NAMESPACE, {**group, "metadata": metadata, "spec": spec})

    def set_thresholds(self, *, lag_s: int, stuck_s: int) -> None:
        """Edit the group's thresholds."""
        alerts = {"lagSeconds": lag_s, "stuckSeconds": stuck_s}
        self.edit(CONSUMER_GROUP, NAME, {"spec": {"monitoring": {"alerts": alerts}}})

    def edit(self, kind: ResourceKind, name: str, changes: Any) -> None:  # noqa: ANN401  JSON
        """Edit an object, as `kubectl patch` does."""
        self.kubernetes.change(kind, NAMESPACE, name, changes)

    def load(self, *values: str, age_ms: int = 0) -> None:
        """Produce these values into each partition."""
        at_ms = int(time.time() * 1000) - age_ms  # noqa: TID251  lag in seconds counts from the wall clock
        for partition in range(PARTITIONS):
            produce(self.coordinator.address, TOPIC, partition, batch(values, at_ms=at_ms))

    def signal_apps(self, number: signal.Signals) -> None:
        """Send both applications a signal."""
        for app in self.apps:
            app.signal(number)

    @contextmanager
    def rival(self, instance: str | None) -> Iterator[Rival]:
        """Another client of the group, which has a member's instance or none."""
        with grpc.insecure_channel(self.coordinator.address) as channel:
            yield Rival(channel, GROUP, instance)

    def follower(self) -> Deliverer:
        """The sidecar that does not lead the group."""
        with grpc.insecure_channel(self.coordinator.address) as channel:
            name = follower(channel, GROUP)
        return next(each for each in self.sidecars if each.name == name)

    def wait_for(self, *queries: str) -> None:
        """Return once each query has an answer on Prometheus; raise with those that have none, and with what is there instead."""
        open_queries = list(queries)
        try:
            while open_queries:
                self.prometheus.wait_for(open_queries[0], within_s=WITHIN_S)
                del open_queries[0]
        except ProcessFailed as failed:
            names = re.findall(r"rota_\w+|ALERTS", open_queries[0])
            found = [f"{each.labels} {each.value}" for name in names for each in self.prometheus.query(name)]
            raise AssertionError("\n".join([f"not seen: {open_queries[0]}", *found])) from failed

    def stop(self) -> None:
        """Kill the members: their last commits are refused, and a drain would wait for them."""
        for app in self.apps:
            app.kill()
        for sidecar in self.sidecars:
            sidecar.kill()
            sidecar.close()


def stateful_set(name: str, ready: int) -> Mapping[str, Any]:
    """A StatefulSet of as many pods as there are, `ready` of which are ready."""
    pods: Sequence[Mapping[str, str]] = [{"name": "app", "image": "app:1"}]
    # Longer than any drain: the operator leaves it.
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": pods, "terminationGracePeriodSeconds": 3_600},
    }
    return {
        "apiVersion": STATEFUL_SET.api_version,
        "kind": STATEFUL_SET.kind,
        "metadata": {"name": name, "generation": 1},
        "spec": {
            "replicas": len(PODS),
            "selector": {"matchLabels": {"app": name}},
            "template": template,
            "serviceName": name,
        },
        "status": {"replicas": len(PODS), "readyReplicas": ready, "observedGeneration": 1},
    }


@contextmanager
def staged(folder: Path) -> Iterator[Stage]:
    """The stage with everything started."""
    ports = {name: free_port() for name in ("coordinator", "operator", *PODS)}
    jobs = {
        name: Job([f"127.0.0.1:{port}"], {"namespace": NAMESPACE if name in PODS else "rota", "pod": name})
        for name, port in ports.items()
    }
    with ExitStack() as stack:
        kubernetes = stack.enter_context(Kubernetes().serving())
        flags = (
            *QUICK,
            f"--listen=127.0.0.1:{free_port()}",
            f"--http-listen=127.0.0.1:{ports['coordinator']}",
        )
        coordinator = Coordinator(folder, flags)
        coordinator.begin_start()
        rules = [shortened_rules(folder / "alerts.json")]
        prometheus = stack.enter_context(running(rules=rules, jobs=jobs, scrape_interval=SCRAPE_INTERVAL))
        stage = Stage(folder, kubernetes, coordinator, prometheus, ports)
        stack.callback(stage.stop)
        stage.start()
        yield stage
