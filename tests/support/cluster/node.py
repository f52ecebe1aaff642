"""
A node: a machine with a cable to the control plane, containerd, kubelet and kube-proxy.

Started by `Cluster`, which also pulls its plug or its cable when a test wants that.
"""

import json
from pathlib import Path

from tests.support.cluster import cgroups, node_settings
from tests.support.cluster.addresses import CONTROL_PLANE, NODES, NodeAddress
from tests.support.cluster.machine import Machine
from tests.support.cluster.pki import Pki
from tests.support.cluster.prepared import Prepared
from tests.support.cluster.runtime import POD_NETWORK, Runtime, copy_store, mount_layers

# A table of nftables: the first thing in the way of pods' packets, behind the addresses of Services.
CUT = "cut"
# Its set of the pods whose packets did not arrive.
SENDERS = "senders"


class Node:
    """One node. What its containerd and kubelet keep on disk survives from one start to the next."""

    def __init__(self, at: NodeAddress, machine: Machine, switch: Machine, pki: Pki, cgroup: str) -> None:
        self.at = at
        self.machine = machine
        self._switch = switch
        self._pki = pki
        self._cgroup = f"{cgroup}/{at.name}"
        self.runtime = Runtime(machine)

    def start_runtime(self, prepared: Prepared) -> None:
        """Switch the machine on, connect it, and start containerd; call `runtime.wait_ready` then."""
        network = self.machine.folder / POD_NETWORK
        if not network.exists():  # the first time
            copy_store(prepared.store.folder, self.machine.folder)
            self.runtime.images.update(prepared.store.images)
            network.mkdir()
            (network / "pods.conflist").write_text(json.dumps(node_settings.pod_network(self.at)))
        self.machine.boot()
        mount_layers(prepared.store.folder, self.machine)
        self._connect()
        self.runtime.start(prepared.machinery, prepared.pause)

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

    def stop(self) -> None:
        """Fail as in a power cut: the network goes silent first, then the processes are killed."""
        # Deleted, not only set down: the kernel would delete it with the machine's network, but some time later,
        # and the name has to be free when the node is started again.
        self._switch.run(["ip", "link", "delete", self.at.name])
        self.machine.power_off()

    def cut_link(self) -> None:
        """Drop all packets to and from the node."""
        self._switch.run(["ip", "link", "set", self.at.name, "down"])

    def mend_link(self) -> None:
        self._switch.run(["ip", "link", "set", self.at.name, "up"])

    def cut_pods(self, port: int, how: str) -> None:
        """Let no packet of this node's pods reach a port, of whatever machine: `drop` is silence, `reject with tcp reset` ends connections."""
        chain = "{ type filter hook forward priority 0; }"
        for command in (
            f"add table ip {CUT}",
            f"add set ip {CUT} {SENDERS} {{ type ipv4_addr; flags dynamic; }}",
            f"add chain ip {CUT} forward {chain}",
            f"add rule ip {CUT} forward ip saddr {self.at.pods} tcp dport {port} add @{SENDERS} {{ ip saddr }} {how}",
        ):
            self.machine.run(["nft", command])

    def cut_senders(self) -> set[str]:
        """Addresses of the pods that have sent a packet since `cut_pods`."""
        found = json.loads(self.machine.run(["nft", "--json", "list", "set", "ip", CUT, SENDERS]))
        return {
            address for each in found["nftables"] if "set" in each for address in each["set"].get("elem", ())
        }

    def mend_pods(self) -> None:
        """Let all packets through again."""
        self.machine.run(["nft", f"delete table ip {CUT}"])

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
