"""The CustomResourceDefinitions of cert-manager for tests of the chart: fetched once per machine as a Go module, nothing is built."""

import json
import shutil
import subprocess
from pathlib import Path

from tests.support import cache
from tests.support.unavailable import Unavailable

MODULE = "github.com/cert-manager/cert-manager@v1.19.1"
SUM = "h1:Txh8L/nLWTDcb7ZnXuXbTe15BxQnLbLirXmbNk0fGgY="
DEFINITIONS = ("cert-manager.io_certificates.yaml",)


def definitions() -> Path:
    """The folder with the definitions."""
    return cache.build_once("cert-manager", cache.key_of(MODULE, SUM, *DEFINITIONS), _fetch)


def _fetch(folder: Path) -> None:
    if shutil.which("go") is None:
        raise Unavailable("no Go here to fetch cert-manager's definitions with: install it from go.dev/dl")
    # In the folder: the module of a checkout around it is of no concern.
    command = ["go", "mod", "download", "-json", MODULE]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    found = json.loads(done.stdout or "{}")
    if done.returncode != 0:
        raise Unavailable(
            f"cannot fetch {MODULE} ({found.get('Error') or done.stderr.strip()}); check that Go's proxy can be reached"
        )
    if found["Sum"] != SUM:
        raise Unavailable(f"{MODULE} has the sum {found['Sum']}, not {SUM}: find out who changed it")
    for name in DEFINITIONS:
        shutil.copy(Path(found["Dir"]) / "deploy" / "crds" / name, folder / name)
        (folder / name).chmod(0o644)
