"""Pods live as Rota's design relies on: found by name, only when ready, and the app before its sidecar."""

import pytest

from tests.support.cluster import Cluster
from tests.support.cluster.manifests import Manifest, container, deployment, pod, service
from tests.support.processes import Process

pytestmark = pytest.mark.cluster

PORT = 8080
# Ready only once somebody made the file; answers anybody at any time.
APP = f"""
import http.server, os, signal, sys, time
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(503 if self.path == "/ready" and not os.path.exists("/tmp/ready") else 200)
        self.end_headers()
        self.wfile.write(b"here is the app")
    def log_message(self, *_): pass
def stop(*_):
    time.sleep(1)  # the work that is left: a sidecar that were stopped meanwhile would be a second early
    print("stopped", time.time_ns())
    os._exit(0)
signal.signal(signal.SIGTERM, stop)
print("started", time.time_ns())
http.server.ThreadingHTTPServer(("", {PORT}), Answer).serve_forever()
"""
SIDECAR = """
import signal, time
def stop(*_):
    print("stopped", time.time_ns())
    raise SystemExit
signal.signal(signal.SIGTERM, stop)
print("started", time.time_ns())
while True: signal.pause()
"""
FETCH = """
import sys, time, urllib.request
# A node learns of a change of a Service a moment after everybody else.
deadline = time.monotonic() + 60
while True:
    try:
        print(urllib.request.urlopen(sys.argv[1], timeout=2).read().decode())
        break
    except OSError:
        if time.monotonic() > deadline: raise
        time.sleep(0.05)
"""
IDLE = "import signal; signal.pause()"


def web(cluster: Cluster) -> list[Manifest]:
    """A Deployment with a native sidecar and its Service."""
    app = container(
        "app", cluster.base_image, APP,
        readinessProbe={"httpGet": {"path": "/ready", "port": PORT}, "periodSeconds": 1},
    )  # fmt: skip
    sidecar = container("sidecar", cluster.base_image, SIDECAR, restartPolicy="Always")
    return [
        deployment("web", app, initContainers=[sidecar], terminationGracePeriodSeconds=20),
        service("web", port=80, target=PORT),
    ]


def start_web(cluster: Cluster, namespace: str) -> str:
    """The name of its pod, which runs and is not ready."""
    cluster.apply(web(cluster), namespace=namespace)
    cluster.wait("deployment/web", "jsonpath={.status.unavailableReplicas}=1", namespace=namespace)
    [name] = [found["metadata"]["name"] for found in cluster.get("pods", namespace=namespace)["items"]]
    cluster.wait(f"pod/{name}", "jsonpath={.status.phase}=Running", namespace=namespace)
    return str(name)


def endpoint_is_ready(cluster: Cluster, namespace: str) -> bool:
    [slice_] = cluster.get("endpointslices", namespace=namespace)["items"]
    [endpoint] = slice_["endpoints"]
    return bool(endpoint["conditions"]["ready"])


def test_a_service_leads_to_a_pod_once_it_is_ready(cluster: Cluster, namespace: str) -> None:
    web_pod = start_web(cluster, namespace)
    cluster.apply(pod("client", container("client", cluster.base_image, IDLE)), namespace=namespace)
    cluster.wait("pod/client", "condition=Ready", namespace=namespace)
    assert not endpoint_is_ready(cluster, namespace)

    cluster.kubectl(
        "exec", "--namespace", namespace, web_pod, "--container", "app", "--", "touch", "/tmp/ready"
    )
    cluster.wait("deployment/web", "condition=Available", namespace=namespace)
    assert endpoint_is_ready(cluster, namespace)
    for name in ("web", f"web.{namespace}.svc.cluster.local"):
        answer = cluster.kubectl(
            "exec", "--namespace", namespace, "client", "--", "python3", "-c", FETCH, f"http://{name}/"
        )
        assert answer == "here is the app\n"


def test_a_native_sidecar_stops_after_its_app(cluster: Cluster, namespace: str) -> None:
    web_pod = start_web(cluster, namespace)
    app = follow(cluster, namespace, web_pod, "app")
    sidecar = follow(cluster, namespace, web_pod, "sidecar")

    cluster.kubectl("delete", "deployment", "web", "--namespace", namespace, "--cascade=foreground")
    assert events(sidecar)["started"] < events(app)["started"]
    assert events(app)["stopped"] < events(sidecar)["stopped"]


def follow(cluster: Cluster, namespace: str, web_pod: str, name: str) -> Process:
    """Of the container's output, all from its start; it ends with the container."""
    follower = cluster.start_kubectl(
        "logs", "--namespace", namespace, "--follow", web_pod, "--container", name
    )
    follower.wait_until(lambda: "started" in follower.log.read_text(), within_s=60)
    return follower


def events(follower: Process) -> dict[str, int]:
    """Report of the container and its time, after the container has ended."""
    assert follower.wait(within_s=60) == 0
    lines = follower.log.read_text().splitlines()
    return {what: int(when) for what, when in (line.split() for line in lines)}
