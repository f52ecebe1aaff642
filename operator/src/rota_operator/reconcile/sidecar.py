"""
Builds the sidecar of a pod: the init container with its flags and mounts, and the volumes of the pod.

All lists have one order, so equal inputs give equal objects, and an unchanged spec rolls no pod. Secrets are files that only
the sidecar's container has; neither a flag nor a variable holds one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rota_operator.plan.settings import flags_of
from rota_operator.reconcile.group import Group
from rota_operator.reconcile.observed import OperatorSettings
from rota_operator.reconcile.settings import AUTHORITY_FILE, SETTINGS_FILE, settings_hash
from rota_operator.reconcile.target import SIDECAR
from rota_operator.spec.auth import Auth, Sasl, SecretKey, ServiceAccountToken
from rota_operator.spec.model import ConsumerGroupSpec

Part = dict[str, Any]
# Volumes, and where they are mounted.
APP_VOLUME, APP_FOLDER = "rota-app", "/var/run/rota"
STATE_VOLUME, STATE_FOLDER = "rota-state", "/var/lib/rota"
SETTINGS_VOLUME, SETTINGS_FOLDER = "rota-settings", "/etc/rota/settings"
TOKEN_VOLUME, TOKEN_FOLDER = "rota-token", "/var/run/secrets/rota"
AUTH_VOLUME, AUTH_FOLDER = "rota-auth", "/etc/rota/auth"
KERBEROS_FILE = "krb5.conf"
KAFKA_TOKEN = "kafka-token"
APP_SOCKET = f"{APP_FOLDER}/app.sock"
DRAIN_SOCKET = f"{STATE_FOLDER}/drain.sock"
HTTP_PORT, HTTP_PORT_NAME = 7081, "rota-http"
TOKEN_FILE, CA_FILE = f"{TOKEN_FOLDER}/token", f"{TOKEN_FOLDER}/{AUTHORITY_FILE}"
TOKEN_AUDIENCE, TOKEN_S = "rota", 3600
# As in the Dockerfile.
USER = 65532
# Labels that Kubernetes copies from a node to its pods, since that version.
RACK_KEYS = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")
RACK_VERSION = (1, 35)
# When the grace period is over, the kubelet gives a sidecar 2 s more.
AFTER_GRACE_S = 15
# The longest drain that a sidecar accepts.
DRAIN_MS_MAX = 24 * 3_600_000
STARTUP_PERIOD_S, STARTUP_FAILURES = 1, 120
LIVENESS_PERIOD_S, READINESS_PERIOD_S, PROBE_TIMEOUT_S = 10, 5, 5


class SecretFile(NamedTuple):
    """A key of a Secret as a file of the sidecar."""

    # Empty for krb5.conf, whose path is in a variable.
    flag: str
    file: str
    key: SecretKey


@dataclass(frozen=True, slots=True)
class SidecarSpec:
    """Inputs of the sidecar of one workload."""

    group: Group
    # Kind of the workload.
    kind: str
    image: str
    settings: OperatorSettings
    # Kubernetes' (major, minor) version.
    version: tuple[int, int]


def container(wanted: SidecarSpec, grace_s: int) -> Part:
    """Return the init container that stays, a native sidecar, of pods with this grace period."""
    sidecar = wanted.group.spec.sidecar
    return {
        "name": SIDECAR,
        "image": wanted.image,
        "imagePullPolicy": sidecar.image_pull_policy,
        "restartPolicy": "Always",
        "args": arguments(wanted),
        "env": _environment(wanted),
        "ports": [{"name": HTTP_PORT_NAME, "containerPort": HTTP_PORT, "protocol": "TCP"}],
        "startupProbe": {
            **_probe("/livez"),
            "periodSeconds": STARTUP_PERIOD_S,
            "failureThreshold": STARTUP_FAILURES,
        },
        "livenessProbe": {**_probe("/livez"), "periodSeconds": LIVENESS_PERIOD_S},
        "readinessProbe": {**_probe("/readyz"), "periodSeconds": READINESS_PERIOD_S},
        "lifecycle": {"preStop": {"exec": {"command": drain_command(grace_s)}}},
        "resources": {
            name: dict(sorted(amounts.items()))
            for name, amounts in (("limits", sidecar.resources.limits), ("requests", sidecar.resources.requests))
            if amounts
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsGroup": USER,
            "runAsNonRoot": True,
            "runAsUser": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        # A sidecar that does not start says why in its last line: `kubectl describe pod` shows it.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": list(_mounts(wanted)),
    }  # fmt: skip


def drain_command(grace_s: int) -> Sequence[str]:
    """
    Return the command with which a pod that terminates begins its drain.

    The drain lasts beyond the pod: an application that is still there at the end of the grace period would else get records in
    its last moments, which are then repeated.
    """
    for_ms = min((grace_s + AFTER_GRACE_S) * 1000, DRAIN_MS_MAX)
    return ["python", "-m", "rota_sidecar", "drain", f"--for-ms={for_ms}"]


def volumes(wanted: SidecarSpec) -> Sequence[Part]:
    """Return the pod's volumes, sorted by name."""
    found: list[Part] = [
        {"name": APP_VOLUME, "emptyDir": {}},
        {"name": SETTINGS_VOLUME, "configMap": {"name": wanted.group.identity.objects_name}},
        {"name": STATE_VOLUME, "emptyDir": {}},
        token_volume(wanted.settings, wanted.group.identity.objects_name),
    ]
    if sources := list(_auth_sources(wanted.group.spec.auth)):
        found.append({"name": AUTH_VOLUME, "projected": {"sources": sources}})
    return sorted(found, key=lambda volume: str(volume["name"]))


