"""
What a cluster could leave on a machine, as far as it can be seen; used by the tests that it leaves nothing.

The machine may be busy with other things meanwhile. So processes are told by a mark in their environment, which
their children inherit, and of the rest only what a cluster would add is looked at.
"""

import os
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.support import cache
from tests.support.cluster import cgroups
from tests.support.cluster.machinery import Machinery
from tests.support.cluster.process_identity import Identity

MARK = "ROTA_TEST_MARK"
NAMESPACES = ("ipc", "mnt", "net", "pid", "uts")
# Where the programs of a cluster write unless something is mounted over it or they are told otherwise.
FOLDERS = ("/etc", "/opt", "/run", "/usr/libexec", "/var/lib", "/var/log", "~/.kube")


def traces(machinery: Machinery) -> set[str]:
    """Everything that is there now but processes and namespaces, in words."""
    return {*_mounts(), *_links(), *_rules(machinery), *_groups(), *_files()}


def marked(mark: str) -> dict[Identity, str]:
    """The processes that descend from one with the mark, and what they run."""
    wanted = f"{MARK}={mark}".encode()
    found = {}
    for process in _processes():
        try:
            if wanted in (process / "environ").read_bytes().split(b"\0"):
                line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                found[Identity.of(int(process.name))] = line
        except OSError:
            continue  # it has just ended
    return found


def namespaces_of(some: Iterable[Identity]) -> set[str]:
    """Those that the processes are in and this one is not."""
    return _namespaces(Path(f"/proc/{each.pid}") for each in some) - _namespaces([Path("/proc/self")])


def inhabited_namespaces() -> set[str]:
    """Every namespace that some process is in."""
    return _namespaces(_processes())


def _mounts() -> Iterator[str]:
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        yield f"mount of {kind} at {place}"


def _links() -> Iterator[str]:
    return (f"link {link.name}" for link in Path("/sys/class/net").iterdir())


def _rules(machinery: Machinery) -> Iterator[str]:
    listed = subprocess.run(
        [machinery.program("nft"), "list", "ruleset"],
        env={**os.environ, **machinery.debian.environment()},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return (f"rule {line}" for line in listed.stdout.splitlines())


def _groups() -> Iterator[str]:
    return (f"group {group}" for place in cgroups.hierarchies() for group in place.glob("rota-*"))


def _files() -> Iterator[str]:
    for folder in [*(Path(name).expanduser() for name in FOLDERS), cache.root() / "run-detached"]:
        if folder.is_dir():
            yield from map(str, [folder, *folder.iterdir()])


def _processes() -> Iterator[Path]:
    """Without those that ended and wait for their parent to ask how: of an orphan that is the machine's init."""
    for path in Path("/proc").iterdir():
        if path.name.isdigit() and _alive(int(path.name)):
            yield path


def _alive(pid: int) -> bool:
    try:
        return Identity.of(pid).alive()
    except OSError:
        return False


def _namespaces(processes: Iterable[Path]) -> set[str]:
    found = set()
    for process in processes:
        for kind in NAMESPACES:
            try:
                found.add(os.readlink(process / "ns" / kind))  # noqa: PTH115  # no path: `net:[4026531840]`
            except OSError:
                continue  # it has just ended
    return found
