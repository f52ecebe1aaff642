"""
Searches everything that people and monitors see of pods for secrets: logs, Events, objects, arguments of processes and metrics.

Secrets are the objects that may hold them, and so may variables of application containers, which are their author's own. A secret is
searched for as it is, as base64 has it, and as URLs and JSON write it.
"""

import base64
import json
import secrets
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from tests.support.cluster import Cluster
from tests.support.cluster.cluster import statuses_of

KINDS = frozenset({"log", "event", "status", "object", "argument", "metrics"})
# Of each part's page; see docs/architecture.md.
METRICS_PORTS = {"operator": 7082, "coordinator": 7071, "rota-sidecar": 7081}
SIDE_BY_SIDE = 4
TIMEOUT_S = 60
# Part of the path of a pod's control groups.
OF_PODS = "kubepods"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
# They may have variables of applications.
WITH_PODS = frozenset({"Pod", "Deployment", "StatefulSet", "ReplicaSet", "ControllerRevision"})


class Output(NamedTuple):
    """A text that others can read."""

    # One of KINDS.
    kind: str
    where: str
    text: str


class Finding(NamedTuple):
    """A secret in an output; it names the secret, without its value."""

    kind: str
    where: str
    secret: str


def planted() -> str:
    """Return a new secret, which no other text contains; it is a name that Kubernetes accepts, too."""
    return f"planted-{secrets.token_hex(12)}"


def find(hidden: Mapping[str, str], outputs: Iterable[Output]) -> list[Finding]:
    """Return each secret, by its name, that is in one of the outputs."""
    forms = {name: forms_of(value) for name, value in hidden.items()}
    return [
        Finding(output.kind, output.where, name)
        for output in outputs
        for name, texts in forms.items()
        if any(each in output.text for each in texts)
    ]


def forms_of(value: str) -> frozenset[str]:
    """Return how a secret may be written."""
    assert len(value) >= 12, "it could be part of another text"
    # Whichever byte it begins at: what comes before shifts the characters.
    encoded = (base64.b64encode(b" " * shift + value.encode()).decode() for shift in range(3))
    inner = (each[4:-4] for each in encoded)
    return frozenset({value, quote(value, safe=""), json.dumps(value)[1:-1], *inner})


def lines_of(name: str, pem: str) -> dict[str, str]:
    """Return the lines of a private key as secrets: a log has one of them, if any."""
    lines = [each for each in pem.splitlines() if len(each) >= 40 and "-----" not in each]
    assert lines
    return {f"{name}, line {number}": line for number, line in enumerate(lines, 1)}


def tokens_of(cluster: Cluster, pods: Iterable[Any]) -> dict[str, str]:
    """Return the signatures of the tokens that pods have mounted, by pod and volume: their nodes see the files."""
    return {
        f"token {file.parent.name} of {pod['metadata']['name']}": file.read_text().rpartition(".")[2]
        for pod in pods
        for file in cluster.projected_volumes(pod).glob("*/token")
    }


def outputs(cluster: Cluster, namespaces: Sequence[str]) -> list[Output]:
    """Read everything that is to be seen of some namespaces now."""
    pods = [each for name in namespaces for each in cluster.get("pods", namespace=name)["items"]]
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        pages = pool.map(lambda each: page(cluster, *each), metrics_ports(pods))
        return [
            *(each for pod in pods for each in logs(cluster, pod)),
            *(each for name in namespaces for each in objects(cluster, name)),
            *arguments(),
            *pages,
        ]


def logs(cluster: Cluster, pod: Any) -> Iterator[Output]:  # noqa: ANN401  parsed JSON
    """Yield the logs of each container of a pod, and of the one before."""
    metadata = pod["metadata"]
    for each in statuses_of(pod):
        lives = [()] if "waiting" not in each["state"] else []
        if "terminated" in each.get("lastState", {}):
            lives.append(("--previous",))  # type: ignore[arg-type]
        for life in lives:
            text = cluster.kubectl(
                "logs",
                metadata["name"],
                f"--namespace={metadata['namespace']}",
                f"--container={each['name']}",
                *life,
            )
            yield Output("log", f"{metadata['namespace']}/{metadata['name']}/{each['name']}", text)


def objects(cluster: Cluster, namespace: str) -> Iterator[Output]:
    """Yield each object of a namespace, its status apart; Secrets left out."""
    kinds = cluster.kubectl("api-resources", "--namespaced", "--verbs=list", "--output=name").split()
    listed = ",".join(each for each in kinds if each != "secrets")
    for each in json.loads(cluster.kubectl("get", listed, f"--namespace={namespace}", "--output=json"))[
        "items"
    ]:
        where = f"{namespace}/{each['kind']}/{each['metadata']['name']}"
        if "status" in each:
            yield Output("status", where, json.dumps(each.pop("status")))
        if each["kind"] in WITH_PODS:
            without_variables(each)
            # By kubectl, for its author.
            each["metadata"].get("annotations", {}).pop(LAST_APPLIED, None)
        yield Output("event" if each["kind"] == "Event" else "object", where, json.dumps(each))


def without_variables(item: Any) -> None:  # noqa: ANN401  parsed JSON
    """Remove the variables of application containers, wherever they are in an object; those of sidecars stay."""
    if isinstance(item, dict):
        for container in item.get("containers", ()):
            container.pop("env", None)
        for each in item.values():
            without_variables(each)


def arguments() -> Iterator[Output]:
    """Yield the arguments of each process that runs in a pod of any cluster of this machine."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if OF_PODS in (process / "cgroup").read_text():
                text = (process / "cmdline").read_text().replace("\0", " ")
                yield Output("argument", process.name, text)
        except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            continue


def metrics_ports(pods: Iterable[Any]) -> Iterator[tuple[str, str, int]]:
    """Yield NAMESPACE/POD/CONTAINER, address and port of each page with metrics."""
    for pod in pods:
        for each in statuses_of(pod):
            port = METRICS_PORTS.get(each["name"])
            if port is not None and "running" in each["state"] and each.get("started"):
                metadata = pod["metadata"]
                where = f"{metadata['namespace']}/{metadata['name']}/{each['name']}"
                yield where, pod["status"]["podIP"], port


def page(cluster: Cluster, where: str, host: str, port: int) -> Output:
    """Read a page with metrics."""
    with (
        cluster.forward(host, port) as outside,
        urllib.request.urlopen(f"http://127.0.0.1:{outside}/metrics", timeout=TIMEOUT_S) as response,
    ):
        return Output("metrics", where, response.read().decode())
