"""The chart as Helm renders it with each values file, and with other combinations: rendered once in a run of tests."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from tests.support import helm
from tests.support.helm import CHART, Object

VALUES: Object = yaml.safe_load((CHART / "values.yaml").read_text())
# By its name; the first one is the default.
FILES = {
    "values.yaml": (),
    **{file.name: (f"--values={file}",) for file in sorted(CHART.glob("values-*.yaml"))},
}
SECRETS = "--set=tls.source=secret,tls.secrets.operator=a,tls.secrets.coordinator=b"
TOKENS = "--set=coordinator.authentication=tokens,coordinator.tokensSecret.name=tokens"
KAFKA = [
    {
        "name": "main",
        "bootstrapServers": ["kafka.kafka:9093"],
        "secret": "kafka-main",
        "tls": True,
        "saslMechanism": "SCRAM-SHA-512",
        "namespaces": ["shop"],
        "groups": ["orders-*"],
    },
    {"name": "open", "bootstrapServers": ["open.kafka:9092"]},
]
# Clients are not authenticated.
OPEN = "every client has full access"
SPARK = "SparkApplications"
VARIANTS = {
    **FILES,
    OPEN: ("--set=coordinator.authentication=none",),
    "Secrets and tokens": (SECRETS, TOKENS),
    "without coordinator": ("--set=coordinator.enabled=false",),
    "two namespaces, cluster-wide token reviews": ("--set=watchNamespaces={shop,billing}",),
    "Kafka clusters": (f"--set-json=kafka.clusters={json.dumps(KAFKA)}",),
    SPARK: ("--set=spark.enabled=true",),
    "a volume that goes": ("--set=coordinator.store.sqlite.persistent=false",),
}  # fmt: skip


def of(variant: str) -> Sequence[Object]:
    """Return the objects of a variant."""
    return helm.render(*VARIANTS[variant])


def of_kind(objects: Sequence[Object], *kinds: str) -> list[Object]:
    """Return the objects of these kinds."""
    return [each for each in objects if each["kind"] in kinds]


def named(objects: Sequence[Object], kind: str, name: str) -> Object:
    """Return the object of a kind and name."""
    return next(each for each in of_kind(objects, kind) if each["metadata"]["name"] == name)


def pods(objects: Sequence[Object]) -> Iterator[tuple[str, Object]]:
    """Yield the pods and the templates of pods, each as KIND/NAME with metadata and spec."""
    for each in objects:
        name, kind = f"{each['kind']}/{each['metadata']['name']}", each["kind"]
        if kind == "Pod":
            yield name, each
        elif kind == "CronJob":
            yield name, each["spec"]["jobTemplate"]["spec"]["template"]
        elif kind in ("Deployment", "StatefulSet", "Job"):
            yield name, each["spec"]["template"]


def container(objects: Sequence[Object], kind: str, name: str) -> Object:
    """Return the only container of a workload."""
    found: Object
    (found,) = dict(pods(objects))[f"{kind}/{name}"]["spec"]["containers"]
    return found


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:  # noqa: ANN401
    """Yield the paths of values, each with its value; lists, and objects that are empty, are values."""
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from leaves(each, (*path, key))
    else:
        yield path, value
