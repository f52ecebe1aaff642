"""Two coordinators of the chart on PostgreSQL, with the records in Kafka: they hand the group over to each other when they are upgraded."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.cluster.released import AUDITED, NEXT, WITHIN_S, Release, prepared, small
from tests.cluster.test_kafka_group import secret
from tests.support.certificates import Authority
from tests.support.cluster import Cluster
from tests.support.cluster.addresses import CONTROL_PLANE
from tests.support.cluster.orders import ENRICHER, GROUP, audit, move_to_kafka, orders
from tests.support.helm import CHART
from tests.support.kafka import Kafka
from tests.support.kafka import running as running_kafka
from tests.support.postgres import running as running_postgres
from tests.support.processes import wait_for

# It may have to start the cluster, and to load four images.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

NAMESPACE, SECRET = "shared", "rota-postgresql"
VERIFIED = "sslmode=verify-full&sslrootcert=/etc/rota/postgresql/ca.crt"


class Shared(NamedTuple):
    """The release, and where its records are."""

    release: Release
    kafka: Kafka


@pytest.fixture(scope="module")
def shared(without_operator: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """The release with its database, and the example."""
    cluster = without_operator
    authority = Authority(tmp_path_factory.mktemp("certificates") / "postgresql")
    certificate = authority.issue("postgresql", [f"IP:{CONTROL_PLANE}"])
    values = f"--values={CHART / 'values-postgresql.yaml'}"
    with (
        running_kafka(network=cluster) as kafka,
        running_postgres(network=cluster, tls=certificate) as postgres,
        prepared(cluster, NAMESPACE, values) as release,
    ):
        postgres.new_database("rota")
        url = f"{postgres.dsn_for_pods.removesuffix('/postgres')}/rota?{VERIFIED}"
        login = secret(SECRET, {"url": url, "ca.crt": authority.certificate.read_text()})
        cluster.apply(login, namespace=NAMESPACE)
        release.install()
        example = orders(release.shop, release.images["cli"].name)
        move_to_kafka(example, kafka.bootstrap_for_pods)
        small(example)
        for manifest in example:
            if manifest["kind"] == "ConsumerGroup":
                there: dict[str, Any] = {
                    "coordination": "Rota",
                    "coordinatorAddress": f"rota://{release.coordinator}",
                }
                manifest["spec"] |= there
        cluster.apply(example, namespace=release.shop)
        release.kubectl("rollout", "status", f"deployment/{ENRICHER}", f"--timeout={WITHIN_S}s")
        release.wait_shared()
        yield Shared(release, kafka)


def test_an_upgrade_of_the_coordinators_starts_no_rebalance(shared: Shared) -> None:
    release = shared.release
    group, parts = release.group(), release.parts()
    assert len(parts) == 3
    release.upgrade()
    upgraded = release.parts()
    assert not upgraded.keys() & parts.keys()
    assert sorted(image.endswith(NEXT) for image in upgraded.values()) == [True] * 3
    release.wait_shared()
    assert release.group() == group
    logs = release.kubectl("logs", f"--selector=app={ENRICHER}", "--container=rota-sidecar", "--tail=-1")
    assert f"the coordinator hands group {release.shop}.{GROUP} over" in logs


def test_each_order_was_priced_once(
    shared: Shared, tmp_path_factory: pytest.TempPathFactory, report: list[str]
) -> None:
    """The last one."""
    shared.release.stop_producer()
    folder = tmp_path_factory.mktemp("audit")

    def counts() -> str:
        return audit(shared.release.shop, shared.kafka.bootstrap, folder, {})

    wait_for("every order is processed", lambda: "unprocessed 0" in counts(), within_s=WITHIN_S, poll_s=1)
    found = AUDITED.fullmatch(audited := counts())
    report.append(f"orders over an upgrade of two coordinators on PostgreSQL: {audited}")
    assert found is not None, audited
    assert found[1] == found[2] != "0"
    assert (found[3], found[4]) == ("0", "0")
