"""The examples' SparkApplications with `rota up`, and their manifests against the parsers of the pipelines."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rota_operator.manifests.documents import parse_documents
from rota_operator.manifests.resources import Manifests, collect_resources
from rota_spark.pipelines import clickstream_sessions, lag_report, orders_enrichment
from tests.examples.laptop import Laptop, enriched_orders
from tests.support.processes import wait_for
from tests.support.spark.installation import prepare
from tests.support.tree import REPO

EXAMPLES = REPO / "examples"
WITHIN_S = 240


def manifests_in(folder: Path) -> Manifests:
    """Read the manifests as `rota up` does."""
    documents = [
        each
        for file in sorted(folder.glob("*.yaml"))
        for each in parse_documents(str(file), file.read_text())
    ]
    return collect_resources(documents)


@pytest.mark.parametrize(
    ("example", "workload", "parser"),
    [
        ("spark-orders", "orders-enrichment", orders_enrichment.arguments_parser),
        ("spark-clicks", "clickstream-sessions", clickstream_sessions.arguments_parser),
        ("spark-lag-report", "lag-report", lag_report.arguments_parser),
    ],
)
def test_the_arguments_of_the_manifests_are_those_of_the_pipelines_and_their_files_are_there(
    example: str, workload: str, parser: Callable[[], object]
) -> None:
    found = {each.name.name: each for each in manifests_in(EXAMPLES / example).workloads.values()}
    for each in found.values():
        (container,) = each.spec.template.spec.containers
        (file,) = (word for word in container.command if word.endswith(".py"))
        assert (EXAMPLES / example / file).exists()
    (container,) = found[workload].spec.template.spec.containers
    arguments = [word for word in container.command[1:] if word.startswith("--") and "=" in word]
    known = parser()
    known.parse_args(arguments)  # type: ignore[attr-defined]


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_spark_applications_of_the_examples_run_with_rota_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installation = prepare()
    environment = {**installation.environment, "SPARK_SUBMIT_OPTS": installation.java_options}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "spark-orders"
    shutil.copytree(EXAMPLES / "spark-orders", folder)
    manifest = folder / "spark-orders.yaml"
    text = manifest.read_text()
    # Of twelve partitions, each application has half; the shop sells less, for its orders take the cores from Spark's start.
    for ours, here in (
        ("partitionsPerApplication: 12", "partitionsPerApplication: 6"),
        ('ORDERS_A_SECOND, value: "100"', 'ORDERS_A_SECOND, value: "20"'),
    ):
        assert ours in text
        text = text.replace(ours, here)
    manifest.write_text(text)
    home = tmp_path / ".rota"
    laptop = Laptop(folder, home, partitions=12)
    running = laptop.start("up")
    running.wait_until(lambda: len(enriched_orders(folder / "orders.db")) > 0, within_s=WITHIN_S)
    running.wait_until(lambda: "from 1 to 2 replicas" in running.log.read_text(), within_s=WITHIN_S)
    sold = set(laptop.values_in("orders", "order"))
    wait_for("all are enriched", lambda: sold <= enriched_orders(folder / "orders.db"), within_s=WITHIN_S)
    lines = (home / "logs" / "orders-enrichment-0.sidecar.log").read_text().splitlines()
    assert any(json.loads(line)["event"] == "attached" for line in lines)
    running.stop(within_s=WITHIN_S)
    assert running.exit_code == 0
