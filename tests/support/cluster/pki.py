"""
Identities of a cluster: certificates, and the kubeconfigs that name them.

Called when a cluster is made. The names and groups are those that Kubernetes' own roles are bound to; the
certificates are made by `kube pki`.
"""

import json
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.support.cluster.addresses import API, API_SERVICE, CONTROL_PLANE, DOMAIN, NODES


@dataclass(frozen=True, slots=True)
class Certificate:
    """One that is wanted: a server's when it has addresses, else a client's."""

    name: str
    user: str
    groups: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()


ADMIN = "admin"
CLIENTS = (
    Certificate(ADMIN, "admin", groups=("system:masters",)),
    Certificate("controller-manager", "system:kube-controller-manager"),
    Certificate("scheduler", "system:kube-scheduler"),
    Certificate("proxy", "system:kube-proxy"),
    Certificate("dns", "system:coredns"),
    *(Certificate(node.name, f"system:node:{node.name}", groups=("system:nodes",)) for node in NODES),
)
# The API server asks kubelets for logs with a certificate, not with a kubeconfig.
API_TO_KUBELET = Certificate("apiserver-kubelet", "apiserver-kubelet-client")
# With this one it passes requests on to the servers of APIServices, with the names of the users.
API_TO_AGGREGATED = Certificate("front-proxy", "front-proxy-client")
OF_API_SERVER = (API_TO_KUBELET, API_TO_AGGREGATED)
SERVERS = (
    Certificate(
        "apiserver",
        "kube-apiserver",
        addresses=(CONTROL_PLANE, "127.0.0.1", API_SERVICE),
        hosts=("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
               f"kubernetes.default.svc.{DOMAIN}"),
    ),
    *(Certificate(f"{node.name}-serving", node.name, addresses=(node.address,), hosts=(node.name,))
      for node in NODES),
)  # fmt: skip


class Pki:
    """The certificates of one cluster, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def create(self, kube: Path) -> None:
        self.folder.mkdir()
        wanted = [asdict(certificate) for certificate in (*CLIENTS, *OF_API_SERVER, *SERVERS)]
        subprocess.run([kube, "pki", self.folder], input=json.dumps(wanted), text=True, check=True)
        for client in CLIENTS:
            self.write_kubeconfig(self.kubeconfig(client.name), API, client.name)

    @property
    def authority(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def account_key(self) -> Path:
        """Signs the tokens of service accounts."""
        return self.folder / "sa.key"

    def certificate(self, name: str) -> Path:
        return self.folder / f"{name}.crt"

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"

    def kubeconfig(self, client: str) -> Path:
        """For use inside the cluster."""
        return self.folder / f"{client}.kubeconfig"

    def write_kubeconfig(self, file: Path, server: str, client: str) -> None:
        """Kubeconfig with which `client` connects to the API server at `server`."""
        cluster = {"server": server, "certificate-authority": str(self.authority)}
        user = {"client-certificate": str(self.certificate(client)), "client-key": str(self.key(client))}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "rota", "cluster": cluster}],
            "users": [{"name": client, "user": user}],
            "contexts": [{"name": "rota", "context": {"cluster": "rota", "user": client}}],
            "current-context": "rota",
        }
        file.write_text(json.dumps(config, indent=2))
