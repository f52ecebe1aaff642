"""
The programs that a cluster consists of: built from our Go sources, or unpacked from Debian.

Called by `prepare()` and by whatever starts a part. Everything is kept in the cache, so that only the first
cluster on a machine waits for it.
"""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support import cache, debian
from tests.support.unavailable import Unavailable

HERE = Path(__file__).parent
KUBERNETES = "v1.35.4"
GO_NEEDED = (1, 26)
# iproute2 is asked for because a small machine has no `ip`; the rest is what a node runs beside the kubelet.
NODE_PACKAGES = ("containerd", "crun", "containernetworking-plugins", "nftables", "iproute2")


@dataclass(frozen=True, slots=True)
class Machinery:
    """Paths of the programs."""

    kube: Path
    """Every part of Kubernetes, and kubectl; see kube/main.go."""
    reaper: Path
    """Process 1 of machines and pods; see reaper/main.go."""
    debian: debian.Unpacked
    """containerd, crun, ip, nft and the CNI plugins."""

    def program(self, name: str) -> Path:
        return self.debian.program(name)


def prepare() -> Machinery:
    """Build and unpack what is not there yet: about 6 minutes on a machine that never built Kubernetes."""
    go = go_version()
    return Machinery(
        kube=_build(go, "kube", _sources(HERE / "kube"), _kubernetes_version()),
        reaper=_build(go, "reaper", _sources(HERE / "reaper"), ""),
        debian=debian.unpack("containerd", *NODE_PACKAGES),
    )


def _build(go: str, name: str, sources: list[Path], linker_flags: str) -> Path:
    def build(folder: Path) -> None:
        subprocess.run(
            ["go", "build", "-trimpath", f"-ldflags=-s -w {linker_flags}", "-o", folder / name, "."],
            cwd=HERE / name,
            # Static, so that it runs in an image without a single library. And with the Go that was checked.
            env={**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"},
            check=True,
        )

    return cache.build_once(name, cache.key_of(go, linker_flags, *sources), build) / name


def _sources(folder: Path) -> list[Path]:
    return sorted([*folder.glob("*.go"), *folder.glob("go.*")])


def _kubernetes_version() -> str:
    """Version that `kubectl version` and a node's status show: Kubernetes' own build writes it into the binary, too."""
    major, minor, _ = KUBERNETES.removeprefix("v").split(".")
    package = "k8s.io/component-base/version"
    return f"-X {package}.gitVersion={KUBERNETES} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}"


def go_version() -> str:
    """Version string of the Go compiler; builds of different compilers are kept apart."""
    wanted = ".".join(map(str, GO_NEEDED))
    if shutil.which("go") is None:
        raise Unavailable(f"no Go here to build Kubernetes with: install Go {wanted} or newer from go.dev/dl")
    version = subprocess.run(["go", "version"], capture_output=True, text=True, check=True).stdout.strip()
    numbers = re.search(r"go(\d+)\.(\d+)", version)
    if numbers is None or tuple(map(int, numbers.groups())) < GO_NEEDED:
        raise Unavailable(f"'{version}' cannot build Kubernetes: install Go {wanted} or newer from go.dev/dl")
    return version
