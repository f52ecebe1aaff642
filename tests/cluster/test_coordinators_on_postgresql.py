"""
Two coordinators of the chart on PostgreSQL, with the records in Kafka: they hand the group over to each other when they are upgraded, and
take its place when one of them is killed or its node lost.

One group lives through all tests, in their order; none of them changes its generation, and the last one counts that each order was
priced once.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple

import psycopg
import pytest

from rota_coordinator.core.group.hashing import slot_of
from rota_coordinator.core.slots.table import SLOTS
from tests.cluster.commit_pauses import unchanged
from tests.cluster.planted import find, outputs
from tests.cluster.released import HOSTNAME, NEXT, Audit, Release, at_coordinator, prepared, small
from tests.cluster.test_kafka_group import secret
from tests.support.certificates import Authority
from tests.support.cluster import WITHIN_S, Cluster
from tests.support.cluster.addresses import CONTROL_PLANE, NODES
from tests.support.cluster.manifests import Manifest
from tests.support.cluster.orders import ENRICHER, GROUP, move_to_kafka, orders
from tests.support.helm import CHART
from tests.support.kafka import Kafka
from tests.support.kafka import running as running_kafka
from tests.support.postgres import Postgres
from tests.support.postgres import running as running_postgres
from tests.support.postgres.server import PASSWORD
from tests.support.processes import wait_for

# It may have to start the cluster, and to load four images.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1_800)]

NAMESPACE, SECRET, DATABASE = "shared", "rota-postgresql", "rota"
VERIFIED = "sslmode=verify-full&sslrootcert=/etc/rota/postgresql/ca.crt"
# All but one coordinator run on the first node, so that the loss of the second one takes nothing else.
STAYS, LOST = (each.name for each in NODES)
VALUES = (
    f"coordinator.topologySpreadConstraints[0].topologyKey={HOSTNAME}",
    "coordinator.topologySpreadConstraints[0].maxSkew=1",
    "coordinator.topologySpreadConstraints[0].whenUnsatisfiable=DoNotSchedule",
    "coordinator.topologySpreadConstraints[0].labelSelector.matchLabels.app\\.kubernetes\\.io/component=coordinator",
    f"operator.nodeSelector.kubernetes\\.io/hostname={STAYS}",
    "operator.replicas=1",
    f"watchNamespaces={{{NAMESPACE}-shop}}",
)
COORDINATORS = 2
AWAY_S, LEASE_S, COMMIT_S = 20, 3, 1
# Each look is a connection to the database.
LOOK_EACH_S = 0.5
OWNED = "SELECT address, count(*) FILTER (WHERE slot = %s) FROM rota.processes JOIN rota.slots ON owner = process_id GROUP BY address"
EPOCH = "SELECT epoch FROM rota.slots WHERE slot = %s"
CLAIMED = "SELECT 1 FROM rota.slots JOIN rota.processes ON owner = process_id WHERE slot = %s AND epoch > %s"
BATCHES = "SELECT max(sequence) FROM rota.batches WHERE slot = %s"


class Store:
    """Reads the coordinators' tables; the connection is opened again after PostgreSQL was away."""

    def __init__(self, dsn: str, slot: int) -> None:
        self._dsn = dsn
        self._slot = slot
        self._connection: psycopg.Connection | None = None

    def batches(self) -> int | None:
        """Number of batches that the group's slot has had; None while PostgreSQL is away."""
        try:
            if self._connection is None or self._connection.closed:
                self._connection = psycopg.connect(self._dsn, connect_timeout=2, autocommit=True)
            row = self._connection.execute(BATCHES, (self._slot,)).fetchone()
        except psycopg.OperationalError:
            self.close()
            self._connection = None
            return None
        return None if row is None else row[0]

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()

    def epoch(self) -> int:
        """Number of times that the group's slot was claimed or handed over."""
        with psycopg.connect(self._dsn) as connection:
            [(epoch,)] = connection.execute(EPOCH, (self._slot,)).fetchall()
        return int(epoch)

    def is_claimed(self, after: int) -> bool:
        """Return whether a coordinator owns the group's slot, which it has claimed after this epoch."""
        with psycopg.connect(self._dsn) as connection:
            return bool(connection.execute(CLAIMED, (self._slot, after)).fetchall())

    def coordinators(self) -> dict[str, bool]:
        """Pods that own slots, and whether the group's is among them."""
        with psycopg.connect(self._dsn) as connection:
            rows = connection.execute(OWNED, (self._slot,)).fetchall()
        return {address.partition(".")[0]: bool(owns) for address, owns in rows}


class Shared(NamedTuple):
    """The release, and where its records and groups are."""

    release: Release
    kafka: Kafka
    postgres: Postgres
    store: Store

    def owner(self) -> str:
        """Pod of the group's coordinator, once both coordinators own slots."""

        found: dict[str, bool] = {}

        def both() -> bool:
            nonlocal found
            found = self.store.coordinators()
            return len(found) == COORDINATORS and any(found.values())

        wait_for("both coordinators own slots", both, within_s=WITHIN_S, poll_s=LOOK_EACH_S)
        return next(pod for pod, owns in found.items() if owns)

    def wait_claimed(self, after: int) -> None:
        """Wait until a coordinator has claimed the group's slot after this epoch."""
        wait_for(
            "a coordinator owns the group",
            lambda: self.store.is_claimed(after),
            within_s=WITHIN_S,
            poll_s=LOOK_EACH_S,
        )

    def node_of(self, pod: str) -> str:
        """Node of a coordinator."""
        found = self.release.cluster.get(f"pod/{pod}", namespace=NAMESPACE)
        return str(found["spec"]["nodeName"])

    def unchanged(self, what: str, report: list[str]) -> AbstractContextManager[None]:
        """See `commit_pauses.unchanged`."""
        return unchanged(self.release, self.store.batches, what, report)


