"""
Programs from Debian packages, unpacked into the cache instead of installed.

Unpacking needs no root, starts no service (installing `prometheus`, `containerd` or `postgresql` would start
one), changes nothing on the machine, and goes away with the cache. What such a package lacks here is
downloaded with it; what the machine already has is used from there.
"""

import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support import cache
from tests.support.unavailable import Unavailable


@dataclass(frozen=True, slots=True)
class Unpacked:
    """A tree of unpacked packages."""

    root: Path

    def program(self, name: str) -> Path:
        """The program's path in this tree."""
        for folder in ("usr/bin", "usr/sbin", "usr/lib/cni", "bin", "sbin"):
            found = self.root / folder / name
            if found.exists():
                return found
        raise Unavailable(
            f"the Debian packages in {self.root} hold no program '{name}'; delete that folder and try again"
        )

    def environment(self) -> dict[str, str]:
        """PATH and library path that find this tree first."""
        programs = [str(self.root / folder) for folder in ("usr/bin", "usr/sbin", "bin", "sbin")]
        machine = f"{platform.machine()}-linux-gnu"
        libraries = [str(self.root / folder / machine) for folder in ("usr/lib", "lib")]
        return {
            "PATH": ":".join([*programs, os.environ["PATH"]]),
            "LD_LIBRARY_PATH": ":".join([*libraries, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]),
        }


def unpack(name: str, *packages: str) -> Unpacked:
    """`packages` and what this machine lacks of their dependencies, unpacked once into the cache under `name`."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise Unavailable(
            f"no apt-get here to fetch {', '.join(packages)}: use Debian or Ubuntu, or leave this tier out"
        )

    def build(folder: Path) -> None:
        state, archives = folder / "apt", folder / "apt" / "archives"
        (state / "lists" / "partial").mkdir(parents=True)
        (archives / "partial").mkdir(parents=True)
        # Package lists of our own: the machine's may be old or missing, and updating those would need root.
        options = ["-q", "-o", f"Dir::State::lists={state / 'lists'}", "-o", f"Dir::Cache::archives={archives}",
                   "-o", f"Dir::Cache::pkgcache={state / 'pkgcache.bin'}", "-o", f"Dir::Cache::srcpkgcache={state / 'srcpkgcache.bin'}",
                   "-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User="]  # fmt: skip
        _apt(packages, *options, "update")
        _apt(
            packages,
            *options,
            "install",
            "--yes",
            "--download-only",
            "--reinstall",
            "--no-install-recommends",
            *packages,
        )
        for archive in sorted(archives.glob("*.deb")):
            subprocess.run(["dpkg-deb", "--extract", archive, folder], check=True)
        shutil.rmtree(state)

    return Unpacked(cache.build_once(f"debian-{name}", cache.key_of(_release(), *packages), build))


def _release() -> str:
    return platform.freedesktop_os_release().get("VERSION_ID", "") + platform.machine()


def _apt(packages: tuple[str, ...], *arguments: str) -> None:
    done = subprocess.run(["apt-get", *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise Unavailable(
            f"apt-get could not fetch {', '.join(packages)} ({last}); check that a package mirror can be reached"
        )
