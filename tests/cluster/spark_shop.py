"""
`examples/spark-orders` in the cluster, as its manifest is, with Kubeflow's Spark operator and a database that pods reach.

Called by `test_spark_applications`; a second group of the namespace is `spark_readers`. The file's image is the one that the tests have built, and its Secret names the database.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import psycopg
import yaml

from tests.cluster.planted import planted
from tests.support import spark_operator
from tests.support.cluster import WITHIN_S, Cluster
from tests.support.cluster.images import Image
from tests.support.cluster.kubectl import KubectlFailed
from tests.support.cluster.manifests import Manifest
from tests.support.cluster.rota_manifests import (
    NAMESPACE,
    OPERATOR,
    RULES,
    SPARK_RULES,
    in_namespace,
    operator,
    rights,
)
from tests.support.postgres import Postgres
from tests.support.postgres import running as running_postgres
from tests.support.processes import ProcessFailed, wait_for
from tests.support.rota_images import SPARK_EXAMPLE
from tests.support.tree import REPO

EXAMPLE = REPO / "examples" / SPARK_EXAMPLE / "spark-orders.yaml"
SHOP, GROUP, PRODUCER = "shop", "orders-enrichment", "spark-orders-shop"
TOPIC, PARTITIONS = "orders", 12
# Label of Spark on the pods of drivers and executors.
ROLE, DRIVER, EXECUTOR = "spark-role", "driver", "executor"
# Of Rota's operator on the pods of drivers, and of Kubeflow's on those of executors too.
APPLICATION, KUBEFLOWS_APPLICATION = "rota.dev/spark-application", "sparkoperator.k8s.io/app-name"
# Of the shop, once the example runs: what a hundred cost takes a third of a core from the tests beside.
ORDERS_A_SECOND = 20
POLL_S = 0.5
DATABASE = USER = "orders"


class SparkShop(NamedTuple):
    """A group of the namespace, and the database that its applications write to."""

    cluster: Cluster
    database: str
    password: str
    images: Mapping[str, Image]
    name: str = GROUP

    def other(self, name: str) -> "SparkShop":
        """Return another group of the same namespace."""
        return self._replace(name=name)

    def kubectl(self, *arguments: str, input: str | None = None) -> str:
        return self.cluster.kubectl("--namespace", SHOP, *arguments, input=input)

    def get(self, resource: str, selector: str = "") -> Any:  # noqa: ANN401  as it is stored
        return self.cluster.get(resource, namespace=SHOP, selector=selector)

    def group(self) -> Any:  # noqa: ANN401  as it is stored
        return self.get(f"consumergroup/{self.name}")

    def status(self) -> Any:  # noqa: ANN401  as it is stored
        return self.group().get("status") or {}

    def patch(self, *changes: tuple[str, object]) -> None:
        """Change fields of the group's spec, each by its path."""
        operations = [{"op": "add", "path": path, "value": value} for path, value in changes]
        self.kubectl("patch", "consumergroup", self.name, "--type=json", f"--patch={json.dumps(operations)}")

    def pods(self, role: str = "") -> list[Any]:
        """Pods of the group's drivers or executors, or both; those that are being deleted included."""
        return [
            each
            for each in self.get("pods", f"{ROLE}={role}" if role else ROLE)["items"]
            if each["metadata"]["labels"][KUBEFLOWS_APPLICATION].rpartition("-")[0] == self.name
        ]

    def drivers(self) -> dict[int, Any]:
        """Pods of drivers that are not being deleted, by the number of the application."""
        return {
            int(each["metadata"]["labels"][APPLICATION].rpartition("-")[2]): each
            for each in self.pods(DRIVER)
            if "deletionTimestamp" not in each["metadata"]
        }

    def states(self) -> dict[int, tuple[str, str]]:
        """UID of each application that is not being deleted, and its state as its Spark operator has it, by number."""
        return {
            int(each["metadata"]["name"].rpartition("-")[2]): (
                each["metadata"]["uid"],
                each.get("status", {}).get("applicationState", {}).get("state", ""),
            )
            for each in self.get("sparkapplications")["items"]
            if each["metadata"]["name"].rpartition("-")[0] == self.name
            and "deletionTimestamp" not in each["metadata"]
        }

    def shares(self) -> dict[str, int]:
        """Partitions of each application that is a member."""
        placements = self.status().get("placements") or ()
        return {
            each.get("application", ""): each["partitions"] for each in placements if each.get("memberId")
        }

    def wait_shared(self, applications: int) -> None:
        """Wait until that many applications have equal shares of the partitions, the group is ready, and all queries are attached."""
        wanted = {f"{self.name}-{number}": PARTITIONS // applications for number in range(applications)}

        def is_shared() -> bool:
            ready = self.condition("Ready").get("status") == "True"
            drivers = self.drivers().values()
            attached = [each for each in drivers if is_ready(each)]
            return ready and self.shares() == wanted and len(attached) == len(drivers) == applications

        self.wait(f"{applications} applications share the partitions", is_shared)

    def condition(self, name: str) -> Any:  # noqa: ANN401  as it is stored
        """Return a condition of the group; empty if there is none."""
        conditions = self.status().get("conditions") or ()
        return next((each for each in conditions if each["type"] == name), {})

    def wait(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait until it holds; what there is instead is raised."""
        try:
            wait_for(what, holds, within_s=WITHIN_S, poll_s=POLL_S)
        except ProcessFailed as error:
            pods = [(each["metadata"]["name"], each["status"]) for each in self.pods()]
            raise ProcessFailed(
                f"{error}; the group: {json.dumps(self.group())}; {self.states()}; pods: {json.dumps(pods)}"
            ) from None

    def sell_less(self) -> None:
        """Let the shop sell fewer orders than in the example's file."""
        self.kubectl("set", "env", f"deployment/{PRODUCER}", f"ORDERS_A_SECOND={ORDERS_A_SECOND}")

    def delete(self) -> None:
        """Delete the group, and wait until it is gone."""
        try:
            self.kubectl("delete", "consumergroup", self.name, "--ignore-not-found", f"--timeout={WITHIN_S}s")
        except KubectlFailed as error:
            raise AssertionError(f"{error}: {self.group()}") from None

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """Read from the database of the example."""
        with psycopg.connect(self.database) as connection:
            return connection.execute(statement).fetchall()

    def execute(self, statement: str) -> None:
        """Change the database, as the user of the example."""
        with psycopg.connect(self.database) as connection:
            connection.execute(f"SET ROLE {USER}")
            connection.execute(statement)

    def enriched(self) -> int:
        """Number of orders with their price; the first application creates the table."""
        if self.rows("SELECT to_regclass('enriched_orders')") == [(None,)]:
            return 0
        [(number,)] = self.rows("SELECT count(*) FROM enriched_orders")
        return int(number)


def is_ready(pod: Any) -> bool:  # noqa: ANN401  as it is stored
    """Return whether all containers of a pod are ready; a sidecar is once a query is attached."""
    conditions = pod["status"].get("conditions") or ()
    return ("Ready", "True") in [(each["type"], each["status"]) for each in conditions]


def example(image: Image, url: str) -> list[Manifest]:
    """Return the manifests of the file, and the Secret of its database."""
    text = EXAMPLE.read_text().replace("spark-orders:latest", image.name)
    assert image.name in text
    metadata = {"name": "orders-database", "namespace": SHOP}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"url": url}}
    return [secret, *yaml.safe_load_all(text)]


