"""
Kafka's jars, fetched by Maven once for each state of `pom.xml`.

Every start of a broker asks for them.
"""

import shutil
import subprocess
from pathlib import Path

from tests.support import cache
from tests.support.java import java
from tests.support.unavailable import Unavailable

POM = Path(__file__).with_name("pom.xml")


def fetched() -> Path:
    """The folder of the jars; fetched on the first call."""
    java()
    return cache.build_once("kafka", cache.key_of(POM), _fetch)


def _fetch(folder: Path) -> None:
    if shutil.which("mvn") is None:
        raise Unavailable("no `mvn` on PATH to fetch Kafka's jars: install Maven 3.8 or newer")
    # The pom lies in a folder of its own: Maven writes beside it.
    work = folder.with_suffix(".maven")
    work.mkdir(exist_ok=True)
    shutil.copy(POM, work)
    done = subprocess.run(
        ["mvn", "-B", "-q", "-Dstyle.color=never", "-f", work / POM.name, "dependency:copy-dependencies",
         "-DincludeScope=runtime", f"-DoutputDirectory={folder}"],
        capture_output=True, text=True,
    )  # fmt: skip
    shutil.rmtree(work)
    if done.returncode != 0:
        said = (done.stdout.strip().splitlines() or ["nothing"])[0]
        raise Unavailable(
            f"Maven could not fetch Kafka's jars ({said}); check that it can reach a Maven repository"
        )
