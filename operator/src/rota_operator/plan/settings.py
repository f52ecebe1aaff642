"""
Translates a spec for its sidecars: flags for what is fixed at start, settings for what Fleet may change while they run.

Called for each replica that is started, and when the spec has changed.
"""

from collections.abc import Callable, Sequence

from google.protobuf.json_format import MessageToJson, ParseDict

from rota_operator.spec.model import ROTA, ConsumerGroupSpec
from rota_proto.fleet.v1.settings_pb2 import GroupSettings

ISOLATION = "isolation.level"


def settings_of(spec: ConsumerGroupSpec) -> GroupSettings:
    """Return the settings of the group's sidecars: the fields of the spec that the message has too."""
    given = spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    return ParseDict(given, GroupSettings(), ignore_unknown_fields=True)


def settings_json(spec: ConsumerGroupSpec) -> bytes:
    """Return the content of the sidecars' settings file."""
    return MessageToJson(settings_of(spec)).encode()


def flags_of(
    spec: ConsumerGroupSpec, group_id: str, address_of: Callable[[str], str] = lambda address: address
) -> Sequence[str]:
    """Return the sidecar's flags; `address_of` maps an address in the spec to the real one."""
    servers = ",".join(dict.fromkeys(map(address_of, spec.bootstrap_servers)))
    flags = [f"--group-id={group_id}", f"--bootstrap-servers={servers}"]
    if spec.coordination != "Auto":
        flags.append(f"--coordination={spec.coordination.lower()}")
    if spec.coordinator_address:
        flags.append(f"--coordinator-address={address_of(spec.coordinator_address).removeprefix(ROTA)}")
    if ISOLATION in spec.config:
        flags.append(f"--isolation-level={spec.config[ISOLATION]}")
    flags += [f"--config={key}={value}" for key, value in sorted(spec.config.items()) if key != ISOLATION]
    flags.append(f"--drain-timeout-ms={spec.sidecar.termination_drain_seconds * 1000}")
    if (granularity := spec.monitoring.granularity) != "partition":
        flags.append(f"--metrics-granularity={granularity}")
    return flags
