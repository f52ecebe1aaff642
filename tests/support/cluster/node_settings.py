"""
Settings of what runs on a node, as text for its files.

Written by `Node` when it starts. Each line that differs from a default is there because a node would not
start, or a test would wait for minutes, without it.
"""

from pathlib import Path

from tests.support.cluster.addresses import CONTROL_PLANE, DOMAIN, PODS, NodeAddress
from tests.support.cluster.pki import Pki

CONTAINERD = "/run/containerd/containerd.sock"
MAX_PODS = 60
# A node counts as lost this long after its last sign of life, see NODE_LOST_AFTER too.
LEASE_S = 4


def containerd(pause_image: str, crun: Path, cni_programs: Path, cni_settings: Path) -> str:
    """The container runtime, version 1.6: within what a root without every capability may do."""
    return f"""\
version = 2
oom_score = 0
# Snapshotters and services that nodes do not need, and that complain about the file system or write to /opt.
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
[grpc]
  address = "{CONTAINERD}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause_image}"
  disable_apparmor = true
  # Lowering the score takes CAP_SYS_RESOURCE; without this runc failed with "can't get final child's PID".
  restrict_oom_score_adj = true
  disable_hugetlb_controller = true
  tolerate_missing_hugetlb_controller = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni_programs}"
    conf_dir = "{cni_settings}"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        # It starts a container in a quarter of the processor time that runc takes.
        BinaryName = "{crun}"
"""


def pod_network(node: NodeAddress) -> dict[str, object]:
    """A cable from the node to each pod: routes are enough, no bridge and no filter has to help."""
    addresses = {"type": "host-local", "ranges": [[{"subnet": node.pods}]], "routes": [{"dst": "0.0.0.0/0"}]}
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "ptp", "ipam": addresses}]}


def kubelet(node: NodeAddress, pki: Pki, cgroup: str) -> dict[str, object]:
    """The kubelet, on a machine that is no whole machine."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.address,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(pki.authority)},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(pki.certificate(f"{node.name}-serving")),
        "tlsPrivateKeyFile": str(pki.key(f"{node.name}-serving")),
        "containerRuntimeEndpoint": f"unix://{CONTAINERD}",
        # Version 1 hierarchies are still what some machines have; the kubelet refuses them unless told.
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}",
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        # The nodes share a disk that is not theirs to judge.
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "clusterDomain": DOMAIN,
        "clusterDNS": [CONTROL_PLANE],
        "resolvConf": "",
        "podCIDR": node.pods,
        "maxPods": MAX_PODS,
        "nodeLeaseDurationSeconds": LEASE_S,
        "nodeStatusUpdateFrequency": "2s",
        # Of a status that has not changed; the lease says that the node lives.
        "nodeStatusReportFrequency": "5m",
        "syncFrequency": "5s",
        "volumePluginDir": "/var/lib/flex-volumes",
    }


def proxy(node: NodeAddress, pki: Pki) -> dict[str, object]:
    """Settings of kube-proxy, which routes Services to pods."""
    untouched = {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"}
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {"kubeconfig": str(pki.kubeconfig("proxy"))},
        "clusterCIDR": PODS,
        "hostnameOverride": node.name,
        # These settings belong to the whole machine and cannot be changed from a namespace.
        "conntrack": untouched,
    }
