"""
Computes the processes of a replica, application and sidecar: command, environment, working directory, files.

Pure. `$(NAME)` in a command is replaced by the variable, as in Kubernetes; every `rota://` address is replaced by the local
coordinator's address, or by the Kafka brokers given with `--kafka`.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rota_operator.local.processes import Command
from rota_operator.manifests.resources import ConsumerGroup, Manifests, NamespacedName, Workload
from rota_operator.manifests.workloads import Container, EnvVar, FieldSelector
from rota_operator.plan.settings import flags_of
from rota_operator.replicas.events import ReplicaPolicy
from rota_operator.spec.model import ROTA
from rota_service.private_files import OTHERS

ADDRESS = re.compile(re.escape(ROTA) + r"[A-Za-z0-9.\-]+(:[0-9]+)?")
REFERENCE = re.compile(r"\$(\$)?\(([A-Za-z_][A-Za-z0-9_]*)\)")
# Values of pod fields (downward API) that a local process has no pod for.
LOCAL_NODE, LOCAL_ADDRESS = "localhost", "127.0.0.1"
# Parts of the grace period after the drain: for the application to stop, and for the sidecar.
AFTER_DRAIN_MS = 15_000
ANSWER_MS = 1_000


@dataclass(frozen=True)
class LocalPaths:
    """Folders and addresses of one runner."""

    # The Python interpreter; its folder comes first on PATH.
    python: Path
    # Address of the coordinator, as rota://HOST:PORT.
    coordinator: str
    # Folder of logs, state and settings.
    home: Path
    # Folder of sockets; its path is short, because socket paths are limited to about 100 bytes.
    sockets: Path
    # Address of the Fleet server, as HOST:PORT; empty: sidecars send no reports.
    fleet: str = ""
    # Address of the web page, as HOST:PORT.
    page: str = "127.0.0.1:7072"
    # Kafka brokers that replace Rota's servers, as HOST:PORT with commas; empty: no replacement.
    kafka: str = ""
    # The user's umask, for applications.
    umask: int = OTHERS

    @property
    def servers(self) -> str:
        """Servers that replace `rota://` addresses: the Kafka brokers of `--kafka`, else the local coordinator."""
        return self.kafka or self.coordinator


def replica_name(workload: Workload, number: int) -> str:
    """Name of a replica, as a StatefulSet names its pods."""
    return f"{workload.name.name}-{number}"


def consuming_container(workload: Workload, group: ConsumerGroup | None) -> Container:
    """The container to run: the one named in `sidecar.container`, else the first."""
    containers = workload.spec.template.spec.containers
    named = "" if group is None else group.spec.sidecar.container
    return next((each for each in containers if each.name == named), containers[0])


def app_command(
    manifests: Manifests, workload: Workload, group: ConsumerGroup | None, number: int, paths: LocalPaths
) -> Command:
    """Command of the application's process."""
    container = consuming_container(workload, group)
    name = replica_name(workload, number)
    environment = _environment(manifests, workload, container, name)
    if group is not None:
        environment["ROTA_SIDECAR"] = f"unix:{app_socket(paths, name)}"
    environment = {key: _with_local_addresses(value, paths) for key, value in environment.items()}
    # Programs installed beside this interpreter take precedence.
    environment["PATH"] = os.pathsep.join(
        [str(paths.python.parent), environment.get("PATH", os.environ.get("PATH", ""))]
    )
    argv = [
        _expand(_with_local_addresses(word, paths), environment)
        for word in (*container.command, *container.args)
    ]
    beside = Path(workload.document.file).parent
    folder = beside / container.working_dir.lstrip("/") if container.working_dir else beside
    grace_s = policy_of(workload, group).grace_ms / 1000
    return Command(argv, environment, folder, log_file(paths, name, "app"), grace_s, umask=paths.umask)


def sidecar_command(
    workload: Workload, group: ConsumerGroup, number: int, paths: LocalPaths, page: str
) -> Command:
    """Command of the sidecar's process; `page` is the address of its HTTP endpoints."""
    name = replica_name(workload, number)
    # With records in Kafka, a rota:// address is that of a coordinator.
    servers = paths.servers if group.spec.speaks_rota else paths.coordinator
    argv = [
        str(paths.python),
        "-m",
        "rota_sidecar",
        *flags_of(group.spec, group.group_id, lambda address: ADDRESS.sub(servers, address)),
        f"--settings={settings_file(paths, group)}",
        f"--listen-socket={app_socket(paths, name)}",
        "--listen=",
        f"--drain-socket={drain_socket(paths, name)}",
        f"--http-listen={page}",
        f"--fleet={paths.fleet}",
        f"--fleet-token-file={token_file(paths, name)}",
        f"--state-folder={paths.home / 'state' / name}",
        f"--client-id={name}",
        # The workload that creates the topics starts at the same time.
        "--topics-refresh-ms=1000",
        "--log-format=json",
        # Replicas have stable names, which serve as group.instance.id.
        *([f"--group-instance-id={name}"] if group.spec.membership.static else []),
    ]
    grace_s = policy_of(workload, group).grace_ms / 1000
    return Command(argv, {}, paths.home, log_file(paths, name, "sidecar"), grace_s, drain_socket(paths, name))


