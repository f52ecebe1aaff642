"""
Control groups of the nodes: the one thing of a cluster that does not go away with its processes.

Called by nodes when they start and by the process that removes a cluster. Tried with separate hierarchies (version 1,
with an empty version 2 beside them); the branch for a single version 2 hierarchy follows the kernel's
documentation and was not run.
"""

import os
import shutil
import time
from pathlib import Path

MOUNTS = Path("/proc/self/mounts")
TYPES = ("cgroup", "cgroup2")
# A group stays busy for a moment after the last process in it was killed.
EMPTY_WITHIN_S = 60
POLL_S = 0.02


class StillBusy(Exception):
    """A group could not be removed because something still runs in it."""


def hierarchies(mounts: Path = MOUNTS) -> list[Path]:
    """Mount points of the kernel's hierarchies: one per controller, or one for all."""
    fields = (line.split() for line in mounts.read_text().splitlines())
    return [Path(mount_point) for _, mount_point, kind, *_ in fields if kind in TYPES]


def create(name: str) -> None:
    """The group `name` (`parent/child`) in every hierarchy, usable as a kubelet's root."""
    for hierarchy in hierarchies():
        group = hierarchy
        for part in Path(name).parts:
            _hand_down_controllers(group)
            parent, group = group, group / part
            group.mkdir(exist_ok=True)
            _inherit_cpuset(parent, group)


def remove(name: str) -> None:
    """The group and all below it; waits for the processes in it to be gone, which the caller has killed."""
    deadline = time.monotonic() + EMPTY_WITHIN_S
    for hierarchy in hierarchies():
        while (hierarchy / name).exists():
            _remove_empty(hierarchy / name)
            if time.monotonic() > deadline:
                raise StillBusy(
                    f"something still runs in the control group {hierarchy / name}: see its cgroup.procs"
                )
            time.sleep(POLL_S)


def _remove_empty(top: Path) -> None:
    for folder, _, _ in os.walk(top, topdown=False):
        try:
            Path(folder).rmdir()
        except OSError:
            return  # busy still; the caller looks again


def _hand_down_controllers(group: Path) -> None:
    """Version 2: a child has a controller only if its parent passes it on."""
    available = group / "cgroup.controllers"
    if available.exists():
        passed_on = " ".join(f"+{controller}" for controller in available.read_text().split())
        (group / "cgroup.subtree_control").write_text(passed_on)


def _inherit_cpuset(parent: Path, group: Path) -> None:
    """Version 1: a new cpuset is empty, and then no process may enter it."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        if (parent / name).exists() and not (parent / "cgroup.controllers").exists():
            shutil.copyfile(parent / name, group / name)
