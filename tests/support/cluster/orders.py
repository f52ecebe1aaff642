"""
The manifests of `examples/orders` for one test: in its namespace, with topics of its own, run by the image of the command line.

The applications' files lie in a ConfigMap, because the example's image is the user's to build.
"""

import json
from typing import Any

import yaml

from tests.support.cluster.manifests import Manifest
from tests.support.cluster.rota_manifests import SECURITY
from tests.support.tree import REPO

EXAMPLE = REPO / "examples" / "orders"
FILES = ("enricher.py", "shop.py", "audit.py")
GROUP, ENRICHER, SHOP = "orders-enricher", "orders-enricher", "orders-shop"
# A topic of the example, as text in its manifests and files.
TOPIC = "orders"


def orders(namespace: str, image: str) -> list[Manifest]:
    """The ConfigMap with the files, the ConsumerGroup and the two Deployments."""
    files = {name: with_topics((EXAMPLE / name).read_text(), namespace) for name in FILES}
    found: list[Manifest] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "app"}, "data": files}
    ]
    for manifest in yaml.safe_load_all((EXAMPLE / "orders.yaml").read_text()):
        manifest["metadata"]["namespace"] = namespace
        if manifest["kind"] == "Deployment":
            run_from_config_map(manifest, image)
        else:
            manifest["spec"]["topics"] = [f"{namespace}.{TOPIC}"]
        found.append(manifest)
    return found


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
