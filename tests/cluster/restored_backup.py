"""The commands of docs/install.md that back up a release's SQLite volume, and restore it in a pod."""

from typing import NamedTuple

import yaml

from tests.coordinator.test_backup import commands
from tests.support.cluster.manifests import Manifest
from tests.support.tree import REPO

GUIDE = (REPO / "docs" / "install.md").read_text().split("\n## Backup\n", 1)[1].split("\n## ", 1)[0]


class Commands(NamedTuple):
    """Arguments of kubectl, in the order of the guide."""

    backup: list[str]
    # `apply` creates the pod of `restore_pod`.
    restore: list[list[str]]
    start: list[str]


def guide(namespace: str) -> Commands:
    """Return the guide's commands for a release in this namespace."""
    backup, *restore, start = [
        line.removeprefix("kubectl ").replace("-n rota ", f"-n {namespace} ").split()
        for line in GUIDE.splitlines()
        if line.startswith("kubectl ")
    ]
    assert backup[-len(commands("SQLite")[0].split()) :] == commands("SQLite")[0].split()
    return Commands(backup, restore, start)


def restore_pod(image: str) -> Manifest:
    """Return the guide's pod that restores the volume, with this image."""
    pod: Manifest = yaml.safe_load(GUIDE.split("```yaml\n", 1)[1].split("```", 1)[0])
    [container] = pod["spec"]["containers"]
    container["image"] = image
    [script] = container["args"]
    assert script.endswith(commands("SQLite")[1])
    return pod
