"""
Builds KEDA's operator and its metrics adapter, from their Go module.

No tier prepares them: the build takes minutes, and only a soak and a benchmark run them. `running` asks for the programs.
"""

import os
import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.support import cache
from tests.support.cluster import machinery
from tests.support.definitions import KEDA

PROGRAM = Path(__file__).parent / "program"
MODULE = "github.com/kedacore/keda/v2/cmd"


class Programs(NamedTuple):
    """Paths of the programs."""

    operator: Path
    # Serves the metrics of ScaledObjects to HorizontalPodAutoscalers, as a server of an APIService.
    adapter: Path


def prepare() -> Programs:
    """Build and fetch what is missing: ten minutes on a machine that never built KEDA."""
    KEDA.fetched()
    return programs()


def programs() -> Programs:
    """Return the programs, in the version of the definitions."""
    go = machinery.go_version()

    def build(folder: Path) -> None:
        subprocess.run(
            ["go", "build", "-trimpath", "-ldflags=-s -w", "-o", f"{folder}/"]
            + [f"{MODULE}/{name}" for name in Programs._fields],
            cwd=PROGRAM,
            env={**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"},
            check=True,
        )

    folder = cache.build_once("keda-programs", cache.key_of(go, *sorted(PROGRAM.iterdir())), build)
    return Programs(*(folder / name for name in Programs._fields))
