"""
Flags of `rota_operator cluster`, parsed once into a frozen `ClusterConfig`; a variable ROTA_<FLAG> is its flag's default.

Called by `rota_operator.__main__`. What cannot work is refused here, before anything is started.
"""

import argparse
import os
import re
from dataclasses import dataclass
from pathlib import Path

from rota_service.addresses import is_loopback

LOG_FORMATS = ("auto", "json", "text")
SWITCH = {"true": True, "1": True, "false": False, "0": False}
SWITCHES = ("insecure", "spark")
NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
ADDRESS = re.compile(r"(?P<host>\[[^\]]+\]|[^:]+):(?P<port>[0-9]{1,5})")
PORT_MAX = 65_535
RESYNC_SECONDS = 300
# Flag, default, metavar, help.
STRING_FLAGS = (
    (
        "kubeconfig",
        "",
        "FILE",
        "credentials of the API server; without it, those of the pod's service account",
    ),
    (
        "http-listen",
        "127.0.0.1:7082",
        "HOST:PORT",
        "address for /livez, /readyz and /metrics, plain HTTP",
    ),
    (
        "page-listen",
        "127.0.0.1:7084",
        "HOST:PORT",
        "loopback address of the web page, which `kubectl rota ui` forwards a port to; empty: no page",
    ),
    ("fleet-listen", "127.0.0.1:7083", "HOST:PORT", "address of Fleet, which sidecars report to"),
    (
        "fleet-address",
        "",
        "HOST:PORT",
        "address at which sidecars reach Fleet, if it differs from --fleet-listen",
    ),
    ("sidecar-image", "", "IMAGE", "image of the sidecars of new ConsumerGroups; required"),
    ("tls-cert", "", "PEM", "Fleet's certificate chain"),
    ("tls-key", "", "PEM", "private key of Fleet's certificate"),
    (
        "tls-ca",
        "",
        "PEM",
        "certificate authority of Fleet and of Rota's coordinators, passed on to sidecars",
    ),
    (
        "token-file",
        "",
        "FILE",
        "bearer token for Rota's coordinators, of which this process has to be an administrator; read for each call",
    ),
    (
        "kafka-clusters",
        "",
        "FOLDER",
        "clusters.yaml with Kafka clusters, and a folder of credentials for each: groups without members are read there",
    ),
    (
        "lease-namespace",
        "",
        "NAME",
        "namespace of the Lease that elects the leader; default: the pod's own",
    ),
    (
        "lease-name",
        "rota-operator",
        "NAME",
        "name of that Lease; empty: no election, for a single operator",
    ),
    ("identity", "", "NAME", "this process's identity in the Lease; default: the host's name"),
)
DESCRIPTION = (
    "Runs the operator in a Kubernetes cluster: reconciles ConsumerGroup resources, serves Fleet to their sidecars. "
    "Each flag can also be set as an environment variable: ROTA_HTTP_LISTEN for --http-listen."
)


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """The operator's configuration. Invariant: it has passed `error_in`."""

    # Empty: all namespaces.
    namespaces: tuple[str, ...]
    # None: the credentials of the pod's service account.
    kubeconfig: Path | None
    # HOST:PORT to bind to.
    http_address: str
    # Loopback; empty: no page.
    page_address: str
    fleet_bind_address: str
    # HOST:PORT that sidecars dial.
    fleet_address: str
    sidecar_image: str
    # PEM files: Fleet's certificate and key, the authority of Rota's servers.
    tls_cert: Path | None
    tls_key: Path | None
    tls_ca: Path | None
    # Bearer token for Rota's coordinators.
    token_file: Path | None
    # Folder with the list of Kafka clusters and their credentials; None: there is none.
    kafka_clusters: Path | None
    # No TLS: towards sidecars, and towards Rota's coordinators.
    insecure: bool
    # Namespace and name of the Lease; identity in it. An empty name: no leader election.
    lease_namespace: str
    lease_name: str
    identity: str
    resync_seconds: int
    log_format: str
    # Manage SparkApplications, which needs further rights.
    spark: bool = False


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument(
        "--namespace",
        action="append",
        metavar="NAME",
        help="namespace whose ConsumerGroups are reconciled; repeatable; without it, those of all namespaces",
    )
    for flag, default, metavar, meaning in STRING_FLAGS:
        shown = f"{meaning} (default: {default})" if default else meaning
        parser.add_argument(f"--{flag}", default=default, metavar=metavar, help=shown)
    parser.add_argument(
        "--resync-seconds",
        type=int,
        default=RESYNC_SECONDS,
        metavar="N",
        help=f"interval at which every ConsumerGroup is compared with the cluster again (default: {RESYNC_SECONDS})",
    )
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="serve Fleet and dial Rota's coordinators without TLS: for trusted networks only",
    )
    parser.add_argument(
        "--spark",
        action="store_true",
        help="manage SparkApplications of ConsumerGroups with spark.enabled, which needs rights on them",
    )
    parser.add_argument(
        "--log-format",
        choices=LOG_FORMATS,
        default="auto",
        help="auto: text on a terminal, otherwise json (default: auto)",
    )
    parser.set_defaults(**variables(parser))


