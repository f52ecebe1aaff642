"""
The Java that Kafka and Spark run on: the machine's own, checked before something obscure fails.

Kafka's brokers and Spark's daemons are both started with it.
"""

import functools
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support.unavailable import Unavailable

OLDEST = 17


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that is new enough: its program, and the folder it calls its home."""

    program: str
    home: Path


@functools.cache
def java() -> Java:
    """The `java` on PATH."""
    program = shutil.which("java")
    if program is None:
        raise Unavailable(f"no `java` on PATH: install a JDK of version {OLDEST} or newer")
    asked = subprocess.run([program, "-XshowSettings:properties", "-version"], capture_output=True, text=True)
    said = dict(re.findall(r"^ +(java\.\S+) = (.+)$", asked.stderr, re.MULTILINE))
    version = said.get("java.specification.version", "unknown")
    if not version.isdigit() or int(version) < OLDEST:  # Java 8 called itself 1.8
        raise Unavailable(
            f"{program} is Java {version}: install a JDK of version {OLDEST} or newer and put it first on PATH"
        )
    return Java(program, Path(said["java.home"]))
