"""
Container runtime of a machine: containerd, and the images in its store.

Started by every `Node`. `prepare` unpacks the images that all nodes have into a store once and for all; a new
node then begins with links to the files in it instead of unpacking 200 MB while the API server starts.
"""

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

ANSWERS_WITHIN_S = 20
IMPORT_WITHIN_S = 120
KUBERNETES = "k8s.io"
"""containerd's namespace for the images and containers of pods."""
STORE = "var/lib/containerd"
"""In a machine's folder: containerd's own place, seen from outside."""
POD_NETWORK = "cni"
"""In a machine's folder: how pods are connected, read by containerd."""


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
        settings.write_text(node_settings.containerd(pause.name, cni_programs, folder / POD_NETWORK))
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

    def _start_import(self, image: Image) -> Import:
        command: list[str | Path] = ["ctr", "--namespace", KUBERNETES, "images", "import", image.archive]
        return Import(self, image, self._machine.start("import", command))


def prepare(machinery: Machinery, pause: Image, base: Image) -> Path:
    """The store that every node begins with; made by a containerd on a machine of its own."""
    images = (pause, base)

    def build(folder: Path) -> None:
        machine = Machine("store", folder / "machine", folder / "logs", machinery)
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

    key = cache.key_of(str(machinery.debian.root), *(image.name for image in images))
    return cache.build_once("image-store", key, build) / "store"


def copy_store(store: Path, folder: Path) -> None:
    """Give the machine in the folder a store like that one. Nothing writes to an image's files: links will do."""
    own = folder / STORE
    own.parent.mkdir(parents=True)
    subprocess.run(["cp", "--archive", "--link", store, own], check=True)
    for database in store.glob("*/*.db"):
        copy = own / database.relative_to(store)
        copy.unlink()
        shutil.copy2(database, copy)
