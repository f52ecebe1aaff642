"""
Credentials towards the API server: of the pod's service account, or of a kubeconfig file. Called once at the start.

Both clients get the same ones: `kubernetes.aio` for requests, kopf for watches. A service account's token is replaced in its file
about every hour; both read it anew.
"""

from pathlib import Path

import kopf
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config import ConfigException
from kubernetes.aio.config.incluster_config import load_incluster_config
from kubernetes.aio.config.kube_config import load_kube_config

# Requests of the workers, of the status writer and of Fleet at the same time.
CONNECTIONS_MAX = 32
BEARER = "Bearer "


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


async def connection_info(client: ApiClient) -> kopf.ConnectionInfo:
    """Return the client's credentials for kopf, with the token of now."""
    configuration = client.configuration
    auth = await configuration.auth_settings()
    value = auth["BearerToken"]["value"] if "BearerToken" in auth else None
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
        token=value.removeprefix(BEARER) if value else None,
    )
