"""
Finds the API server and the caller's credentials, in the order of kubectl: `--kubeconfig`, `KUBECONFIG`, `~/.kube/config`, and
the service account of a pod. Used by `ApiFlags`; gives `Access`, which `Api` opens.
"""

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes.client.configuration import Configuration
from kubernetes.config import ConfigException, load_kube_config
from kubernetes.config.incluster_config import SERVICE_HOST_ENV_NAME, InClusterConfigLoader
from kubernetes.config.kube_config import KubeConfigMerger
from yaml import YAMLError

from rota_cli.errors import Failure, NotFound, WrongUsage

DEFAULT_FILE = "~/.kube/config"
DEFAULT_NAMESPACE = "default"
# Where the kubelet mounts the token of a pod's service account, the API server's authority and the namespace.
SERVICE_ACCOUNT_FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Access:
    """An API server, with credentials and the namespace of the context."""

    configuration: Configuration
    namespace: str
    # As `kubectl rota doctor` names it.
    source: str

    @property
    def server(self) -> str:
        """Return the address of the API server."""
        return str(self.configuration.host)


def find_access(kubeconfig: str, context: str) -> Access:
    """Load the kubeconfig; empty arguments mean kubectl's defaults. Raises NotFound or WrongUsage."""
    files = kubeconfig or os.environ.get("KUBECONFIG", "") or DEFAULT_FILE
    if not any(Path(each).expanduser().exists() for each in files.split(os.pathsep) if each):
        if kubeconfig or context or SERVICE_HOST_ENV_NAME not in os.environ:
            raise NotFound(f"no kubeconfig at {files}: name one with --kubeconfig or KUBECONFIG")
        return _pod_access(files, SERVICE_ACCOUNT_FOLDER)
    try:
        return _file_access(files, context)
    except (ConfigException, YAMLError, UnicodeError, OSError, TypeError, KeyError, AttributeError) as error:
        # The loader meets malformed files with any of these.
        reason = " ".join(str(error).split())
        raise WrongUsage(
            f"the kubeconfig {files} cannot be used ({reason}): check it with `kubectl config view`"
        ) from None


def _file_access(files: str, context: str) -> Access:
    merged = KubeConfigMerger(files)  # type: ignore[no-untyped-call]
    node = merged.config
    config: Mapping[str, Any] = {} if node is None else node.value
    contexts = {str(each.value["name"]): each.value for each in config.get("contexts") or ()}
    name = context or str(config.get("current-context") or "")
    if not name:
        raise WrongUsage(f"the kubeconfig {files} has no current context: choose one with --context")
    if name not in contexts:
        raise NotFound(f"no context {name} in the kubeconfig {files}: see `kubectl config get-contexts`")
    configuration = _configuration()
    with _logged_errors() as problems:
        load_kube_config(
            config_file=files, context=name, client_configuration=configuration, persist_config=False
        )  # type: ignore[no-untyped-call]
    if problems:
        raise Failure(
            f"no credentials for context {name} of {files} ({'; '.join(problems)}): log in again, or check its user with `kubectl config view`"
        )
    namespace = (contexts[name].get("context") or {}).get("namespace") or DEFAULT_NAMESPACE
    return Access(configuration, str(namespace), f"context {name} of {files}")


@contextmanager
def _logged_errors() -> Iterator[list[str]]:
    """Yield the errors that are logged within the block: the loader logs those of credential plugins, and goes on without any."""
    found: list[str] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: found.append(" ".join(record.getMessage().split()))  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    try:
        yield found
    finally:
        logging.getLogger().removeHandler(handler)


def _pod_access(files: str, folder: Path) -> Access:
    """Load the service account of this pod; its token is read again each minute, because the kubelet replaces it."""
    configuration = _configuration()
    loader = InClusterConfigLoader(str(folder / "token"), str(folder / "ca.crt"))  # type: ignore[no-untyped-call]
    try:
        loader.load_and_set(configuration)  # type: ignore[no-untyped-call]
        namespace = (folder / "namespace").read_text().strip()
    except (ConfigException, OSError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise NotFound(
            f"no kubeconfig at {files}, and no service account of this pod at {folder} ({reason}): set "
            "automountServiceAccountToken in the pod's spec, or name a kubeconfig with --kubeconfig or KUBECONFIG"
        ) from None
    return Access(configuration, namespace or DEFAULT_NAMESPACE, "the pod's service account")


def _configuration() -> Configuration:
    configuration = Configuration()
    # Requests have a deadline, and each failure is shown at once.
    configuration.retries = False
    return configuration
