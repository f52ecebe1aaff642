"""Templates of SparkApplications of both kinds, and groups that have them."""

import copy
from typing import Any

from rota_operator.reconcile.group import group_of
from rota_operator.reconcile.sidecar import SidecarSpec
from rota_operator.reconcile.spark.kinds import APACHE, KUBEFLOW, SPARK_KIND
from tests.operator.reconcile.worlds import SETTINGS, resource

Json = Any
KUBEFLOW_TEMPLATE: Json = {
    "type": "Python",
    "mode": "cluster",
    "sparkVersion": "4.3.0",
    "image": "shop-spark:1",
    "mainApplicationFile": "local:///app/orders.py",
    "arguments": ["--table", "orders"],
    "restartPolicy": {"type": "Always"},
    "driver": {"cores": 1, "memory": "512m", "serviceAccount": "spark"},
    "executor": {"instances": 1, "cores": 1, "memory": "512m"},
}
APACHE_TEMPLATE: Json = {
    "pyFiles": "local:///app/orders.py",
    "driverArgs": ["--table", "orders"],
    "runtimeVersions": {"sparkVersion": "4.3.0"},
    "sparkConf": {
        "spark.executor.instances": "1",
        "spark.kubernetes.container.image": "shop-spark:1",
        "spark.kubernetes.authenticate.driver.serviceAccountName": "spark",
    },
    "applicationTolerations": {"restartConfig": {"restartPolicy": "Always"}},
}
TEMPLATES: dict[str, Json] = {KUBEFLOW: KUBEFLOW_TEMPLATE, APACHE: APACHE_TEMPLATE}


def template(api_version: str, **fields: Json) -> Json:
    """The template of a kind, with other fields; None removes one."""
    found = {**copy.deepcopy(TEMPLATES[api_version]), **fields}
    return {name: value for name, value in found.items() if value is not None}


def spark_group(api_version: str = KUBEFLOW, /, *, given: Json = None, per: int = 1, **spec: Json) -> Json:
    """A ConsumerGroup with SparkApplications."""
    spark = {
        "enabled": True,
        "apiVersion": api_version,
        "partitionsPerApplication": per,
        "template": {"spec": template(api_version) if given is None else given},
    }
    offsets = {"commit": {"mode": "external"}}
    return resource(**{"scaleTargetRef": None, "spark": spark, "offsets": offsets, **spec})


def wanted(api_version: str = KUBEFLOW, /, *, given: Json = None, **spec: Json) -> SidecarSpec:
    """Inputs of an application of such a group."""
    group = group_of(spark_group(api_version, given=given, **spec))
    return SidecarSpec(group, SPARK_KIND, "rota-sidecar:1", SETTINGS, (1, 35))
