"""SparkApplications of a group's template become workloads of this machine, or are refused with the path of what cannot run here."""

from typing import Any

import pytest
import yaml

from rota_operator.local.spark_size import SparkSize
from rota_operator.manifests.documents import InvalidManifest, parse_documents
from rota_operator.manifests.resources import Manifests, NamespacedName, collect_resources
from rota_operator.manifests.spark import applications_for
from rota_operator.spec.workload import Spark

NAME = NamespacedName("shop", "enrichment")
SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "database", "namespace": "shop"},
    "stringData": {"url": "sqlite:a", "other": "sqlite:b"},
}
TEMPLATE: dict[str, Any] = {
    "type": "Python",
    "mode": "cluster",
    "image": "spark-orders:latest",
    "sparkVersion": "4.3.0",
    "mainApplicationFile": "local:///opt/app/enrich.py",
    "arguments": ["--bootstrap-servers=rota://rota-coordinator.rota:7070"],
    "sparkConf": {"spark.sql.shuffle.partitions": "4", "spark.kubernetes.container.image": "other:latest"},
    "restartPolicy": {"type": "Always"},
    "driver": {
        "cores": 1,
        "memory": "512m",
        "serviceAccount": "spark",
        "envSecretKeyRefs": {"DATABASE": {"name": "database", "key": "url"}},
    },
    "executor": {
        "instances": 2,
        "cores": 3,
        "env": [{"name": "LEVEL", "value": "info"}],
        "envSecretKeyRefs": {"DATABASE": {"name": "database", "key": "other"}},
    },
}


def read(template: dict[str, Any], *more: dict[str, Any], secret: dict[str, Any] = SECRET) -> Manifests:
    group = {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "ConsumerGroup",
        "metadata": {"name": NAME.name, "namespace": NAME.namespace},
        "spec": {
            "bootstrapServers": ["rota://rota-coordinator.rota:7070"],
            "topics": ["orders"],
            "spark": {"enabled": True, "template": {"spec": template}},
        },
    }
    return collect_resources(parse_documents("all.yaml", yaml.safe_dump_all([group, secret, *more])))


def problem_of(template: dict[str, Any], *more: dict[str, Any]) -> str:
    with pytest.raises(InvalidManifest) as refused:
        read(template, *more)
    return str(refused.value)


def test_an_application_is_a_driver_with_its_executors_tasks_in_one_process() -> None:
    workload = read(TEMPLATE).workloads[NAME]
    (container,) = workload.spec.template.spec.containers
    assert (workload.kind, workload.spec.replicas) == ("SparkApplication", 1)
    assert container.command == (
        *("spark-submit", "--master", "local[6]", "--name", "enrichment"),
        *("--conf", "spark.sql.shuffle.partitions=4", "enrich.py"),
        "--bootstrap-servers=rota://rota-coordinator.rota:7070",
    )


def test_variables_are_those_of_both_pods_and_the_drivers_take_precedence() -> None:
    (container,) = read(TEMPLATE).workloads[NAME].spec.template.spec.containers
    values = {each.name: each.value for each in container.env}
    sources = {each.name: each.value_from for each in container.env if each.value_from is not None}
    assert (values["LEVEL"], values["SPARK_LOCAL_IP"]) == ("info", "127.0.0.1")
    reference = sources["DATABASE"].secret_key_ref
    assert reference is not None
    assert (reference.name, reference.key) == ("database", "url")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"type": "Scala"}, "spec.spark.template.spec.type"),
        ({"mainApplicationFile": "s3a://bucket/enrich.py"}, "must have a mainApplicationFile that begins with local:///"),
        ({"mainAplicationFile": "local:///a.py"}, "spec.spark.template.spec.mainAplicationFile"),
        ({"deps": {"jars": []}}, "must not set deps, which local processes do not support"),
        ({"executor": {"instances": 0}}, "spec.spark.template.spec.executor.instances"),
        ({"driver": {"volumeMounts": []}}, "must not set volumeMounts, which local processes do not support"),
        ({"driver": {"envSecretKeyRefs": {"A": {"name": "none", "key": "url"}}}}, "Secret none in namespace shop not found"),
        ({"driver": {"envSecretKeyRefs": {"A": {"name": "database", "key": "x"}}}}, "key x not found in Secret database"),
    ],
)  # fmt: skip
def test_what_cannot_run_on_this_machine_is_refused_with_its_path(
    change: dict[str, Any], message: str
) -> None:
    problem = problem_of({**TEMPLATE, **change})
    assert message in problem
    assert "spec.spark.template.spec" in problem


def test_a_workload_of_the_groups_name_is_refused_because_its_replicas_have_the_same_names() -> None:
    template = {"spec": {"containers": [{"name": "app", "command": ["python"]}]}}
    workload = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME.name, "namespace": NAME.namespace},
        "spec": {"selector": {}, "template": template},
    }
    assert "whose replicas have the same names" in problem_of(TEMPLATE, workload)


@pytest.mark.parametrize(("partitions", "expected"), [(0, 1), (1, 1), (12, 1), (13, 2), (24, 2), (25, 3)])
def test_there_are_as_many_applications_as_the_partitions_need(partitions: int, expected: int) -> None:
    assert applications_for(partitions, Spark()) == expected


def test_the_number_follows_the_partitions_and_nothing_else() -> None:
    scaled: list[int] = [1]
    size = SparkSize(Spark(), lambda: scaled[-1], lambda wanted, _: scaled.append(wanted))
    for partitions in (0, 12, 12, 24, 24):
        size.observe(partitions)
    assert scaled == [1, 2]
    # By hand, for example from the page.
    scaled.append(5)
    for partitions in (24, 0, 24):
        size.observe(partitions)
    assert scaled[-1] == 5
    size.observe(36)
    assert scaled[-1] == 3
    size.observe(100_000)
    assert scaled[-1] == 100