def _auth_sources(auth: Auth) -> Iterator[Part]:
    """Yield the sources of the volume with credentials: Secrets, and the token for Kafka."""
    for each in secret_files(auth):
        yield {"secret": {"name": each.key.name, "items": [{"key": each.key.key, "path": each.file}]}}
    token = _kafka_token(auth)
    if token is not None:
        yield {
            "serviceAccountToken": {
                "audience": token.audience,
                "expirationSeconds": token.expiration_seconds,
                "path": KAFKA_TOKEN,
            }
        }


def _kafka_token(auth: Auth) -> ServiceAccountToken | None:
    """Return the service account token with which the sidecar logs in to Kafka."""
    oauth = None if auth.sasl is None else auth.sasl.oauthbearer
    return None if oauth is None else oauth.service_account_token


def app_mount() -> Part:
    """Return the mount of the socket's volume, which application and sidecar share."""
    return {"name": APP_VOLUME, "mountPath": APP_FOLDER}


def token_mount() -> Part:
    """Return the mount of the volume with the pod's token and the authority of Rota's servers."""
    return {"name": TOKEN_VOLUME, "mountPath": TOKEN_FOLDER, "readOnly": True}


def token_volume(settings: OperatorSettings, config_map: str) -> Part:
    """Return the volume with the pod's token, and with the authority of Rota's servers, which is in this ConfigMap."""
    token = {"audience": TOKEN_AUDIENCE, "expirationSeconds": TOKEN_S, "path": "token"}
    sources: list[Part] = [{"serviceAccountToken": token}]
    if settings.authority:
        items = [{"key": AUTHORITY_FILE, "path": AUTHORITY_FILE}]
        sources.append({"configMap": {"name": config_map, "items": items}})
    return {"name": TOKEN_VOLUME, "projected": {"sources": sources}}


def client_environment(settings: OperatorSettings) -> Mapping[str, str]:
    """
    Return the variables with which an application connects to Rota's servers itself, as a producer does.

    None without an authority: those servers have no TLS then, and a token in plain text would be another client's.
    """
    return {"ROTA_TLS_CA": CA_FILE, "ROTA_TOKEN_FILE": TOKEN_FILE} if settings.authority else {}


def arguments(wanted: SidecarSpec) -> Sequence[str]:
    """Return the sidecar's flags."""
    spec = wanted.group.spec
    found = [
        *map(_literal, flags_of(spec, wanted.group.group_id)),
        f"--settings={SETTINGS_FOLDER}/{SETTINGS_FILE}",
        "--listen=",
        f"--listen-socket={APP_SOCKET}",
        # Private by its mount, so that an application of any user attaches.
        "--listen-socket-mode=0666",
        f"--http-listen=0.0.0.0:{HTTP_PORT}",
        f"--state-folder={STATE_FOLDER}/member",
        f"--fleet={_literal(wanted.settings.fleet_address)}",
        f"--token-file={TOKEN_FILE}",
        "--client-id=$(POD_NAME)",
        f"--settings-hash={settings_hash(spec)}",
        "--log-format=json",
    ]
    if needs_instances(spec, wanted.kind):
        found.append("--static")
    elif spec.membership.static:
        found.append("--group-instance-id=$(POD_NAME)")
    return [*found, *_trust_flags(wanted.settings), *_auth_flags(spec.auth)]


def needs_instances(spec: ConsumerGroupSpec, kind: str) -> bool:
    """Return whether static members get their instances from Fleet: only a StatefulSet gives a pod the name of the one before it."""
    return spec.membership.static and kind != "StatefulSet"


def rack_problem(wanted: SidecarSpec) -> str:
    """Return why the members have no rack; empty: they have one, or none is wanted."""
    key = wanted.group.spec.membership.rack_topology_key
    if not key or has_rack(wanted):
        return ""
    if key not in RACK_KEYS:
        return (
            f"spec.membership.rackTopologyKey: the label {key} of a node is not copied to its pods; "
            f"use one of {', '.join(RACK_KEYS)}"
        )
    return (
        f"spec.membership.rackTopologyKey: Kubernetes {'.'.join(map(str, wanted.version))} does not copy the label {key} "
        f"to pods; upgrade to {'.'.join(map(str, RACK_VERSION))}"
    )


