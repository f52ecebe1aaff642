"""
A node: a machine with a cable to the control plane, containerd, kubelet and kube-proxy.

Started by `Cluster`, which also pulls its plug or its cable when a test wants that.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.cluster import cgroups, node_settings
from tests.support.cluster.addresses import CONTROL_PLANE, NODES, NodeAddress
from tests.support.cluster.images import Image
from tests.support.cluster.machine import Machine
from tests.support.cluster.machinery import Machinery
from tests.support.cluster.pki import Pki
from tests.support.processes import Process, ProcessFailed

CONTAINERD_WITHIN_S = 20
IMPORT_WITHIN_S = 120


class Node:
    """One node. What its containerd and kubelet keep on disk survives from one start to the next."""

    def __init__(self, at: NodeAddress, machine: Machine, switch: Machine, pki: Pki, cgroup: str) -> None:
        self.at = at
        self.machine = machine
        self._switch = switch
        self._pki = pki
        self._cgroup = f"{cgroup}/{at.name}"
        self.images: set[Image] = set()
        """What it has on its disk."""

    def start_runtime(self, machinery: Machinery, pause: Image) -> None:
        """Switch the machine on, connect it, and start containerd; call `wait_for_runtime` then."""
        self.machine.boot()
        self._connect()
        settings = self.machine.folder
        network = settings / "cni"
        network.mkdir(exist_ok=True)
        (network / "pods.conflist").write_text(json.dumps(node_settings.pod_network(self.at)))
        cni_programs = machinery.program("ptp").parent
        (settings / "containerd.toml").write_text(node_settings.containerd(pause.name, cni_programs, network))
        self._containerd = self.machine.start(
            "containerd", ["containerd", "--config", settings / "containerd.toml", "--log-level", "warn"]
        )

    def wait_for_runtime(self) -> None:
        """Return when containerd answers."""
        socket = Path(f"/proc/{self.machine.pid}/root{node_settings.CONTAINERD}")
        self._containerd.wait_until(socket.exists, within_s=CONTAINERD_WITHIN_S)
        self.machine.run(["ctr", "version"])

    def start_kubelet(self, kube: Path) -> None:
        """Start what makes it a node; it becomes Ready some seconds later."""
        cgroups.remove(self._cgroup)  # of its life before it was stopped
        cgroups.create(self._cgroup)
        settings = self.machine.folder
        kubelet, proxy = settings / "kubelet.json", settings / "proxy.json"
        kubelet.write_text(json.dumps(node_settings.kubelet(self.at, self._pki, self._cgroup)))
        proxy.write_text(json.dumps(node_settings.proxy(self.at, self._pki)))
        self.machine.start("kubelet", [
            kube, "kubelet", "--config", kubelet, "--kubeconfig", self._pki.kubeconfig(self.at.name),
            "--hostname-override", self.at.name, "--node-ip", self.at.address,
        ])  # fmt: skip
        self.machine.start("proxy", [kube, "proxy", "--config", proxy])

    def start_import(self, image: Image) -> "Import":
        """Begin to give the image to containerd; it is there when the import is finished."""
        command: list[str | Path] = ["ctr", "--namespace", "k8s.io", "images", "import", image.archive]
        return Import(self, image, self.machine.start("import", command))

    def stop(self) -> None:
        """As a power cut does it: first nobody hears of it any more, then it is gone."""
        # Deleted, not only set down: the kernel would delete it with the machine's network, but some time later,
        # and the name has to be free when the node is started again.
        self._switch.run(["ip", "link", "delete", self.at.name])
        self.machine.power_off()

    def cut_link(self) -> None:
        """What is sent to it and what it sends is lost, in silence."""
        self._switch.run(["ip", "link", "set", self.at.name, "down"])

    def mend_link(self) -> None:
        self._switch.run(["ip", "link", "set", self.at.name, "up"])

    def _connect(self) -> None:
        name = self.at.name
        # The other end is named by its process id, which only the host knows.
        self._switch.run_in_network(["ip", "link", "add", name, "type", "veth", "peer", "name", "eth0",
                                    "netns", str(self.machine.pid)])  # fmt: skip
        self._switch.run(["ip", "link", "set", name, "master", "lan", "up"])
        self.machine.run(["ip", "address", "add", f"{self.at.address}/24", "dev", "eth0"])
        self.machine.run(["ip", "link", "set", "eth0", "up"])
        self.machine.run(["ip", "route", "add", "default", "via", CONTROL_PLANE])
        for other in NODES:
            if other != self.at:
                self.machine.run(["ip", "route", "add", other.pods, "via", other.address])


@dataclass(frozen=True, slots=True)
class Import:
    """An image on its way into a node."""

    node: Node
    image: Image
    process: Process

    def finish(self) -> None:
        """Return when it is there."""
        code = self.process.wait(within_s=IMPORT_WITHIN_S)
        if code != 0:
            raise ProcessFailed(
                f"{self.node.at.name} could not import {self.image.archive}, code {code}:\n{self.process.tail()}"
            )
        self.node.images.add(self.image)


def finish(imports: Sequence[Import]) -> None:
    """Return when all of them are there."""
    for each in imports:
        each.finish()
