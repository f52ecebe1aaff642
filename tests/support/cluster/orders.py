"""
The manifests of `examples/orders` for one test: in its namespace, with topics of its own, run by the image of the command line.

The applications' files lie in a ConfigMap, because the example's image is the user's to build.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.support.cluster.cluster import WITHIN_S
from tests.support.cluster.manifests import Manifest
from tests.support.cluster.rota_manifests import SECURITY
from tests.support.processes import ProcessFailed
from tests.support.tree import REPO

EXAMPLE = REPO / "examples" / "orders"
FILES = ("enricher.py", "shop.py", "audit.py")
GROUP, ENRICHER, SHOP = "orders-enricher", "orders-enricher", "orders-shop"
# Less than in the file: orders run as long as a module does, and take time from the tests beside it.
ORDERS_A_SECOND = 5
# Longer than a busy machine freezes a member, takes to install a release again, or is without a node: in a session that is over,
# what is in hand is processed twice. Longer than any wait too: a member goes only by leaving the group.
SESSION_S = 900
# A topic of the example, as text in its manifests and files.
TOPIC = "orders"
# Run beside the example's files, after the shop has closed: audits until every order has its price.
AUDIT = """
import sys, time, audit
from rota.errors import Disconnected
while True:
    try:
        unprocessed, counts = audit.count(sys.argv[1])
        if not unprocessed:
            break
        print("counted:", counts, file=sys.stderr, flush=True)
    except Disconnected:
        print("counting again: the coordinator was not reached", file=sys.stderr, flush=True)
    time.sleep(0.5)
print(counts)
"""
# The same of now, while orders are sold.
COUNTS = """
import sys, audit
print(audit.count(sys.argv[1])[1])
"""
# Run in a container of the example on Rota's log: prints the longest time in seconds without an order that was priced, after one time and
# until after another one, both in ms.
PAUSE = """
import itertools, sys, rota
address, since_ms, until_ms = sys.argv[1], *map(int, sys.argv[2:])
with rota.Topics(address) as topics:
    (described,) = topics.describe(["priced-orders"])
positions = {("priced-orders", number): 0 for number in range(described.partitions)}
times, behind = [since_ms], True
with rota.LogReader(address) as reader:
    while behind or max(times) <= until_ms:
        behind = False
        for fetched in reader.fetch(positions, max_wait_ms=200):
            times += [record.timestamp_ms for record in fetched if record.timestamp_ms > since_ms]
            positions[fetched.topic, fetched.partition] = fetched.next_offset
            behind = behind or fetched.next_offset < fetched.high_watermark
print(max(after - before for before, after in itertools.pairwise(sorted(times))) / 1000)
"""


def orders(namespace: str, image: str, a_second: int | None = ORDERS_A_SECOND) -> list[Manifest]:
    """Return the ConfigMap with the files, the ConsumerGroup and the two Deployments; `a_second` is None for the file's own rate."""
    files = {name: with_topics((EXAMPLE / name).read_text(), namespace) for name in FILES}
    found: list[Manifest] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "app"}, "data": files}
    ]
    for manifest in yaml.safe_load_all((EXAMPLE / "orders.yaml").read_text()):
        manifest["metadata"]["namespace"] = namespace
        if manifest["kind"] == "Deployment":
            run_from_config_map(manifest, image)
            if manifest["metadata"]["name"] == SHOP and a_second is not None:
                [container] = manifest["spec"]["template"]["spec"]["containers"]
                container["env"] = [{"name": "ORDERS_A_SECOND", "value": str(a_second)}]
        else:
            manifest["spec"]["topics"] = [f"{namespace}.{TOPIC}"]
        found.append(manifest)
    return found


def move_to_kafka(
    manifests: list[Manifest], servers: str, auth: Manifest | None = None, config: Manifest | None = None
) -> None:
    """
    Let the example run on Kafka's brokers, at this address.

    `auth` is the group's; `config` is the environment's source of the applications' own settings of librdkafka.
    """
    for manifest in manifests:
        if manifest["kind"] == "ConsumerGroup":
            membership = {"sessionTimeoutSeconds": SESSION_S}
            manifest["spec"] |= {"bootstrapServers": servers.split(","), "membership": membership}
            if auth is not None:
                manifest["spec"]["auth"] = auth
        elif manifest["kind"] == "Deployment":
            [container] = manifest["spec"]["template"]["spec"]["containers"]
            *program, _ = container["command"]
            container["command"] = [*program, servers]
            if config is not None:
                container.setdefault("env", []).append({"name": "KAFKA_CONFIG", "valueFrom": config})


def audit(namespace: str, servers: str, folder: Path, environment: Mapping[str, str]) -> str:
    """
    Count the orders on this machine, after the shop has closed, when every order has its price: what `audit.py` prints.

    Raises ProcessFailed with what was counted last if one has none within the time.
    """
    (folder / "audit.py").write_text(with_topics((EXAMPLE / "audit.py").read_text(), namespace))
    try:
        done = subprocess.run(
            [sys.executable, "-c", AUDIT, servers],
            cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, timeout=WITHIN_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired as expired:
        said = (expired.stderr or b"nothing was counted").decode().splitlines()[-1]
        raise ProcessFailed(f"orders without a price after {WITHIN_S} s; {said}") from None
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def run_from_config_map(manifest: Any, image: str) -> None:  # noqa: ANN401  parsed YAML
    """Let the container run its files from the ConfigMap, as the user that restricted clusters ask for."""
    pod = manifest["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": "app", "configMap": {"name": "app"}}]
    [container] = pod["containers"]
    container |= {
        "image": image,
        "workingDir": "/app",
        "securityContext": SECURITY,
        "volumeMounts": [{"name": "app", "mountPath": "/app"}],
    }


def with_topics(text: str, namespace: str) -> str:
    """Replace the names of topics, which a cluster's only log has once."""
    for topic in ("priced-orders", TOPIC):
        text = text.replace(f'"{topic}"', json.dumps(f"{namespace}.{topic}"))
    return text
