"""
Read and write constraints.txt: the version of every dependency, the SHA-256 of its files, and the sets that need it.

    python3 scripts/pins.py select coordinator build    the requirements of some sets, for `pip install --require-hashes`
    python3 scripts/pins.py write                       the newest versions of all sets (`make pins`; needs uv)

A set is a part's folder, or a dependency group of pyproject.toml. `scripts/setup` and the Dockerfile select before anything
is installed, so this file imports the standard library alone.
"""

import argparse
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

# In an image build the files are in the folder of this script.
HERE = Path(__file__).resolve().parent
FILE = next(
    (path for path in (HERE / "constraints.txt", HERE.parent / "constraints.txt") if path.exists()),
    HERE.parent / "constraints.txt",
)
# The distributions by their folders.
PARTS = {
    "proto": "rota-proto",
    "service": "rota-service",
    "coordinator": "rota-coordinator",
    "sidecar": "rota-sidecar",
    "sdk": "rota",
    "operator": "rota-operator",
    "cli": "rota-cli",
    "spark_apps": "rota-spark",
}
# Extras that a set includes: the images have no other source of them.
EXTRAS = {"operator": ("kafka",), "sdk": ("kafka",), "spark_apps": ("postgresql",)}
GROUPS = ("build", "check", "test")
SETS = (*PARTS, *GROUPS)
HEAD = """\
# Written by `make pins`; do not edit. Each dependency: its version, the SHA-256 of its files, what needs it.
# scripts/setup and the Dockerfile install nothing whose hash is not here: docs/decisions/0015-dependencies-by-hash.md
"""
USED_BY = "    # used by: "
# Rota runs on POSIX systems: what only Windows needs is left out.
WINDOWS = "sys_platform == 'win32'"
UV_EXPORT = (
    *("uv", "export", "--quiet", "--frozen", "--no-annotate", "--no-header", "--no-emit-workspace"),
    "--no-default-groups",
)


@dataclass(frozen=True, slots=True)
class Pin:
    """A dependency. Invariant: it has at least one hash, and at least one set."""

    # Name, version and marker, as pip reads them: "librt==0.16.0 ; platform_python_implementation != 'PyPy'".
    requirement: str
    # "sha256:…", one for each file of this version.
    hashes: tuple[str, ...]
    sets: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.requirement.partition("==")[0]

    @property
    def version(self) -> str:
        return self.requirement.partition("==")[2].partition(" ")[0]

    def lines(self) -> str:
        """Return the pin as a requirement line of pip."""
        hashes = "".join(f" \\\n    --hash={each}" for each in self.hashes)
        return f"{self.requirement}{hashes}\n{USED_BY}{', '.join(self.sets)}\n"


def read(text: str) -> Iterator[Pin]:
    """Yield the pins of a file, in its order."""
    requirement, hashes = "", list[str]()
    for line in text.splitlines():
        if line.startswith(USED_BY):
            yield Pin(requirement, tuple(hashes), tuple(line.removeprefix(USED_BY).split(", ")))
        elif line.startswith("    --hash="):
            hashes.append(line.strip(" \\").removeprefix("--hash="))
        elif line and not line.startswith("#"):
            requirement, hashes = line.removesuffix(" \\"), []


def select(pins: Iterable[Pin], sets: Collection[str]) -> str:
    """Return the requirements of the sets."""
    return "".join(pin.lines() for pin in pins if not set(sets).isdisjoint(pin.sets))


def write(exported: str, needed: Mapping[str, Collection[str]]) -> str:
    """Return the file, from the output of `uv export` for all sets with hashes, and the names that each set needs."""
    pins: list[Pin] = []
    for line in exported.splitlines():
        if line.startswith("    --hash="):
            last = pins[-1]
            digest = line.strip(" \\").removeprefix("--hash=")
            pins[-1] = Pin(last.requirement, (*last.hashes, digest), last.sets)
        else:
            requirement = line.removesuffix(" \\")
            name = requirement.partition("==")[0]
            pins.append(Pin(requirement, (), tuple(each for each in SETS if name in needed[each])))
    return HEAD + "".join(pin.lines() for pin in pins if pin.sets)


def write_newest() -> None:
    """Resolve all sets with uv, and write constraints.txt."""
    root = FILE.parent
    _output("uv", "lock", "--quiet", "--upgrade", folder=root)
    needed = {
        **{
            folder: _names("--package", name, *(f"--extra={each}" for each in EXTRAS.get(folder, ())))
            for folder, name in PARTS.items()
        },
        **{group: _names("--only-group", group) for group in GROUPS},
    }
    exported = _output(*UV_EXPORT, "--all-packages", "--all-groups", folder=root)
    FILE.write_text(write(exported, needed))


def _names(*scope: str) -> set[str]:
    exported = _output(*UV_EXPORT, "--no-hashes", *scope, folder=FILE.parent)
    return {line.partition("==")[0] for line in exported.splitlines() if WINDOWS not in line}


def _output(*command: str, folder: Path) -> str:
    return subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=True).stdout


def main() -> None:
    """Run the subcommand: select or write."""
    parser = argparse.ArgumentParser(prog="pins", description="Read or write constraints.txt.")
    commands = parser.add_subparsers(dest="command", required=True)
    selecting = commands.add_parser("select", help="print the requirements of some sets")
    selecting.add_argument("sets", nargs="+", choices=SETS, metavar="SET", help=", ".join(SETS))
    commands.add_parser("write", help="write constraints.txt anew")
    options = parser.parse_args()
    if options.command == "write":
        write_newest()
    else:
        sys.stdout.write(select(read(FILE.read_text()), options.sets))


if __name__ == "__main__":
    main()