def variables(parser: argparse.ArgumentParser) -> dict[str, object]:
    """Return the defaults that ROTA_* variables give; a list is comma-separated."""
    found: dict[str, object] = {}
    for action in parser._actions:
        value = os.environ.get(f"ROTA_{action.dest.upper()}")
        if value is None or not action.option_strings:
            continue
        if action.dest == "namespace":
            found[action.dest] = value.split(",")
        elif action.dest in SWITCHES:
            if (switch := SWITCH.get(value.lower())) is None:
                parser.error(f'ROTA_{action.dest.upper()} must be true or false, not "{value}"')
            found[action.dest] = switch
        else:
            # argparse converts a default that is a string.
            found[action.dest] = value
    return found


def config_of(options: argparse.Namespace, own_namespace: str, host_name: str) -> ClusterConfig:
    """Return the configuration; `own_namespace` is the pod's, or empty."""
    return ClusterConfig(
        namespaces=tuple(dict.fromkeys(options.namespace or ())),
        kubeconfig=Path(options.kubeconfig) if options.kubeconfig else None,
        http_address=options.http_listen,
        page_address=options.page_listen,
        fleet_bind_address=options.fleet_listen,
        fleet_address=options.fleet_address or options.fleet_listen,
        sidecar_image=options.sidecar_image,
        tls_cert=Path(options.tls_cert) if options.tls_cert else None,
        tls_key=Path(options.tls_key) if options.tls_key else None,
        tls_ca=Path(options.tls_ca) if options.tls_ca else None,
        token_file=Path(options.token_file) if options.token_file else None,
        kafka_clusters=Path(options.kafka_clusters) if options.kafka_clusters else None,
        insecure=options.insecure,
        lease_namespace=options.lease_namespace or own_namespace,
        lease_name=options.lease_name,
        identity=options.identity or host_name,
        resync_seconds=options.resync_seconds,
        log_format=options.log_format,
        spark=options.spark,
    )


def error_in(config: ClusterConfig) -> str:
    """Return the error message for an invalid configuration; empty when it is valid."""
    for namespace in config.namespaces:
        if NAMESPACE.fullmatch(namespace) is None:
            return f'--namespace must be the name of a namespace, not "{namespace}"'
    if not config.sidecar_image:
        return "--sidecar-image is required: the image of the sidecars that are added to pods"
    if config.resync_seconds < 1:
        return f"--resync-seconds must be at least 1, not {config.resync_seconds}"
    if config.lease_name and not config.lease_namespace:
        return '--lease-namespace is required outside a pod; or give --lease-name "" for a single operator'
    return address_error(config) or security_error(config)


def address_error(config: ClusterConfig) -> str:
    """Return which address is malformed; empty if none is."""
    for flag, address in (
        ("http-listen", config.http_address),
        *([("page-listen", config.page_address)] if config.page_address else []),
        ("fleet-listen", config.fleet_bind_address),
        ("fleet-address", config.fleet_address),
    ):
        found = ADDRESS.fullmatch(address)
        if found is None or int(found["port"]) > PORT_MAX:
            return f'--{flag} must be HOST:PORT, for example 0.0.0.0:7083, not "{address}"'
    return ""


def security_error(config: ClusterConfig) -> str:
    """Return why Fleet, or the page, may not be served this way; empty when it may."""
    if config.page_address and not is_loopback(config.page_address):
        return f"--page-listen {config.page_address} must be a loopback address: readers send their tokens there in plain text"
    if (config.tls_cert is None) != (config.tls_key is None):
        missing = "--tls-key" if config.tls_key is None else "--tls-cert"
        return f"{missing} is missing; TLS requires a certificate and its key"
    if config.insecure and config.tls_cert is not None:
        return "--insecure and --tls-cert exclude each other; omit one of them"
    if config.tls_cert is None and not config.insecure and not is_loopback(config.fleet_bind_address):
        return (
            f"--fleet-listen {config.fleet_bind_address} is not loopback; add --tls-cert and --tls-key, "
            "or --insecure to allow it"
        )
    return ""
