"""
Credentials towards the API server: of the pod's service account, or of a kubeconfig file. Called once at the start.

Both clients use them: `kubernetes.aio` for requests, kopf for watches (`Api.connection_info`). The token of a service account is
replaced in its file about every hour; both read it anew.
"""

from pathlib import Path

from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config import ConfigException
from kubernetes.aio.config.incluster_config import load_incluster_config
from kubernetes.aio.config.kube_config import load_kube_config

# Requests of the workers, of the status writer and of Fleet at the same time.
CONNECTIONS_MAX = 32


class NoCredentials(Exception):
    """There is no usable kubeconfig, and this process is not in a pod; the message names what to do."""


async def load(kubeconfig: Path | None) -> ApiClient:
    """Load credentials and return a client that uses them. Raises NoCredentials."""
    configuration = Configuration()
    configuration.connection_pool_maxsize = CONNECTIONS_MAX
    try:
        if kubeconfig is not None:
            await load_kube_config(str(kubeconfig), client_configuration=configuration)  # type: ignore[no-untyped-call]
        else:
            load_incluster_config(configuration)  # type: ignore[no-untyped-call]
    except (ConfigException, OSError) as error:
        remedy = "check --kubeconfig" if kubeconfig else "give --kubeconfig, or run the operator in a pod"
        raise NoCredentials(f"cannot load credentials of the API server ({error}); {remedy}") from None
    return ApiClient(configuration)
