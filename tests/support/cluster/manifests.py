"""
Manifests of the pods that tests put into a cluster, without what is the same in all of them.

Called by tests. Programs are Python source, run by the image's own Python: what a pod does stands in the test.
"""

from typing import Any

Manifest = dict[str, Any]
# A pod of tests has nothing to save; where its end matters, the test says how long it may take.
GRACE_S = 1
# Labels of a namespace whose pods must be restricted.
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


def restricted_namespace(name: str) -> Manifest:
    """A namespace whose pods must be restricted."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": RESTRICTED}}


def container(name: str, image: str, program: str, **fields: object) -> Manifest:
    """A container that runs a Python program; `fields` are the container's own, such as `ports`."""
    return {"name": name, "image": image, "command": ["python3", "-u", "-c", program], **fields}


def pod(name: str, *containers: Manifest, **spec: object) -> Manifest:
    """A pod with the label app=`name`; `spec` adds to its specification."""
    return {"apiVersion": "v1", "kind": "Pod", **_template(name, containers, spec), "metadata": _named(name)}


def deployment(name: str, *containers: Manifest, replicas: int = 1, **spec: object) -> Manifest:
    """A Deployment of such pods."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _named(name),
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": _template(name, containers, spec),
        },
    }


def service(name: str, *, port: int, target: int, **spec: object) -> Manifest:
    """A Service in front of the pods with the label app=`name`; `spec` adds to its specification."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _named(name),
        "spec": {"selector": {"app": name}, "ports": [{"port": port, "targetPort": target}], **spec},
    }


def _named(name: str) -> Manifest:
    return {"name": name, "labels": {"app": name}}


def _template(name: str, containers: tuple[Manifest, ...], spec: dict[str, object]) -> Manifest:
    return {
        "metadata": {"labels": {"app": name}},
        "spec": {"terminationGracePeriodSeconds": GRACE_S, **spec, "containers": list(containers)},
    }
