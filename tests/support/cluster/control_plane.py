"""
The machine that runs etcd, the API server, the controllers, the scheduler and DNS.

Started by `Cluster`. It is also the switch that the nodes hang on, and the address at which servers of tests
are reached from pods.
"""

import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path

from tests.support.cluster import audit
from tests.support.cluster.addresses import API_PORT, CONTROL_PLANE, DOMAIN, NODES, SERVICES
from tests.support.cluster.machine import Machine
from tests.support.cluster.pki import API_TO_AGGREGATED, API_TO_KUBELET, Pki

READY_WITHIN_S = 60
ETCD = "http://127.0.0.1:2379"
ETCD_PEERS = "http://127.0.0.1:2380"
# Kubernetes' own: 40 s until a node counts as lost, 300 s until its pods are replaced. Tests wait for both.
NODE_LOST_AFTER = "6s"
PODS_LEAVE_AFTER_S = 5


class ControlPlane:
    """The control plane on its machine."""

    def __init__(self, machine: Machine, pki: Pki, kube: Path, autoscaler_sync_s: int) -> None:
        """`autoscaler_sync_s` is the interval at which HorizontalPodAutoscalers are evaluated."""
        self.machine = machine
        self._autoscaler_sync_s = autoscaler_sync_s
        self._pki = pki
        self._kube = kube

    def start(self) -> None:
        """Start the store and the API server; they take a few seconds to be ready."""
        machine = self.machine
        machine.boot()
        machine.run(["ip", "link", "add", "lan", "type", "bridge"])
        machine.run(["ip", "address", "add", f"{CONTROL_PLANE}/24", "dev", "lan"])
        machine.run(["ip", "link", "set", "lan", "up"])
        for node in NODES:
            machine.run(["ip", "route", "add", node.pods, "via", node.address])
        machine.start("etcd", self._etcd())
        self._apiserver = machine.start("apiserver", self._api_server())

    def wait_ready(self, server: str) -> None:
        """Return when the API server answers at `server` that all of it is up."""
        trust = ssl.create_default_context(cafile=str(self._pki.authority))

        def ready() -> bool:
            try:
                with urllib.request.urlopen(f"{server}/readyz", context=trust, timeout=5) as answer:
                    return bool(answer.status == 200)
            except urllib.error.HTTPError as refused:  # it says that it is not ready
                refused.close()
                return False
            except OSError:  # nobody listens yet
                return False

        self._apiserver.wait_until(ready, within_s=READY_WITHIN_S)

    def start_controllers(self) -> None:
        """Start the controllers, which need an API server."""
        self.machine.start("controller-manager", self._controller_manager())

    def start_services_of_pods(self) -> None:
        """Start what only running pods need: scheduler and DNS."""
        corefile = self.machine.folder / "Corefile"
        corefile.write_text(corefile_text(self._pki.kubeconfig("dns")))
        self.machine.start("scheduler", self._scheduler())
        self.machine.start("dns", [self._kube, "dns", "-conf", corefile])

    def _etcd(self) -> list[str | Path]:
        return [
            self._kube, "etcd",
            "--data-dir", self.machine.folder / "etcd",
            "--listen-client-urls", ETCD, "--advertise-client-urls", ETCD,
            "--listen-peer-urls", ETCD_PEERS, "--initial-advertise-peer-urls", ETCD_PEERS,
            "--initial-cluster", f"default={ETCD_PEERS}",
            "--unsafe-no-fsync",  # the cluster does not outlive a power cut of its host anyway
            "--heartbeat-interval", "1000", "--election-timeout", "5000",  # in ms; there is only one
            "--log-level", "warn",
        ]  # fmt: skip

    def _api_server(self) -> list[str | Path]:
        pki = self._pki
        return [
            self._kube, "apiserver",
            "--etcd-servers", ETCD,
            "--advertise-address", CONTROL_PLANE, "--secure-port", str(API_PORT),
            "--tls-cert-file", pki.certificate("apiserver"), "--tls-private-key-file", pki.key("apiserver"),
            "--client-ca-file", pki.authority,
            "--authorization-mode", "Node,RBAC", "--enable-admission-plugins", "NodeRestriction",
            "--allow-privileged",
            "--service-cluster-ip-range", SERVICES,
            "--service-account-issuer", f"https://kubernetes.default.svc.{DOMAIN}",
            "--service-account-key-file", pki.account_key,
            "--service-account-signing-key-file", pki.account_key,
            "--kubelet-certificate-authority", pki.authority,
            "--kubelet-client-certificate", pki.certificate(API_TO_KUBELET.name),
            "--kubelet-client-key", pki.key(API_TO_KUBELET.name),
            "--kubelet-preferred-address-types", "InternalIP",  # no DNS out there knows the nodes' names
            "--enable-aggregator-routing",  # this machine has no kube-proxy: dial pods, not Services
            *self._aggregation(),
            "--default-not-ready-toleration-seconds", str(PODS_LEAVE_AFTER_S),
            "--default-unreachable-toleration-seconds", str(PODS_LEAVE_AFTER_S),
            *audit.flags(self.machine.folder),
        ]  # fmt: skip

    def _aggregation(self) -> list[str | Path]:
        """Flags with which servers of APIServices recognize the API server, and believe it who the user is."""
        client = API_TO_AGGREGATED
        return [
            "--proxy-client-cert-file", self._pki.certificate(client.name),
            "--proxy-client-key-file", self._pki.key(client.name),
            "--requestheader-client-ca-file", self._pki.authority,
            "--requestheader-allowed-names", client.user,  # the authority signs others' certificates, too
            "--requestheader-username-headers", "X-Remote-User",
            "--requestheader-group-headers", "X-Remote-Group",
            "--requestheader-extra-headers-prefix", "X-Remote-Extra-",
        ]  # fmt: skip

    def _controller_manager(self) -> list[str | Path]:
        return [
            *self._controller("controller-manager"),
            "--service-account-private-key-file", self._pki.account_key,
            "--root-ca-file", self._pki.authority,
            "--use-service-account-credentials",
            "--node-monitor-period", "1s", "--node-monitor-grace-period", NODE_LOST_AFTER,
            "--horizontal-pod-autoscaler-sync-period", f"{self._autoscaler_sync_s}s",
            "--flex-volume-plugin-dir", "/var/lib/flex-volumes",  # the default is outside what a machine has of its own
        ]  # fmt: skip

    def _scheduler(self) -> list[str | Path]:
        return self._controller("scheduler")

    def _controller(self, name: str) -> list[str | Path]:
        kubeconfig = self._pki.kubeconfig(name)
        return [
            self._kube, name,
            "--kubeconfig", kubeconfig,
            "--authentication-kubeconfig", kubeconfig, "--authorization-kubeconfig", kubeconfig,
            "--bind-address", "127.0.0.1", "--cert-dir", self.machine.folder / f"{name}-certificates",
            "--leader-elect=false",  # there is only one
        ]  # fmt: skip


def corefile_text(kubeconfig: Path) -> str:
    """CoreDNS' settings: it answers for the cluster and for nothing else, there is no way out."""
    context = json.loads(kubeconfig.read_text())["current-context"]
    return f"""\
.:53 {{
    bind {CONTROL_PLANE}
    errors
    ready {CONTROL_PLANE}:8181
    cache 5
    kubernetes {DOMAIN} in-addr.arpa {{
        kubeconfig {kubeconfig} {context}
        ttl 2
    }}
}}
"""


def roles() -> list[dict[str, object]]:
    """Roles and bindings that Kubernetes does not bring itself."""
    readers = [
        {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]
    return [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "system:coredns"},
            "rules": readers,
        },
        _binding("system:coredns", to="system:coredns"),
        _binding("system:kubelet-api-admin", to=API_TO_KUBELET.user),
    ]


def _binding(role: str, *, to: str) -> dict[str, object]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": to},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": to}],
    }