def driver_account() -> list[Manifest]:
    """Return the service account that the example names, with the rights that Spark's driver needs."""
    group = "rbac.authorization.k8s.io"
    metadata = {"name": "spark", "namespace": SHOP}
    resources = ["pods", "configmaps", "services", "persistentvolumeclaims"]
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {
            "apiVersion": f"{group}/v1",
            "kind": "Role",
            "metadata": metadata,
            "rules": [
                {"apiGroups": [""], "resources": resources, "verbs": ["*"]},
                {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": ["*"]},
            ],
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "spark"},
            "subjects": [{"kind": "ServiceAccount", "name": "spark", "namespace": SHOP}],
        },
    ]


def manage_spark(cluster: Cluster, images: Mapping[str, Image]) -> None:
    """Let the cluster's operator manage SparkApplications, until Rota is deployed again."""
    deployment, service = operator(images["operator"].name, images["sidecar"].name)
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    container["args"].append("--spark")
    manifests = [*rights("ClusterRole", RULES + SPARK_RULES), *in_namespace([deployment, service])]
    cluster.apply(manifests, namespace=NAMESPACE)
    cluster.kubectl(
        "rollout", "status", f"deployment/{OPERATOR}", f"--namespace={NAMESPACE}", f"--timeout={WITHIN_S}s"
    )


def new_database(postgres: Postgres, password: str) -> str:
    """Create the database of the example with a user of its own; return the DSN for pods."""
    postgres.new_database(DATABASE)
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {USER} LOGIN PASSWORD '{password}'")
        connection.execute(f"ALTER DATABASE {DATABASE} OWNER TO {USER}")
    host = postgres.dsn_for_pods.rpartition("@")[2].rpartition("/")[0]
    return f"postgresql://{USER}:{password}@{host}/{DATABASE}"


@contextmanager
def open_shop(cluster: Cluster, images: Mapping[str, Image]) -> Iterator[SparkShop]:
    """Run what the example needs; the example itself is applied by the test."""
    cluster.load_image(images[SPARK_EXAMPLE])
    cluster.create_namespace(SHOP)
    cluster.apply(driver_account(), namespace=SHOP)
    with running_postgres(network=cluster) as postgres, spark_operator.running(cluster, SHOP):
        manage_spark(cluster, images)
        password = planted()
        url = new_database(postgres, password)
        inside = postgres.dsn.rpartition("/")[0]
        shop = SparkShop(cluster, f"{inside}/{DATABASE}", password, images)
        cluster.apply(example(images[SPARK_EXAMPLE], url), namespace=SHOP)
        yield shop
        for each in cluster.get("consumergroups", namespace=SHOP)["items"]:
            shop.other(each["metadata"]["name"]).delete()
        cluster.kubectl("delete", "namespace", SHOP, "--wait=false")
