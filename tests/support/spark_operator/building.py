"""
Builds Kubeflow's Spark operator; the image of the applications is one of `tests.support.rota_images`.

`prepare` is what the tier runner calls before the tests; `running` asks for the program again.
"""

import os
import subprocess
from pathlib import Path

from tests.support import cache
from tests.support.cluster import machinery
from tests.support.definitions import SPARK_OPERATOR
from tests.support.spark import installation

PROGRAM = Path(__file__).parent / "program"
PACKAGE = "github.com/kubeflow/spark-operator/v2/cmd/operator"


def prepare() -> None:
    """Build what is missing: two minutes on a machine that never built the operator."""
    # It submits applications by the Spark of this machine.
    installation.prepare()
    SPARK_OPERATOR.fetched()
    program()


def program() -> Path:
    """Return the Spark operator, in the version of its definitions."""
    go = machinery.go_version()

    def build(folder: Path) -> None:
        subprocess.run(
            ["go", "build", "-trimpath", "-ldflags=-s -w", "-o", folder / "spark-operator", PACKAGE],
            cwd=PROGRAM,
            env={**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"},
            check=True,
        )

    key = cache.key_of(go, *sorted(PROGRAM.iterdir()))
    return cache.build_once("spark-operator-program", key, build) / "spark-operator"