def database_url(postgres: Postgres) -> str:
    """Address of the database for pods, whose coordinators verify its certificate."""
    return f"{postgres.dsn_for_pods.removesuffix('/postgres')}/{DATABASE}?{VERIFIED}"


def example(release: Release, servers: str) -> list[Manifest]:
    """The orders example, with its records in Kafka and its group at the release's coordinators."""
    found = orders(release.shop, release.images["cli"].name)
    move_to_kafka(found, servers)
    found = small(at_coordinator(found, release.coordinator), STAYS)
    for manifest in found:
        if manifest["kind"] == "ConsumerGroup":
            manifest["spec"] |= {
                "coordination": "Rota",
                "coordinatorAddress": f"rota://{release.coordinator}",
                # Pauses are seen between commits.
                "offsets": {"commit": {"intervalSeconds": COMMIT_S}},
            }
    return found


@pytest.fixture(scope="module")
def shared(without_operator: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """The release with its database, and the example."""
    cluster = without_operator
    authority = Authority(tmp_path_factory.mktemp("certificates") / "postgresql")
    certificate = authority.issue("postgresql", [f"IP:{CONTROL_PLANE}"])
    values = [f"--values={CHART / 'values-postgresql.yaml'}", *(f"--set={each}" for each in VALUES)]
    with (
        running_kafka(network=cluster) as kafka,
        running_postgres(network=cluster, tls=certificate, durable=True) as postgres,
        prepared(cluster, NAMESPACE, *values) as release,
    ):
        store = Store(postgres.new_database(DATABASE), slot_of(f"{release.shop}.{GROUP}", SLOTS))
        login = secret(SECRET, {"url": database_url(postgres), "ca.crt": authority.certificate.read_text()})
        cluster.apply(login, namespace=NAMESPACE)
        release.install()
        cluster.apply(example(release, kafka.bootstrap_for_pods), namespace=release.shop)
        release.start_producer()
        release.wait_shared()
        yield Shared(release, kafka, postgres, store)
        store.close()
        cluster.repair()


def test_an_upgrade_of_the_coordinators_starts_no_rebalance(shared: Shared, report: list[str]) -> None:
    release = shared.release
    parts = release.parts("coordinator")
    assert len(parts) == COORDINATORS
    with shared.unchanged("an upgrade of two coordinators", report):
        release.upgrade("coordinator")
    upgraded = release.parts("coordinator")
    assert not upgraded.keys() & parts.keys()
    assert [image.endswith(NEXT) for image in upgraded.values()] == [True] * len(parts)
    logs = release.kubectl("logs", f"--selector=app={ENRICHER}", "--container=rota-sidecar", "--tail=-1")
    assert f"the coordinator hands group {release.shop}.{GROUP} over" in logs


def test_a_coordinator_that_is_killed_is_replaced(shared: Shared, report: list[str]) -> None:
    """By the other coordinator, or by its own container that was restarted before its lease ended."""
    owner, epoch = shared.owner(), shared.store.epoch()
    with shared.unchanged(f"one of two coordinators killed, lease {LEASE_S} s", report):
        shared.release.kill_coordinator(owner)
        shared.wait_claimed(epoch)


def test_groups_go_on_after_postgresql_was_away(shared: Shared, report: list[str]) -> None:
    with shared.unchanged(f"PostgreSQL away for {AWAY_S} s", report):
        shared.postgres.kill()
        time.sleep(AWAY_S)  # noqa: TID251  the length of the outage
        shared.postgres.start()


def test_the_coordinator_of_a_lost_node_is_replaced_by_the_other(shared: Shared, report: list[str]) -> None:
    """The applications are on the other node."""
    cluster = shared.release.cluster
    # Both have slots again after PostgreSQL was away.
    owner = shared.owner()
    [away] = [pod for pod in shared.store.coordinators() if shared.node_of(pod) == LOST]
    if owner != away:
        # A coordinator that starts takes over the slots with the highest numbers.
        with shared.unchanged("one of two coordinators deleted", report):
            cluster.kubectl("delete", "pod", away, "--namespace", NAMESPACE)
            wait_for(
                "it has the group", lambda: shared.owner() == away, within_s=WITHIN_S, poll_s=LOOK_EACH_S
            )
    epoch = shared.store.epoch()
    with shared.unchanged("the node of one of two coordinators lost", report):
        cluster.stop_node(LOST)
        shared.wait_claimed(epoch)
    cluster.repair()
    assert shared.owner()


def test_the_password_of_the_database_is_in_no_output(shared: Shared) -> None:
    """The coordinators have connected with it, and were refused; the search finds passwords elsewhere, see `test_disturbed_release`."""
    release = shared.release
    found = outputs(release.cluster, (NAMESPACE, release.shop))
    assert find({"password": PASSWORD}, found) == []
    kinds = {each.kind for each in found if "coordinator" in each.where or each.kind == "argument"}
    assert {"log", "argument", "metrics", "object"} <= kinds


def test_each_order_was_priced_once(shared: Shared, report: list[str]) -> None:
    """The last one."""
    shared.release.stop_producer()
    audited = shared.release.audit(shared.kafka.bootstrap_for_pods)
    report.append(f"orders over an upgrade and three losses of coordinators on PostgreSQL: {audited}")
    assert audited == Audit(audited.produced, audited.produced, 0, 0)
    assert audited.produced
