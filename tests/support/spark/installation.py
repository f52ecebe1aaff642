"""
The Spark that pip installed, and the Java for it.

`prepare` is what `make test` calls before the tests, and what every start of a cluster calls again. It says
whether all is there, makes the folder of Spark without archives of Python sources, and the archive of classes with which the Javas of
tests start with a third less work.
"""

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.support import cache
from tests.support.java import java
from tests.support.processes import Process, ProcessFailed
from tests.support.unavailable import Unavailable

# Tests are short and pay for the start of many Javas, so these compile quickly instead of well.
QUICK_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
DAEMON_OPTIONS = (
    # It would open the one port that nobody chose.
    "-Dspark.master.rest.enabled=false",
    # A port that was taken in the meantime is an error, not a reason to listen on the next.
    "-Dspark.port.maxRetries=0",
)
WARM_UP = Path(__file__).with_name("warm_up.py")
WARM_UP_WITHIN_S = 300


@dataclass(frozen=True, slots=True)
class Installation:
    """Folder of Spark, and the environment of its processes."""

    home: Path
    environment: dict[str, str]
    java_options: str
    """With which drivers and executors start quickly; who measures sets other `extraJavaOptions`."""

    def program(self, name: str) -> Path:
        return self.home / "bin" / name


def prepare() -> Installation:
    """The installed Spark."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise Unavailable("pyspark is not installed here: run `scripts/setup all`")
    home = _home(Path(found.origin).parent)
    environment = {
        "SPARK_HOME": str(home),
        # Spark would follow a JAVA_HOME to another Java than the one that was checked.
        "JAVA_HOME": str(java().home),
        # Without it Spark asks the machine's name for an address, which may be no loopback.
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        # A Java that only prints the command line of the next one.
        "SPARK_LAUNCHER_OPTS": QUICK_JAVA,
        # The executors' Python has to be the driver's.
        "PYSPARK_PYTHON": sys.executable,
    }
    java_options = f"{QUICK_JAVA} -XX:SharedArchiveFile={_class_archive(home, environment)}"
    environment["SPARK_DAEMON_JAVA_OPTS"] = " ".join((java_options, *DAEMON_OPTIONS))
    return Installation(home, environment, java_options)


def _home(installed: Path) -> Path:
    """
    Spark's folder without its archives of Python sources, which are not compiled and which Spark puts before the installed modules.

    Each Python process of Spark compiles what it imports from them: a second of processor time, a quarter of one with installed modules.
    """

    def build(folder: Path) -> None:
        for each in installed.iterdir():
            if each.name != "python":
                (folder / each.name).symlink_to(each)

    return cache.build_once("spark-home", cache.key_of(str(installed), _made(installed)), build)


def _class_archive(home: Path, environment: dict[str, str]) -> Path:
    """Spark's classes as Java has them in memory; Java takes no archive but of exactly these files."""

    def build(folder: Path) -> None:
        command: list[str | Path] = [
            home / "bin" / "spark-submit",
            # Master and worker in the driver's own Java, so that one archive serves all of them.
            *("--master", "local-cluster[1,1,600]"),
            *("--conf", "spark.executor.memory=600m"),
            *("--conf", "spark.ui.enabled=false"),
            *("--conf", "spark.driver.host=127.0.0.1"),
            *("--driver-java-options", f"{QUICK_JAVA} -XX:ArchiveClassesAtExit={folder / 'classes.jsa'}"),
            WARM_UP,
        ]
        job = Process.start("Spark's warm-up", command, log=folder / "log", cwd=folder, env=environment)
        try:
            code = job.wait(within_s=WARM_UP_WITHIN_S)
        finally:
            job.kill()
        if code != 0:
            raise ProcessFailed(f"{job.name} ended with code {code}; its log ends:\n{job.tail()}")

    release = java().home / "release"
    key = cache.key_of(str(home), _made(home), release, WARM_UP)
    return cache.build_once("spark-classes", key, build) / "classes.jsa"


def _made(home: Path) -> str:
    """When its jars were installed."""
    return str((home / "jars").stat().st_mtime_ns)
