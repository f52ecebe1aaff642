"""
Writes docs/reference/licences.md: the licence of each dependency in constraints.txt, and which parts and tools need it.

Run as `python -m scripts.generate_licences`; `--check` only compares. Called by make. A licence that is not in `ALLOWED`, or that
cannot be read, is refused in a sentence.
"""

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageMetadata, PackageNotFoundError, metadata
from pathlib import Path

from scripts.pins import FILE as CONSTRAINTS
from scripts.pins import GROUPS, Pin, read

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "licences.md"
HEAD = """<!-- Generated from constraints.txt and installed metadata by scripts/generate_licences.py; do not edit. -->
# Licences of dependencies

Rota itself is under Apache-2.0. Licences are SPDX expressions, from the metadata of each version in `constraints.txt`. The parts
are what users install; `build`, `check` and `test` are tools of this repository, which no part ships. Why these licences are
accepted, and how advisories are looked up: [decision 0015](../decisions/0015-dependencies-by-hash.md).

| dependency | licence | parts | tools |
|---|---|---|---|
"""
# Weak copyleft is accepted unmodified and as a library of its own: MPL-2.0 by file, LGPL-3.0 because Python imports it at run time.
ALLOWED = frozenset(
    {
        *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "PSF-2.0", "Zlib"),
        *("LGPL-3.0-only", "MPL-2.0"),
    }
)
# Licence names in older metadata -> SPDX expressions.
SPDX = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD 2-Clause License": "BSD-2-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
# Licences of dependencies whose metadata is ambiguous, with their sources.
STATED = {
    "apsw": "Zlib",  # "any-OSI" in the metadata: any licence that the OSI approves
    "py4j": "BSD-3-Clause",  # its LICENSE.txt has three clauses
    # Installed on Windows only.
    "colorama": "BSD-3-Clause",
    "tzdata": "Apache-2.0",
}
OPERATORS = re.compile(r"\s+(?:AND|OR|WITH)\s+|[()]")


class Refused(Exception):
    """A licence cannot be accepted as it is; the message names the dependency and what to do."""


def expression(found: PackageMetadata) -> str:
    """Return the licence of a distribution's metadata as SPDX expression; empty if it is unknown or not accepted."""
    licences = found.get_all("License-Expression") or [
        *(found.get_all("License") or []),
        *(
            each.rpartition(" :: ")[2]
            for each in found.get_all("Classifier") or []
            if each.startswith("License")
        ),
    ]
    candidates = (SPDX.get(each, each) for each in licences)
    return next((each for each in candidates if is_accepted(each)), "")


def is_accepted(text: str) -> bool:
    """Return whether every licence of the expression is in `ALLOWED`."""
    return set(filter(None, OPERATORS.split(text))) <= ALLOWED and bool(text)


def licence_of(name: str) -> str:
    """Return the licence of a dependency. Raises Refused if it is unknown or not accepted."""
    if name in STATED:
        return STATED[name]
    try:
        found = metadata(name)
    except PackageNotFoundError as missing:
        raise Refused(f"{name} is not installed here: run 'make setup', or state its licence") from missing
    licence = expression(found)
    if not licence:
        raise Refused(
            f"{name} has no licence that is accepted: add it to ALLOWED in scripts/generate_licences.py with a reason, "
            "or replace the dependency"
        )
    return licence


def rows(pins: Iterable[Pin]) -> Iterator[str]:
    """Yield the lines of the table."""
    for pin in pins:
        parts = ", ".join(each for each in pin.sets if each not in GROUPS)
        tools = ", ".join(each for each in pin.sets if each in GROUPS)
        yield f"| {pin.name} {pin.version} | {licence_of(pin.name)} | {parts} | {tools} |\n"


def written() -> str:
    """Return the page."""
    return HEAD + "".join(rows(read(CONSTRAINTS.read_text())))


def main() -> int:
    """Write the page, or compare it with --check."""
    parser = argparse.ArgumentParser(
        prog="generate_licences", description="Write docs/reference/licences.md."
    )
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    check = parser.parse_args().check
    try:
        page = written()
    except Refused as refused:
        print(f"licences: {refused}", file=sys.stderr)
        return 1
    if not check:
        PAGE.write_text(page)
    elif not PAGE.exists() or PAGE.read_text() != page:
        print(
            f"licences: docs/reference/{PAGE.name} is not what constraints.txt says; "
            "run 'python -m scripts.generate_licences'",
            file=sys.stderr,
        )
        return 1
    print("licences: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