def policy_of(workload: Workload, group: ConsumerGroup | None) -> ReplicaPolicy:
    """Timeouts of a workload's replicas. A group's replicas have time to drain, as the operator gives it to pods."""
    grace_ms = workload.spec.template.spec.termination_grace_period_seconds * 1000
    if group is None:
        return ReplicaPolicy(has_sidecar=False, grace_ms=grace_ms)
    drain_ms = group.spec.sidecar.termination_drain_seconds * 1000
    # The sidecar answers when its own drain time is over: the runner waits a little longer.
    return ReplicaPolicy(grace_ms=max(grace_ms, drain_ms + AFTER_DRAIN_MS), drain_ms=drain_ms + ANSWER_MS)


def settings_file(paths: LocalPaths, group: ConsumerGroup) -> Path:
    """File with the settings of the group's sidecars."""
    return paths.home / "settings" / f"{'.'.join(group.name)}.json"


def app_socket(paths: LocalPaths, replica: str) -> Path:
    """Socket on which the sidecar serves its application."""
    return paths.sockets / f"{replica}.sock"


def drain_socket(paths: LocalPaths, replica: str) -> Path:
    """Socket on which the sidecar accepts drain requests."""
    return paths.sockets / f"{replica}.drain"


def token_file(paths: LocalPaths, replica: str) -> Path:
    """File with the bearer token that authenticates the sidecar to the runner's Fleet."""
    return paths.sockets / f"{replica}.secret"


def log_file(paths: LocalPaths, replica: str, part: str) -> Path:
    """File that receives the output of a process."""
    return paths.home / "logs" / f"{replica}.{part}.log"


def _environment(
    manifests: Manifests, workload: Workload, container: Container, replica: str
) -> dict[str, str]:
    namespace = workload.name.namespace
    found: dict[str, str] = {}
    for source in container.env_from:
        held: Mapping[str, str] = {}
        if source.secret_ref is not None:
            held = _decoded(manifests.secrets.get(NamespacedName(namespace, source.secret_ref.name), {}))
        elif source.config_map_ref is not None:
            held = manifests.config_maps.get(NamespacedName(namespace, source.config_map_ref.name), {})
        found.update({f"{source.prefix}{key}": value for key, value in held.items()})
    for variable in container.env:
        value = _value(manifests, workload, variable, replica)
        if value is not None:
            found[variable.name] = _expand(value, found)
    return found


def _value(manifests: Manifests, workload: Workload, variable: EnvVar, replica: str) -> str | None:
    """Value of a variable; None if its source is optional and missing."""
    source, namespace = variable.value_from, workload.name.namespace
    if source is None:
        return variable.value
    if (key := source.secret_key_ref) is not None:
        return _decoded(manifests.secrets.get(NamespacedName(namespace, key.name), {})).get(key.key)
    if (key := source.config_map_key_ref) is not None:
        return manifests.config_maps.get(NamespacedName(namespace, key.name), {}).get(key.key)
    assert source.field_ref is not None, "a value is in one of three places"
    return _field_value(source.field_ref, namespace, replica)


def _field_value(field: FieldSelector, namespace: str, replica: str) -> str:
    match field.field_path:
        case "metadata.name" | "metadata.uid":
            return replica
        case "metadata.namespace":
            return namespace
        case "spec.nodeName":
            return LOCAL_NODE
        case "status.podIP":
            return LOCAL_ADDRESS


def _decoded(secret: Mapping[str, bytes]) -> Mapping[str, str]:
    return {key: os.fsdecode(value) for key, value in secret.items()}


def _expand(text: str, environment: Mapping[str, str]) -> str:
    """Replace $(NAME) by the variable if it is set; $$(NAME) becomes $(NAME)."""

    def value(found: re.Match[str]) -> str:
        return found[0][1:] if found[1] else environment.get(found[2], found[0])

    return REFERENCE.sub(value, text)


def _with_local_addresses(text: str, paths: LocalPaths) -> str:
    return ADDRESS.sub(paths.servers, text)
