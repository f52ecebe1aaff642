"""
Container runtime of a machine: containerd, and the images in its store.

Started by every `Node`. `prepare` unpacks images into a store once and for all; a new node then begins with a copy of its
databases and sees the unpacked layers in it, instead of unpacking a gigabyte while the API server starts.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support import cache
from tests.support.cluster import node_settings
from tests.support.cluster.images import Image
from tests.support.cluster.machine import Machine
from tests.support.cluster.machinery import Machinery
from tests.support.processes import Process, ProcessFailed

ANSWERS_WITHIN_S = 60
IMPORT_WITHIN_S = 600
# Nodes begin with three, one above the other; files that two of them have are there once.
STORES_KEPT = 3 * cache.BUILDS_KEPT
KUBERNETES = "k8s.io"
"""containerd's namespace for the images and containers of pods."""
STORE = "var/lib/containerd"
"""In a machine's folder: containerd's own place, seen from outside."""
LAYERS = "io.containerd.snapshotter.v1.overlayfs/snapshots"
"""In a store: a folder for each unpacked layer."""
POD_NETWORK = "cni"
"""In a machine's folder: how pods are connected, read by containerd."""


# Shows the machine each layer of a store, which lies at $0, in its own store, which lies at $1. It can only read them: a node whose disk
# is full deletes images.
MOUNT_LAYERS = 'for layer in "$0"/*; do mount --options bind,ro "$layer" "$1/${layer##*/}"; done'


@dataclass(frozen=True, slots=True)
class Store:
    """Unpacked images that nodes begin with."""

    folder: Path
    images: tuple[Image, ...]


@dataclass(frozen=True, slots=True)
class Import:
    """An image on its way into a machine."""

    runtime: "Runtime"
    image: Image
    process: Process

    def finish(self) -> None:
        """Return when it is there."""
        code = self.process.wait(within_s=IMPORT_WITHIN_S)
        if code != 0:
            raise ProcessFailed(
                f"{self.process.name} of {self.image.archive} ended with code {code}:\n{self.process.tail()}"
            )
        self.runtime.images.add(self.image)


def finish(imports: Sequence[Import]) -> None:
    """Return when all of them are there."""
    for each in imports:
        each.finish()


class Runtime:
    """containerd on a machine that was booted. What it keeps survives from one start of it to the next."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.images: set[Image] = set()
        """What was imported."""

    def start(self, machinery: Machinery, pause: Image) -> None:
        """Start it; it takes a moment to answer, see `wait_ready`."""
        folder = self._machine.folder
        settings = folder / "containerd.toml"
        cni_programs = machinery.program("ptp").parent
        crun = machinery.program("crun")
        settings.write_text(node_settings.containerd(pause.name, crun, cni_programs, folder / POD_NETWORK))
        self._process = self._machine.start(
            "containerd", ["containerd", "--config", settings, "--log-level", "warn"]
        )

    def wait_ready(self) -> None:
        """Return when it answers."""
        socket = Path(f"/proc/{self._machine.pid}/root{node_settings.CONTAINERD}")
        self._process.wait_until(socket.exists, within_s=ANSWERS_WITHIN_S)
        self._machine.run(["ctr", "version"])

    def start_imports(self, images: Sequence[Image]) -> list[Import]:
        """Begin to take in what is not there yet; it is there when the imports are finished."""
        return [self._start_import(image) for image in images if image not in self.images]

    def signal(self, container: str, which: signal.Signals) -> None:
        """Send a signal to the first process of a pod's container, by the container's id."""
        self._machine.run(
            ["ctr", "--namespace", KUBERNETES, "tasks", "kill", "--signal", which.name, container]
        )

    def tag(self, image: Image, name: str) -> None:
        """Give an image that was imported another name."""
        self._machine.run(["ctr", "--namespace", KUBERNETES, "images", "tag", "--force", image.name, name])

    def _start_import(self, image: Image) -> Import:
        command: list[str | Path] = ["ctr", "--namespace", KUBERNETES, "images", "import", image.archive]
        return Import(self, image, self._machine.start("import", command))


def prepare(machinery: Machinery, pause: Image, images: Sequence[Image], below: Store | None = None) -> Store:
    """A store with these images and those of the store below; made by a containerd on a machine of its own."""
    begun = () if below is None else below.images
    everything = (*begun, *images)

    def build(folder: Path) -> None:
        machine = Machine("store", folder / "machine", folder / "logs", machinery)
        if below is not None:
            machine.folder.mkdir(parents=True)
            copy_store(below.folder, machine.folder)
            # Nothing writes to a layer's files: links will do.
            layers = below.folder / LAYERS, machine.folder / STORE / LAYERS
            subprocess.run(["cp", "--archive", "--link", "--no-target-directory", *layers], check=True)
        machine.boot()
        try:
            runtime = Runtime(machine)
            runtime.start(machinery, pause)
            runtime.wait_ready()
            finish(runtime.start_imports(images))
        finally:
            machine.power_off()
        (machine.folder / STORE).rename(folder / "store")
        shutil.rmtree(machine.folder)

    key = cache.key_of(str(machinery.debian.root), *(image.name for image in everything))
    return Store(cache.build_once("image-store", key, build, kept=STORES_KEPT) / "store", everything)


def copy_store(store: Path, folder: Path) -> None:
    """Give the machine in the folder a store like that one, whose layers are empty folders: see `mount_layers`."""

    def copy(source: str, target: str) -> None:
        # What is downloaded is never changed; databases are.
        (shutil.copy2 if source.endswith(".db") else os.link)(source, target)

    def left_out(parent: str, names: list[str]) -> list[str]:
        return names if Path(parent).parent == store / LAYERS else []

    own = folder / STORE
    own.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(store, own, symlinks=True, copy_function=copy, ignore=left_out)


def mount_layers(store: Path, machine: Machine) -> None:
    """Show a machine, which has been booted with a store like that one, the layers."""
    machine.run(["sh", "-ec", MOUNT_LAYERS, store / LAYERS, Path("/") / STORE / LAYERS])
