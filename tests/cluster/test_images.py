"""Rota's images, from the Dockerfile that users build, run as the user that restricted clusters ask for."""

import pytest

from tests.support.cluster import Cluster, images
from tests.support.cluster.manifests import pod

pytestmark = pytest.mark.cluster

WHO = "import os; print(os.getuid(), os.getgid())"


def test_an_examples_image_runs_its_files_as_nobody(cluster: Cluster, namespace: str) -> None:
    image = images.example("exactly-once")
    cluster.load_image(image)
    # Without a command, as `docker run` does; a manifest of an example names the same files in its command.
    program = "import os, rota, biller, till; print(os.getuid(), rota.__name__)"
    container = {"name": "app", "image": image.name, "args": ["-c", program]}
    cluster.apply(pod("example", container, restartPolicy="Never"), namespace=namespace)
    cluster.wait("pod/example", "jsonpath={.status.phase}=Succeeded", namespace=namespace)
    assert cluster.kubectl("logs", "--namespace", namespace, "example") == "65532 rota\n"


def test_the_sidecar_image_runs_as_nobody_and_says_its_version(cluster: Cluster, namespace: str) -> None:
    image = images.part("sidecar")
    cluster.load_image(image)
    # Kubernetes takes the user from the image, but not the group; and a pod's own settings would ask for both.
    common = {"image": image.name, "securityContext": {"runAsNonRoot": True, "runAsGroup": 65532}}
    sidecar = {"name": "sidecar", "args": ["--version"], **common}
    who = {"name": "who", "command": ["python", "-c", WHO], **common}
    cluster.apply(pod("rota", sidecar, who, restartPolicy="Never"), namespace=namespace)
    cluster.wait("pod/rota", "jsonpath={.status.phase}=Succeeded", namespace=namespace)
    assert cluster.kubectl("logs", "--namespace", namespace, "rota", "--container", "who") == "65532 65532\n"
    version = cluster.kubectl("logs", "--namespace", namespace, "rota", "--container", "sidecar")
    assert version.startswith("rota-sidecar ")
