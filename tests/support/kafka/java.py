"""
The Java that Kafka and Spark run on: the machine's own, checked once before something obscure fails.

Kafka's brokers and Spark's daemons both call this before they start anything.
"""

import functools
import re
import shutil
import subprocess

from tests.support.unavailable import Unavailable

OLDEST = 17


@functools.cache
def java() -> str:
    """The path of a `java` that is new enough."""
    found = shutil.which("java")
    if found is None:
        raise Unavailable(f"no `java` on PATH: install a JDK of version {OLDEST} or newer")
    # The version goes to stderr, as in: openjdk version "17.0.15" 2025-04-15
    answer = subprocess.run([found, "-version"], capture_output=True, text=True).stderr
    version = re.search(r'version "(\d+)', answer)
    if version is None or int(version[1]) < OLDEST:
        said = (answer.strip().splitlines() or ["nothing"])[0]
        raise Unavailable(f"{found} is not Java {OLDEST} or newer (it says: {said}): install a newer JDK")
    return found
