"""
A whole cluster: a control plane, two nodes or none, and how tests reach them.

Opened by the `cluster` fixture for a test run, and by `detached` for people. It lives as long as the process
that opened it; what a killed one leaves behind, files and control groups, `remove_leftovers` takes away.
"""

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from tests.support import cache, workdir
from tests.support.cluster import addresses, audit, cgroups
from tests.support.cluster.api import ApiReader
from tests.support.cluster.control_plane import ControlPlane, roles
from tests.support.cluster.forward import forward
from tests.support.cluster.images import Image
from tests.support.cluster.kubectl import Kubectl
from tests.support.cluster.machine import FIRST_PROCESS, Machine
from tests.support.cluster.node import Node
from tests.support.cluster.pki import ADMIN, Pki
from tests.support.cluster.prepared import Prepared
from tests.support.cluster.process_identity import Identity
from tests.support.cluster.runtime import finish
from tests.support.network import NetworkNamespace
from tests.support.processes import Process, wait_for

# Of each wait for what a cluster does: for hangs only, however busy the machine is.
WITHIN_S = 600
# Of HorizontalPodAutoscalers. Kubernetes' own is 15 s.
AUTOSCALER_SYNC_S = 1
KUBECONFIG = "kubeconfig"
MACHINES = "machines"
# Of kubelets: a pod's folder has its UID as name.
PODS, PROJECTED = "/var/lib/kubelet/pods", "kubernetes.io~projected"


