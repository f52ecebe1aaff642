"""
A second group on the orders of `spark_shop`: drivers without executors, which write down each record that they have read.

Called by `test_spark_applications` for what needs several applications, or that nothing is repeated: one Java for each of them.
"""

from typing import Any, NamedTuple

from tests.cluster.spark_shop import PARTITIONS, SHOP, TOPIC, SparkShop
from tests.support.cluster.manifests import Manifest
from tests.support.cluster.rota_manifests import COORDINATOR_ADDRESS
from tests.support.rota_images import SPARK_EXAMPLE

NAME = "order-readers"
SERVERS = f"rota://{COORDINATOR_ADDRESS}"
FOLDER, FILE = "/reader", "reader.py"
PROGRAM = f'''
"""Write down partition and offset of each record; with the argument `once` of those that are there now."""
import os, sys
import psycopg, rota_spark
from pyspark.sql import SparkSession

def write(records):
    found = records.select("partition", "offset").collect()
    rows = [(os.environ["POD_UID"], row.partition, row.offset) for row in found]
    with psycopg.connect(os.environ["ORDERS_DATABASE"]) as connection, connection.cursor() as cursor:
        cursor.executemany("INSERT INTO readings (pod, log_partition, log_offset) VALUES (%s, %s, %s)", rows)

# No executors: the driver's own Java is enough.
spark = SparkSession.builder.master("local[1]").getOrCreate()
settings = rota_spark.Settings(bootstrap_servers="{SERVERS}")
trigger = {{"availableNow": True}} if "once" in sys.argv else {{"processingTime": "1 second"}}
with rota_spark.process(spark, write, settings, trigger=trigger) as query:
    query.await_termination()
spark.stop()
'''
TABLE = """CREATE TABLE readings (
    number BIGSERIAL PRIMARY KEY, pod TEXT NOT NULL, log_partition INTEGER NOT NULL, log_offset BIGINT NOT NULL
)"""


def manifests(image: str) -> list[Manifest]:
    """Return the ConfigMap with the program, and the group with one application."""
    program = {"name": "reader", "mountPath": FOLDER}
    uid = {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}
    container = {"name": "spark-kubernetes-driver", "env": [uid], "volumeMounts": [program]}
    pod = {
        "containers": [container],
        "volumes": [{"name": "reader", "configMap": {"name": NAME}}],
    }
    database = {"ORDERS_DATABASE": {"name": "orders-database", "key": "url"}}
    template = {
        "type": "Python",
        "mode": "cluster",
        "image": image,
        "sparkVersion": "4.3.0",
        "mainApplicationFile": f"local://{FOLDER}/{FILE}",
        "restartPolicy": {"type": "Always"},
        # For those who look for secrets.
        "sparkConf": {
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": "file:///tmp",
            "spark.eventLog.enabled": "true",
        },
        "driver": {
            "cores": 1,
            "memory": "512m",
            "serviceAccount": "spark",
            "envSecretKeyRefs": database,
            "template": {"spec": pod},
        },
        "executor": {"instances": 1, "cores": 1, "memory": "512m"},
    }
    metadata = {"name": NAME, "namespace": SHOP}
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {FILE: PROGRAM}},
        {
            "apiVersion": "rota.dev/v1alpha1",
            "kind": "ConsumerGroup",
            "metadata": metadata,
            "spec": {
                "bootstrapServers": [SERVERS],
                "topics": [TOPIC],
                "offsets": {"commit": {"mode": "sync"}},
                "spark": {
                    "enabled": True,
                    "partitionsPerApplication": PARTITIONS,
                    "template": {"spec": template},
                },
            },
        },
    ]


class Readers(NamedTuple):
    """The group, and what its drivers have read."""

    group: SparkShop

    def last(self) -> int:
        """Number of the last reading."""
        [(number,)] = self.group.rows("SELECT coalesce(max(number), 0) FROM readings")
        return int(number)

    def repeated(self, after: int) -> int:
        """Readings after that one, of records that had been read before."""
        first = "SELECT log_partition, log_offset, min(number) AS number FROM readings GROUP BY log_partition, log_offset"
        [(number,)] = self.group.rows(
            f"SELECT count(*) FROM readings AS late JOIN ({first}) AS early USING (log_partition, log_offset) "
            f"WHERE late.number > {after} AND late.number > early.number"
        )
        return int(number)

    def partitions_of(self, pod: Any, after: int = 0) -> set[int]:  # noqa: ANN401  as it is stored
        """Partitions that a driver has read after that reading."""
        uid = pod["metadata"]["uid"]
        found = self.group.rows(
            f"SELECT DISTINCT log_partition FROM readings WHERE pod = '{uid}' AND number > {after}"
        )
        return {int(number) for (number,) in found}


def open_readers(shop: SparkShop) -> Readers:
    """Apply the group, and wait until its only application has read from each partition."""
    shop.execute(TABLE)
    group = shop.other(NAME)
    group.cluster.apply(manifests(group.images[SPARK_EXAMPLE].name), namespace=SHOP)
    group.wait_shared(1)
    readers = Readers(group)
    group.wait(
        "all partitions are read", lambda: len(readers.partitions_of(group.drivers()[0])) == PARTITIONS
    )
    return readers
