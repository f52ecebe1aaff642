"""
KEDA beside a cluster: the real operator and metrics adapter, without the admission webhooks.

Both run as processes of this machine in the network of the control plane, with the rights that KEDA's own manifests give to its service
account. A HorizontalPodAutoscaler asks the API server for a metric, which asks the adapter by an APIService, and the adapter asks the operator,
which asks the broker. So no image needs KEDA, and its broker is the one that pods reach.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.support.certificates import Authority
from tests.support.cluster import Cluster
from tests.support.cluster.addresses import API
from tests.support.cluster.logins import write_login
from tests.support.definitions import KEDA
from tests.support.keda.building import Programs, programs
from tests.support.keda.manifests import ACCOUNT, ADAPTER, API_SERVICE, NAMESPACE, adapter_service
from tests.support.network import NetworkNamespace
from tests.support.ports import free_port
from tests.support.processes import Process
from tests.support.workdir import logs, workdir

READY = "Starting Metrics Service gRPC Server"
READY_WITHIN_S = 120
SCALED_OBJECTS = "scaledobjects.keda.sh"
# In the certificates' folder, which both programs look into: ca.crt, tls.crt and tls.key.
CERTIFICATE = "tls"
ENVIRONMENT = {
    "POD_NAMESPACE": NAMESPACE,
    "KEDA_CLUSTER_OBJECT_NAMESPACE": NAMESPACE,
    # All of them.
    "WATCH_NAMESPACE": "",
}


class Keda(NamedTuple):
    """Both processes, which run."""

    operator: Process
    adapter: Process

    def check(self) -> None:
        """Raise ProcessFailed with the end of the log if one of them has ended."""
        self.operator.check_running()
        self.adapter.check_running()


class Installation(NamedTuple):
    """Files and ports of one life of KEDA."""

    programs: Programs
    namespace: NetworkNamespace
    kubeconfig: Path
    certificates: Path
    logs: Path
    # Of the operator, for the adapter.
    grpc_port: int
    # Of the adapter, for the API server.
    metrics_port: int

    def start_operator(self) -> Process:
        """Start the operator; returns when it serves metrics."""
        command: list[str | Path] = [
            self.programs.operator,
            f"--cert-dir={self.certificates}",
            f"--metrics-service-bind-address={self.namespace.address}:{self.grpc_port}",
            f"--health-probe-bind-address=127.0.0.1:{free_port()}",
            "--enable-prometheus-metrics=false",
        ]
        operator = self._start("KEDA's operator", command, "operator.log")
        operator.wait_until(lambda: READY in operator.log.read_text(), within_s=READY_WITHIN_S)
        return operator

    def start_adapter(self) -> Process:
        """Start the adapter, which takes a moment to serve."""
        clients = ("lister", "authentication", "authorization")
        command: list[str | Path] = [
            self.programs.adapter,
            f"--cert-dir={self.certificates}",
            f"--tls-cert-file={self.certificates / f'{CERTIFICATE}.crt'}",
            f"--tls-private-key-file={self.certificates / f'{CERTIFICATE}.key'}",
            f"--bind-address={self.namespace.address}",
            f"--secure-port={self.metrics_port}",
            f"--metrics-service-address={self.namespace.address}:{self.grpc_port}",
            # Of its own metrics.
            f"--port={free_port()}",
            *(f"--{client}-kubeconfig={self.kubeconfig}" for client in clients),
        ]
        return self._start("KEDA's metrics adapter", command, "adapter.log")

    def _start(self, name: str, command: list[str | Path], log: str) -> Process:
        environment = {**ENVIRONMENT, "KUBECONFIG": str(self.kubeconfig)}
        return Process.start(name, [*self.namespace.enter, *command], log=self.logs / log, env=environment)


@contextmanager
def running(cluster: Cluster) -> Iterator[Keda]:
    """Install KEDA, and run it while the block is open; its kinds, and all that was made of them, go at the end."""
    built, definitions = programs(), str(KEDA.fetched())
    with workdir("keda") as folder, ExitStack() as stack:
        cluster.create_namespace(NAMESPACE)
        stack.callback(cluster.kubectl, "delete", "namespace", NAMESPACE)
        files = ("--recursive", "--filename", definitions)
        stack.callback(cluster.kubectl, "delete", *files, "--ignore-not-found")
        cluster.kubectl("apply", "--server-side", *files)
        cluster.wait_served(SCALED_OBJECTS)
        installed = install(cluster, built, folder)
        operator = installed.start_operator()
        stack.callback(operator.kill)
        # Its finalizer is the operator's.
        stack.callback(cluster.kubectl, "delete", SCALED_OBJECTS, "--all", "--all-namespaces")
        adapter = installed.start_adapter()
        stack.callback(adapter.kill)
        serve_metrics(cluster, installed, adapter, stack)
        yield Keda(operator, adapter)


def install(cluster: Cluster, built: Programs, folder: Path) -> Installation:
    """Make the certificates and the login of both programs."""
    namespace = cluster.namespace()
    authority = Authority(folder / "certificates")
    names = (f"IP:{namespace.address}", f"DNS:{ADAPTER}.{NAMESPACE}.svc")
    issued = authority.issue(CERTIFICATE, names)
    kubeconfig = folder / "kubeconfig"
    write_login(kubeconfig, cluster, ACCOUNT, NAMESPACE, server=API)
    return Installation(
        built, namespace, kubeconfig, issued.certificate.parent, logs(folder), free_port(), free_port()
    )


def serve_metrics(cluster: Cluster, installed: Installation, adapter: Process, stack: ExitStack) -> None:
    """Let the API server pass requests for external metrics on to the adapter, until the stack closes; returns when it does."""
    manifests = adapter_service(
        installed.namespace.address, installed.metrics_port, installed.certificates / "ca.crt"
    )
    # While it is there and nothing answers, the API server deletes no namespace.
    stack.callback(cluster.kubectl, "delete", "apiservice", API_SERVICE, "--ignore-not-found")
    cluster.apply(manifests, namespace=NAMESPACE)

    def is_available() -> bool:
        found = cluster.get(f"apiservices/{API_SERVICE}").get("status", {}).get("conditions", ())
        return ("Available", "True") in [(each["type"], each["status"]) for each in found]

    adapter.wait_until(is_available, within_s=READY_WITHIN_S)
