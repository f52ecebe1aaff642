"""
Everything that a cluster needs and that is made once per machine.

Called by the tier runner before the tests, so that the time it takes is shown apart, and by each process that starts a
cluster; costs nothing when all of it is there.
"""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from tests.support.cluster import images, machinery, runtime
from tests.support.cluster.images import Image
from tests.support.cluster.machine import NAMESPACES
from tests.support.cluster.machinery import Machinery
from tests.support.cluster.runtime import Store
from tests.support.unavailable import Unavailable


@dataclass(frozen=True, slots=True)
class Prepared:
    """Files that a cluster is started from."""

    machinery: Machinery
    pause: Image
    base: Image
    store: Store
    """What a node's containerd begins with: both images, and others."""


def prepare(*others: Image, below: Sequence[Image] = ()) -> Prepared:
    """
    Build what is missing; raises Unavailable where there can be no cluster.

    `others` are images that every node has from its start; so are those `below` them, which are not unpacked again when others change.
    """
    check_machine()
    programs = machinery.prepare()
    pause, base = images.pause(programs.reaper), images.base()
    store = runtime.prepare(programs, pause, (pause, base))
    for layer in filter(None, (below, others)):
        store = runtime.prepare(programs, pause, layer, store)
    return Prepared(programs, pause, base, store)


def check_machine() -> None:
    """Nodes mount file systems and make networks: that takes root, and a kernel that lets it."""
    if os.geteuid() != 0:
        raise Unavailable(
            "a cluster's machines are made of namespaces, and making those takes root: run as root"
        )
    tried = subprocess.run(["unshare", *NAMESPACES, "--fork", "true"], capture_output=True, text=True)
    if tried.returncode != 0:
        raise Unavailable(
            f"this machine makes no namespaces ({tried.stderr.strip()}): use a virtual machine, "
            "or a container with --privileged"
        )