class Cluster:
    """A running cluster, see `running`."""

    def __init__(
        self,
        folder: Path,
        prepared: Prepared,
        nodes: Sequence[addresses.NodeAddress],
        autoscaler_sync_s: int = AUTOSCALER_SYNC_S,
    ) -> None:
        self.kubeconfig = folder / KUBECONFIG
        """Works from this machine."""
        self.base_image = prepared.base.name
        """Known to every node: a minimal Debian with Python."""
        self._folder = folder
        self._prepared = prepared
        self._logs = workdir.logs(folder)
        self._pki = Pki(folder / "pki")
        self._kubectl = Kubectl(prepared.machinery.kube, self.kubeconfig)
        self._reader: ApiReader | None = None
        control = self._machine("cp")
        self._control_plane = ControlPlane(control, self._pki, prepared.machinery.kube, autoscaler_sync_s)
        self._nodes = {
            at.name: Node(at, self._machine(at.name), control, self._pki, cgroup_of(folder)) for at in nodes
        }
        self._images: list[Image] = []
        self._open = ExitStack()

    # --- using it ---

    def kubectl(self, *arguments: str, input: str | None = None) -> str:
        """Run kubectl and return its output; raises KubectlFailed with its error."""
        return self._kubectl.run(*arguments, input=input)

    def start_kubectl(self, *arguments: str) -> Process:
        """A kubectl that runs on, such as `port-forward`; what it prints is in its log. Kill it when done."""
        log = self._logs / f"kubectl-{arguments[0]}-{time.monotonic_ns()}.log"
        command = self._kubectl.command(*arguments)
        return Process.start(f"kubectl {arguments[0]}", command, log=log, env=self._kubectl.environment)

    def apply(
        self, manifests: dict[str, Any] | Sequence[dict[str, Any]], *, namespace: str = "default"
    ) -> None:
        """Create or change what the manifests say."""
        self._kubectl.apply([manifests] if isinstance(manifests, dict) else manifests, namespace)

    def get(self, resource: str, *, namespace: str = "default", selector: str = "") -> dict[str, Any]:
        """
        `pod/NAME` as it is stored, or all of a kind with these labels as a list below `items`.

        Raises KubectlFailed with what the API server says.
        """
        assert self._reader is not None, "the cluster has not started"
        return self._reader.get(resource, namespace, selector)

    def wait_served(self, definition: str) -> None:
        """Until a CustomResourceDefinition, PLURAL.GROUP, is established, and its kind is listed: kubectl knows no other kinds."""
        reader, plural = self._reader, definition.partition(".")[0]
        assert reader is not None, "the cluster has not started"

        def holds() -> bool:
            found = self.get(f"customresourcedefinition/{definition}")
            # Null at first, which `kubectl wait` takes for an error.
            conditions = found.get("status", {}).get("conditions") or ()
            established = ("Established", "True") in [(each["type"], each["status"]) for each in conditions]
            return established and reader.serves(plural)

        wait_for(f"{definition} is served", holds, within_s=WITHIN_S, poll_s=0.1)

    def wait(
        self, resource: str, condition: str, *, namespace: str = "default", within_s: float = WITHIN_S
    ) -> None:
        """Until it is so, in the words of `kubectl wait --for`: `condition=Ready`, `delete`, `jsonpath=…`."""
        self.kubectl(
            "wait", resource, f"--for={condition}", f"--namespace={namespace}", f"--timeout={within_s}s"
        )

    def create_namespace(self, name: str) -> None:
        """Create a Kubernetes namespace; returns when pods can be created in it."""
        self.kubectl("create", "namespace", name)
        self.wait("serviceaccount/default", "create", namespace=name)

    def requests(self, namespace: str) -> Iterator[audit.Request]:
        """Requests of a namespace's service accounts to the API server, from the first one on."""
        return audit.requests(self._control_plane.machine.folder, namespace)

    def load_image(self, image: Image) -> None:
        """Make the image known to every node, also to one that is started later. Pods name it `image.name`."""
        if image not in self._images:
            self._images.append(image)
            self._import_images([node for node in self._nodes.values() if node.machine.running])

    def tag_image(self, image: Image, name: str) -> None:
        """Give a loaded image another name on every node that runs."""
        for node in self._nodes.values():
            if node.machine.running:
                node.runtime.tag(image, name)

    def namespace(self) -> NetworkNamespace:
        """Network namespace for a server that pods reach, at an address of the control plane's machine."""
        return NetworkNamespace(addresses.CONTROL_PLANE, self._control_plane.machine.enter_network())

    def forward(self, host: str, port: int, *, listen: int = 0) -> AbstractContextManager[int]:
        """While open, 127.0.0.1:`listen` out here leads to `host`:`port` in there; gives the port out here."""
        return forward(self._control_plane.machine.pid, (host, port), listen=listen, logs=self._logs)

    def disk(self, name: str) -> Path:
        """The folder, on this machine, that is /var of a node: it survives the node, and shows what pods write to it at once."""
        return self._folder / MACHINES / name / "var"

    def projected_volumes(self, pod: Mapping[str, Any]) -> Path:
        """The folder, on this machine, with the projected volumes of a running pod, as its node has mounted them."""
        machine = self._nodes[pod["spec"]["nodeName"]].machine
        return Path(f"/proc/{machine.pid}/root{PODS}", pod["metadata"]["uid"], "volumes", PROJECTED)

    # --- breaking it ---

    def stop_node(self, name: str) -> None:
        """As a power cut does; what is on its disk survives."""
        self._nodes[name].stop()

    def start_node(self, name: str) -> None:
        """Switch a stopped node on again; it becomes Ready some seconds later."""
        node = self._nodes[name]
        self._start_runtimes([node])
        self._import_images([node])
        node.start_kubelet(self._prepared.machinery.kube)

    def cut_link(self, name: str) -> None:
        """Lose what is sent to the node and what it sends, in silence; what runs on it runs on."""
        self._nodes[name].cut_link()

    def mend_link(self, name: str) -> None:
        self._nodes[name].mend_link()

    @contextmanager
    def pods_cut_off(self, port: int, *, how: str = "drop") -> Iterator[Callable[[], set[str]]]:
        """
        While open, no packet of any pod reaches this port, behind Services; nodes and tests do. `how`: see `Node.cut_pods`.

        Gives a function that returns the addresses of the pods that have tried meanwhile.
        """
        nodes = list(self._nodes.values())
        for node in nodes:
            node.cut_pods(port, how)
        try:
            yield lambda: set().union(*(node.cut_senders() for node in nodes))
        finally:
            for node in nodes:
                node.mend_pods()

    def signal_container(
        self, which: signal.Signals, pod: str, container: str, *, namespace: str = "default"
    ) -> None:
        """Send a signal to a container's first process: SIGSTOP and SIGCONT freeze it and let it go on, SIGKILL is a crash."""
        # A kubelet may report a container later than what runs in it is heard of.
        wait_for(
            f"{container} of {pod} runs",
            lambda: self._container(pod, container, namespace) is not None,
            within_s=WITHIN_S,
            poll_s=0.1,
        )
        found = self._container(pod, container, namespace)
        assert found is not None
        node, number = found
        self._nodes[node].runtime.signal(number, which)

    def repair(self) -> None:
        """Put right what a test broke; returns when every node is Ready again."""
        for name, node in self._nodes.items():
            if node.machine.running:
                node.mend_link()
            else:
                self.start_node(name)
        self._wait_for_nodes()

    def _container(self, pod: str, container: str, namespace: str) -> tuple[str, str] | None:
        """Return the node and the id of a pod's container; None before its kubelet has reported it."""
        found = self.get(f"pod/{pod}", namespace=namespace)
        for each in statuses_of(found):
            if each["name"] == container and "containerID" in each:
                return found["spec"]["nodeName"], each["containerID"].removeprefix("containerd://")
        return None

    # --- starting and stopping it ---

    def start(self) -> None:
        """Start everything; returns when pods can be created. What takes long goes on side by side."""
        started = time.monotonic()

        def say(what: str) -> None:
            cache.say(f"{time.monotonic() - started:5.1f} s  {what}")

        nodes = list(self._nodes.values())
        kube = self._prepared.machinery.kube
        self._pki.create(kube)
        self._control_plane.start()
        server = self._open_api()
        say("control plane started")
        self._start_runtimes(nodes)
        say("machines of the nodes started")
        self._control_plane.wait_ready(server)
        say("API server ready")
        self._control_plane.start_controllers()
        if nodes:
            self._control_plane.start_services_of_pods()
        for node in nodes:
            node.start_kubelet(kube)
        self.apply(roles())
        say("controllers and kubelets started")
        self._wait_for_nodes()
        self.wait("serviceaccount/default", "create")  # without it no pod is admitted to the namespace
        say("nodes Ready")

    def stop(self) -> None:
        """End everything at once, nodes first; returns when nothing is left but the folder."""
        with ExitStack() as everything:  # one that cannot be ended does not save the others
            everything.callback(cgroups.remove, cgroup_of(self._folder))
            everything.callback(self._control_plane.machine.power_off)
            everything.enter_context(self._open)
            for node in self._nodes.values():
                everything.callback(node.machine.power_off)

    def _machine(self, name: str) -> Machine:
        return Machine(name, self._folder / MACHINES / name, self._logs, self._prepared.machinery)

    def _open_api(self) -> str:
        port = self._open.enter_context(self.forward(addresses.CONTROL_PLANE, addresses.API_PORT))
        server = f"https://127.0.0.1:{port}"
        self._pki.write_kubeconfig(self.kubeconfig, server, ADMIN)
        self._kubectl.start_server(self._logs / "kubectl-server.log")
        self._open.callback(self._kubectl.stop_server)
        self._reader = self._open.enter_context(closing(ApiReader(self.kubeconfig)))
        return server

    def _start_runtimes(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            node.start_runtime(self._prepared)
        for node in nodes:
            node.runtime.wait_ready()

    def _import_images(self, nodes: Sequence[Node]) -> None:
        finish([each for node in nodes for each in node.runtime.start_imports(self._images)])

    def _wait_for_nodes(self) -> None:
        for name in self._nodes:
            self.wait(f"node/{name}", "create")
            self.wait(f"node/{name}", "condition=Ready")


def statuses_of(pod: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Status of each container of a pod, of its sidecars too."""
    status = pod["status"]
    return [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]


@contextmanager
def running(
    folder: Path,
    prepared: Prepared,
    nodes: Sequence[addresses.NodeAddress] = addresses.NODES,
    autoscaler_sync_s: int = AUTOSCALER_SYNC_S,
) -> Iterator[Cluster]:
    """A cluster in an empty folder; everything but the folder is gone at the end. Without nodes, pods stay Pending."""
    cluster = Cluster(folder, prepared, nodes, autoscaler_sync_s)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def remove_leftovers(folder: Path) -> None:
    """Of a cluster whose owner died: its machines are dying or dead, its control groups are still there."""
    for file in folder.glob(f"{MACHINES}/*/{FIRST_PROCESS}"):
        Identity.read(file).end(signal.SIGKILL)
    cgroups.remove(cgroup_of(folder))


def cgroup_of(folder: Path) -> str:
    """One name per folder on the whole machine: control groups have no other owner."""
    return f"rota-{folder.name}-{cache.key_of(str(folder))}"
