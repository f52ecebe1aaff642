"""
Applications of any user attach to the sidecar of their pod; a container without the socket's volume does not, nor does another pod.

One ConsumerGroup with one pod for each user, all on one topic; a pod of another namespace makes the topic and is the stranger.
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.support.cluster import WITHIN_S, Cluster, images
from tests.support.cluster.manifests import Manifest, container, deployment, pod
from tests.support.cluster.rota_manifests import COORDINATOR_ADDRESS
from tests.support.processes import wait_for

# The first of them starts the cluster, loads four images and waits for Rota's parts.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1_200)]

POLL_S = 0.2
SERVERS, TOPIC = f"rota://{COORDINATOR_ADDRESS}", "users"
STRANGER = "stranger"
HTTP_PORT = 7081
# Of a wait for a drain that never begins, two thirds.
DRAIN_S = 3
MEMORY = "48Mi"
# Of the application service: over gRPC, and in frames.
APPLICATION_SOCKETS = ["app.sock", "app.sock.frames"]
# The application's security context. Root has no capability here that would open files of other users.
USERS: dict[str, Manifest | None] = {
    "root": {"runAsUser": 0, "runAsGroup": 0, "capabilities": {"drop": ["ALL"]}},
    "user-1000": {"runAsUser": 1000, "runAsGroup": 1000},
    "user-of-the-sidecar": {"runAsUser": 65532, "runAsGroup": 65532},
    "user-of-the-image": None,
}
# Its pod has a second container, of root with its usual capabilities, without the mount of the socket.
WITHOUT_MOUNT = "root"
# A group whose sidecar has an image of its own, which no node has.
NOT_PULLED, NO_IMAGE, PULL_SECRET = "not-pulled", "localhost/rota-sidecar:no-such", "no-such-login"

APPLICATION = """
import os, rota
with rota.Consumer() as consumer:
    for record in consumer:
        print(os.getuid(), record.value.decode(), flush=True)
"""
SLEEP = "import signal\nsignal.pause()"
PRODUCE = f"""
import sys, rota
rota.create_topics({SERVERS!r}, {{{TOPIC!r}: 1}})
with rota.Producer({SERVERS!r}) as producer:
    producer.send({TOPIC!r}, sys.argv[1].encode())
"""
# Prints listening TCP ports of the pod, its unix sockets, and those of them that can be connected to from here.
LOOK_AROUND = """
import json, socket
def rows(name):
    with open(f"/proc/net/{name}") as file:
        return [line.split() for line in file.readlines()[1:]]
LISTEN, ACCEPTS = "0A", "00010000"
ports = sorted({int(row[1].rpartition(":")[2], 16) for name in ("tcp", "tcp6") for row in rows(name) if row[3] == LISTEN})
sockets = sorted({row[7] for row in rows("unix") if row[3] == ACCEPTS and len(row) > 7})
reached = []
for path in sockets:
    with socket.socket(socket.AF_UNIX) as tried:
        if tried.connect_ex("\\0" + path[1:] if path.startswith("@") else path) == 0:
            reached.append(path)
print(json.dumps([ports, sockets, reached]))
"""
# Tries to begin a drain, and to reach a gRPC service; prints the statuses, and how the port answers HTTP/2.
INTRUDE = """
import http.client, json, socket, sys
host, port = sys.argv[1], int(sys.argv[2])
def open(method, path):
    connection = http.client.HTTPConnection(host, port, timeout=60)
    connection.request(method, path)
    return connection
waiting = open("GET", "/drained")
paths = ("/drain", "/drain?for_ms=600000&then=leave")
found = {f"{method} {path}": open(method, path).getresponse().status
         for method in ("GET", "POST", "PUT") for path in paths}
