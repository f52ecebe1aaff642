"""
Find what a cluster could leave on a machine; used by the tests that it leaves nothing.

Other work may run on the machine meanwhile. So processes are recognized by a mark in their environment, which their
children inherit; of mounts and control groups only those that a cluster would add are considered.
"""

import os
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from tests.support import cache
from tests.support.cluster import cgroups
from tests.support.cluster.machinery import Machinery
from tests.support.cluster.process_identity import Identity

MARK = "ROTA_TEST_MARK"
NAMESPACES = ("ipc", "mnt", "net", "pid", "uts")
# Where the programs of a cluster write unless something is mounted over it or they are told otherwise.
FOLDERS = ("/etc", "/opt", "/run", "/usr/libexec", "/var/lib", "/var/log", "~/.kube")


def traces(name: str, machinery: Machinery) -> set[str]:
    """Everything but processes and namespaces that is there now and not another cluster's, in words."""
    return {*_mounts(), *_links(), *_rules(machinery), *_groups(name), *_files(name)}


def processes(mark: str) -> dict[Identity, str]:
    """Return the command lines of processes that carry the mark or share a namespace with one that does."""
    marked = {each for each in _processes() if f"{MARK}={mark}".encode() in _null_separated(each, "environ")}
    private = namespaces(marked)
    return {
        each: b" ".join(_null_separated(each, "cmdline")).decode()
        for each in _processes()
        if each in marked or private & _namespaces(each.pid)
    }


def namespaces(some: Iterable[Identity]) -> set[str]:
    """Namespaces that the processes are in and this one is not. The kernel reuses the numbers of freed ones."""
    return {name for each in some for name in _namespaces(each.pid)} - _namespaces(os.getpid())


def _mounts() -> Iterator[str]:
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mount_point, kind, *_ = line.split()
        yield f"mount of {kind} at {mount_point}"


def _links() -> Iterator[str]:
    return (f"link {link.name}" for link in Path("/sys/class/net").iterdir())


def _rules(machinery: Machinery) -> Iterator[str]:
    listed = subprocess.run(
        [machinery.program("nft"), "list", "ruleset"],
        env={**os.environ, **machinery.debian.environment()},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return (f"rule {line}" for line in listed.stdout.splitlines())


def _groups(name: str) -> Iterator[str]:
    return (f"group {group}" for hierarchy in cgroups.hierarchies() for group in hierarchy.glob(f"*{name}*"))


def _files(name: str) -> Iterator[str]:
    yield from map(str, cache.root().glob(f"run*/*{name}*"))
    for folder in (Path(path).expanduser() for path in FOLDERS):
        if folder.is_dir():
            yield from map(str, [folder, *folder.iterdir()])


def _processes() -> Iterator[Identity]:
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with suppress(OSError):  # it has just ended
                found = Identity.of(int(path.name))
                if found.alive():
                    yield found


def _null_separated(process: Identity, file: str) -> list[bytes]:
    try:
        return Path(f"/proc/{process.pid}/{file}").read_bytes().split(b"\0")
    except OSError:  # it has just ended
        return []


def _namespaces(pid: int) -> set[str]:
    try:
        return {str(Path(f"/proc/{pid}/ns/{kind}").readlink()) for kind in NAMESPACES}
    except OSError:  # it has just ended
        return set()
