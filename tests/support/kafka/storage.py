"""
The folder that a broker starts on, laid out for each node by `broker.py`.

Kafka starts on none that its formatter has not written, and the formatter is a Java of its own for seconds. So it runs
once for each set of users, and the nodes get copies.
"""

import shutil
from functools import partial
from pathlib import Path

from tests.support import cache
from tests.support.java import java
from tests.support.kafka.jars import POM, fetched
from tests.support.kafka.layout import Layout, Ports
from tests.support.kafka.security import Security
from tests.support.network import HERE
from tests.support.processes import Process, ProcessFailed

# Part of every broker's metadata; any 16 bytes in URL-safe base 64 will do.
CLUSTER_ID = "Um90YS10ZXN0cy1LYWZrYQ"
OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
FORMAT_S = 60


def lay_out(layout: Layout, number: int) -> None:
    """Make the node's folder, with the cluster's id and users in it."""
    users = layout.security.format_arguments()
    key = cache.key_of(POM, CLUSTER_ID, *users)
    formatted = cache.build_once("kafka-storage", key, partial(_format, layout.security))
    folder = layout.data(number)
    shutil.copytree(formatted / "node-1", folder)
    # Without the id of the directory: each node draws one of its own.
    (folder / "meta.properties").write_text(f"version=1\ncluster.id={CLUSTER_ID}\nnode.id={number}\n")


def _format(security: Security, folder: Path) -> None:
    layout = Layout((Ports(),), security, HERE, folder, folder)
    properties = folder / "server.properties"
    properties.write_text(layout.properties(1))
    command: list[str | Path] = [java().program, *OPTIONS, "-cp", f"{fetched()}/*", "kafka.tools.StorageTool",
                                 "format", "-t", CLUSTER_ID, "-c", properties, *security.format_arguments()]  # fmt: skip
    formatter = Process.start("Kafka's formatter", command, log=folder / "format.log")
    code = formatter.wait(within_s=FORMAT_S)
    if code != 0:
        raise ProcessFailed(f"Kafka's formatter ended with code {code}:\n{formatter.tail()}")