found["POST /drained"] = open("POST", "/drained").getresponse().status
with socket.create_connection((host, port), timeout=60) as dialled:
    dialled.sendall(b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
    found["HTTP/2"] = dialled.recv(1024).decode(errors="replace").partition("\\r\\n")[0]
found["GET /drained"] = waiting.getresponse().status
print(json.dumps(found))
"""
METRICS = """
import sys, urllib.request
page = urllib.request.urlopen(f"http://{sys.argv[1]}:{sys.argv[2]}/metrics").read().decode()
names = ("rota_member_state", "rota_assigned_partitions", "rota_rebalances_total")
print(*sorted(line for line in page.splitlines() if line.startswith(names)), sep="\\n")
"""


class Members(NamedTuple):
    """The pods of the groups, by the names of these, in one namespace; the stranger is in another one."""

    cluster: Cluster
    namespace: str
    pods: dict[str, str]
    """Name of the pod of each group."""

    def get(self, resource: str, *flags: str) -> Any:  # noqa: ANN401  as it is stored
        namespace = f"--namespace={self.namespace}"
        return json.loads(self.cluster.kubectl("get", resource, namespace, "--output=json", *flags))

    def wait(self, resource: str, condition: str) -> None:
        self.cluster.wait(resource, condition, namespace=self.namespace)

    def pod(self, group: str) -> Any:  # noqa: ANN401
        return self.get(f"pod/{self.pods[group]}")

    def generation(self, group: str) -> int:
        """Generation of a group."""
        found: int = self.get(f"consumergroup/{group}")["status"]["generation"]
        return found

    def run(self, group: str, container: str, program: str, *arguments: str) -> str:
        """Run a Python program in a container of a group's pod."""
        return run_in(self.cluster, self.namespace, self.pods[group], container, program, *arguments)

    def be_stranger(self, program: str, *arguments: str) -> str:
        """Run a Python program in the stranger's pod."""
        return run_in(self.cluster, strangers(self.namespace), STRANGER, STRANGER, program, *arguments)

    def wait_received(self, group: str, said: str) -> None:
        """Wait until the application of the group has received a record."""
        logs = ("logs", self.pods[group], "--container=app", f"--namespace={self.namespace}")
        wait_for(
            f"{said} at {group}",
            lambda: self._has_started(group) and said in self.cluster.kubectl(*logs).splitlines(),
            within_s=WITHIN_S,
            poll_s=POLL_S,
        )

    def _has_started(self, group: str) -> bool:
        """Return whether the application's container has run at all: before, it has no log."""
        return any(
            each["name"] == "app" and ("waiting" not in each["state"] or each["restartCount"] > 0)
            for each in self.pod(group)["status"].get("containerStatuses", ())
        )


def run_in(cluster: Cluster, namespace: str, pod: str, container: str, program: str, *arguments: str) -> str:
    """Run a Python program in a container."""
    where = ("exec", pod, f"--namespace={namespace}", f"--container={container}")
    return cluster.kubectl(*where, "--", "python3", "-c", program, *arguments)


def strangers(namespace: str) -> str:
    """The namespace of the stranger."""
    return f"{namespace}-strangers"


@pytest.fixture(scope="module")
def members(rota_cluster: Cluster) -> Iterator[Members]:
    """All groups are ready: each application has attached."""
    namespace, image = "application-users", images.part("cli").name
    for each in (namespace, strangers(namespace)):
        rota_cluster.create_namespace(each)
    stranger = pod(STRANGER, container(STRANGER, image, SLEEP))
    rota_cluster.apply(stranger, namespace=strangers(namespace))
    rota_cluster.wait(f"pod/{STRANGER}", "condition=Ready", namespace=strangers(namespace))
    run_in(rota_cluster, strangers(namespace), STRANGER, STRANGER, PRODUCE, "first")
    rota_cluster.apply(list(manifests(image)), namespace=namespace)
    rota_cluster.kubectl(
        "wait", *(f"consumergroup/{name}" for name in USERS), "--for=condition=Ready",
        f"--namespace={namespace}", f"--timeout={WITHIN_S}s",
    )  # fmt: skip
    found = rota_cluster.get("pods", namespace=namespace)["items"]
    pods = {each["metadata"]["labels"]["app"]: each["metadata"]["name"] for each in found}
    yield Members(rota_cluster, namespace, pods)
    rota_cluster.kubectl("delete", "namespace", namespace, strangers(namespace), "--wait=false")


def manifests(image: str) -> Iterator[Manifest]:
    """The workloads, which have no pods before they are adopted, and their groups."""
    for name, user in USERS.items():
        containers = [
            container("app", image, APPLICATION, **({} if user is None else {"securityContext": user}))
        ]
        if name == WITHOUT_MOUNT:
            containers.insert(0, container("other", image, SLEEP, securityContext={"runAsUser": 0}))
        yield deployment(name, *containers, replicas=0)
        yield group(name)
    yield deployment(NOT_PULLED, container("app", image, SLEEP), replicas=0)
    yield group(NOT_PULLED, image=NO_IMAGE, imagePullPolicy="Never", imagePullSecrets=[PULL_SECRET])


def group(name: str, **sidecar: object) -> Manifest:
    """A ConsumerGroup with one member."""
    memory = {"memory": MEMORY}
    return {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "ConsumerGroup",
        "metadata": {"name": name},
        "spec": {
            "bootstrapServers": [SERVERS],
            "topics": [TOPIC],
            "replicas": 1,
            "scaleTargetRef": {"name": name},
            # No member is lost, however busy the machine is.
            "membership": {"sessionTimeoutSeconds": 20},
            "sidecar": {
                "container": "app",
                "terminationDrainSeconds": DRAIN_S,
                "resources": {"requests": {**memory, "cpu": "10m"}, "limits": {"memory": "256Mi"}},
                **sidecar,
            },
        },
    }


def test_the_kubelet_runs_the_sidecar_as_the_spec_says(members: Members) -> None:
    [sidecar] = members.pod("user-1000")["status"]["initContainerStatuses"]
    assert sidecar["resources"] == {
        "requests": {"cpu": "10m", "memory": MEMORY},
        "limits": {"memory": "256Mi"},
    }

    members.wait(f"deployment/{NOT_PULLED}", "jsonpath={.status.replicas}=1")
    reason = "{.status.initContainerStatuses[0].state.waiting.reason}"
    [pod] = members.get("pods", f"--selector=app={NOT_PULLED}")["items"]
    members.wait(f"pod/{pod['metadata']['name']}", f"jsonpath={reason}=ErrImageNeverPull")
    [sidecar] = members.get(f"pod/{pod['metadata']['name']}")["status"]["initContainerStatuses"]
    assert sidecar["image"] == NO_IMAGE

    def is_login_missed() -> bool:
        events = members.get("events", "--field-selector=reason=FailedToRetrieveImagePullSecret")["items"]
        return any(PULL_SECRET in each["message"] for each in events)

    wait_for("the kubelet looks for the login", is_login_missed, within_s=WITHIN_S, poll_s=POLL_S)


@pytest.mark.parametrize("name", USERS)
def test_an_application_of_any_user_attaches_to_the_sidecar_of_its_pod(members: Members, name: str) -> None:
    user = {"root": 0, "user-1000": 1000}.get(name, 65532)
    members.wait_received(name, f"{user} first")


def test_a_container_without_the_mount_reaches_neither_the_application_service_nor_the_drain(
    members: Members,
) -> None:
    ports, sockets, reached = json.loads(members.run(WITHOUT_MOUNT, "other", LOOK_AROUND))
    # Containers of a pod share its network: they see each other's sockets, and need a path to open one.
    assert {path.rpartition("/")[2] for path in sockets} == {*APPLICATION_SOCKETS, "drain.sock"}
    assert reached == []
    assert ports == [HTTP_PORT]
    assert_refused(json.loads(members.run(WITHOUT_MOUNT, "other", INTRUDE, "127.0.0.1", str(HTTP_PORT))))


def test_an_application_does_not_reach_the_drain(members: Members) -> None:
    _, _, reached = json.loads(members.run(WITHOUT_MOUNT, "app", LOOK_AROUND))
    assert [path.rpartition("/")[2] for path in reached] == APPLICATION_SOCKETS


def test_another_pod_drains_no_member(members: Members) -> None:
    address = members.pod("user-1000")["status"]["podIP"], str(HTTP_PORT)
    before = members.generation("user-1000"), members.be_stranger(METRICS, *address)
    assert_refused(json.loads(members.be_stranger(INTRUDE, *address)))
    members.be_stranger(PRODUCE, "after the intruder")
    members.wait_received("user-1000", "1000 after the intruder")
    members.wait("consumergroup/user-1000", "condition=Ready")
    assert (members.generation("user-1000"), members.be_stranger(METRICS, *address)) == before


def assert_refused(answers: dict[str, Any]) -> None:
    """Nothing has begun a drain: who waits for one is told so, and there is no gRPC."""
    assert answers.pop("HTTP/2").startswith("HTTP/1.1 4")
    assert answers.pop("GET /drained") == 504
    assert set(answers.values()) <= {404, 405}
