"""
Translates a spec for its sidecars: flags for what is fixed at start, settings for what Fleet may change while they run.

Called for each replica that is started, and when the spec has changed.
"""

import json
from collections.abc import Callable, Sequence

from rota_operator.spec.model import ROTA, ConsumerGroupSpec

ISOLATION = "isolation.level"
# Of what is told as settings, what somebody else acts on.
SETTINGS_FIELDS = {
    "topics": True,
    "topic_pattern": True,
    "suspend": True,
    "assignment": True,
    "membership": {"rack_topology_key"},
    "offsets": {"reset"},
    "delivery": True,
}


def settings_of(spec: ConsumerGroupSpec) -> bytes:
    """Return the settings file: a subset of the spec as JSON."""
    settings = spec.model_dump(
        mode="json",
        by_alias=True,
        exclude_none=True,
        include=set(SETTINGS_FIELDS),
        exclude={name: left_out for name, left_out in SETTINGS_FIELDS.items() if isinstance(left_out, set)},
    )
    # One of the two is given.
    del settings["topics" if spec.topic_pattern else "topicPattern"]
    return json.dumps(settings, indent=2).encode()


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
    flags.append(f"--drain-timeout-ms={spec.sidecar.termination_drain_seconds * 1000}")
    return flags
