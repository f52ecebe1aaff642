"""
Kubeflow's Spark operator beside a cluster: the real one, without its webhook.

It runs as a process of this machine, as Rota's operator does in some tests, with the rights of a service account in the cluster. It
submits each application by the Spark of this machine; drivers and executors are pods. So no image needs the operator.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.cluster import Cluster
from tests.support.cluster.logins import write_login
from tests.support.definitions import SPARK_OPERATOR
from tests.support.ports import free_port
from tests.support.processes import Process
from tests.support.spark import installation
from tests.support.spark_operator.building import program
from tests.support.workdir import logs, workdir

ACCOUNT, ACCOUNTS_NAMESPACE = "spark-operator", "kube-system"
# The kind that others than the operator use.
KIND = "sparkapplications.sparkoperator.k8s.io"
READY = "Starting workers"
READY_WITHIN_S = 60
# It puts the pod templates of applications there, whoever else does: each one sees a folder of its own.
TEMPLATES = Path("/tmp/spark")
SEE_OWN_FOLDER = f'mkdir -p {TEMPLATES} && mount --bind "$0" {TEMPLATES} && exec "$@"'

# Of the Spark that submits, whose defaults go to drivers and executors.
SETTINGS = "settings"
DEFAULTS = "".join(
    f"spark.{part}.extraJavaOptions {installation.QUICK_JAVA}\n" for part in ("driver", "executor")
)


@contextmanager
def running(cluster: Cluster, *namespaces: str) -> Iterator[Process]:
    """Install the kinds, and run the operator of these namespaces while the block is open; the kinds stay."""
    cluster.kubectl("apply", "--server-side", "--filename", str(SPARK_OPERATOR.fetched()))
    cluster.wait_served(KIND)
    cluster.apply(account(), namespace=ACCOUNTS_NAMESPACE)
    with workdir("spark-operator") as folder:
        kubeconfig = folder / "kubeconfig"
        (folder / TEMPLATES.name).mkdir()
        (folder / SETTINGS).mkdir()
        (folder / SETTINGS / "spark-defaults.conf").write_text(DEFAULTS)
        # Spark's client reads no keys like those of the cluster's own.
        write_login(kubeconfig, cluster, ACCOUNT, ACCOUNTS_NAMESPACE)
        operator = start(folder, kubeconfig, logs(folder) / "operator.log", namespaces)
        try:
            operator.wait_until(lambda: READY in operator.log.read_text(), within_s=READY_WITHIN_S)
            yield operator
        finally:
            operator.kill()


def start(folder: Path, kubeconfig: Path, log: Path, namespaces: tuple[str, ...]) -> Process:
    """Start the program; it takes a moment to watch."""
    spark = installation.prepare()
    host, port = server_of(kubeconfig).removeprefix("https://").split(":")
    environment = {
        **{name: spark.environment[name] for name in ("SPARK_HOME", "JAVA_HOME", "SPARK_LAUNCHER_OPTS")},
        "SPARK_CONF_DIR": str(folder / SETTINGS),
        "SPARK_SUBMIT_OPTS": spark.java_options,
        # The operator's client, and Spark's.
        "KUBECONFIG": str(kubeconfig),
        "KUBERNETES_SERVICE_HOST": host,
        "KUBERNETES_SERVICE_PORT": port,
    }
    command: list[str | Path] = [
        *("unshare", "--mount", "sh", "-ec", SEE_OWN_FOLDER, folder / TEMPLATES.name),
        *(program(), "controller", "start", f"--kubeconfig={kubeconfig}"),
        f"--namespaces={','.join(namespaces)}",
        f"--health-probe-bind-address=127.0.0.1:{free_port()}",
    ]
    return Process.start("the Spark operator", command, log=log, cwd=folder, env=environment)


def account() -> list[dict[str, object]]:
    """Return the service account of the operator, which may do everything."""
    group = "rbac.authorization.k8s.io"
    return [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": ACCOUNT, "namespace": ACCOUNTS_NAMESPACE},
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": ACCOUNT},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": ACCOUNTS_NAMESPACE}],
        },
    ]


def server_of(kubeconfig: Path) -> str:
    """Return the address of a kubeconfig's API server."""
    server: str = json.loads(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    return server