def has_rack(wanted: SidecarSpec) -> bool:
    """Return whether the pod's topology label is available by the downward API."""
    return wanted.version >= RACK_VERSION and wanted.group.spec.membership.rack_topology_key in RACK_KEYS


def secret_files(auth: Auth) -> Sequence[SecretFile]:
    """Return the files that `spec.auth` needs."""
    tls, sasl = auth.tls, auth.sasl
    kerberos = None if sasl is None else sasl.kerberos
    oauth = None if sasl is None else sasl.oauthbearer
    found = [
        ("tls-ca", "ca.crt", None if tls is None else tls.ca_cert_secret),
        ("tls-cert", "tls.crt", None if tls is None else tls.cert_secret),
        ("tls-key", "tls.key", None if tls is None else tls.key_secret),
        ("sasl-username-file", "username", None if sasl is None else sasl.user_secret),
        ("sasl-password-file", "password", None if sasl is None else sasl.password_secret),
        ("sasl-oauthbearer-client-id-file", "client-id", None if oauth is None else oauth.client_id_secret),
        (
            "sasl-oauthbearer-client-secret-file",
            "client-secret",
            None if oauth is None else oauth.client_secret_secret,
        ),
        ("sasl-oauthbearer-tls-ca", "token-endpoint-ca.crt", None if oauth is None else oauth.ca_cert_secret),
        ("sasl-kerberos-keytab", "keytab", None if kerberos is None else kerberos.keytab_secret),
        ("", KERBEROS_FILE, None if kerberos is None else kerberos.krb5_conf_secret),
    ]
    return [SecretFile(flag, file, key) for flag, file, key in found if key is not None]


def _trust_flags(settings: OperatorSettings) -> Iterator[str]:
    """Yield how Rota's own servers are reached: Fleet and coordinator. The TLS of Kafka says nothing about them."""
    if settings.insecure:
        yield "--insecure"
    if settings.authority:
        yield f"--rota-tls-ca={SETTINGS_FOLDER}/{AUTHORITY_FILE}"
    else:
        yield "--no-rota-tls" if settings.insecure else "--rota-tls"


def _auth_flags(auth: Auth) -> Iterator[str]:
    if auth.tls is not None:
        yield "--tls"
    if auth.sasl is not None:
        yield f"--sasl-mechanism={auth.sasl.mechanism}"
        yield from _token_flags(auth.sasl)
    if auth.sasl is not None and auth.sasl.kerberos is not None:
        yield f"--sasl-kerberos-service-name={auth.sasl.kerberos.service_name}"
        if auth.sasl.kerberos.principal is not None:
            yield f"--sasl-kerberos-principal={_literal(auth.sasl.kerberos.principal)}"
    for each in secret_files(auth):
        if each.flag:
            yield f"--{each.flag}={AUTH_FOLDER}/{each.file}"


def _token_flags(sasl: Sasl) -> Iterator[str]:
    """Yield where the bearer tokens for Kafka come from."""
    oauth = sasl.oauthbearer
    if oauth is None:
        return
    is_file = oauth.service_account_token is not None
    url = f"file://{AUTH_FOLDER}/{KAFKA_TOKEN}" if is_file else _literal(oauth.token_endpoint_url)
    yield f"--sasl-oauthbearer-token-endpoint-url={url}"
    if oauth.scope:
        yield f"--sasl-oauthbearer-scope={_literal(oauth.scope)}"


def _environment(wanted: SidecarSpec) -> Sequence[Part]:
    found: list[Part] = [
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
        # Read by the sidecar, and by `rota_sidecar drain`.
        {"name": "ROTA_DRAIN_SOCKET", "value": DRAIN_SOCKET},
    ]
    sasl = wanted.group.spec.auth.sasl
    if sasl is not None and sasl.kerberos is not None:
        found.append({"name": "KRB5_CONFIG", "value": f"{AUTH_FOLDER}/{KERBEROS_FILE}"})
    if has_rack(wanted):
        key = wanted.group.spec.membership.rack_topology_key
        field = {"apiVersion": "v1", "fieldPath": f"metadata.labels['{key}']"}
        found.append({"name": "ROTA_RACK", "valueFrom": {"fieldRef": field}})
    return found


def _mounts(wanted: SidecarSpec) -> Iterator[Part]:
    yield app_mount()
    if list(_auth_sources(wanted.group.spec.auth)):
        yield {"name": AUTH_VOLUME, "mountPath": AUTH_FOLDER, "readOnly": True}
    yield {"name": SETTINGS_VOLUME, "mountPath": SETTINGS_FOLDER, "readOnly": True}
    yield {"name": STATE_VOLUME, "mountPath": STATE_FOLDER}
    yield token_mount()


def _probe(path: str) -> Part:
    return {"httpGet": {"path": path, "port": HTTP_PORT_NAME}, "timeoutSeconds": PROBE_TIMEOUT_S}


def _literal(text: str) -> str:
    """Escape a text for a container's arguments, in which the kubelet expands $(NAME) and $$."""
    return text.replace("$", "$$")
