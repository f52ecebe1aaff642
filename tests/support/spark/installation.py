"""
The Spark that pip installed, and the Java for it.

`prepare` is what `make test` calls before the tests, and what every start of a cluster calls again. There is
nothing to build: it says whether all is there.
"""

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.support.java import java
from tests.support.unavailable import Unavailable

DAEMON_OPTIONS = (
    # Master and workers live for minutes on a machine with few cores: a quick start is all that counts.
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    # It would open the one port that nobody chose.
    "-Dspark.master.rest.enabled=false",
    # A port that was taken in the meantime is an error, not a reason to listen on the next.
    "-Dspark.port.maxRetries=0",
)


@dataclass(frozen=True, slots=True)
class Installation:
    """Where Spark lies, and what its processes find in their environment."""

    home: Path
    environment: dict[str, str]

    def program(self, name: str) -> Path:
        return self.home / "bin" / name


def prepare() -> Installation:
    """The installed Spark."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise Unavailable("pyspark is not installed here: run `scripts/setup all`")
    home = Path(found.origin).parent
    environment = {
        "SPARK_HOME": str(home),
        # Spark would follow a JAVA_HOME to another Java than the one that was checked.
        "JAVA_HOME": str(java().home),
        # Without it Spark asks the machine's name for an address, which may be no loopback.
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": " ".join(DAEMON_OPTIONS),
        # The executors' Python has to be the driver's.
        "PYSPARK_PYTHON": sys.executable,
    }
    return Installation(home, environment)
