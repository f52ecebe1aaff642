"""The CustomResourceDefinitions of others for tests of the chart and of the operator: fetched once per machine as Go modules, nothing is built."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.support import cache
from tests.support.unavailable import Unavailable


class Definitions(NamedTuple):
    """Definitions in a Go module."""

    name: str
    module: str
    sum: str
    # Folder of the files in the module.
    folder: str
    # Paths below it, which they keep.
    files: tuple[str, ...]

    def fetched(self) -> Path:
        """The folder with the definitions."""
        key = cache.key_of(self.module, self.sum, *self.files)
        return cache.build_once(self.name, key, self._fetch)

    def first(self) -> Path:
        """The first one of them alone."""
        return self.fetched() / self.files[0]

    def _fetch(self, folder: Path) -> None:
        if shutil.which("go") is None:
            raise Unavailable(
                f"no Go here to fetch the definitions of {self.name} with: install it from go.dev/dl"
            )
        # In the folder: the module of a checkout around it is of no concern.
        command = ["go", "mod", "download", "-json", self.module]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        found = json.loads(done.stdout or "{}")
        if done.returncode != 0:
            raise Unavailable(
                f"cannot fetch {self.module} ({found.get('Error') or done.stderr.strip()}); check that Go's proxy can be reached"
            )
        if found["Sum"] != self.sum:
            raise Unavailable(
                f"{self.module} has the sum {found['Sum']}, not {self.sum}: find out who changed it"
            )
        for name in self.files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(Path(found["Dir"]) / self.folder / name, folder / name)
            (folder / name).chmod(0o644)


CERT_MANAGER = Definitions(
    "cert-manager",
    "github.com/cert-manager/cert-manager@v1.19.1",
    "h1:Txh8L/nLWTDcb7ZnXuXbTe15BxQnLbLirXmbNk0fGgY=",
    "deploy/crds",
    ("cert-manager.io_certificates.yaml",),
)
PROMETHEUS_OPERATOR = Definitions(
    "prometheus-operator",
    "github.com/prometheus-operator/prometheus-operator@v0.85.0",
    "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=",
    "example/prometheus-operator-crd",
    (
        "monitoring.coreos.com_podmonitors.yaml",
        "monitoring.coreos.com_servicemonitors.yaml",
        "monitoring.coreos.com_prometheusrules.yaml",
    ),
)
SPARK_OPERATOR = Definitions(
    "spark-operator",
    "github.com/kubeflow/spark-operator/v2@v2.5.2",
    "h1:6nX2UhwSfnYi1mtwczgFfJTMeLSL/1ajTvkFe8R7Vdc=",
    "config/crd/bases",
    (
        "sparkoperator.k8s.io_sparkapplications.yaml",
        "sparkoperator.k8s.io_scheduledsparkapplications.yaml",
        "sparkoperator.k8s.io_sparkconnects.yaml",
    ),
)
# With the rights of its account: those that its users give it.
KEDA = Definitions(
    "keda",
    "github.com/kedacore/keda/v2@v2.21.0",
    "h1:R6z2HZvstK4RLUMxroNACzBj74xGxt3kG59b5Xc+Xps=",
    "config",
    (
        "crd/bases/eventing.keda.sh_cloudeventsources.yaml",
        "crd/bases/eventing.keda.sh_clustercloudeventsources.yaml",
        "crd/bases/keda.sh_clustertriggerauthentications.yaml",
        "crd/bases/keda.sh_scaledjobs.yaml",
        "crd/bases/keda.sh_scaledobjects.yaml",
        "crd/bases/keda.sh_triggerauthentications.yaml",
        "service_account/service_account.yaml",
        "rbac/role.yaml",
        "rbac/role_binding.yaml",
        "metrics-server/role.yaml",
        "metrics-server/role_binding.yaml",
    ),
)
